// Core limits, SuperKernel scopes, prefetches and dynamic graphs of what is lowered (VN-33, VN-53,
// VN-60, VN-62).
#include "npu/step_moves.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/error_test_util.h"
#include "npu/lower_config.h"
#include "npu/prefetch.h"
#include "npu/superkernel.h"

namespace tk {
namespace {

const char* config = R"({"hidden_size": 4096, "vocab_size": 32000, "num_attention_heads": 32,
  "num_key_value_heads": 8, "num_hidden_layers": 6, "intermediate_size": 12288, "head_dim": 128})";
const char* experts = R"({"hidden_size": 2048, "vocab_size": 32000, "num_attention_heads": 32,
  "num_key_value_heads": 8, "num_hidden_layers": 4, "intermediate_size": 4096, "head_dim": 64,
  "num_experts": 64, "num_experts_per_tok": 4, "moe_intermediate_size": 512,
  "shared_expert_intermediate_size": 1024})";

Step lowered(const char* json, std::int64_t sequences, std::int64_t tp = 1,
             std::int64_t query = 1) {
  ConfigStep c;
  c.sequences = sequences;
  c.query_len = query;
  c.kv_len = query > 1 ? 0 : 4096;
  c.prefill = query > 1;
  c.attn_tp = c.moe_tp = tp;
  c.streams = true;
  return lower_config(json, "c.json", c);
}

const DeviceFile& a3() {
  static const DeviceFile d = load_device_file("a3");
  return d;
}

Simulation run(const Step& step, const StepMoves& moves, sim::Mode mode = sim::Mode::ge_graph) {
  return simulate_step(step, a3(), default_costs(), mode, {}, 0, moves);
}

sim::DeviceParams params() { return params_of(a3(), default_costs(), sim::Mode::ge_graph); }

// VN-33: fewer cores, never shorter; the limit is of the kernel, the stream or the device.
TEST(CoreLimits, VN33_FewerCoresTakeLonger) {
  const Step step = lowered(config, 16);
  for (const sim::Mode mode : {sim::Mode::npugraph_ex, sim::Mode::ge_graph}) {
    sim::Ps before = 0;
    for (const char* text : {"24:48", "16:32", "12:24", "6:12", "1:2"}) {
      StepMoves m;
      m.plan.limits = {parse_core_limit(text)};
      const Simulation s = run(step, m, mode);
      EXPECT_GE(s.step, before) << text;
      before = s.step;
      for (const sim::Span& span : s.spans) {
        EXPECT_LE(span.cubes, m.plan.limits[0].cube);
        EXPECT_LE(span.vectors, m.plan.limits[0].vector);
      }
      const bool stream = mode == sim::Mode::npugraph_ex;
      EXPECT_EQ(s.plan.streams[0].cube_limit, stream ? m.plan.limits[0].cube : 0);
      EXPECT_EQ(s.plan.launches[0].cube_limit, stream ? 0 : m.plan.limits[0].cube);
    }
  }
  // All cores are no limit.
  StepMoves all;
  all.plan.limits = {parse_core_limit("24:48")};
  EXPECT_EQ(run(step, all).step, run(step, {}).step);
}

TEST(CoreLimits, VN33_OfAStream) {
  StepMoves m;
  m.plan.limits = {parse_core_limit("2=8:16")};
  const Step step = lowered(experts, 16);
  bool seen = false;
  const Simulation s = run(step, m);
  for (const sim::Span& span : s.spans) {
    if (s.plan.launches[static_cast<std::size_t>(span.launch)].stream != 2) continue;
    seen = true;
    EXPECT_LE(span.cubes, 8);
    EXPECT_LE(span.vectors, 16);
  }
  EXPECT_TRUE(seen);
  EXPECT_EQ(code_of([&] { run(step, m, sim::Mode::eager); }), "TK1451");
  m.plan.limits = {parse_core_limit("9=8:16")};
  EXPECT_EQ(code_of([&] { run(step, m); }), "TK1451");
  m.plan.limits = {parse_core_limit("25:48")};
  EXPECT_EQ(code_of([&] { run(step, m); }), "TK1401");
  for (const char* bad : {"", "8", "8:", ":8", "0:8", "8:16x", "a=8:16", "2=8", "-1:4"})
    EXPECT_EQ(code_of([&] { parse_core_limit(bad); }), "TK1451") << bad;
}

// SK-10, SK-11: scopes by what kernels do and where they are, never by names.
TEST(SuperKernel, VN62_ScopesOfAStep) {
  const Step step = lowered(experts, 8);
  const auto names = [&](std::string_view scope) {
    const std::vector<std::string> all = scopes_of(step, scope);
    EXPECT_EQ(all.size(), step.kernels().size());
    std::set<std::string> out(all.begin(), all.end());
    out.erase("");
    return out;
  };
  EXPECT_EQ(names("attention").size(), 4U);
  EXPECT_EQ(names("moe").size(), 4U);
  EXPECT_EQ(names("layer").size(), 4U);
  EXPECT_EQ(names("all").size(), 1U);
  EXPECT_EQ(names("moe").count("model.layers.0.mlp.experts"), 1U);
  EXPECT_EQ(code_of([&] { names("everything"); }), "TK1452");
  EXPECT_EQ(code_of([&] { scopes_of(lowered(config, 1), "moe"); }), "TK1452");
  StepMoves m;
  m.superkernel = "layer";
  EXPECT_EQ(code_of([&] { run(step, m, sim::Mode::eager); }), "TK1453");
}

// VN-62: what a segment saves and costs is what the specification says: heads and gaps of all its
// kernels but the first go, a switch and the synchronisation of its cores come.
TEST(SuperKernel, VN62_TheSumOfHeadsAndSwitches) {
  const Step step = lowered(config, 1);
  const sim::Plan plan = plan_of(step, a3(), default_costs(), sim::Mode::ge_graph);
  const sim::DeviceParams d = params();
  const Segments s = with_segments(plan, scopes_of(step, "all"), d, false);
  ASSERT_GT(s.segments, 0);
  const sim::Result before = sim::simulate(plan, d);
  const sim::Result after = sim::simulate(s.plan, d);
  sim::Ps heads = 0;
  sim::Ps switches = 0;
  for (const sim::Span& span : after.spans) {
    const sim::Launch& l = s.plan.launches[static_cast<std::size_t>(span.launch)];
    if (span.head == l.head || l.segment == sim::none) continue;
    heads += l.head;
    switches += span.head;
    EXPECT_GE(span.head, d.part_preloaded);
    EXPECT_LE(span.head, d.part_preloaded + d.sync_full);
  }
  const sim::Ps gaps = (s.launches - s.segments) * std::max(d.gap, d.gap_mix);
  EXPECT_LE(before.total - after.total, heads - switches + gaps);
  // What is read at the same time as before: all that changed is between the kernels.
  EXPECT_GE(before.total - after.total, (heads - switches) * 9 / 10);
}

// SK-05, SK-07, SK-11: what ends a segment.
TEST(SuperKernel, VN62_WhatEndsASegment) {
  const Step step = lowered(config, 8, 2);  // collectives on a stream of their own
  const sim::Plan plan = plan_of(step, a3(), default_costs(), sim::Mode::ge_graph);
  const Segments s = with_segments(plan, scopes_of(step, "all"), params(), false);
  std::set<std::int32_t> begun;
  for (const sim::Launch& l : s.plan.launches) {
    EXPECT_TRUE(l.collective == sim::none || l.segment == sim::none);
    if (l.segment == sim::none) continue;
    // Only the first may wait for another stream.
    EXPECT_TRUE(begun.insert(l.segment).second || l.waits.count == 0);
  }
  EXPECT_EQ(static_cast<int>(begun.size()), s.segments);
  std::vector<int> sizes(s.plan.segments.size(), 0);
  for (const sim::Launch& l : s.plan.launches)
    if (l.segment != sim::none) ++sizes[static_cast<std::size_t>(l.segment)];
  for (const int n : sizes) EXPECT_GE(n, 2);
  EXPECT_GT(sim::simulate(s.plan, params()).total, 0);  // and nothing hangs
}

// SK-16: chosen cuts gain at least what one segment of everything does, by the same sums; SK-64:
// long kernels have nothing to win, and nothing is proposed.
TEST(SuperKernel, VN62_ChosenCuts) {
  const Step decode = lowered(config, 1);
  StepMoves all;
  all.superkernel = "all";
  StepMoves chosen;
  chosen.superkernel = "auto";
  const Simulation plain = run(decode, {});
  const Simulation by_choice = run(decode, chosen);
  ASSERT_EQ(by_choice.gains.size(), 1U);
  EXPECT_LE(by_choice.step, plain.step);
  EXPECT_LE(by_choice.gains[0].after_ms, run(decode, all).step_ms() * 1.002);
  EXPECT_GE(by_choice.gains[0].high, by_choice.gains[0].gain());
  EXPECT_LE(by_choice.gains[0].low, by_choice.gains[0].gain());
  const Simulation prefill = run(lowered(config, 1, 1, 8192), chosen);
  EXPECT_EQ(prefill.gains.at(0).verdict, "no gain");
  EXPECT_TRUE(prefill.plan.segments.empty());
}

// PRE-10 to PRE-27: where transfers go.
TEST(Prefetch, VN60_SitesKeepTheRules) {
  const Step step = lowered(config, 8, 2);
  const Simulation base = run(step, {});
  const std::vector<PrefetchSite> sites = prefetch_sites(step, base, 1);
  ASSERT_FALSE(sites.empty());
  for (const PrefetchSite& s : sites) {
    EXPECT_LT(s.trigger, s.target);
    EXPECT_GE(s.window_us, 2);
    EXPECT_GE(s.bytes * 10, s.weight_bytes);
    EXPECT_LE(s.bytes, s.weight_bytes);
    EXPECT_EQ(s.bytes % 512, 0);
    EXPECT_EQ(step.kind_of(s.weight), TensorKind::weight);
    EXPECT_FALSE(step.kernels()[static_cast<std::size_t>(s.target)].products.empty());
  }
  for (const PrefetchSite& s : prefetch_sites(step, base, 0.5))
    EXPECT_LE(s.bytes * 2, s.weight_bytes);
  // PRE-06: a prefill's products are bound by the cube.
  const Step prefill = lowered(config, 1, 1, 8192);
  EXPECT_TRUE(prefetch_sites(prefill, run(prefill, {}), 1).empty());
}

// VN-60, VN-41: what was brought is read from L2; the memory carries it once, and no more.
TEST(Prefetch, VN60_BytesAreReadOnce) {
  const Step step = lowered(config, 8, 2);
  const Simulation base = run(step, {});
  const std::vector<PrefetchSite> sites = prefetch_sites(step, base, 1);
  const Step with = with_prefetches(step, sites);
  EXPECT_EQ(with.kernels().size(), step.kernels().size() + sites.size());
  const Simulation s = run(with, {});
  std::int64_t brought = 0;
  std::int64_t used = 0;
  for (const sim::PrefetchUse& u : s.result.prefetches) {
    EXPECT_EQ(u.bytes, u.used + u.evicted_unused + u.resident);
    brought += u.bytes;
    used += u.used;
  }
  EXPECT_GT(brought, 0);
  EXPECT_GE(used * 10, brought * 9);
  EXPECT_NEAR(static_cast<double>(s.hbm_bytes), static_cast<double>(base.hbm_bytes),
              0.02 * static_cast<double>(base.hbm_bytes));
  // Without the effect nothing is brought, and nothing won.
  const Simulation off = simulate_step(with, a3(), default_costs(), sim::Mode::ge_graph, {},
                                       parse_effects("prefetch"));
  EXPECT_GE(off.step, s.step);
  for (const sim::PrefetchUse& u : off.result.prefetches) EXPECT_EQ(u.bytes, 0);
}

// VN-41, PRE-25: a transfer far too early is evicted before its target reads it.
TEST(Prefetch, VN41_TooEarlyIsEvicted) {
  const Step step = lowered(config, 8);
  const Simulation base = run(step, {});
  int target = -1;
  int weight = -1;
  for (const PrefetchSite& s : prefetch_sites(step, base, 1)) target = s.target, weight = s.weight;
  ASSERT_GE(target, 0);
  const std::int64_t bytes = step.bytes_of(weight);
  const Simulation early = run(with_prefetches(step, {{0, target, weight, bytes, bytes, 0}}), {});
  ASSERT_EQ(early.result.prefetches.size(), 2U);  // two steps
  for (const sim::PrefetchUse& u : early.result.prefetches) {
    EXPECT_EQ(u.used, 0);
    EXPECT_GE(u.evicted_unused, u.bytes / 2);
  }
  EXPECT_GE(early.step, base.step);
}

// Nothing is kept before it has been measured (PRE-61): the step is as it was unless they are to
// stay.
TEST(Prefetch, VN60_IsShownButLeftOutUnlessItIsToStay) {
  StepMoves chosen, stays;
  chosen.prefetch = stays.prefetch = stays.prefetch_stays = true;
  for (const std::int64_t sequences : {1, 8, 64})
    for (const std::int64_t tp : {1, 4}) {
      const Step step = lowered(config, sequences, tp);
      const Simulation plain = run(step, {}), without = run(step, chosen), with = run(step, stays);
      ASSERT_EQ(without.gains.size(), 1U);
      EXPECT_NE(without.gains[0].verdict, "kept");
      EXPECT_LE(without.gains[0].low, 0);
      EXPECT_TRUE(without.result.prefetches.empty());
      EXPECT_EQ(without.step, plain.step);
      EXPECT_DOUBLE_EQ(with.step_ms(), with.gains[0].after_ms);
    }
}

// VN-53: in a graph of dynamic shapes the host tiles each operator; element-wise ones need less.
TEST(DynamicGraph, VN53_TheHostTilesEachOperator) {
  const Step step = lowered(config, 1);
  StepMoves m;
  m.plan.dynamic = true;
  const Simulation s = run(step, m);
  EXPECT_GT(s.step, run(step, {}).step);
  EXPECT_LT(s.step, run(step, {}, sim::Mode::eager).step);
  sim::Ps host = 0;
  for (std::size_t i = 0; i < step.kernels().size(); ++i) {
    const Family f = step.kernels()[i].family;
    const bool small = f == Family::pointwise || f == Family::gather || f == Family::cache;
    EXPECT_EQ(s.plan.launches[i].host, small ? 5'000'000 : 15'000'000);
    host += s.plan.launches[i].host;
  }
  EXPECT_GE(s.step, host + s.params.graph_launch);  // nothing starts before it is tiled
  EXPECT_EQ(code_of([&] { run(step, m, sim::Mode::eager); }), "TK1455");
  // Without the host nothing waits for it.
  const Simulation off =
      simulate_step(step, a3(), default_costs(), sim::Mode::ge_graph, {}, parse_effects("host"), m);
  EXPECT_LT(off.step, s.step);
}

}  // namespace
}  // namespace tk
