// All ranks at once (VN-72), and Plans as files, which can hang (VN-32, VN-74).
#include "npu/ranks.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "base/error_test_util.h"
#include "npu/kv_lengths.h"
#include "npu/lower_config.h"
#include "npu/plan_json.h"

namespace tk {
namespace {

const char* dense = R"({"hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
  "num_key_value_heads": 4, "num_hidden_layers": 4, "intermediate_size": 4096, "head_dim": 64})";
const char* experts = R"({"hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
  "num_key_value_heads": 4, "num_hidden_layers": 4, "intermediate_size": 4096, "head_dim": 64,
  "num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 512})";

Step lowered(const char* config, std::int64_t tp, std::int64_t ep, std::int64_t sequences,
             std::int64_t kv) {
  ConfigStep c;
  c.sequences = sequences;
  c.kv_len = kv;
  c.attn_tp = tp;
  c.ep = ep;
  c.attn_dp = std::max<std::int64_t>(1, ep / tp);
  c.moe_tp = ep == 1 ? tp : 1;
  return lower_config(config, "c.json", c);
}

sim::Plan planned(const Step& step, sim::Mode mode = sim::Mode::ge_graph) {
  return plan_of(step, load_device_file("a3"), default_costs(), mode);
}

RanksSimulation run(sim::Plan plan) {
  const sim::Mode mode = plan.mode;
  return simulate_ranks(std::move(plan), load_device_file("a3"), default_costs(), {},
                        step_options(mode, 0));
}

// VN-72: ranks that are all alike take exactly the time of one with symmetric peers, and nobody
// waits.
TEST(Ranks, VN72_SymmetricRanksAreTheShortcut) {
  const DeviceFile device = load_device_file("a3");
  struct Case {
    const char* config;
    std::int64_t tp, ep;
  };
  for (const Case& c : {Case{dense, 2, 1}, Case{dense, 4, 1}, Case{experts, 1, 8},
                        Case{experts, 2, 8}, Case{experts, 1, 32}})
    for (const sim::Mode mode : {sim::Mode::eager, sim::Mode::npugraph_ex, sim::Mode::ge_graph}) {
      const Step step = lowered(c.config, c.tp, c.ep, 16, 2048);
      const Simulation one = simulate_step(step, device, default_costs(), mode, {});
      const auto ranks = static_cast<std::size_t>(std::max(c.tp, c.ep));
      const RanksSimulation all =
          run(join_ranks({planned(step, mode)}, std::vector<int>(ranks, 0)));
      EXPECT_EQ(all.step, one.step) << c.tp << " " << c.ep << " " << mode_name(mode);
      ASSERT_EQ(all.ranks.size(), ranks);
      for (const RankTime& r : all.ranks) {
        EXPECT_EQ(r.waiting_us, 0);
        EXPECT_EQ(r.came_last, 0);
        EXPECT_EQ(r.spans.size(), one.spans.size());
      }
      EXPECT_EQ(all.waiting_share(), 0);
    }
}

// VN-72: a rank with longer sequences comes last; the others wait, and waiting is no transfer.
TEST(Ranks, VN72_ALateRankIsWaitedFor) {
  const sim::Plan shorter = planned(lowered(experts, 1, 4, 16, 1024));
  const sim::Plan longer = planned(lowered(experts, 1, 4, 16, 65536));
  const RanksSimulation even = run(join_ranks({shorter}, {0, 0, 0, 0}));
  const RanksSimulation all = run(join_ranks({shorter, longer}, {0, 0, 1, 0}));
  EXPECT_GT(all.step, even.step);
  EXPECT_GE(all.step, run(join_ranks({longer}, {0, 0, 0, 0})).step * 99 / 100);
  for (std::size_t r = 0; r < 4; ++r) {
    EXPECT_EQ(all.ranks[r].came_last > 0, r == 2) << r;
    if (r == 2) continue;
    EXPECT_GT(all.ranks[r].waiting_us, all.ranks[2].waiting_us);
    EXPECT_NEAR(all.ranks[r].transfer_us, even.ranks[r].transfer_us,
                0.01 * even.ranks[r].transfer_us);
    EXPECT_NEAR(all.ranks[r].computing_us, even.ranks[r].computing_us,
                0.01 * even.ranks[r].computing_us);
  }
  EXPECT_GT(all.waiting_share(), 0.1);
  EXPECT_NE(ranks_text(all).find("late            rank 2"), std::string::npos);
}

// VN-72, VN-73: ranks that send different amounts: each matrix has what each of them sends.
TEST(Ranks, VN72_ExchangesOfDifferentSizes) {
  const sim::Plan few = planned(lowered(experts, 1, 4, 8, 1024));
  const sim::Plan many = planned(lowered(experts, 1, 4, 64, 1024));
  const sim::Plan all = join_ranks({few, many}, {0, 1, 0, 0});
  std::size_t seen = 0;
  for (const sim::Collective& c : all.collectives) {
    if (c.kind != sim::CollectiveKind::dispatch) continue;
    ASSERT_NE(c.traffic, sim::none);
    const auto& bytes = all.traffic[static_cast<std::size_t>(c.traffic)].bytes;
    for (std::size_t j = 0; j < 4; ++j) EXPECT_EQ(bytes[4 + j], 8 * bytes[j]);
    ++seen;
  }
  EXPECT_EQ(seen, 4U * 4);
  EXPECT_GT(run(all).step, 0);
}

// VN-72: groups of tensor-parallel ranks talk among themselves.
TEST(Ranks, VN72_GroupsAreWhereTheRanksAre) {
  const sim::Plan all =
      join_ranks({planned(lowered(experts, 2, 8, 4, 512))}, std::vector<int>(8, 0));
  std::vector<std::vector<std::int32_t>> groups;
  for (const sim::Group& g : all.groups) groups.push_back(g.devices);
  std::sort(groups.begin(), groups.end());
  EXPECT_EQ(groups, (std::vector<std::vector<std::int32_t>>{
                        {0, 1}, {0, 1, 2, 3, 4, 5, 6, 7}, {2, 3}, {4, 5}, {6, 7}}));
}

// VN-74: a rank that starts its collectives in another order hangs the others.
TEST(Ranks, VN74_AnotherOrderHangs) {
  const sim::Plan one = planned(lowered(dense, 2, 1, 4, 512));
  sim::Plan other = one;
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < other.launches.size(); ++i)
    if (other.launches[i].collective != sim::none) at.push_back(i);
  other.launches[at.back()].collective = sim::none;  // one collective less
  other.launches[at.back()].engine = sim::Engine::ai_vector;
  EXPECT_EQ(code_of([&] { run(join_ranks({one, other}, {0, 1})); }), "TK1403");
}

// VN-01: a Plan comes back from its file as it was.
TEST(PlanJson, RoundTrip) {
  const Step step = lowered(experts, 2, 8, 4, 512);
  for (const sim::Mode mode : {sim::Mode::eager, sim::Mode::ge_graph}) {
    const sim::Plan plan = join_ranks({planned(step, mode)}, std::vector<int>(8, 0));
    const std::string text = plan_to_json(plan);
    const sim::Plan back = plan_from_json(text, "p.json");
    EXPECT_EQ(plan_to_json(back), text);
    const sim::DeviceParams d = params_of(load_device_file("a3"), default_costs(), mode);
    EXPECT_EQ(sim::simulate(back, d).hash(), sim::simulate(plan, d).hash());
  }
}

TEST(PlanJson, WhatIsNoPlanIsNamed) {
  const auto error = [](const std::string& text) {
    try {
      plan_from_json(text, "p.json");
    } catch (const UserError& e) {
      return std::string(e.what());
    }
    return std::string();
  };
  EXPECT_NE(error("{").find("TK1454"), std::string::npos);
  EXPECT_NE(error("[]").find("p.json: the Plan: is array"), std::string::npos);
  EXPECT_NE(error("{}").find("no launches"), std::string::npos);
  EXPECT_NE(error(R"({"launches": [{"blocks": -1}]})").find("launch 0: 'blocks' is -1"),
            std::string::npos);
  EXPECT_NE(error(R"({"launches": [{"engine": "gpu"}]})").find("one of ai_core"),
            std::string::npos);
  EXPECT_NE(error(R"({"launches": [{"blcks": 1}]})").find("no field 'blcks'"), std::string::npos);
  EXPECT_NE(error(R"({"launches": [{"accesses": [[0, 1]]}]})").find("an access is"),
            std::string::npos);
  EXPECT_NE(error(R"({"groups": [["a"]], "launches": [{}]})").find("group 0"), std::string::npos);
}

// VN-32: two streams that wait for each other, as a file.
TEST(PlanJson, VN32_ADeadlockNamesItsCycle) {
  const sim::Plan p = plan_from_json(R"({"streams": [{}, {}], "launches": [
    {"name": "First", "stream": 0, "waits": [1], "records": [0]},
    {"name": "Second", "stream": 1, "waits": [0], "records": [1]}]})",
                                     "p.json");
  try {
    sim::simulate(p, {});
    FAIL() << "it ran";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1402");
    EXPECT_NE(std::string(e.what()).find("First"), std::string::npos);
    EXPECT_NE(std::string(e.what()).find("Second"), std::string::npos);
  }
}

}  // namespace
}  // namespace tk
