// Independent matrix products: heads, or the members of a batch. Threads share the members.
#pragma once

#include "cpu/kernels/linear.h"

namespace tk {

struct BatchedLinearArgs {
  kernels::LinearArgs first;                        // of member 0; without bias and residual
  std::int64_t n = 0;                               // members
  std::int64_t x_step = 0, w_step = 0, y_step = 0;  // bytes from one member to the next
  std::int64_t scratch_step = 0;                    // bytes of scratch of one thread
};

inline void batched_linear(const BatchedLinearArgs& a, int thread, int n_threads) {
  const kernels::Range r = kernels::share(a.n, 1, thread, n_threads);
  for (std::int64_t i = r.begin; i < r.end; ++i) {
    kernels::LinearArgs one = a.first;
    one.x = static_cast<const std::byte*>(one.x) + i * a.x_step;
    one.w = static_cast<const std::byte*>(one.w) + i * a.w_step;
    one.y = static_cast<std::byte*>(one.y) + i * a.y_step;
    if (one.scratch != nullptr)
      one.scratch = static_cast<std::byte*>(one.scratch) + thread * a.scratch_step;
    kernels::linear(one, 0, 1);
  }
}

// Fills scratch_step and returns the scratch that n_threads need.
inline std::size_t batched_scratch_bytes(BatchedLinearArgs* a, int n_threads) {
  const std::size_t each = (kernels::linear_scratch_bytes(a->first, 1) + 63) / 64 * 64;
  a->scratch_step = static_cast<std::int64_t>(each);
  return each * static_cast<std::size_t>(n_threads);
}

}  // namespace tk
