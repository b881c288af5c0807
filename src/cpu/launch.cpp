#include "cpu/launch.h"

#include <algorithm>
#include <chrono>
#include <cstdlib>
#include <cstring>

namespace tk {
namespace {

std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(
             std::chrono::steady_clock::now().time_since_epoch())
      .count();
}

}  // namespace

void* ArgsStore::get(std::size_t bytes) {
  constexpr std::size_t chunk = 64 << 10;
  bytes = (bytes + 63) / 64 * 64;
  if (bytes > left_) {
    const std::size_t size = std::max(chunk, bytes) + 64;
    chunks_.push_back(std::make_unique<std::byte[]>(size));
    next_ = chunks_.back().get();
    next_ += (64 - reinterpret_cast<std::uintptr_t>(next_) % 64) % 64;
    left_ = size - 64;
  }
  void* p = next_;
  next_ += bytes;
  left_ -= bytes;
  return p;
}

void Arena::Free::operator()(std::byte* p) const { std::free(p); }

std::byte* Arena::reserve(std::int64_t bytes) {
  if (bytes <= size_ && data_ != nullptr) return data_.get();
  // Some room, so that prompts of slowly growing length do not move it every time.
  const std::int64_t size = (bytes + bytes / 4 + 4095) / 4096 * 4096;
  data_.reset();
  size_ = 0;
  void* p = std::aligned_alloc(4096, static_cast<std::size_t>(std::max<std::int64_t>(size, 4096)));
  if (p == nullptr)
    throw UserError("TK0500", cat("no memory for ", size >> 20, " MiB of intermediate results"))
        .help("fewer tokens per prefill run need less");
  data_.reset(static_cast<std::byte*>(p));
  size_ = size;
  ++generation_;
  return data_.get();
}

void LaunchList::set_scratch(std::byte* scratch) {
  for (const ScratchSlot& s : scratch_slots) {
    std::byte* p = scratch + s.offset;
    std::memcpy(s.pointer, &p, sizeof p);
  }
}

void LaunchList::set_barriers() {
  for (std::size_t i = 0; i < launches.size(); ++i)
    launches[i].barrier =
        !launches[i].serial || (i + 1 < launches.size() && !launches[i + 1].serial);
}

Replay::Replay(Team* team) : team_(team), work_([this](int thread) { work(thread); }) {}

void Replay::run(std::span<const Launch> launches, LaunchTimes* times) {
  launches_ = launches;
  times_ = times;
  if (times != nullptr)
    TK_CHECK(times->start.size() >= launches.size() && times->end.size() >= launches.size(),
             "room for the times");
  failed_.store(false, std::memory_order_relaxed);
  team_->run(work_);
  if (error_ != nullptr) std::rethrow_exception(std::exchange(error_, nullptr));
}

void Replay::work(int thread) {
  const int n = team_->size();
  LaunchTimes* const times = thread == 0 ? times_ : nullptr;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    const Launch& l = launches_[i];
    if (times != nullptr) times->start[i] = now_ns();
    // A failure is seen by all at the barrier before the next launch that is not serial; the
    // barriers are kept to the end, so that nobody waits for a thread that has gone.
    if (l.serial) {
      if (thread == 0 && error_ == nullptr) try {
          l.fn(l.args, 0, 1);
        } catch (...) {
          error_ = std::current_exception();
          failed_.store(true, std::memory_order_relaxed);
        }
    } else if (!failed_.load(std::memory_order_relaxed)) {
      l.fn(l.args, thread, n);
    }
    if (l.barrier) team_->barrier().wait();
    if (times != nullptr) times->end[i] = now_ns();
  }
}

}  // namespace tk
