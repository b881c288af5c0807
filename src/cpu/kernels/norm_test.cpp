#include "cpu/kernels/norm.h"

#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

struct Case {
  std::int64_t rows, heads, d;
  DType x, w, y;
  bool residual = false, sum = false, weight = true, layer = false;
  float offset = 0.0F;
};

void check(const Case& c, int n_threads, const std::string& target) {
  const std::int64_t row = c.heads * c.d + 3;
  const Tensor x = random_tensor(c.x, {c.rows, row}), r = random_tensor(c.x, {c.rows, row});
  const Tensor w = random_tensor(c.w, {c.d}), b = random_tensor(c.w, {c.d});
  const Tensor s = filled(c.x, {c.rows, row}, 5), y = filled(c.y, {c.rows, row}, 5);
  RmsNormArgs a;
  a.x = x.data, a.dtype = c.x, a.y = y.data, a.y_dtype = c.y;
  a.weight = c.weight ? w.data : nullptr, a.weight_dtype = c.w, a.weight_offset = c.offset;
  a.residual = c.residual ? r.data : nullptr;
  a.sum = c.sum ? s.data : nullptr;
  a.rows = c.rows, a.heads = c.heads, a.d = c.d, a.eps = 1e-5F;
  a.x_stride = a.residual_stride = a.sum_stride = a.y_stride = row;
  a.x_head_stride = a.residual_head_stride = a.sum_head_stride = a.y_head_stride = c.d;
  if (c.layer)
    run(layer_norm, LayerNormArgs{a, b.data}, n_threads);
  else
    run(rms_norm, a, n_threads);

  for (std::int64_t i = 0; i < c.rows; ++i)
    for (std::int64_t h = 0; h < c.heads; ++h) {
      std::vector<double> v;
      for (std::int64_t j = 0; j < c.d; ++j) {
        const std::int64_t at = i * row + h * c.d + j;
        double e = element(x, at) + (c.residual ? element(r, at) : 0);
        if (c.sum) {
          expect_close(element(s, at), e, roundoff(c.x), 1e-7, target, " sum");
          e = element(s, at);
        }
        v.push_back(e);
      }
      double mean = 0, square = 0;
      for (double e : v) mean += e / static_cast<double>(c.d);
      if (!c.layer) mean = 0;
      for (double e : v) square += (e - mean) * (e - mean) / static_cast<double>(c.d);
      for (std::int64_t j = 0; j < c.d; ++j) {
        double want = (v[static_cast<std::size_t>(j)] - mean) / std::sqrt(square + 1e-5);
        if (c.weight) want *= element(w, j) + c.offset;
        if (c.layer) want += element(b, j);
        expect_close(element(y, i * row + h * c.d + j), want, roundoff(c.y) + 2e-6, 1e-6, target,
                     " d ", c.d, " at ", i, ",", h, ",", j);
        if (::testing::Test::HasFailure()) return;
      }
    }
  EXPECT_EQ(element(y, row - 1), 5) << "wrote past the row";
}

TEST(norm, rms_and_layer) {
  on_each_target([](const std::string& target) {
    for (bool layer : {false, true})
      for (DType x : float_types)
        for (DType w : {DType::f32, DType::bf16})
          for (std::int64_t d : {1, 7, 16, 33, 64, 130, 576}) {
            check({3, 1, d, x, w, x, false, false, true, layer}, 2, target);
            check({2, 3, d, x, w, DType::f32, true, true, true, layer, 1.0F}, 3, target);
            check({2, 1, d, x, w, x, true, false, false, layer}, 1, target);
          }
  });
}

TEST(norm, in_place_with_sum_over_residual) {
  const Tensor x = random_tensor(DType::bf16, {4, 40}), r = random_tensor(DType::bf16, {4, 40});
  const Tensor x0 = to_dtype(x, DType::f32), r0 = to_dtype(r, DType::f32);
  RmsNormArgs a;
  a.x = x.data, a.y = x.data, a.residual = r.data, a.sum = r.data;
  a.dtype = a.y_dtype = DType::bf16;
  a.rows = 4, a.d = 40;
  a.x_stride = a.residual_stride = a.sum_stride = a.y_stride = 40;
  run(rms_norm, a, 2);
  for (std::int64_t i = 0; i < 160; ++i)
    expect_close(element(r, i), element(x0, i) + element(r0, i), roundoff(DType::bf16), 1e-7,
                 "sum");
}

}  // namespace
}  // namespace tk::kernels::test
