// The k largest of a row by insertion: k is small (experts, sampling), rows are many or few
// thousand long. Scalar: the common case is one comparison with the smallest kept.
#include "cpu/kernels/elementwise.h"

namespace tk::kernels {
namespace {

float read(DType dtype, const void* p, std::int64_t i) {
  if (dtype == DType::bf16) return to_float(static_cast<const bf16*>(p)[i]);
  if (dtype == DType::f16) return to_float(static_cast<const f16*>(p)[i]);
  return static_cast<const float*>(p)[i];
}
void write(DType dtype, void* p, std::int64_t i, float v) {
  if (dtype == DType::bf16)
    static_cast<bf16*>(p)[i] = to_bf16(v);
  else if (dtype == DType::f16)
    static_cast<f16*>(p)[i] = to_f16(v);
  else
    static_cast<float*>(p)[i] = v;
}
bool larger(float a, float b) { return a > b || (a != a && b == b); }

}  // namespace

void top_k(const TopKArgs& a, int thread, int n_threads) {
  const Range part = share(a.rows, 1, thread, n_threads);
  for (std::int64_t r = part.begin; r < part.end; ++r) {
    std::int32_t* index = a.index + r * a.index_stride;
    const std::int64_t x0 = r * a.x.stride;
    std::int64_t kept = 0;
    for (std::int64_t c = 0; c < a.cols; ++c) {
      const float v = read(a.x.dtype, a.x.data, x0 + c);
      if (kept == a.k && !larger(v, read(a.x.dtype, a.x.data, x0 + index[kept - 1]))) continue;
      std::int64_t at = kept < a.k ? kept++ : kept - 1;
      for (; at > 0 && larger(v, read(a.x.dtype, a.x.data, x0 + index[at - 1])); --at)
        index[at] = index[at - 1];
      index[at] = static_cast<std::int32_t>(c);
    }
    for (std::int64_t j = 0; a.values.data != nullptr && j < a.k; ++j)
      write(a.values.dtype, a.values.data, r * a.values.stride + j,
            read(a.x.dtype, a.x.data, x0 + index[j]));
  }
}

}  // namespace tk::kernels
