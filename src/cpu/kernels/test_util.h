// Shared by the kernels' tests: random tensors of any dtype, running a kernel with a team, and
// comparing with a plain loop in f64.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <random>
#include <string>
#include <thread>
#include <vector>

#include "base/error.h"
#include "base/tensor.h"
#include "cpu/kernels/common.h"

namespace tk::kernels::test {

inline std::mt19937& rng() {
  static std::mt19937 engine(12345);
  return engine;
}

// [numel] in a buffer of the dtype, values in [-1, 1) rounded to it.
inline Tensor random_tensor(DType dtype, const Dims& shape, double scale = 1.0) {
  Tensor t = Tensor::empty(dtype, shape);
  std::uniform_real_distribution<double> u(-scale, scale);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, u(rng()));
  return t;
}
inline Tensor filled(DType dtype, const Dims& shape, double value) {
  Tensor t = Tensor::empty(dtype, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, value);
  return t;
}

// All elements as f64: element() is slow inside a reference's innermost loop.
inline std::vector<double> values(const TensorView& t) {
  std::vector<double> v;
  v.reserve(static_cast<std::size_t>(t.numel()));
  for (std::int64_t i = 0; i < t.numel(); ++i) v.push_back(element(t, i));
  return v;
}

// Unit roundoff of storing in the dtype.
inline double roundoff(DType dtype) {
  if (dtype == DType::bf16) return 1.0 / 256;
  if (dtype == DType::f16) return 1.0 / 2048;
  return 1.0 / (1 << 24);
}

// |got - want| <= relative * |want| + absolute; else a failure at `where...`, which is put together
// then only.
template <class... Where>
void expect_close(double got, double want, double relative, double absolute,
                  const Where&... where) {
  const bool close = std::isnan(want) ? std::isnan(got)
                                      : got == want || std::abs(got - want) <=
                                                           relative * std::abs(want) + absolute;
  if (!close) ADD_FAILURE() << cat(where...) << " got " << got << " want " << want;
}

// Runs kernel(args, thread, n_threads) on real threads.
template <class Args>
void run(void (*kernel)(const Args&, int, int), const Args& args, int n_threads) {
  std::vector<std::thread> others;
  for (int i = 1; i < n_threads; ++i) others.emplace_back([&, i] { kernel(args, i, n_threads); });
  kernel(args, 0, n_threads);
  for (std::thread& t : others) t.join();
}

// f() once per instruction set that is here.
inline void on_each_target(const std::function<void(const std::string&)>& f) {
  const TargetList list = available_targets();
  for (int i = 0; i < list.size; ++i) {
    ASSERT_TRUE(force_target(list.names[i]));
    f(list.names[i]);
    if (::testing::Test::HasFailure()) break;
  }
  force_target(nullptr);
}

inline const DType float_types[] = {DType::f32, DType::bf16, DType::f16};

}  // namespace tk::kernels::test
