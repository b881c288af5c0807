// The launch list: what a bound plan becomes for this machine, replayed by a team in lockstep.
#pragma once

#include <cstddef>
#include <cstdint>
#include <exception>
#include <memory>
#include <span>
#include <vector>

#include "base/error.h"
#include "base/threads.h"
#include "graph/graph.h"

namespace tk {

struct Launch {
  void (*fn)(const void* args, int thread, int n_threads) = nullptr;
  const void* args = nullptr;
  const Node* node = nullptr;
  const char* kernel = "";  // "linear", "reference"
  std::int64_t bytes = 0;   // that it moves, as far as known beforehand
  // Further bytes that depend on the contents of inputs, as cached keys do; asked for after a run.
  std::int64_t (*live_bytes)(const void* args) = nullptr;
  bool serial = false;  // thread 0 runs it alone, as (args, 0, 1); only such launches may throw
  bool barrier = true;  // the team meets after it
};

// Memory for the args of launches: addresses stay, nothing is destroyed.
class ArgsStore {
 public:
  void* get(std::size_t bytes);  // 64-byte aligned, zeroed

 private:
  std::vector<std::unique_ptr<std::byte[]>> chunks_;
  std::byte* next_ = nullptr;
  std::size_t left_ = 0;
};

// Memory that grows by moving; its contents are lost then.
class Arena {
 public:
  // At least `bytes`, 64-byte aligned. Throws TK0500.
  std::byte* reserve(std::int64_t bytes);
  std::byte* data() const { return data_.get(); }
  std::int64_t size() const { return size_; }
  std::uint64_t generation() const { return generation_; }  // changes when it has moved

 private:
  struct Free {
    void operator()(std::byte* p) const;
  };
  std::unique_ptr<std::byte, Free> data_;
  std::int64_t size_ = 0;
  std::uint64_t generation_ = 0;
};

struct LaunchList {
  std::vector<Launch> launches;
  ArgsStore store;

  // Pointers in args that lead into the scratch memory, which is shared by all lists.
  struct ScratchSlot {
    void* pointer;  // to the pointer
    std::int64_t offset;
  };
  std::vector<ScratchSlot> scratch_slots;
  std::int64_t scratch_bytes = 0;

  // Where launches that stream a weight want to know what is streamed next.
  struct Stream {
    const void** next;
    std::int64_t* bytes;
  };
  std::vector<Stream> streams;

  void set_scratch(std::byte* scratch);
  void set_barriers();  // none between two serial launches
};

// When each launch of a run started and ended, in ns of the steady clock, as thread 0 saw it. The
// end is after the barrier, so a launch's time is that of its slowest thread. A launch without a
// barrier after it ends when thread 0 has run it.
struct LaunchTimes {
  std::vector<std::int64_t> start, end;
};

// Runs a launch list with a team. Neither allocates nor calls the system; with `times` (sized for
// the list beforehand) the clock is read twice a launch. Rethrows what a serial launch threw; the
// launches after it are skipped then.
class Replay {
 public:
  explicit Replay(Team* team);
  void run(std::span<const Launch> launches, LaunchTimes* times = nullptr);

 private:
  void work(int thread);
  Team* team_;
  std::span<const Launch> launches_;
  LaunchTimes* times_ = nullptr;
  std::exception_ptr error_;
  std::atomic<bool> failed_{false};
  std::function<void(int)> work_;
};

}  // namespace tk
