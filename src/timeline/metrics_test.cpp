#include "timeline/metrics.h"

#include <gtest/gtest.h>

#include <random>

#include "timeline/intervals.h"
#include "timeline/schedule.h"
#include "timeline/stream_pairs.h"
#include "timeline/structure_auto.h"
#include "timeline/writer.h"

namespace tk {
namespace {

TEST(Intervals, UnionIntersectionDifference) {
  const Intervals a = merged({{5, 9}, {0, 3}, {2, 4}, {7, 7}, {9, 10}});
  EXPECT_EQ(total(a), 9);
  const Intervals b = merged({{3, 6}, {20, 30}});
  EXPECT_EQ(total(intersection(a, b)), 2);
  EXPECT_EQ(total(difference(a, b)), 7);
  EXPECT_EQ(total(difference(a, b)) + total(intersection(a, b)), total(a));
}

TEST(Outliers, SmallAndConstantSeries) {  // BD-75
  const OutlierRule iqr, z{true, 2};
  EXPECT_TRUE(outliers_of({5}, iqr).empty());
  EXPECT_EQ(outliers_of({10, 15.1, 10}, iqr), std::vector<std::size_t>{1});
  EXPECT_TRUE(outliers_of({10, 15, 10}, iqr).empty());
  EXPECT_TRUE(outliers_of({3, 3, 3, 3, 3}, iqr).empty());
  EXPECT_EQ(outliers_of({3, 3, 3, 3, 4}, iqr), std::vector<std::size_t>{4});
  EXPECT_TRUE(outliers_of({3, 3, 3, 3}, z).empty());
  EXPECT_EQ(outliers_of({1, 1, 1, 1, 1, 1, 1, 1, 1, 9}, z), std::vector<std::size_t>{9});
}

TEST(Series, PercentileIsLinear) {  // BD-74
  const Series s = series_of({1000, 2000, 3000, 4000});
  EXPECT_DOUBLE_EQ(s.median, 2500);
  EXPECT_DOUBLE_EQ(s.p95, 3850);
  EXPECT_NEAR(s.std, 1118.034, 1e-3);
}

// Two layers of two blocks on two streams, by hand.
struct Hand {
  Timeline t;
  StepOps ops;
  Structure s;
  Hand(const std::vector<KernelText>& kernels,
       const std::vector<std::vector<std::uint32_t>>& blocks) {
    t = make_timeline(kernels, 1000000);
    ops = step_ops(t, 0, kernels_by_step(t)[0]);
    for (const auto& b : blocks) {
      Component c;
      c.type = "block";
      c.phase = "main";
      c.layer = c.local_layer = static_cast<int>(s.components.size());
      c.segments.push_back({0, true, b});
      s.components.push_back(c);
    }
    s.found = true;
    finish_structure(t, ops, s);
  }
};

KernelText k(Ns start, Ns duration, const char* type, int stream = 0) {
  KernelText x;
  x.start = start;
  x.duration = duration;
  x.name = x.type = type;
  x.core = "AI_CORE";
  x.stream = stream;
  return x;
}

TEST(Metrics, WallBubbleTotalOverlap) {  // BD-70..72
  Hand h({k(0, 10, "A"), k(5, 10, "B", 1), k(20, 0, "B", 1), k(20, 5, "A"), k(100, 7, "A"),
          k(110, 3, "B")},
         {{0, 1, 2, 3}, {4, 5}});
  ClusterRules rules;
  Cluster a{"a", "", {{}}}, b{"b", "", {{}}};
  a.rules[0].op_name = "A";
  b.rules[0].op_name = "B";
  rules.types = {{"block", {a, b}}};
  const Metrics m = compute_metrics(h.t, h.ops, h.s, rules);
  ASSERT_EQ(m.sections.size(), 1u);
  const Section& s = m.sections[0];
  EXPECT_EQ(s.items[0].per_instance, (std::vector<Ns>{15, 7}));
  EXPECT_EQ(s.items[1].per_instance, (std::vector<Ns>{10, 3}));
  EXPECT_EQ(s.items[2].per_instance, (std::vector<Ns>{5, 3}));  // bubble
  EXPECT_EQ(s.total.per_instance, (std::vector<Ns>{25, 13}));
  EXPECT_DOUBLE_EQ(s.median_gap, 2.5);
  EXPECT_EQ(s.highest_gap, 5);
}

TEST(Metrics, PropertiesOnRandomTimelines) {
  std::mt19937 random(3);
  for (int round = 0; round < 50; ++round) {
    std::vector<KernelText> kernels;
    for (int i = 0; i < 40; ++i)
      kernels.push_back(k(static_cast<Ns>(random() % 1000), static_cast<Ns>(random() % 60),
                          random() % 2 ? "A" : "B", static_cast<int>(random() % 3)));
    std::vector<std::uint32_t> all;
    for (std::uint32_t i = 0; i < 40; ++i) all.push_back(i);
    Hand h(kernels, {all});
    const Metrics m = compute_metrics(h.t, h.ops, h.s, {});
    Intervals v;
    for (const Kernel& x : h.t.kernels) v.push_back({x.start, x.end()});
    const Section& s = m.sections[0];
    EXPECT_EQ(s.items.back().per_instance[0] + union_length(v), s.total.per_instance[0]);
  }
}

TEST(Displaced, LimitsAreOpen) {  // BD-43: exactly double and exactly half do not trigger
  auto run = [](Ns away, int off, int on) {
    Timeline t;
    std::vector<KernelText> kernels;
    std::vector<std::pair<std::uint32_t, std::uint32_t>> pairs;
    for (int i = 0; i < off + on; ++i) {
      const Ns at = 10000 * i;
      kernels.push_back(k(at, 100, "P"));
      kernels.push_back(k(i < off ? at + 100 + away - 10 : at + 10, 10, "X", 1));
    }
    t = make_timeline(kernels, 0);
    StepOps ops = step_ops(t, 0, kernels_by_step(t)[0]);
    Structure s;
    for (int i = 0; i < off + on; ++i) {
      Component c;
      c.type = "block";
      c.phase = "main";
      const auto n = static_cast<std::uint32_t>(2 * i);
      c.segments = {{0, true, {n}}, {1, false, {n + 1}}};
      s.components.push_back(c);
    }
    finish_structure(t, ops, s);
    return !s.components[0].displaced.empty();
  };
  EXPECT_FALSE(run(100, 3, 0));  // inflation exactly 1.0
  EXPECT_TRUE(run(101, 3, 0));
  EXPECT_FALSE(run(500, 2, 2));  // share exactly 0.5
  EXPECT_TRUE(run(500, 3, 2));
}

TEST(Pairs, RunAheadIsPairedByOrder) {  // BD-36
  const StreamPairs p = pair_segments({100, 200, 300, 400}, {60, 130, 200, 270});
  EXPECT_EQ(p.partner, (std::vector<int>{0, 1, 2, 3}));
  const StreamPairs few = pair_segments({100, 200, 300}, {210});
  EXPECT_EQ(few.partner, (std::vector<int>{-1, 0, -1}));
  EXPECT_TRUE(pair_segments({100}, {90, 110}).ambiguous[0]);
  EXPECT_FALSE(pair_segments({100}, {90, 120}).ambiguous[0]);
}

TEST(Schedule, StateMachine) {  // PF-17 and the worked table
  Schedule s{0, 2, 30, 1, 0, 0};
  EXPECT_EQ(action_at(s, 1), ProfilerAction::warmup);
  EXPECT_EQ(action_at(s, 2), ProfilerAction::record);
  EXPECT_EQ(action_at(s, 31), ProfilerAction::record_and_save);
  EXPECT_EQ(action_at(s, 32), ProfilerAction::none);
  for (int wait = 0; wait < 3; ++wait)
    for (int warmup = 0; warmup < 3; ++warmup)
      for (int active = 1; active < 4; ++active)
        for (int skip = 0; skip < 3; ++skip) {
          const Schedule x{wait, warmup, active, 1, skip, 0};
          EXPECT_TRUE(leave_after(x, steps_needed(x)).complete);
          EXPECT_EQ(action_at(x, steps_needed(x)), ProfilerAction::none);
          EXPECT_EQ(action_at(x, steps_needed(x) - 1), ProfilerAction::record_and_save);
        }
}

// A model made by hand: prolog, layers of attention and MLP, head.
std::vector<KernelText> model(int layers, int passes, bool moe) {
  std::vector<KernelText> v;
  Ns at = 0;
  auto add = [&](const char* type, Ns duration, const char* shapes) {
    KernelText x = k(at, duration, type);
    x.in_shapes = shapes;
    x.core = std::string(type).find("MatMul") != std::string::npos ? "AI_CORE" : "AI_VECTOR_CORE";
    v.push_back(x);
    at += duration + 100;
  };
  for (int p = 0; p < passes; ++p) {
    add("GatherV2", 3000, "32000,1024;4");
    for (int l = 0; l < layers; ++l) {
      add(l ? "AddRmsNorm" : "RmsNorm", 2000, "4,1024;1024");
      add("MatMulV2", 9000, "4,1024;1024,2560");
      add("RmsNorm", 1500, "4,16,128;128");
      add("RmsNorm", 1500, "4,2,128;128");
      add("ApplyRotaryPosEmb", 2500, "4,16,128");
      add("FusedInferAttentionScore", 20000, "4,16,128");
      add("MatMulV2", 7000, "4,2048;2048,1024");
      add("AddRmsNorm", 2000, "4,1024;1024");
      if (moe && l > 0) {
        add("MoeGatingTopK", 3000, "4,64");
        add("GroupedMatmul", 30000, "32,1024;64,1024,1024");
        add("SwiGlu", 2000, "32,1024");
        add("GroupedMatmul", 20000, "32,512;64,512,1024");
      } else {
        add("MatMulV2", 9000, "4,1024;1024,6144");
        add("SwiGlu", 2000, "4,6144");
        add("MatMulV2", 8000, "4,3072;3072,1024");
      }
    }
    add("AddRmsNorm", 2000, "4,1024;1024");
    add("MatMulV2", 90000, "4,1024;1024,32000");
    add("ArgMaxV2", 9000, "4,32000");
    at += 50000;
  }
  return v;
}

TEST(AutoStructure, CountsLayersAndOwnsKernels) {  // BD-52, BD-53
  for (bool moe : {false, true}) {
    Timeline t = make_timeline(model(12, 1, moe), 0);
    const StepOps ops = step_ops(t, 0, kernels_by_step(t)[0]);
    const Structure s = auto_structure(t, ops, roles_of(t));
    ASSERT_TRUE(s.found) << s.reason;
    ASSERT_EQ(s.phases.size(), 1u);
    EXPECT_EQ(s.phases[0].layers, 12);
    EXPECT_EQ(s.components.size(), 24u);
    EXPECT_EQ(s.pre.size(), 1u);
    EXPECT_EQ(s.post.size(), 3u);
    EXPECT_TRUE(s.between.empty());
    EXPECT_EQ(s.components[0].type, "self_attn");
    EXPECT_EQ(s.components[1].type, "dense_mlp");
    EXPECT_EQ(s.components[3].type, moe ? "moe" : "dense_mlp");
  }
}

TEST(AutoStructure, PassesBecomeStepsWithoutStepIds) {
  Timeline t = make_timeline(model(6, 4, false), 0);
  t.has_step_column = false;
  t.steps = {"-"};
  EXPECT_EQ(cut_passes(t, roles_of(t)), 4u);
  const auto by_step = kernels_by_step(t);
  for (const auto& v : by_step) EXPECT_EQ(v.size(), by_step[0].size());
  EXPECT_EQ(t.text(t.kernels[by_step[2][0]].type), "GatherV2");
}

TEST(AutoStructure, EncoderBeforeTheModel) {
  std::vector<KernelText> v;
  Ns at = 0;
  auto add = [&](const char* type, const char* shapes) {
    KernelText x = k(at, 1000, type);
    x.in_shapes = shapes;
    v.push_back(x);
    at += 1100;
  };
  for (int l = 0; l < 5; ++l) {
    add("LayerNormV3", "64,1280;1280;1280");
    add("MatMulV2", "64,1280;1280,3840");
    add("FlashAttentionScore", "64,16,80");
    add("MatMulV2", "64,1280;1280,1280");
    add("LayerNormV3", "64,1280;1280;1280");
    add("MatMulV2", "64,1280;1280,5120");
    add("Gelu", "64,5120");
    add("MatMulV2", "64,5120;5120,1280");
  }
  add("LayerNormV3", "64,1280;1280;1280");
  add("MatMulV2", "16,5120;5120,1024");
  for (KernelText x : model(6, 1, false)) {
    x.start += at;
    v.push_back(x);
  }
  Timeline t = make_timeline(v, 0);
  const Structure s = auto_structure(t, step_ops(t, 0, kernels_by_step(t)[0]), roles_of(t));
  ASSERT_TRUE(s.found) << s.reason;
  ASSERT_EQ(s.phases.size(), 2u);
  EXPECT_EQ(s.phases[0].layers, 5);
  EXPECT_EQ(s.phases[1].name, "main");
  EXPECT_EQ(s.phases[1].layers, 6);
  EXPECT_TRUE(s.pre.empty());
  EXPECT_EQ(s.between.size(), 3u);  // the merger's two, the embedding
  EXPECT_EQ(s.post.size(), 3u);
}

TEST(AutoStructure, NoTransformerIsSaid) {
  std::vector<KernelText> v;
  for (int i = 0; i < 20; ++i) v.push_back(k(i * 100, 50, i % 2 ? "Conv2D" : "Relu"));
  Timeline t = make_timeline(v, 0);
  const Structure s = auto_structure(t, step_ops(t, 0, kernels_by_step(t)[0]), roles_of(t));
  EXPECT_FALSE(s.found);
  EXPECT_FALSE(s.reason.empty());
}

}  // namespace
}  // namespace tk
