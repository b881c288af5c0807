// GM-03, GM-65: what is replayed gives the bits of what is bound anew and launched one by one.
#include <gtest/gtest.h>

#include <cstring>

#include "cpu/engine.h"

namespace tk {
namespace {

Tensor numbers(const Dims& shape, int seed) {
  Tensor t = Tensor::empty(DType::f32, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i)
    set_element(t, i, static_cast<double>((i * 7919 + seed) % 113) / 97 - 0.5);
  return t;
}

TEST(capture, equals_its_launches_one_by_one_to_the_bit) {
  const char* text = R"(
graph @f(%x: f32[T, 64]) {
  weight %w: f32[64, 64] "w"
  weight %g: f32[64] "g"
  %0 = aten.linear(%x, %w)
  %1 = aten.mul(%0, %g)
  %2 = aten.silu(%1)
  %3 = aten.linear(%2, %w)
  %4 = aten.add(%3, %x)
  return %4
})";
  const Weights weights{{"w", numbers({64, 64}, 1)}, {"g", numbers({64}, 2)}};
  Team team(2);
  const std::vector<Tensor> input = {numbers({5, 64}, 3)};
  std::vector<Tensor> results;
  for (const bool captured : {true, false}) {
    EngineOptions options;
    options.rebind = options.one_by_one = !captured;
    Engine engine(make_plan(parse_graph(text), weights), {}, &team,
                  std::make_shared<EngineMemory>(), options);
    for (int run = 0; run < 3; ++run) results.push_back(engine.run(input)[0]);
  }
  EXPECT_NE(element(results[0], 0), 0);
  for (const Tensor& other : results)
    EXPECT_EQ(std::memcmp(other.data, results[0].data, static_cast<std::size_t>(other.bytes())), 0);
}

}  // namespace
}  // namespace tk
