#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error_test_util.h"
#include "npu/config_sizes.h"
#include "npu/lower_config.h"
#include "npu/lower_graph.h"
#include "npu/routing.h"
#include "npu/validation.h"

namespace tk {
namespace {

// VN-10: each number has a source and a certainty, and every variant fills what the simulator
// needs.
TEST(DeviceFile, EveryNumberHasItsSource) {
  ASSERT_GE(device_names().size(), 6U);
  for (const std::string& name : device_names()) {
    const DeviceFile d = load_device_file(name);
    EXPECT_TRUE(d.target == "a2" || d.target == "a3") << name;
    for (const Fact& f : d.numbers.all) {
      EXPECT_FALSE(f.source.empty()) << name << " " << f.name;
      EXPECT_FALSE(f.certainty.empty()) << name << " " << f.name;
    }
    const sim::DeviceParams p = params_of(d, default_costs(), sim::Mode::ge_graph);
    EXPECT_EQ(p.vector_cores, 2 * p.cube_cores) << name;
    EXPECT_NE(device_info(d, default_costs()).find("hbm_tb_s"), std::string::npos);
  }
  EXPECT_EQ(load_device_file("a2").numbers.at("cube_cores"), 20);
  EXPECT_EQ(load_device_file("a3").numbers.at("cube_cores"), 24);
  EXPECT_EQ(code_of([] { load_device_file("910b9"); }), "TK1411");
  EXPECT_EQ(code_of([] { load_device_file("cost"); }), "TK1411");
  EXPECT_EQ(code_of([] { load_device_file("a2").numbers.at("wheels"); }), "TK1412");
}

// VN-21, VN-131: rows are padded to 16, so 1 and 16 cost the same, and 17 more.
TEST(CostModel, RowsArePaddedToSixteen) {
  const auto cycles = [](std::int64_t m) { return tiling_of({m, 4096, 4096, 1}, 16, 24).cycles; };
  EXPECT_EQ(cycles(1), cycles(16));
  EXPECT_GT(cycles(17), cycles(16));
  // int8 takes two k steps at once.
  EXPECT_EQ(tiling_of({16, 4096, 4096, 1}, 8, 24).cycles * 2, cycles(16));
}

// VN-131: the same in time: 1 row and 16 take as long to the picosecond, 17 more of the cube.
TEST(Golden, VN131_RowsOfAProduct) {
  const DeviceFile device = load_device_file("a3");
  const auto span = [&](std::int64_t m) {
    KernelWork k;
    k.family = Family::matmul;
    k.type = "MatMulV2";
    k.products = {{m, 4096, 4096, 1}};
    Step step;
    k.operands = {{step.tensor(TensorKind::weight, 4096 * 4096 * 2), 4096 * 4096 * 2, false}};
    step.add(k);
    const sim::Plan plan = plan_of(step, device, default_costs(), sim::Mode::ge_graph);
    return sim::simulate(plan, params_of(device, default_costs(), sim::Mode::ge_graph)).spans.at(0);
  };
  const auto cube = static_cast<std::size_t>(sim::Term::cube);
  EXPECT_EQ(span(1).end - span(1).start, span(16).end - span(16).start);
  EXPECT_EQ(span(1).term[cube], span(16).term[cube]);
  EXPECT_GT(span(17).term[cube], span(16).term[cube]);
}

// VN-21: all multiply-adds are there, and nothing is faster than the peak.
TEST(CostModel, TilesCoverTheProduct) {
  for (const std::int64_t m : {1, 100, 1000, 5000})
    for (const std::int64_t n : {16, 700, 24576})
      for (const std::int64_t k : {64, 7168}) {
        const Tiling t = tiling_of({m, n, k, 3}, 16, 20);
        EXPECT_GE(t.cycles * 20 * 4096, 3 * m * n * k) << m << " " << n << " " << k;
        EXPECT_LE(t.blocks, 20);
      }
}

// VN-28: only experts with rows are read; all of them when there are many.
TEST(Routing, ExpertsThatGetRows) {
  EXPECT_EQ(spread(256, 1, 8, 0).experts_hit, 8);
  EXPECT_EQ(spread(256, 1, 100000, 0).experts_hit, 256);
  EXPECT_EQ(spread(256, 32, 2048, 0).rows, 64);
  EXPECT_GT(spread(256, 32, 2048, 1).rows, 64);
  // VN-73: what is sent is what is to be sent.
  const std::vector<std::int64_t> even = routed_bytes(4, 4096, 0, false);
  EXPECT_EQ(std::accumulate(even.begin(), even.end(), std::int64_t{0}), 4 * 4096);
  EXPECT_GT(routed_bytes(4, 4096, 1, false)[4], even[4]);
}

const char* block = R"(
graph @g(%x: bf16[T, 1024], %q: bf16[T, 8, 128], %slots: i64[T], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  weight %w: bf16[3072, 1024] "qkv"
  weight %o: bf16[1024, 1024] "o"
  state %c: bf16[NB, 128, 8, 128] "k"
  state %v: bf16[NB, 128, 8, 128] "v"
  %0 = aten.linear(%x, %w)
  %1 = aten.slice(%0) {dim=1, start=0, end=1024}
  %2 = aten.slice(%0) {dim=1, start=1024, end=2048}
  %3 = aten.reshape(%1) {shape=[T, 8, 128]}
  %4 = aten.reshape(%2) {shape=[T, 8, 128]}
  %5 = tk.cache_write(%c, %4, %slots)
  %6 = tk.paged_attention(%3, %5, %v, %table, %ql, %kl) {scale=0.125}
  %7 = aten.reshape(%6) {shape=[T, 1024]}
  %8 = aten.linear(%7, %o)
  %9 = aten.add(%x, %8)
  return %9
})";

TEST(LowerGraph, KernelsOfABlock) {
  const Graph g = parse_graph(block);
  const Step s = lower_graph(g, {4, 4, 4096, 128}, {});
  std::vector<std::string> types;
  for (const KernelWork& k : s.kernels()) types.push_back(k.type);
  // Attention without a fused operator: keys and values are gathered first.
  EXPECT_EQ(types, (std::vector<std::string>{"MatMulV2", "IndexPutV2", "Index", "Index",
                                             "BatchMatMulV2", "MaskedFill", "SoftmaxV2",
                                             "BatchMatMulV2", "MatMulV2", "Add"}));
  EXPECT_EQ(s.weight_bytes(), 2 * 1024 * (3072 + 1024));
  // The keys and values of four sequences are read once each, and written and read once more.
  std::int64_t read = 0;
  std::int64_t gathered = 0;
  for (const std::size_t i : {2U, 3U})
    for (const Operand& o : s.kernels()[i].operands) (o.write ? gathered : read) += o.bytes;
  EXPECT_NEAR(static_cast<double>(read), 4.0 * 4096 * 2 * 8 * 128 * 2, 30e3);
  EXPECT_EQ(gathered, read);
  // The flop of scores and sums: 2 * 2 * heads * dim * keys a token.
  EXPECT_EQ(s.kernels()[4].products[0].n, 4096);
  EXPECT_EQ(s.kernels()[7].products[0].k, 4096);
  EXPECT_EQ(code_of([&] { lower_graph(g, {0, 4, 4096, 128}, {}); }), "TK1413");
  EXPECT_EQ(code_of([&] { lower_graph(g, {4, 4, 4096, 128}, {3, 1}); }), "TK1414");
  EXPECT_EQ(code_of([&] {
              lower_graph(parse_graph("graph @g(%x: bf16[Q]) {\n  %0 = aten.relu(%x)\n"
                                      "  return %0\n}"),
                          {}, {});
            }),
            "TK1413");
  EXPECT_EQ(
      code_of([&] { lower_graph(parse_graph("graph @g(%x: bf16[T]) {\n  return %x\n}"), {}, {}); }),
      "TK1415");
}

// Columns, then rows with one sum over the ranks after them.
TEST(LowerGraph, TensorParallelHalvesAndReduces) {
  const Step whole = lower_graph(parse_graph(block), {4, 4, 4096, 128}, {});
  const Step half = lower_graph(parse_graph(block), {4, 4, 4096, 128}, {2, 1});
  EXPECT_EQ(half.weight_bytes() * 2, whole.weight_bytes());
  int reductions = 0;
  for (const KernelWork& k : half.kernels())
    if (k.collective) {
      ++reductions;
      EXPECT_EQ(k.type, "hcom_allReduce_");
      EXPECT_EQ(k.collective->bytes, 4 * 1024 * 2);
    }
  EXPECT_EQ(reductions, 1);
  EXPECT_EQ(half.kernels()[0].products[0].n * 2, whole.kernels()[0].products[0].n);
}

TEST(LowerGraph, NoTimeIsGuessed) {  // VN-05
  EXPECT_TRUE(unknown_operators(parse_graph(block)).empty());
  const Graph g = parse_graph(R"(
graph @g(%x: bf16[T, 64]) {
  %0 = tk.opaque(%x) {target="mylib.magic", dtypes="bf16", ranks=[2], dims=[T, 64]}
  return %0
})");
  ASSERT_EQ(unknown_operators(g).size(), 1U);
}

const char* small = R"({"hidden_size": 1024, "vocab_size": 32000, "num_attention_heads": 16,
  "num_key_value_heads": 4, "num_hidden_layers": 4, "intermediate_size": 4096, "head_dim": 64)";

Simulation run(const Step& step, sim::Mode mode, std::uint32_t without = 0) {
  return simulate_step(step, load_device_file("a2"), default_costs(), mode, {}, without);
}

TEST(LowerConfig, MoreWorkTakesLonger) {
  const std::string json = std::string(small) + "}";
  const auto ms = [&](std::int64_t sequences, std::int64_t kv, std::int64_t tp) {
    ConfigStep c;
    c.sequences = sequences;
    c.kv_len = kv;
    c.attn_tp = tp;
    return run(lower_config(json, "c.json", c), sim::Mode::ge_graph).step_ms();
  };
  EXPECT_GT(ms(64, 1024, 1), ms(1, 1024, 1));
  EXPECT_GT(ms(16, 65536, 1), ms(16, 1024, 1));
  EXPECT_LT(ms(16, 65536, 4), ms(16, 65536, 1));
}

// VN-50, VN-127: an eager host is what a step of short kernels waits for.
TEST(LowerConfig, EagerIsBoundByTheHost) {
  const Step step = lower_config(std::string(small) + "}", "c.json", {});
  const Simulation eager = run(step, sim::Mode::eager);
  // VN-53: element-wise operators and indexing need less of the host.
  double host = 0;
  for (const KernelWork& k : step.kernels()) {
    const bool small_one =
        k.family == Family::pointwise || k.family == Family::gather || k.family == Family::cache;
    host += default_costs().numbers.at(small_one ? "host_small_us" : "host_eager_us") / 1e3;
  }
  EXPECT_NEAR(eager.step_ms(), host, 0.1 * host);
  EXPECT_LT(run(step, sim::Mode::ge_graph).step_ms(), eager.step_ms() / 3);
  EXPECT_LT(run(step, sim::Mode::eager, parse_effects("host")).step_ms(), eager.step_ms() / 3);
}

TEST(LowerConfig, ExpertsGoWhereTheyAre) {
  const std::string json = std::string(small) +
                           R"(, "num_experts": 64, "num_experts_per_tok": 4,
                               "moe_intermediate_size": 512})";
  ConfigStep c;
  c.sequences = 32;
  c.kv_len = 128;
  const Step one = lower_config(json, "c.json", c);
  c.ep = c.attn_dp = 8;
  const Step spread_out = lower_config(json, "c.json", c);
  EXPECT_LT(spread_out.weight_bytes(), one.weight_bytes());
  int exchanges = 0;
  for (const KernelWork& k : spread_out.kernels())
    exchanges += k.type.starts_with("MoeDistribute") ? 1 : 0;
  EXPECT_EQ(exchanges, 2 * 4);
  // VN-73: the hottest rank decides.
  c.zipf = 1;
  const Step skewed = lower_config(json, "c.json", c);
  EXPECT_GT(run(skewed, sim::Mode::ge_graph).step_ms(),
            run(spread_out, sim::Mode::ge_graph).step_ms());
}

// VN-50: an all_to_all of an eager prefill takes its splits from the host, and its rows are put in
// the order of experts and back; the dispatch of decode does neither.
TEST(LowerConfig, PrefillExchangesBySplits) {
  const std::string experts = R"(, "num_experts": 64, "num_experts_per_tok": 4,
                                  "moe_intermediate_size": 512)";
  ConfigStep c;
  c.sequences = 4;
  c.query_len = 256;
  c.ep = c.attn_dp = 8;
  const auto count = [](const Step& step, std::string_view type) {
    return std::count_if(step.kernels().begin(), step.kernels().end(),
                         [&](const KernelWork& k) { return k.type == type; });
  };
  const auto reads = [](const Step& step) {
    return std::count_if(step.kernels().begin(), step.kernels().end(),
                         [](const KernelWork& k) { return k.host_reads; });
  };
  const Step decode = lower_config(std::string(small) + experts + "}", "c.json", c);
  EXPECT_EQ(count(decode, "MoeReRouting") + reads(decode), 0);
  c.prefill = true;
  const Step prefill = lower_config(std::string(small) + experts + "}", "c.json", c);
  EXPECT_EQ(count(prefill, "MoeReRouting"), 4);
  EXPECT_EQ(count(prefill, "IndexSelect"), 4);
  EXPECT_EQ(reads(prefill), 4);
  // VN-73: picks of experts that do nothing travel too, all to one rank.
  const Step zero =
      lower_config(std::string(small) + experts + R"(, "zero_expert_num": 64})", "c.json", c);
  const auto busiest = [](const Step& step) {
    std::int64_t rows = 0;
    for (const KernelWork& k : step.kernels())
      if (k.family == Family::grouped_matmul) rows = k.products[0].m * k.products[0].groups;
    return rows;
  };
  EXPECT_GT(busiest(zero), 3 * busiest(prefill));
}

// VN-02: the host is the target's.
TEST(LowerConfig, EachDeviceHasItsHost) {
  const Step step = lower_config(std::string(small) + "}", "c.json", {});
  const auto ms = [&](const char* device) {
    return simulate_step(step, load_device_file(device), default_costs(), sim::Mode::eager, {}, 0)
        .step_ms();
  };
  EXPECT_NEAR(ms("a3") / ms("a2"), load_device_file("a3").numbers.at("host_share"), 0.05);
}

TEST(LowerConfig, NamesOfOtherFamilies) {
  const auto sizes = [](const std::string& more) {
    return config_sizes(std::string(small) + more + "}", "c.json");
  };
  // Mixtral: one size, which is the experts'.
  const ConfigSizes mixtral = sizes(R"(, "num_local_experts": 8, "num_experts_per_tok": 2)");
  EXPECT_EQ(mixtral.expert_inner, 4096);
  EXPECT_TRUE(mixtral.layers[0].experts);
  // ERNIE and Qwen2-MoE: not every layer has experts.
  const ConfigSizes ernie = sizes(R"(, "moe_num_experts": 64, "moe_k": 6,
      "moe_intermediate_size": 512, "moe_layer_start_index": 1, "moe_num_shared_experts": 2)");
  EXPECT_FALSE(ernie.layers[0].experts);
  EXPECT_TRUE(ernie.layers[1].experts);
  EXPECT_EQ(ernie.shared_inner, 1024);
  const ConfigSizes sparse = sizes(R"(, "num_experts": 8, "num_experts_per_tok": 2,
      "moe_intermediate_size": 512, "decoder_sparse_step": 2, "mlp_only_layers": [3])");
  const auto has_experts = [&](std::size_t i) { return sparse.layers[i].experts; };
  EXPECT_EQ((std::vector<bool>{has_experts(0), has_experts(1), has_experts(2), has_experts(3)}),
            (std::vector<bool>{false, true, false, false}));
  // A window without a list of kinds: Mistral everywhere, Gemma in five of six, Qwen2 switched off.
  EXPECT_EQ(sizes(R"(, "sliding_window": 512)").layers[3].attention, AttentionKind::sliding);
  EXPECT_EQ(sizes(R"(, "sliding_window": 512, "sliding_window_pattern": 2)").layers[1].attention,
            AttentionKind::full);
  EXPECT_EQ(sizes(R"(, "sliding_window": 512, "use_sliding_window": false)").layers[3].attention,
            AttentionKind::full);
  EXPECT_EQ(
      config_sizes(std::string(R"({"vision_config": {}, "text_config": )") + small + "}}", "c.json")
          .hidden,
      1024);
  EXPECT_EQ(sizes(R"(, "num_experts": 8, "moe_topk": [2, 2], "moe_intermediate_size": 512)").topk,
            2);
  // What would be left out in silence.
  for (const char* more :
       {R"(, "my_expert_count": 8)", R"(, "linear_attn_config": {})", R"(, "ssm_state_size": 16)",
        R"(, "num_experts": 8, "moe_topk": [2, 3], "moe_intermediate_size": 512)"})
    EXPECT_EQ(code_of([&] { sizes(more); }), "TK1416") << more;
}

TEST(LowerConfig, WhatIsNotModelledIsNamed) {
  const auto config = [](const std::string& more) {
    return code_of([&] { config_sizes(std::string(small) + more + "}", "c.json"); });
  };
  EXPECT_EQ(config(""), "none");
  EXPECT_EQ(config(R"(, "layer_types": ["mamba", "mamba", "mamba", "mamba"])"), "TK1416");
  EXPECT_EQ(config(R"(, "layer_types": ["full_attention"])"), "TK1416");
  EXPECT_EQ(config(R"(, "num_experts": 8)"), "TK1416");
  EXPECT_EQ(code_of([] { config_sizes("[1]", "c.json"); }), "TK1416");
  ConfigStep huge;
  huge.sequences = std::int64_t{1} << 40;
  EXPECT_EQ(code_of([&] { lower_config(std::string(small) + "}", "c.json", huge); }), "TK1413");
  huge.sequences = 1;
  huge.kv_len = -1;
  EXPECT_EQ(code_of([&] { lower_config(std::string(small) + "}", "c.json", huge); }), "TK1413");
  EXPECT_EQ(code_of([] { config_sizes(R"({"hidden_size": 1e9})", "c.json"); }), "TK1416");
}

// VN-81: equal inputs give equal bytes.
TEST(Simulation, TwiceTheSame) {
  const Step step = lower_config(std::string(small) + "}", "c.json", {});
  const Simulation a = run(step, sim::Mode::npugraph_ex);
  EXPECT_EQ(to_json(a), to_json(run(step, sim::Mode::npugraph_ex)));
  // VN-84: no longer than one after the other, no shorter than the busiest resource.
  EXPECT_LE(a.result.bounds.busiest, a.result.total);
  EXPECT_GT(a.step, 0);
  const std::string text = explain_text(a, load_device_file("a2"), default_costs(), "MatMulV2");
  EXPECT_NE(text.find("hbm_tb_s"), std::string::npos);
  EXPECT_EQ(code_of([&] { explain_text(a, load_device_file("a2"), default_costs(), "Magic"); }),
            "TK1419");
}

// VN-05: a limit beyond the device names the launch and its place.
TEST(Simulation, ARefusedLaunchIsNamed) {
  const Step step = lower_config(std::string(small) + "}", "c.json", {});
  const DeviceFile device = load_device_file("a2");
  sim::Plan plan = plan_of(step, device, default_costs(), sim::Mode::ge_graph);
  plan.launches[1].vector_limit = 1000;
  plan.texts[static_cast<std::size_t>(plan.launches[1].text)].place = "model.py:7";
  try {
    sim::simulate(plan, params_of(device, default_costs(), sim::Mode::ge_graph));
    FAIL() << "it ran";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1401");
    EXPECT_NE(std::string(e.what()).find("model.py:7"), std::string::npos) << e.what();
  }
}

TEST(Simulation, ComparedTermByTerm) {  // VN-93, VN-112
  ConfigStep c;
  const std::string json = std::string(small) + "}";
  const std::string a = to_json(run(lower_config(json, "c.json", c), sim::Mode::ge_graph));
  c.sequences = 512;
  c.kv_len = 8192;
  const std::string b = to_json(run(lower_config(json, "c.json", c), sim::Mode::ge_graph));
  const std::string text = compare_text(a, "a", b, "b");
  EXPECT_NE(text.find("A is faster"), std::string::npos) << text;
  EXPECT_NE(text.find("FusedInferAttentionScore"), std::string::npos) << text;
  EXPECT_NE(compare_text(a, "a", a, "a").find("pending"), std::string::npos);
  EXPECT_EQ(code_of([&] { compare_text("{}", "a", b, "b"); }), "TK1420");
}

TEST(Cases, Formulas) {
  const FormulaNames n{0.02, 256, 4, 64, 1.44};
  EXPECT_DOUBLE_EQ(eval_formula("1e3*S/(1+accepted)", n), 20 / 2.44);
  EXPECT_DOUBLE_EQ(eval_formula("global_batch*(1+accepted)/S/packages", n), 256 * 2.44 / 0.02 / 64);
  for (const char* bad : {"", "1+", "S S", "(S", "rm -rf", "1e3*S)"})
    EXPECT_EQ(code_of([&] { eval_formula(bad, n); }), "TK1421") << bad;
}

TEST(Options, NamesAreChecked) {
  EXPECT_EQ(parse_mode("eager"), sim::Mode::eager);
  EXPECT_EQ(code_of([] { parse_mode("aclgraph"); }), "TK1417");
  EXPECT_NE(parse_effects("l2,links"), 0U);
  EXPECT_EQ(code_of([] { parse_effects("l2,hbm"); }), "TK1418");
}

// VN-113: a model of the fit is predicted by costs that have not seen it; another by those of the
// file.
TEST(Costs, AModelIsHeldOut) {
  CostFile c = default_costs();
  ASSERT_FALSE(c.without.empty());
  const auto& [model, values] = *c.without.begin();
  ASSERT_FALSE(values.empty());
  const CostFile held = costs_without(c, model);
  for (const auto& [name, value] : values) {
    EXPECT_EQ(held.numbers.at(name), value) << name;
    EXPECT_NE(c.numbers.at(name), value) << name;
  }
  const CostFile same = costs_without(c, "a model that is not published");
  for (const Fact& f : c.numbers.all) EXPECT_EQ(same.numbers.at(f.name), f.value);
  c.without["m"]["wheels"] = 4;
  EXPECT_EQ(code_of([&] { costs_without(c, "m"); }), "TK1412");
  c.without["m"] = {{"hbm_read_share", 1.5}};
  EXPECT_EQ(code_of([&] { costs_without(c, "m"); }), "TK1412");
}

// VN-28: at random the busiest rank gets more than the mean, and never more than there is.
TEST(Routing, PicksAtRandomAreUneven) {
  EXPECT_GT(spread(256, 32, 2048, 0, false).rows, spread(256, 32, 2048, 0).rows);
  EXPECT_EQ(spread(256, 1, 64, 0, false).rows, 64);
  EXPECT_LE(spread(256, 32, 2, 0, false).rows, 2);
}

// VN-110: what is compiled in has the kinds that reports ask for, and enough cases behind them.
TEST(Validation, BandsAreThere) {
  for (const char* kind : {"graph step", "eager step", "ratio"}) {
    EXPECT_GE(band_of(kind).cases, 5) << kind;
    EXPECT_GT(band_of(kind).p90, 0) << kind;
  }
  EXPECT_EQ(band_of("weather").cases, 0);
}

}  // namespace
}  // namespace tk
