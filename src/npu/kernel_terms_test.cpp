// What a kernel is made of beyond its matrix tiles: vector work, the cores it takes, the lengths of
// its sequences (VN-22, VN-26, VN-27).
#include <gtest/gtest.h>

#include <cmath>

#include "base/error.h"
#include "npu/kernel_types.h"
#include "npu/kv_lengths.h"
#include "npu/lower_graph.h"

namespace tk {
namespace {

Step lowered(const std::string& body, const StepShape& shape = {}) {
  return lower_graph(parse_graph(body), shape, {});
}

// VN-22: bytes of all passes over 128 bytes a cycle and core, of which the fit leaves a share.
TEST(KernelTerms, VN22_VectorTime) {
  const DeviceFile device = load_device_file("a2");
  const double rate =
      device.numbers.at("vector_bytes_cycle") * default_costs().numbers.at("vector_efficiency");
  EXPECT_EQ(device.numbers.at("vector_bytes_cycle"), 128);
  KernelWork k;
  k.type = "Add";
  for (const double bytes : {1e6, 2e6, 64e6}) {
    k.vector_bytes = bytes;
    const sim::Launch l = launch_of(k, device, default_costs());
    EXPECT_EQ(l.blocks, 40);
    EXPECT_NEAR(static_cast<double>(l.vector_cycles), bytes / (rate * 40), 1);
  }
  k.vector_bytes = 1e6;
  k.parts = 4;  // four rows: four cores, ten times the time
  EXPECT_NEAR(static_cast<double>(launch_of(k, device, default_costs()).vector_cycles),
              1e6 / (rate * 4), 1);
}

// VN-22: factors of operators. What an exponential takes more than a sum does not depend on whether
// it was fused; a reduction sees its whole input; the dtype decides bytes of memory, not of
// vectors, as all is computed in f32 inside.
TEST(KernelTerms, VN22_FactorsOfOperators) {
  const auto bytes = [](const std::string& op, const std::string& dtype = "bf16") {
    const Step s =
        lowered("graph @g(%x: " + dtype + "[T, 4096]) {\n  %0 = " + op + "\n  return %0\n}");
    return s.kernels().at(0).vector_bytes;
  };
  const double one = bytes("aten.relu(%x)");
  EXPECT_EQ(one, 4096 * 4);
  EXPECT_EQ(bytes("aten.relu(%x)", "f32"), one);
  EXPECT_EQ(bytes("aten.silu(%x)"), 8 * one);
  EXPECT_EQ(bytes("aten.exp(%x)"), 4 * one);
  EXPECT_EQ(bytes("aten.softmax(%x) {dim=-1}"), 5 * one);
  EXPECT_EQ(bytes("aten.mean(%x) {dim=[-1], keepdim=true}"), one);  // of 4096 elements one is left
}

// VN-26: which cores a kernel takes.
TEST(KernelTerms, VN26_Kinds) {
  const DeviceFile device = load_device_file("a3");
  const auto engine = [&](Family family, Product product, int bits = 16, bool gathered = false) {
    Step step;
    KernelWork k;
    k.family = family;
    k.type = "K";
    if (product.m > 0) k.products = {product};
    k.bits = bits;
    k.gathered_mix = gathered;
    k.vector_bytes = 1e6;
    k.operands = {{step.tensor(TensorKind::activation, 1 << 20), 1 << 20, true}};
    step.add(k);
    return plan_of(step, device, default_costs(), sim::Mode::ge_graph).launches.at(0).engine;
  };
  using sim::Engine;
  EXPECT_EQ(engine(Family::matmul, {8, 4096, 4096, 1}), Engine::ai_core);
  EXPECT_EQ(engine(Family::matmul, {8, 4096, 4096, 1}, 8, true), Engine::mix_aic);
  EXPECT_EQ(engine(Family::attention, {8, 4096, 128, 8}), Engine::mix_aic);
  for (const Family f : {Family::norm, Family::pointwise, Family::gather, Family::rope,
                         Family::cache, Family::routing, Family::quant})
    EXPECT_EQ(engine(f, {}), Engine::ai_vector);
  // A long product whose inner axis is not in lines of 512 bytes is re-laid by the vector cores.
  EXPECT_EQ(engine(Family::matmul, {4096, 8192, 5000, 1}), Engine::mix_aic);
  EXPECT_EQ(engine(Family::matmul, {4096, 8192, 5120, 1}), Engine::ai_core);   // in lines
  EXPECT_EQ(engine(Family::matmul, {16, 1024, 5000, 1}), Engine::ai_core);     // short
  EXPECT_EQ(engine(Family::matmul, {65536, 65536, 600, 1}), Engine::ai_core);  // inner axis small
}

// VN-27: the core that has most decides; what is even or can be split over the cores costs nothing.
TEST(KernelTerms, VN27_LoadOfTheBusiestCore) {
  EXPECT_EQ(imbalance({5000, 5000, 5000}, 8, 24), 1);
  EXPECT_EQ(imbalance({131072}, 1, 24), 1);       // one long sequence: its keys are split
  EXPECT_EQ(imbalance({3000, 1000}, 24, 24), 1);  // each core gets one head of both
  // Two pieces of twelve parts each on 24 cores: 3000 / 12 where 2000 / 12 is the mean.
  EXPECT_NEAR(imbalance({3000, 1000}, 1, 24), 1.5, 0.01);
  // 24 sequences of one head on as many cores: the long one decides.
  std::vector<std::int64_t> lengths(24, 1000);
  lengths[7] = 25000;
  EXPECT_NEAR(imbalance(lengths, 1, 24), 25000.0 / 2000, 0.01);
}

TEST(KernelTerms, VN27_LengthsOfSequences) {
  EXPECT_EQ(parse_lengths("7"), (std::vector<std::vector<std::int64_t>>{{7}}));
  EXPECT_EQ(parse_lengths("4096,512/8"),
            (std::vector<std::vector<std::int64_t>>{{4096, 512}, {8}}));
  for (const char* bad : {"", "0", "a", "1,", "1//2", "1;2", "-4", "99999999999"}) {
    try {
      parse_lengths(bad);
      ADD_FAILURE() << bad;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK1450") << bad;
    }
  }
  // The time of an attention follows its busiest core, its bytes what the caches have in all.
  const DeviceFile device = load_device_file("a2");
  const auto span = [&](const std::vector<std::int64_t>& lengths) {
    Step step;
    KernelWork k;
    k.family = Family::attention;
    k.type = "FusedInferAttentionScore";
    const auto n = static_cast<std::int64_t>(lengths.size());
    k.products = {{16, mean_length(lengths), 128, n}, {16, mean_length(lengths), 128, n}};
    k.operands = {{step.tensor(TensorKind::activation, 1 << 20), 1 << 20, true}};
    step.add(k);
    set_lengths(&step, lengths);
    return plan_of(step, device, default_costs(), sim::Mode::ge_graph).launches.at(0).cube_cycles;
  };
  const std::vector<std::int64_t> even(40, 8192);
  std::vector<std::int64_t> uneven(40, 4096);
  for (std::size_t i = 0; i < 20; ++i) uneven[i] = 12288;
  EXPECT_EQ(span(even), span(std::vector<std::int64_t>(40, 8192)));
  EXPECT_GE(span(uneven), span(even));
  std::vector<std::int64_t> one(40, 4096);
  one[0] = 4096 * 41;
  EXPECT_GT(span(one), 5 * span(even));
  // 20 cores read a long sequence's keys as one (split) and as many short ones together; what a
  // core reads alone goes over its own port of 36 bytes a cycle.
  Step step;
  KernelWork k;
  k.family = Family::attention;
  k.type = "FusedInferAttentionScore";
  k.products = {{16, mean_length(one), 128, 40}};
  k.operands = {{step.tensor(TensorKind::state, 1 << 30), 1 << 30, false}};
  step.add(k);
  set_lengths(&step, one);
  const sim::Launch l = plan_of(step, device, default_costs(), sim::Mode::ge_graph).launches.at(0);
  const double share = 4096.0 * 41 / (4096 * 80);
  const double us = (1 << 30) * share / (device.numbers.at("core_hbm_read") * 1800);
  EXPECT_NEAR(static_cast<double>(l.fixed) * 1e-6, us, 0.01 * us);
}

const char* paged = R"(
graph @g(%q: bf16[T, 8, 128], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  state %c: bf16[NB, 128, 8, 128] "k"
  state %v: bf16[NB, 128, 8, 128] "v"
  %0 = tk.paged_attention(%q, %c, %v, %table, %ql, %kl) {scale=0.125}
  return %0
})";

// VN-27: caches are read by blocks, and so is the table of them.
TEST(KernelTerms, VN27_WholeBlocksAreRead) {
  const auto read = [](std::int64_t kv) {
    const Step s = lowered(paged, {4, 4, kv, 128});
    std::int64_t bytes = 0;
    for (const KernelWork& k : s.kernels())
      for (const Operand& o : k.operands)
        if (!o.write && s.is_state(o.tensor)) bytes += o.bytes;
    return bytes;
  };
  // Less the lengths and the table, which the operator's cost has among its bytes.
  EXPECT_NEAR(static_cast<double>(read(256)), 4 * 256 * 2 * 8 * 128 * 2, 128);
  EXPECT_NEAR(static_cast<double>(read(130)), static_cast<double>(read(256)), 128);
  EXPECT_LT(read(128), read(130));
}

}  // namespace
}  // namespace tk
