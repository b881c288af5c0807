// Attention over a dense cache, and writes into it, equal the references.
#include <gtest/gtest.h>

#include <cmath>
#include <random>

#include "base/error.h"
#include "cpu/engine.h"
#include "ops/interpret.h"

namespace tk {
namespace {

std::mt19937 generator(7);

Tensor floats(DType dtype, const Dims& shape) {
  Tensor t = Tensor::empty(dtype, shape);
  std::normal_distribution<double> d(0, 1);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, d(generator));
  return t;
}

std::vector<Tensor> run(const Graph& graph, const std::vector<Tensor>& inputs,
                        std::vector<Tensor> states, int threads) {
  Team team(threads);
  Engine engine(make_plan(graph.clone(), {}), std::move(states), &team,
                std::make_shared<EngineMemory>());
  return engine.run(inputs);
}

void expect_near(const Tensor& got, const Tensor& want, double tolerance) {
  ASSERT_EQ(got.shape, want.shape);
  for (std::int64_t i = 0; i < got.numel(); ++i)
    ASSERT_NEAR(element(got, i), element(want, i), tolerance) << "at " << i;
}

// (query i of sequence b may see key j) as bool or as what is added to the scores.
template <typename See>
Tensor mask_of(DType dtype, const Dims& shape, See see) {
  Tensor m = Tensor::empty(dtype, shape);
  std::int64_t at = 0;
  for (std::int64_t b = 0; b < shape[0]; ++b)
    for (std::int64_t h = 0; h < shape[1]; ++h)
      for (std::int64_t i = 0; i < shape[2]; ++i)
        for (std::int64_t j = 0; j < shape[3]; ++j)
          set_element(m, at++,
                      dtype == DType::boolean ? (see(b, i, j) ? 1.0 : 0.0)
                                              : (see(b, i, j) ? 0.0 : -INFINITY));
  return m;
}

struct Case {
  const char* name;
  std::string text;
  Dims mask;
  bool (*see)(std::int64_t b, std::int64_t i, std::int64_t j);
};

const Case cases[] = {
    {"prompt", "{scale=0.25}", {1, 1, 6, 40}, [](auto, auto i, auto j) { return j <= i; }},
    {"later", "{scale=0.25}", {1, 1, 6, 40}, [](auto, auto i, auto j) { return j <= i + 20; }},
    {"lengths",
     "{scale=0.25, softcap=3.0}",
     {2, 1, 6, 40},
     [](auto b, auto i, auto j) { return j <= i + 5 * b; }},
    {"padding",
     "{scale=0.25}",
     {2, 1, 6, 40},
     [](auto b, auto i, auto j) { return j <= i + 9 && j >= 3 * b; }},
    {"window",
     "{scale=0.25, softcap=3.0}",
     {1, 1, 6, 40},
     [](auto, auto i, auto j) { return j <= i + 20 && j > i + 16; }},
    {"scale of 0",
     "{scale=0.0}",
     {2, 1, 6, 40},
     [](auto b, auto i, auto j) { return j <= i + 9 && j >= 3 * b; }},
    {"scale below 0",
     "{scale=-0.25, softcap=3.0}",
     {1, 1, 6, 40},
     [](auto, auto i, auto j) { return j <= i + 20 && j > i + 16; }},
    {"all", "{scale=0.25}", {1, 1, 1, 40}, [](auto, auto, auto) { return true; }},
    {"heads", "{scale=0.25}", {2, 4, 6, 40}, [](auto, auto i, auto j) { return j <= i + 2; }},
};

TEST(DenseAttention, EqualsTheReferenceWhateverTheMask) {
  for (const Case& c : cases)
    for (const DType mask_type : {DType::boolean, DType::f32})
      for (const DType dtype : {DType::f32, DType::bf16})
        for (const int threads : {1, 2}) {
          const auto type = std::string(name_of(dtype));
          const Graph graph = parse_graph(cat(
              "graph @main(%q: ", type, "[2, 4, 6, 16], %k: ", type, "[2, 2, 40, 16], %v: ", type,
              "[2, 2, 40, 8], %m: ", name_of(mask_type), c.mask.str(),
              ") {\n  %0 = tk.attention(%q, %k, %v, %m) ", c.text, "\n  return %0\n}\n"));
          const std::vector<Tensor> inputs = {
              floats(dtype, {2, 4, 6, 16}), floats(dtype, {2, 2, 40, 16}),
              floats(dtype, {2, 2, 40, 8}), mask_of(mask_type, c.mask, c.see)};
          SCOPED_TRACE(cat(c.name, " ", type, " ", name_of(mask_type), " ", threads));
          expect_near(run(graph, inputs, {}, threads)[0], interpret(graph, inputs, {})[0],
                      dtype == DType::f32 ? 1e-5 : 0.02);
        }
}

// Padding on the left of each sequence, windows, rows that see nothing or all, and keys hidden at
// random: what the paged kernel takes over must be what the plain loops would have done.
TEST(DenseAttention, EqualsTheReferenceForDrawnMasks) {
  std::mt19937 random(7);
  const auto draw = [&](unsigned n) { return static_cast<std::int64_t>(random() % n); };
  for (int round = 0; round < 150; ++round) {
    const std::int64_t queries = round % 3 == 0 ? 1 : 1 + draw(12);
    constexpr std::int64_t keys = 24;
    const std::int64_t window = draw(3) == 0 ? 2 + draw(10) : keys + 1;
    const std::int64_t past[] = {draw(keys - 11), draw(keys - 11), draw(keys - 11)};
    const std::int64_t pad[] = {draw(8), draw(8), draw(2)};
    const bool lone_rows_see_all = draw(2) == 0;
    const std::int64_t flip = draw(4) == 0 ? draw(3 * 12 * keys) : -1;
    const auto see = [&](auto b, auto i, auto j) {
      const std::int64_t position = past[b] + i;
      bool seen = j <= position && j > position - window && j >= pad[b];
      if (position < pad[b]) seen = lone_rows_see_all;
      return seen != ((b * 12 + i) * keys + j == flip);
    };
    const DType dtype = draw(2) == 0 ? DType::f32 : DType::bf16;
    const auto type = std::string(name_of(dtype));
    const Dims mask{3, 1, queries, keys};
    // Two layers with one mask, the second with keys of another form.
    const Graph graph = parse_graph(
        cat("graph @main(%q: ", type, "[3, 4, ", queries, ", 16], %k: ", type,
            "[3, 2, 24, 16], %v: ", type, "[3, 2, 24, 8], %l: ", type, "[3, 1, 24, 16], %m: bool",
            mask.str(), ") {\n  %0 = tk.attention(%q, %k, %v, %m) {scale=0.25}\n",
            "  %1 = tk.attention(%q, %l, %l, %m) {scale=0.25}\n  return %0, %1\n}\n"));
    const std::vector<Tensor> inputs = {
        floats(dtype, {3, 4, queries, 16}), floats(dtype, {3, 2, keys, 16}),
        floats(dtype, {3, 2, keys, 8}), floats(dtype, {3, 1, keys, 16}),
        mask_of(DType::boolean, mask, see)};
    SCOPED_TRACE(cat("round ", round, " ", type, " window ", window, " flip ", flip));
    const auto got = run(graph, inputs, {}, 1 + round % 2);
    const auto want = interpret(graph, inputs, {});
    for (int i = 0; i < 2; ++i) expect_near(got[i], want[i], dtype == DType::f32 ? 1e-5 : 0.02);
  }
}

TEST(DenseAttention, WithoutAMaskWithSinksAndForOneToken) {
  for (const char* attrs : {"{scale=0.5}", "{scale=0.5, causal=true}", "{scale=0.0, causal=true}",
                            "{scale=-0.5, causal=true}"})
    for (const char* queries : {"1", "5", "12"}) {
      const Graph graph =
          parse_graph(cat("graph @main(%q: f32[3, 4, ", queries,
                          ", 16], %k: f32[3, 2, 9, 16], %v: f32[3, 2, 9, 16], %s: f32[4]) {\n"
                          "  %0 = tk.attention(%q, %k, %v, none, %s) ",
                          attrs, "\n  return %0\n}\n"));
      const std::vector<Tensor> inputs = {
          floats(DType::f32, {3, 4, std::stoi(queries), 16}), floats(DType::f32, {3, 2, 9, 16}),
          floats(DType::f32, {3, 2, 9, 16}), floats(DType::f32, {4})};
      SCOPED_TRACE(cat(attrs, " ", queries));
      expect_near(run(graph, inputs, {}, 2)[0], interpret(graph, inputs, {})[0], 1e-5);
    }
}

constexpr const char* written = R"(
graph @main(%at: i64[2], %x: bf16[2, 3, 2, 8]) {
  state %s: bf16[2, 3, 10, 8] "cache"
  %0 = tk.index_write(%s, %at, %x) {dim=2}
  %1 = aten.slice(%0) {dim=2, start=0, end=7}
  return %1
}
)";

TEST(DenseCache, IsWrittenWhereItLies) {
  const Graph graph = parse_graph(written);
  const Tensor cache = floats(DType::bf16, {2, 3, 10, 8});
  const Tensor before = contiguous(cache);
  States states{{"cache", contiguous(cache)}};
  const std::vector<Tensor> inputs = {Tensor::ids(std::vector<std::int64_t>{6, 2}),
                                      floats(DType::bf16, {2, 3, 2, 8})};
  const Tensor want = interpret(graph, inputs, {}, &states)[0];
  expect_near(run(graph, inputs, {cache}, 2)[0], want, 0);
  expect_near(cache, states["cache"], 0);
  EXPECT_NE(element(cache, 6 * 8), element(before, 6 * 8));
}

TEST(DenseCache, AnIndexOutsideIsTK0501) {
  const Graph graph = parse_graph(written);
  for (const std::int64_t bad : {std::int64_t{10}, std::int64_t{-1}}) {
    const Tensor cache = floats(DType::bf16, {2, 3, 10, 8});
    const std::vector<Tensor> inputs = {Tensor::ids(std::vector<std::int64_t>{0, bad}),
                                        floats(DType::bf16, {2, 3, 2, 8})};
    try {
      run(graph, inputs, {cache}, 2);
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK0501");
    }
    States states{{"cache", contiguous(cache)}};
    EXPECT_THROW(interpret(graph, inputs, {}, &states), UserError);
  }
}

TEST(Assign, ChangesTheState) {
  const Graph graph = parse_graph(R"(
graph @main(%x: f32[3]) {
  state %s: f32[3] "sum"
  %0 = aten.add(%s, %x)
  %1 = tk.assign(%s, %0)
  return %0
}
)");
  const Tensor sum = Tensor::zeros(DType::f32, {3});
  const Tensor x = Tensor::of({1, 2, 3});
  run(graph, {x}, {sum}, 1);
  expect_near(sum, x, 0);
}

TEST(Assign, DemandsOneTypeAndShape) {
  for (const char* source : {"f32[2]", "bf16[3]", "f32[1, 3]"})
    EXPECT_THROW(parse_graph(cat("graph @main(%x: ", source, ") {\n  state %s: f32[3] \"s\"\n",
                                 "  %0 = tk.assign(%s, %x)\n  return %0\n}\n")),
                 UserError);
}

}  // namespace
}  // namespace tk
