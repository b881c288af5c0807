// A fixed team of threads that run the same function together, with a barrier of their own.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

namespace tk {

// Sense-reversing barrier: spins briefly, then yields, then sleeps, so that a busy neighbour on
// the core is not starved by waiting threads.
class Barrier {
 public:
  explicit Barrier(int n) : n_(n) {}
  void wait();

 private:
  const int n_;
  std::atomic<int> arrived_{0};
  std::atomic<std::uint32_t> phase_{0};
};

// run(f) calls f(thread) on every thread of the team, the caller being thread 0, and returns when
// all have ended. f must not throw. Between runs the workers sleep on a futex after a short spin.
class Team {
 public:
  explicit Team(int n_threads);  // std::system_error where the system refuses so many
  ~Team();
  Team(const Team&) = delete;
  Team& operator=(const Team&) = delete;

  int size() const { return n_; }
  Barrier& barrier() { return barrier_; }
  void run(const std::function<void(int)>& f);

 private:
  void work(int thread);
  void stop();
  const int n_;
  Barrier barrier_, done_;
  std::atomic<std::uint32_t> generation_{0};
  std::atomic<bool> stop_{false};
  const std::function<void(int)>* job_ = nullptr;
  std::vector<std::thread> workers_;
};

}  // namespace tk
