#include "base/threads.h"

#if defined(__x86_64__)
#include <immintrin.h>
#endif

namespace tk {
namespace {

void pause_cpu() {
#if defined(__x86_64__)
  _mm_pause();
#endif
}

// Waits until *word differs from `old`: spin, yield, then futex (std::atomic::wait).
void wait_change(const std::atomic<std::uint32_t>& word, std::uint32_t old) {
  constexpr int spins = 4000;
  constexpr int yields = 50;
  for (int i = 0; i < spins; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    pause_cpu();
  }
  for (int i = 0; i < yields; ++i) {
    if (word.load(std::memory_order_acquire) != old) return;
    std::this_thread::yield();
  }
  while (word.load(std::memory_order_acquire) == old) word.wait(old, std::memory_order_acquire);
}

}  // namespace

void Barrier::wait() {
  if (n_ == 1) return;
  const std::uint32_t phase = phase_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) == n_ - 1) {
    arrived_.store(0, std::memory_order_relaxed);
    phase_.store(phase + 1, std::memory_order_release);
    phase_.notify_all();
  } else {
    wait_change(phase_, phase);
  }
}

Team::Team(int n_threads) : n_(n_threads), barrier_(n_threads), done_(n_threads) {
  try {
    for (int i = 1; i < n_; ++i) workers_.emplace_back([this, i] { work(i); });
  } catch (...) {  // the system gives no more threads
    stop();
    throw;
  }
}

Team::~Team() { stop(); }

void Team::stop() {
  stop_.store(true, std::memory_order_relaxed);
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  for (auto& w : workers_) w.join();
}

void Team::work(int thread) {
  std::uint32_t seen = 0;
  for (;;) {
    wait_change(generation_, seen);
    seen = generation_.load(std::memory_order_acquire);
    if (stop_.load(std::memory_order_relaxed)) return;
    (*job_)(thread);
    done_.wait();
  }
}

void Team::run(const std::function<void(int)>& f) {
  job_ = &f;
  generation_.fetch_add(1, std::memory_order_release);
  generation_.notify_all();
  f(0);
  done_.wait();
}

}  // namespace tk
