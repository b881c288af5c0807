// FU-24: one lookup in the graph, and the same bits as without it.
#include <gtest/gtest.h>

#include <cstring>

#include "moves/fuse/move.h"
#include "ops/interpret.h"

namespace tk {
namespace {

constexpr std::string_view text = R"(graph @rope(%position_ids: i64[T]) {
  range positions 0 31
  weight %f: f32[4] "rotary_emb.inv_freq"
  weight %g: f32[4] "rotary_local.inv_freq"
  %0 = aten.to(%position_ids) {dtype=f32}
  %1 = aten.reshape(%0) {shape=[T, 1]}
  %2 = aten.mul(%1, %f)
  %3 = aten.cos(%2)
  %4 = aten.sin(%2)
  %5 = aten.mul(%4) {other=1.5}
  %6 = aten.mul(%1, %g)
  %7 = aten.cos(%6)
  return %3, %5, %7
})";

TEST(RopeTable, OneLookupAndTheSameBits) {
  const Graph before = parse_graph(text);
  Graph after = before.clone();
  EXPECT_EQ(apply_move(*find_move("table_rotary"), after, Target::a2), 1U);
  after.erase_dead();
  verify(after);
  int lookups = 0;
  for (const Node* n : nodes(after)) lookups += n->is("aten.index_select") ? 1 : 0;
  EXPECT_EQ(lookups, 1);
  Tensor positions = Tensor::empty(DType::i64, {6});
  for (const std::int64_t i : {0, 1, 2, 3, 4, 5})
    positions.as<std::int64_t>()[i] = std::int64_t{31} - 7 * (i % 5);
  Weights weights;
  for (const char* name : {"rotary_emb.inv_freq", "rotary_local.inv_freq"}) {
    Tensor f = Tensor::empty(DType::f32, {4});
    for (int i = 0; i < 4; ++i)
      f.as<float>()[i] = (name[7] == 'e' ? 1.0F : 0.3F) / static_cast<float>(1 + 3 * i);
    weights[name] = f;
  }
  const std::vector<Tensor> inputs{positions};
  const std::vector<Tensor> x = interpret(before, inputs, weights);
  const std::vector<Tensor> y = interpret(after, inputs, weights);
  ASSERT_EQ(x.size(), y.size());
  for (std::size_t i = 0; i < x.size(); ++i) {
    const Tensor a = contiguous(x[i]);
    const Tensor b = contiguous(y[i]);
    ASSERT_TRUE(a.shape == b.shape);
    EXPECT_EQ(std::memcmp(a.data, b.data, static_cast<std::size_t>(a.numel()) * sizeof(float)), 0);
  }
}

// A length that the configuration does not say is none to be taken: the site stays as it is, also
// when pending ones are taken.
TEST(RopeTable, NoTableWithoutALength) {
  std::string without(text);
  without.erase(without.find("  range"), std::string_view("  range positions 0 31\n").size());
  Graph graph = parse_graph(without);
  const Move& move = *find_move("table_rotary");
  std::vector<Site> sites = move.find(graph, Target::a3);
  ASSERT_EQ(sites.size(), 1U);
  EXPECT_EQ(sites[0].verdict.kind, VerdictKind::pending);
  sites[0].verdict = {};
  sites[0].verdict.kind = VerdictKind::adaptable;
  EXPECT_EQ(move.apply(graph, sites), 0U);
}

}  // namespace
}  // namespace tk
