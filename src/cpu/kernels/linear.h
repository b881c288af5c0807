// Matrix products with weights as they lie in a checkpoint.
//
//   y[M, N] = f(x[M, K] @ W^T + bias[N]) + residual[M, N]
//
// W is [N, K] (WeightLayout::n_k, nn.Linear) or [K, N] (k_n). Few rows (decode) stream W once, at
// memory bandwidth; many rows (prefill) run a blocked product. With `glu`, W has N = 2F rows, and
// y[M, F] = glu(gate, up).
// Up to 48 rows a row's result is the same whatever the number of rows; above, sums run in another
// order, so last bits may differ from those of few rows.
// Packed weights (WeightLayout::packed, bf16, see pack_weight) are read once whatever the number of
// rows, and a row's result never depends on it.
// x, W, bias, y: any of f32, bf16, f16, each on its own; residual has y's dtype. Sums are f32; with
// x and W both bf16 and AVX512-BF16, products go through vdpbf16ps (denormals count as zero).
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

enum class WeightLayout : std::uint8_t { n_k, k_n, packed };

struct LinearArgs {
  const void* x = nullptr;
  const void* w = nullptr;
  const void* bias = nullptr;      // optional, [N]
  const void* residual = nullptr;  // optional, [M, N or F]; may be y
  void* y = nullptr;
  DType x_dtype = DType::f32, w_dtype = DType::f32, bias_dtype = DType::f32, y_dtype = DType::f32;
  WeightLayout layout = WeightLayout::n_k;
  std::int64_t m = 0, n = 0, k = 0;  // n counts the rows of W, 2F with glu
  std::int64_t x_stride = 0, w_stride = 0, residual_stride = 0, y_stride = 0;  // between rows
  Activation act = Activation::none;                                           // without glu
  bool gated = false;
  Glu glu;
  void* scratch = nullptr;
  // What is streamed from memory next (the next launch's weight), for kernels that could fetch its
  // first lines. Not used: on Zen 5 that made no difference beyond noise.
  const void* next_w = nullptr;
  std::int64_t next_bytes = 0;
};

// y must not overlap x or W.
void linear(const LinearArgs& args, int thread, int n_threads);
std::size_t linear_scratch_bytes(const LinearArgs& args, int n_threads);

// A packed weight takes N * K elements, as before: panels of 32 rows of W, in each the pairs
// (W[n, 2p], W[n, 2p+1]) of its 32 rows side by side, p after p. That is what the dot products of
// AVX512-BF16 and AMX take, and what oneDNN calls BA16a32b2a when K is a multiple of 32.
// N must be a multiple of 32 (64 for a product with gates and ups in halves), K even.
constexpr std::int64_t packed_columns = 32;
inline bool packable(DType dtype, std::int64_t n, std::int64_t k) {
  return dtype == DType::bf16 && n > 0 && k > 0 && n % packed_columns == 0 && k % 2 == 0;
}
// Panels [first, last) of W [n, k] given as n_k or k_n with rows `stride` apart; `packed` is the
// whole of it.
void pack_weight(const bf16* w, WeightLayout layout, std::int64_t k, std::int64_t stride,
                 std::int64_t first, std::int64_t last, bf16* packed);
// The element (row n, place k) of a packed weight [N, K].
inline std::int64_t packed_index(std::int64_t n, std::int64_t k, std::int64_t depth) {
  return (n / packed_columns * depth + k / 2 * 2) * packed_columns + n % packed_columns * 2 + k % 2;
}

// The end of a product whose sums were made elsewhere: bias, gate or activation, residual, into the
// columns `cols` of y, from sums [m, cols] (with halves: of gates, and of ups). The sums are
// changed.
void finish_sums(const LinearArgs& args, Range cols, float* sums, float* up);

// The same per expert: rows [offsets[e], offsets[e+1]) of the sorted pairs use W[e]. Reads each
// active expert's weights once when it has few rows; experts without rows are not read.
struct GroupedLinearArgs {
  LinearArgs linear;  // w, bias: of expert 0; m: pairs in all; w_stride within an expert
  std::int64_t n_experts = 0;
  std::int64_t w_expert_stride = 0, bias_expert_stride = 0;
  const std::int32_t* offsets = nullptr;  // [n_experts + 1], ascending, offsets[E] = m
  // Optional: row i of the pairs reads x[x_rows[i] / x_rows_divisor] (gather fused into the
  // product).
  const std::int32_t* x_rows = nullptr;
  std::int32_t x_rows_divisor = 1;  // top-k, when x_rows holds pair numbers t * k + j
};

// residual and next_w of `linear` are not used.
void grouped_linear(const GroupedLinearArgs& args, int thread, int n_threads);
std::size_t grouped_linear_scratch_bytes(const GroupedLinearArgs& args, int n_threads);

}  // namespace tk::kernels
