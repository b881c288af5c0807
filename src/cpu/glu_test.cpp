// Products with a gated unit in one, by kernels: equal to the reference, whatever the dtype, the
// number of rows and the unit; and none falls back to the reference.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "cpu/engine.h"

namespace tk {
namespace {

std::string with_dtype(std::string text, const std::string& dtype) {
  for (std::size_t i; (i = text.find("F[")) != std::string::npos;) text.replace(i, 1, dtype);
  return text;
}

void check(const std::string& text, std::int64_t tokens, const std::vector<std::int64_t>& counts) {
  const Graph types = parse_graph(text);
  std::mt19937 random(3);
  std::normal_distribution<double> normal(0, 0.5);
  auto filled = [&](const Type& type) {
    Tensor t = Tensor::empty(type.dtype, concrete(type.shape, {{"T", tokens}}));
    for (std::int64_t i = 0; i < t.numel(); ++i)
      set_element(t, i,
                  is_float(type.dtype) ? normal(random)
                                       : static_cast<double>(counts[static_cast<std::size_t>(i)]));
    return t;
  };
  Weights weights;
  for (const auto& w : types.weights()) weights[w->name] = filled(w->type);
  std::vector<Tensor> inputs;
  for (const auto& v : types.inputs()) inputs.push_back(filled(v->type));
  Team team(2);
  std::vector<Tensor> outputs[2];
  for (const int reference : {0, 1}) {
    EngineOptions options;
    std::vector<std::string> passed_over;
    options.prepare.reference_only = reference != 0;
    options.prepare.passed_over = &passed_over;
    Engine engine(make_plan(parse_graph(text), weights), {}, &team,
                  std::make_shared<EngineMemory>(), options);
    outputs[reference] = engine.run(inputs);
    if (reference == 0) {
      EXPECT_TRUE(passed_over.empty()) << passed_over[0];
    }
  }
  const Tensor& is = outputs[0][0];
  const Tensor& was = outputs[1][0];
  ASSERT_EQ(is.shape, was.shape);
  double size = 1e-3;
  for (std::int64_t i = 0; i < was.numel(); ++i) size = std::max(size, std::fabs(element(was, i)));
  const double tolerance = is.dtype == DType::f32 ? 1e-5 : 1e-2;
  for (std::int64_t i = 0; i < was.numel(); ++i)
    ASSERT_NEAR(element(is, i), element(was, i), tolerance * size) << i << "\n" << text;
}

constexpr const char* units[] = {"", "{act=\"gelu_tanh\"}", "{act=\"gelu\"}",
                                 "{act=\"clipped\", interleaved=true, limit=0.5}",
                                 "{interleaved=true}"};

TEST(LinearGlu, KernelsEqualTheReference) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* unit : units)
      for (const std::int64_t tokens : {1, 7, 40})
        check(with_dtype(cat(R"(
graph @f(%x: F[T, 24]) {
  weight %w: F[40, 24] "w"
  weight %b: F[40] "b"
  %0 = tk.linear_glu(%x, %w, %b) )",
                             unit, R"(
  return %0
})"),
                         dtype),
              tokens, {});
}

TEST(GroupedLinearGlu, KernelsEqualTheReference) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* unit : units)
      for (const bool transposed : {false, true})
        check(with_dtype(cat(R"(
graph @f(%x: F[T, 24], %n: i64[3]) {
  weight %w: F)",
                             transposed ? "[3, 40, 24]" : "[3, 24, 40]", R"( "w"
  weight %b: F[3, 40] "b"
)",
                             transposed ? "  %v = aten.permute(%w) {dims=[0, 2, 1]}\n" : "",
                             "  %0 = tk.grouped_linear_glu(%x, ", transposed ? "%v" : "%w",
                             ", %b, %n) ", unit, R"(
  return %0
})"),
                         dtype),
              9, {4, 0, 5});  // an expert without rows
}

}  // namespace
}  // namespace tk
