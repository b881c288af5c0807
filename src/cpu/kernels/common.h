// What all kernels share.
//
// A kernel is `void kernel(const XxxArgs&, int thread, int n_threads)`: every thread of a team
// calls it with the same args, does its own share, and the result is complete when all have
// returned; the caller puts a barrier after it. A kernel never allocates, locks or calls the
// system, and checks nothing: shapes and dtypes have been checked when the launch was prepared
// (xxx_supported or the comment of the args says what is allowed). Scratch memory is lent through
// args; where a kernel needs some, xxx_scratch_bytes says how much, and it is 64-byte aligned.
//
// Strides count elements, never bytes. The innermost axis is contiguous. Arithmetic is in f32,
// whatever the storage. Results do not depend on the number of threads, and a row's result does not
// depend on the other rows of the batch, unless a header says otherwise.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "base/dtype.h"

namespace tk::kernels {

struct Range {
  std::int64_t begin, end;
};

// The share of `thread` of n units, cut at multiples of `grain`; shares differ by one grain at
// most.
inline Range share(std::int64_t n, std::int64_t grain, int thread, int n_threads) {
  const std::int64_t grains = (n + grain - 1) / grain;
  const std::int64_t begin = grains * thread / n_threads * grain;
  const std::int64_t end = grains * (thread + 1) / n_threads * grain;
  return {std::min(begin, n), std::min(end, n)};
}

// Functions of one value, and the gate functions of gated linear units.
enum class Activation : std::uint8_t {
  none,
  silu,        // x * sigmoid(x)
  gelu_tanh,   // 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3)))
  gelu_erf,    // 0.5 x (1 + erf(x / sqrt(2)))
  gelu_quick,  // x * sigmoid(1.702 x)
  relu,
  relu2,  // max(x, 0)^2
  sigmoid,
  tanh,
};

// How gate and up lie in a merged axis of 2F: [gate F | up F], or g0 u0 g1 u1 ...
enum class GluLayout : std::uint8_t { halves, interleaved };

// y = act(gate) * up. With clamped: gate = min(gate, limit), up = clamp(up, -limit, limit),
// y = (up + up_offset) * gate * sigmoid(alpha * gate), and `act` is not used.
struct Glu {
  Activation act = Activation::silu;
  GluLayout layout = GluLayout::halves;
  bool clamped = false;
  float limit = 7.0F, alpha = 1.702F, up_offset = 1.0F;
};

// The instruction sets that kernels were compiled for and this machine has, best first, by name
// ("AVX3_BF16", "AVX3", "AVX2", "SCALAR").
struct TargetList {
  const char* names[4];
  int size;
};
TargetList available_targets();
// For tests: confines dispatch to one of available_targets (nullptr: all again). False: unknown.
bool force_target(const char* name);
const char* best_target();

}  // namespace tk::kernels
