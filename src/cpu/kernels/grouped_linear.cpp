// Experts: the same product with another weight for each run of rows.
#include "cpu/kernels/linear_impl.h"

namespace tk::kernels {

std::size_t grouped_linear_scratch_bytes(const GroupedLinearArgs& a, int n_threads) {
  return linear_scratch_bytes(a.linear, n_threads);
}

// Each thread takes the same columns of every expert: balanced whatever the routing, and each
// weight is read by one thread only.
void grouped_linear(const GroupedLinearArgs& a, int thread, int n_threads) {
  const LinearArgs& l = a.linear;
  const PanelScratch scratch = panel_scratch(l, thread);
  const Range cols = share(
      output_columns(l), l.layout == WeightLayout::packed ? column_grain(l) : 8, thread, n_threads);
  if (cols.begin == cols.end) return;
  LinearArgs expert = l;
  expert.residual = nullptr;
  for (std::int64_t e = 0; e < a.n_experts; ++e) {
    const std::int64_t first = a.offsets[e], count = a.offsets[e + 1] - first;
    if (count == 0) continue;
    expert.w = static_cast<const char*>(l.w) +
               e * a.w_expert_stride * static_cast<std::int64_t>(size_of(l.w_dtype));
    if (l.bias != nullptr)
      expert.bias = static_cast<const char*>(l.bias) +
                    e * a.bias_expert_stride * static_cast<std::int64_t>(size_of(l.bias_dtype));
    product(expert, {first, count, a.x_rows, a.x_rows_divisor}, cols, scratch);
  }
}

}  // namespace tk::kernels
