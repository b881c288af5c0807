#include "ops/interpret.h"

#include <gtest/gtest.h>
#include <malloc.h>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

Tensor floats(const Dims& shape) {
  Tensor t = Tensor::empty(DType::f32, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) t.as<float>()[i] = static_cast<float>(i);
  return t;
}

template <typename F>
std::string error_of(F f, std::string* text = nullptr) {
  try {
    f();
  } catch (const UserError& e) {
    if (text != nullptr) *text = e.what();
    return e.code();
  }
  return "none";
}

struct Sample {
  Graph graph;
  Weights weights;
};

// y = (x + w)[:, 1:] of x [B, S], w [S0]; S0 is 4
Sample sample() {
  Sample s;
  Value* x = s.graph.add_input("x", {DType::f32, {Sym::symbol("B"), 4}});
  Value* w = s.graph.add_weight("w", {DType::f32, {4}});
  Builder b{s.graph, nullptr, s.graph.loc({"model.layers.0", "Layer", "layer.py", 12})};
  Value* sum = b.op("aten.add", {x, w});
  s.graph.add_output(b.op("aten.slice", {sum}, {{"dim", Sym(1)}, {"start", Sym(1)}}));
  s.weights["w"] = Tensor::of({10, 20, 30, 40});
  return s;
}

TEST(Interpret, RunsAGraph) {
  const Sample s = sample();
  const auto out = interpret(s.graph, std::vector{floats({2, 4})}, s.weights);
  ASSERT_EQ(out.size(), 1U);
  EXPECT_EQ(out[0].shape.str(), "[2, 3]");
  EXPECT_EQ(element(out[0], 0), 21);
  EXPECT_EQ(element(out[0], 5), 47);
}

TEST(Interpret, ReportsEachNode) {
  const Sample s = sample();
  std::string seen;
  InterpretOptions options;
  options.on_node = [&](const Node& n, std::span<const TensorView> out) {
    seen += cat(n.op->name, out[0].shape.str(), " ");
  };
  interpret(s.graph, std::vector{floats({3, 4})}, s.weights, nullptr, options);
  EXPECT_EQ(seen, "aten.add[3, 4] aten.slice[3, 3] ");
}

TEST(Interpret, FreesAfterTheLastUse) {
  Graph g;
  Value* x = g.add_input("x", {DType::f32, {Sym::symbol("N")}});
  Builder b{g, nullptr, nullptr};
  Value* v = x;
  for (int i = 0; i < 64; ++i) v = b.op("aten.neg", {v});
  g.add_output(v);
  const auto in_use = [] {
    const struct mallinfo2 info = mallinfo2();
    return info.uordblks + info.hblkhd;
  };
  const std::vector in{floats({1 << 16})};
  const std::size_t before = in_use();
  std::size_t most = 0;
  InterpretOptions options;
  options.on_node = [&](const Node&, std::span<const TensorView>) {
    most = std::max(most, in_use());
  };
  const auto out = interpret(g, in, {}, nullptr, options);
  EXPECT_EQ(element(out[0], 3), 3);
  EXPECT_LT(most, before + 4 * static_cast<std::size_t>(in[0].bytes()));  // of 64 results
}

TEST(Interpret, InputsThatDoNotFit) {
  const Sample s = sample();
  std::string text;
  EXPECT_EQ(error_of([&] { interpret(s.graph, {}, s.weights); }, &text), "TK0502");
  EXPECT_NE(text.find("1 inputs (x), got 0"), std::string::npos) << text;
  EXPECT_EQ(error_of([&] { interpret(s.graph, std::vector{floats({2, 5})}, s.weights); }, &text),
            "TK0502");
  EXPECT_NE(text.find("'x' is f32[2, 5], expected f32[B, 4]"), std::string::npos) << text;
  EXPECT_EQ(error_of([&] { interpret(s.graph, std::vector{floats({4})}, s.weights); }), "TK0502");
  const Tensor ids = Tensor::zeros(DType::i64, {2, 4});
  EXPECT_EQ(error_of([&] { interpret(s.graph, std::vector{ids}, s.weights); }), "TK0502");
  EXPECT_EQ(error_of([&] { interpret(s.graph, std::vector{Tensor()}, s.weights); }), "TK0502");
}

TEST(Interpret, AMultipleOfASymbolGivesIt) {  // a part of a graph may have 2 * T rows and no T
  const Graph graph = parse_graph(R"(
graph @g(%x: f32[2*T, 4]) {
  %0 = aten.reshape(%x) {shape=[T, 8]}
  return %0
})");
  const Tensor y = interpret(graph, std::vector<Tensor>{floats({6, 4})}, {}).at(0);
  EXPECT_EQ(y.shape, (Dims{3, 8}));
  EXPECT_EQ(error_of([&] { interpret(graph, std::vector<Tensor>{floats({5, 4})}, {}); }), "TK0303");
}

TEST(Interpret, SizesMustAgree) {
  Graph g;
  g.add_input("a", {DType::f32, {Sym::symbol("B"), Sym::symbol("S")}});
  g.add_input("b", {DType::f32, {Sym::symbol("S") * 2}});
  const std::vector good{floats({2, 3}), floats({6})};
  EXPECT_EQ(bind_symbols(g, good), (SymEnv{{"B", 2}, {"S", 3}}));
  std::string text;
  EXPECT_EQ(error_of([&] { bind_symbols(g, std::vector{floats({2, 3}), floats({7})}); }, &text),
            "TK0502");
  EXPECT_NE(text.find("expected f32[2*S], which is [6] here"), std::string::npos) << text;
}

TEST(Interpret, WeightsThatDoNotFit) {
  Sample s = sample();
  const std::vector x{floats({2, 4})};
  s.weights["w"] = floats({5});
  std::string text;
  EXPECT_EQ(error_of([&] { interpret(s.graph, x, s.weights); }, &text), "TK0504");
  EXPECT_NE(text.find("'w' is f32[5], expected f32[4]"), std::string::npos) << text;
  s.weights["w"] = Tensor::zeros(DType::bf16, {4});
  EXPECT_EQ(error_of([&] { interpret(s.graph, x, s.weights); }), "TK0504");
  s.weights.clear();
  EXPECT_EQ(error_of([&] { interpret(s.graph, x, s.weights); }, &text), "TK0503");
  EXPECT_NE(text.find("the weight 'w' is missing"), std::string::npos) << text;
}

TEST(Interpret, ErrorsOfOperatorsNameThePlace) {
  Graph g;
  Value* w = g.add_input("w", {DType::f32, {4, 2}});
  Value* ids = g.add_input("ids", {DType::i64, {Sym::symbol("T")}});
  Builder b{g, nullptr, g.loc({"model.embed", "Embedding", "model.py", 7})};
  g.add_output(b.op("aten.embedding", {w, ids}));
  const std::int64_t bad[] = {1, 4};
  std::string text;
  EXPECT_EQ(
      error_of([&] { interpret(g, std::vector{floats({4, 2}), Tensor::ids(bad)}, {}); }, &text),
      "TK0501");
  EXPECT_NE(text.find("index 4 is out of range for a size of 4"), std::string::npos) << text;
  EXPECT_NE(text.find("model.py:7"), std::string::npos) << text;
  EXPECT_NE(text.find("model.embed"), std::string::npos) << text;
}

// state [1, 2, 1, 1] of two slots; the graph writes x [T, 1, 1] at `slots` and returns the state.
Graph writer() {
  Graph g;
  Value* x = g.add_input("x", {DType::f32, {Sym::symbol("T"), 1, 1}});
  Value* slots = g.add_input("slots", {DType::i64, {Sym::symbol("T")}});
  Value* state = g.add_state("cache", {DType::f32, {1, 2, 1, 1}});
  Builder b{g, nullptr, nullptr};
  g.add_output(b.op("tk.cache_write", {state, x, slots}));
  return g;
}

TEST(Interpret, StatesChangeInPlace) {
  const Graph g = writer();
  States states;
  states["cache"] = Tensor::zeros(DType::f32, {1, 2, 1, 1});
  Tensor x = floats({1, 1, 1});
  x.as<float>()[0] = 5;
  const std::int64_t slot[] = {1};
  interpret(g, std::vector{x, Tensor::ids(slot)}, {}, &states);
  EXPECT_EQ(element(states["cache"], 0), 0);
  EXPECT_EQ(element(states["cache"], 1), 5);
}

TEST(Interpret, StatesMustBeThere) {
  const Graph g = writer();
  const std::int64_t slot[] = {1};
  const std::vector in{floats({1, 1, 1}), Tensor::ids(slot)};
  States states;
  EXPECT_EQ(error_of([&] { interpret(g, in, {}); }), "TK0502");
  EXPECT_EQ(error_of([&] { interpret(g, in, {}, &states); }), "TK0502");
  states["cache"] = Tensor::zeros(DType::f32, {1, 3, 1, 1});
  EXPECT_EQ(error_of([&] { interpret(g, in, {}, &states); }), "TK0502");
}

TEST(Interpret, InputsAreNotWrittenTo) {
  const OpDef* op = find_op("tk.cache_write");
  const Tensor cache = Tensor::zeros(DType::f32, {1, 2, 1, 1});
  const std::int64_t slot[] = {0};
  const auto out =
      evaluate(*op, std::vector{cache, floats({1, 1, 1}), Tensor::ids(slot)}, {}).front();
  EXPECT_NE(out.data, cache.data);
  EXPECT_EQ(element(cache, 0), 0);
}

TEST(Evaluate, ChecksTheCall) {
  const OpDef* add = find_op("aten.add");
  const Tensor x = floats({2});
  EXPECT_EQ(error_of([&] { evaluate(*add, {}, {{"other", Sym(1)}}); }), "TK0312");
  EXPECT_EQ(error_of([&] { evaluate(*add, std::vector{x}, {}); }), "TK0312");
  EXPECT_EQ(error_of([&] { evaluate(*add, std::vector{x, x}, {{"beta", 1.0}}); }), "TK0312");
  EXPECT_EQ(error_of([&] { evaluate(*add, std::vector{x, x, x}, {}); }), "TK0312");
  EXPECT_EQ(error_of([&] { evaluate(*add, std::vector{x}, {{"other", std::string("1")}}); }),
            "TK0311");
}

TEST(Evaluate, LooksUpSymbols) {
  const OpDef* arange = find_op("aten.arange");
  const auto out = evaluate(*arange, {}, {{"end", Sym::symbol("S") + 1}}, {{"S", 3}});
  EXPECT_EQ(out[0].shape.str(), "[4]");
  EXPECT_EQ(error_of([&] { evaluate(*arange, {}, {{"end", Sym::symbol("S")}}); }), "TK0303");
}

TEST(Evaluate, ViewsShareMemory) {
  const Tensor x = floats({2, 3});
  const auto t =
      evaluate(*find_op("aten.transpose"), std::vector{x}, {{"dim0", Sym(0)}, {"dim1", Sym(1)}});
  EXPECT_EQ(t[0].data, x.data);
  EXPECT_EQ(t[0].owner, x.owner);
  // A view that strides don't allow is a copy.
  const auto flat = evaluate(*find_op("aten.view"), t, {{"size", SymDims{6}}});
  EXPECT_NE(flat[0].data, x.data);
  EXPECT_EQ(element(flat[0], 1), 3);
}

// transformers' own operator: _grouped_mm by other argument names.
TEST(Evaluate, GroupedMatmulFallback) {
  const std::vector in{floats({5, 4}), floats({2, 4, 3}), Tensor::zeros(DType::i32, {2})};
  in[2].as<std::int32_t>()[0] = 2;
  in[2].as<std::int32_t>()[1] = 4;
  const auto a = evaluate(*find_op("aten._grouped_mm"), in)[0];
  const auto b = evaluate(*find_op("transformers.grouped_mm_fallback"), in)[0];
  EXPECT_EQ(b.shape.str(), "[5, 3]");
  for (std::int64_t i = 0; i < a.numel(); ++i) EXPECT_EQ(element(a, i), element(b, i));
  EXPECT_EQ(element(b, 3), 4 * 0 + 5 * 3 + 6 * 6 + 7 * 9);        // row 1, matrix 0
  EXPECT_EQ(element(b, 6), 8 * 12 + 9 * 15 + 10 * 18 + 11 * 21);  // row 2, matrix 1
  EXPECT_EQ(element(b, 12), 0);                                   // row 4 is in no group
}

TEST(Aliases, AreTheSameOperator) {
  EXPECT_EQ(find_op("aten.concat"), find_op("aten.cat"));
  EXPECT_EQ(find_op("aten.swapdims"), find_op("aten.transpose"));
  EXPECT_EQ(find_op("aten.no_such_operator"), nullptr);
}

}  // namespace
}  // namespace tk
