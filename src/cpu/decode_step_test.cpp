// What a decode step costs beside its launches: no allocation and no system call.
#include <gtest/gtest.h>
#include <linux/filter.h>
#include <linux/seccomp.h>
#include <sys/prctl.h>
#include <sys/syscall.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <cstddef>
#include <cstdlib>
#include <iterator>
#include <new>

#include "cpu/sampling.h"
#include "cpu/toy_model.h"

namespace {
std::atomic<std::int64_t> n_allocations{0};

void* counted(std::size_t bytes, std::size_t alignment) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  void* const p = std::aligned_alloc(alignment, (bytes + alignment) / alignment * alignment);
  if (p == nullptr) throw std::bad_alloc();
  return p;
}
}  // namespace

// Those that are not here call these. Inlined, new and delete would seem mismatched to GCC.
[[gnu::noinline]] void* operator new(std::size_t n) {
  return counted(n, alignof(std::max_align_t));
}
[[gnu::noinline]] void* operator new(std::size_t n, std::align_val_t a) {
  return counted(n, static_cast<std::size_t>(a));
}
[[gnu::noinline]] void operator delete(void* p) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::align_val_t) noexcept { std::free(p); }
[[gnu::noinline]] void operator delete(void* p, std::size_t, std::align_val_t) noexcept {
  std::free(p);
}

namespace tk {
namespace {

// Decodes two sequences by greedy sampling; a block holds all that is decoded.
class Decoding {
 public:
  explicit Decoding(int threads) : runner_(toy::model("bf16", 64), options(threads)) {
    for (std::size_t i = 0; i < 2; ++i) {
      const SeqId seq = runner_.open();
      const std::vector<std::int64_t> prompt = {3, 1, 4, static_cast<std::int64_t>(i)};
      const Piece piece{seq, prompt};
      runner_.run({&piece, 1}, Phase::prefill);
      pieces_[i] = {seq, {&tokens_[i], 1}};
    }
  }
  void step() {
    const Logits& logits = runner_.run(pieces_, Phase::decode);
    for (std::size_t i = 0; i < 2; ++i)
      tokens_[i] = sampler_.sample(logits.row(static_cast<std::int64_t>(i)), {}, 0);
  }

 private:
  static RunnerOptions options(int threads) {
    RunnerOptions o;
    o.threads = threads;
    o.n_blocks = 8;
    o.max_batch = 2;
    return o;
  }
  Runner runner_;
  Sampler sampler_;
  std::int64_t tokens_[2] = {5, 6};
  Piece pieces_[2];
};

TEST(decode_step, allocates_nothing) {
  for (const int threads : {1, 2}) {
    Decoding d(threads);
    d.step();
    d.step();
    const std::int64_t before = n_allocations;
    for (int i = 0; i < 20; ++i) d.step();
    EXPECT_EQ(n_allocations - before, 0) << threads << " threads";
  }
}

// From here on the kernel ends this process when it is called for anything but its end, or for the
// time, on machines where that takes a call. False: not to be had here.
bool forbid_system_calls() {
  sock_filter program[] = {
      BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(seccomp_data, nr)),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_exit, 2, 0),
      BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_clock_gettime, 1, 0),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_KILL_PROCESS),
      BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
  };
  const sock_fprog filter{std::size(program), program};
  return ::prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0 &&
         ::prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &filter) == 0;
}

TEST(decode_step, makes_no_system_call) {
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    Decoding d(1);
    d.step();
    d.step();
    if (!forbid_system_calls()) ::_exit(77);
    for (int i = 0; i < 20; ++i) d.step();
    ::syscall(SYS_exit, 0);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  if (WIFEXITED(status) && WEXITSTATUS(status) == 77) GTEST_SKIP() << "no seccomp here";
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << "status " << status;
}

}  // namespace
}  // namespace tk
