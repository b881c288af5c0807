// The pattern language and the rewrite driver on operators of the list.
#include "graph/rewrite.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tk {
namespace {

Pat mul(const Pat& a, const Pat& b) { return commutative(call("aten.mul", {a, b})); }
Pat sigmoid(const Pat& x) { return call("aten.sigmoid", {x}); }

// x * sigmoid(x) -> silu(x)
Rewrite to_silu() {
  const Pat x = in("x");
  Rewrite r;
  r.name = "to_silu";
  r.match(mul(x, sigmoid(x))).build([=](Build& b) {
    return std::vector<Value*>{b.op("aten.silu", {b[x]})};
  });
  return r;
}

constexpr const char* two_layers = R"(
graph @f(%x: f32[T, 8]) {
  %0 = aten.sigmoid(%x)  @"model.layers.0.mlp" (a.py:3)
  %1 = aten.mul(%0, %x)  @"model.layers.0.mlp" (a.py:4)
  %2 = aten.sigmoid(%1)  @"model.layers.1.mlp" (a.py:3)
  %3 = aten.mul(%1, %2)  @"model.layers.1.mlp" (a.py:4)
  return %3
})";

TEST(Rewrite, SitesSayWhereAndHoldForClones) {
  const Graph graph = parse_graph(two_layers);
  const Rewrite r = to_silu();
  const std::vector<Site> sites = find_sites("to_silu", {&r, 1}, graph, Target::cpu);
  ASSERT_EQ(sites.size(), 2U);
  EXPECT_EQ(sites[0].module, "model.layers.0.mlp");
  EXPECT_EQ(sites[0].place, "a.py:4");
  EXPECT_EQ(sites[0].class_key, sites[1].class_key);
  EXPECT_EQ(sites[0].class_key, "to_silu model.layers.*.mlp");
  EXPECT_EQ(sites[1].nodes, (std::vector<std::int64_t>{3, 2}));
  // Only the second, in a clone; the new node has the root's place.
  Graph copy = graph.clone();
  EXPECT_EQ(apply_sites({&r, 1}, copy, {&sites[1], 1}), 1U);
  verify(copy);
  EXPECT_EQ(copy.n_nodes(), 3U);
  EXPECT_EQ(copy.last()->op->name, "aten.silu");
  EXPECT_EQ(copy.last()->loc->module, "model.layers.1.mlp");
  EXPECT_EQ(graph.n_nodes(), 4U);
}

TEST(Rewrite, RunsToAFixedPointAndOnlyOnce) {
  Graph graph = parse_graph(two_layers);
  EXPECT_EQ(apply_everywhere(to_silu(), graph), 2U);
  verify(graph);
  EXPECT_EQ(apply_everywhere(to_silu(), graph), 0U);
  EXPECT_EQ(graph.n_nodes(), 2U);
}

TEST(Rewrite, OneThatFeedsItselfIsABug) {
  const Pat x = in("x");
  Rewrite r;
  r.name = "forever";
  r.match(call("aten.neg", {x})).build([=](Build& b) {
    return std::vector<Value*>{b.op("aten.neg", {b[x]})};
  });
  Graph graph = parse_graph("graph @f(%x: f32[4]) {\n  %0 = aten.neg(%x)\n  return %0\n}");
  EXPECT_THROW(apply_everywhere(r, graph), InternalError);
}

TEST(Rewrite, TheDeepestReasonIsGiven) {
  const Graph graph = parse_graph(R"(
graph @f(%x: f32[T, 8], %y: f32[T, 8]) {
  %0 = aten.sigmoid(%y)
  %1 = aten.mul(%x, %0)
  return %1
})");
  EXPECT_EQ(why_not(to_silu(), graph), "input 'y' is not the same value as 'x' (input 'x')");
}

// Two products with one factor, which become neighbours in a cat.
Rewrite pair() {
  const Pat a = in("a");
  const Pat b = in("b");
  const Pat f = in("f");
  Rewrite r;
  r.name = "pair";
  r.match(call("aten.mul", {a, f}), call("aten.mul", {b, f})).build([=](Build& m) {
    Value* v = m.op("aten.mul", {m.op("aten.cat", {m[a], m[b]}), m[f]});
    return std::vector<Value*>{
        m.op("aten.slice", {v}, {{"dim", Sym(0)}, {"start", Sym(0)}, {"end", Sym(2)}}),
        m.op("aten.slice", {v}, {{"dim", Sym(0)}, {"start", Sym(2)}, {"end", Sym(4)}})};
  });
  return r;
}

TEST(Rewrite, RootsThatShareALeafAreFoundAndLateInputsMoveUp) {
  Graph graph = parse_graph(R"(
graph @f(%a: f32[2, 8], %b: f32[2, 8], %f: f32[1, 8]) {
  %0 = aten.mul(%a, %f)
  %1 = aten.neg(%0)
  %2 = aten.abs(%b)
  %3 = aten.mul(%2, %f)
  return %1, %3
})");
  EXPECT_EQ(apply_everywhere(pair(), graph), 1U);
  verify(graph);  // abs now stands before neg
}

TEST(Rewrite, AnInputThatNeedsTheResultIsACycle) {
  const Graph graph = parse_graph(R"(
graph @f(%a: f32[2, 8], %f: f32[1, 8]) {
  %0 = aten.mul(%a, %f)
  %1 = aten.neg(%0)
  %2 = aten.mul(%1, %f)
  return %2
})");
  const Rewrite r = pair();
  const std::vector<Site> sites = find_sites("pair", {&r, 1}, graph, Target::cpu);
  ASSERT_FALSE(sites.empty());
  EXPECT_EQ(sites[0].verdict.constraint, "fuse.cycle");
}

TEST(Rewrite, LimitsAreNotesOnTheCpuAndForbidOnAnNpu) {
  const Pat x = in("x");
  const Pat cos = in("cos");
  const Pat sin = in("sin");
  Rewrite r;
  r.name = "rope";
  r.match(call("aten.addcmul", {x, cos, sin})).build([=](Build& b) {
    return std::vector<Value*>{b.op("npu.npu_interleave_rope", {b[x], b[cos], b[sin]})};
  });
  const Graph graph = parse_graph(R"(
graph @f(%x: bf16[3, 2, 4, 8], %c: bf16[3, 1, 4, 8], %s: bf16[3, 1, 4, 8]) {
  %0 = aten.addcmul(%x, %c, %s)
  return %0
})");
  const Verdict cpu = find_sites("rope", {&r, 1}, graph, Target::cpu).at(0).verdict;
  EXPECT_TRUE(cpu.ok());
  ASSERT_EQ(cpu.notes.size(), 1U);
  EXPECT_NE(cpu.notes[0].find("interleave_rope.D: D = 8"), std::string::npos);
  const Verdict npu = find_sites("rope", {&r, 1}, graph, Target::a2).at(0).verdict;
  EXPECT_EQ(npu.kind, VerdictKind::not_adaptable);  // FU-07: with the check id
  EXPECT_EQ(npu.constraint, "interleave_rope.D");
}

TEST(Rewrite, ModulesOfAllLayersAreOneClass) {
  EXPECT_EQ(class_of_module("model.layers.3.mlp.experts.7"), "model.layers.*.mlp.experts.*");
  EXPECT_EQ(class_of_module("h2.w1"), "h2.w1");
  EXPECT_EQ(class_of_module(""), "");
}

}  // namespace
}  // namespace tk
