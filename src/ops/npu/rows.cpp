#include "ops/npu/rows.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"

namespace tk::ops {
namespace {

template <typename T, typename F>
void read(const T* p, std::int64_t step, std::int64_t n, float* out, F convert) {
  for (std::int64_t i = 0; i < n; ++i) out[i] = convert(p[i * step]);
}

}  // namespace

void read_row(const TensorView& t, std::int64_t offset, std::int64_t step, std::int64_t n,
              float* out) {
  switch (t.dtype) {
    case DType::f32:
      return read(t.as<float>() + offset, step, n, out, [](float x) { return x; });
    case DType::bf16:
      return read(t.as<bf16>() + offset, step, n, out, [](bf16 x) { return to_float(x); });
    case DType::f16:
      return read(t.as<f16>() + offset, step, n, out, [](f16 x) { return to_float(x); });
    case DType::f64:
      return read(t.as<double>() + offset, step, n, out,
                  [](double x) { return static_cast<float>(x); });
    case DType::i8:
      return read(t.as<std::int8_t>() + offset, step, n, out,
                  [](std::int8_t x) { return static_cast<float>(x); });
    default:
      TK_CHECK(false, "rows of ", name_of(t.dtype));
  }
}

void write_row(const TensorView& t, std::int64_t offset, std::int64_t step, std::int64_t n,
               const float* in) {
  for (std::int64_t i = 0; i < n; ++i) {
    const std::int64_t at = offset + i * step;
    switch (t.dtype) {
      case DType::f32:
        t.as<float>()[at] = in[i];
        break;
      case DType::bf16:
        t.as<bf16>()[at] = to_bf16(in[i]);
        break;
      case DType::f16:
        t.as<f16>()[at] = to_f16(in[i]);
        break;
      case DType::f64:
        t.as<double>()[at] = static_cast<double>(in[i]);
        break;
      case DType::i8:
        t.as<std::int8_t>()[at] =
            static_cast<std::int8_t>(std::clamp(std::nearbyint(in[i]), -128.0F, 127.0F));
        break;
      default:
        TK_CHECK(false, "rows of ", name_of(t.dtype));
    }
  }
}

RowWalk::RowWalk(const TensorView& t, int inner_axes) {
  for (int i = 0; i < t.rank() - inner_axes; ++i) {
    shape_.push_back(t.shape[i]);
    strides_.push_back(t.strides[i]);
    count_ *= t.shape[i];
  }
}

std::int64_t RowWalk::offset(std::int64_t i) const {
  std::int64_t at = 0;
  for (int k = shape_.size() - 1; k >= 0; --k) {
    at += i % shape_[k] * strides_[k];
    i /= shape_[k];
  }
  return at;
}

TensorView broadcast_view(const TensorView& t, const Dims& shape) {
  TensorView v = t;
  const int extra = shape.size() - t.rank();
  TK_CHECK(extra >= 0, t.shape.str(), " to ", shape.str());
  v.shape = shape;
  v.strides = {};
  for (int i = 0; i < shape.size(); ++i) {
    if (i < extra) {
      v.strides.push_back(0);
      continue;
    }
    const std::int64_t size = t.shape[i - extra];
    TK_CHECK(size == shape[i] || size == 1, t.shape.str(), " to ", shape.str());
    v.strides.push_back(size == 1 ? 0 : t.strides[i - extra]);
  }
  return v;
}

bool is_one_of(DType dtype, std::initializer_list<DType> allowed) {
  return std::find(allowed.begin(), allowed.end(), dtype) != allowed.end();
}

std::string dtypes_of(const Args& args, std::initializer_list<int> inputs) {
  std::string s;
  for (int i : inputs)
    if (args.has(i)) s += cat(s.empty() ? "" : ", ", name_of(args.in(i).dtype));
  return s;
}

float sigmoid(float x) { return 1.0F / (1.0F + std::exp(-x)); }
float gelu_erf(float x) { return 0.5F * x * (1.0F + std::erf(x * 0.70710678118654752F)); }
float gelu_tanh(float x) {
  return 0.5F * x * (1.0F + std::tanh(0.79788456080286536F * (x + 0.044715F * x * x * x)));
}

}  // namespace tk::ops
