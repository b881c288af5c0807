#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>

#include "base/error_test_util.h"
#include "base/file.h"
#include "npu/calibrate/fit.h"
#include "npu/calibrate/microbench.h"
#include "npu/calibrate/replay.h"
#include "timeline/load.h"
#include "timeline/writer.h"

namespace tk {
namespace {

Fact* number(CostFile* costs, const std::string& name) {
  for (Fact& f : costs->numbers.all)
    if (f.name == name) return &f;
  return nullptr;
}

// Products from launch-bound to compute-bound, norms and copies.
std::vector<Sample> kernels() {
  std::vector<Sample> out;
  const auto add = [&](const char* type, Family family, std::vector<Product> products,
                       double vector_bytes, double cold, double warm) {
    Sample s;
    s.type = type;
    s.shapes = std::to_string(out.size());
    s.work.type = type;
    s.work.family = family;
    s.work.products = std::move(products);
    s.work.vector_bytes = vector_bytes;
    s.work.operands = {{0, static_cast<std::int64_t>(cold + warm), false}};
    s.moved = {cold, 0, warm};
    s.count = 5;
    out.push_back(std::move(s));
  };
  for (const std::int64_t n : {64, 512, 2048, 4096, 8192, 16384})
    add("MatMulV2", Family::matmul, {{16, n, 4096, 1}}, 0, static_cast<double>(n) * 8192, 1e5);
  for (const std::int64_t m : {512, 1024, 2048, 4096})
    add("MatMulV2", Family::matmul, {{m, 4096, 4096, 1}}, 0, 3.3e7, 1e6);
  for (const double rows : {1.0, 64.0, 1024.0, 8192.0, 16384.0})
    add("RmsNorm", Family::norm, {}, rows * 4096 * 16, 0, rows * 1024);
  for (const double mb : {0.001, 0.01, 1.0, 4.0}) {
    add("Add", Family::pointwise, {}, mb * 4e6, 0, mb * 1e5);
    add("Mul", Family::pointwise, {}, mb * 8e6, 0, mb * 1e5);
  }
  return out;
}

// VN-106: constants that nobody told are found again.
TEST(Calibrate, SecretConstantsAreRecovered) {
  const DeviceFile device = load_device_file("a2");
  CostFile secret = default_costs();
  number(&secret, "cube_efficiency")->value *= 1.4;
  number(&secret, "hbm_read_share")->value *= 0.85;  // more, and the cores limit what is read
  number(&secret, "head_cube_us")->value *= 1.6;
  number(&secret, "head_norm_us")->value *= 0.7;
  number(&secret, "vector_efficiency")->value *= 0.6;
  std::vector<Sample> samples = kernels();
  for (Sample& s : samples) s.us = predicted_us(s, device, secret);
  const Calibration c = calibrate(samples, device, default_costs());
  EXPECT_GT(c.before.median, 0.1);
  EXPECT_LT(c.after.p90, 0.03);
  EXPECT_LT(c.held_out.median, 0.03);
  for (const char* name : {"cube_efficiency", "hbm_read_share", "vector_efficiency"})
    EXPECT_NEAR(c.costs.numbers.at(name) / number(&secret, name)->value, 1, 0.03) << name;
  // What heads are called does not matter, what they come to does.
  for (const Sample& s : samples)
    EXPECT_NEAR(static_cast<double>(predicted_us(s, device, c.costs)) /
                    static_cast<double>(predicted_us(s, device, secret)),
                1, 0.03)
        << s.type;
}

// VN-102: where nothing depends on a constant it stays, and noise does not make a fit worse.
TEST(Calibrate, WhatSamplesDoNotSayStays) {
  const DeviceFile device = load_device_file("a2");
  std::vector<Sample> samples = kernels();
  for (Sample& s : samples) s.us = predicted_us(s, device, default_costs());
  const Calibration c = calibrate(samples, device, default_costs());
  EXPECT_LT(c.after.p90, 1e-6);
  EXPECT_TRUE(c.constants.empty()) << c.constants.front().name;  // no better than before
  samples.resize(3);
  EXPECT_EQ(code_of([&] { calibrate(samples, device, default_costs()); }), "TK1432");
}

NearKernel seen(const char* type, double bytes, double factor, double count) {
  NearKernel k;
  k.type = type;
  k.family = "pointwise";
  k.alone_us = 2 + bytes / 1e6;
  k.read = k.write = bytes / 2;
  k.factor = factor;
  k.count = count;
  return k;
}

// VN-101, VN-103: near kernels of the same type decide, outliers and strangers do not.
TEST(Near, TheMedianOfWhatIsNear) {
  const NearKernel asked = seen("Slice", 4e6, 1, 1);
  EXPECT_EQ(near_factor(asked, {}), 1);
  std::vector<NearKernel> all = {seen("Slice", 3.9e6, 2.0, 20), seen("Slice", 4.1e6, 2.1, 20),
                                 seen("Slice", 4.05e6, 9.0, 1)};
  EXPECT_NEAR(near_factor(asked, all), 2.05, 0.06);
  // Far in size: less, so that the constants count for more.
  const double large = near_factor(seen("Slice", 4e9, 1, 1), {seen("Slice", 4e6, 3, 1)});
  EXPECT_GE(large, 1);
  EXPECT_LT(large, near_factor(seen("Slice", 4.2e6, 1, 1), {seen("Slice", 4e6, 3, 1)}));
  // Another type that was seen once moves little; another engine nothing.
  EXPECT_NEAR(near_factor(asked, {seen("Sort", 4e6, 2, 1)}), 1, 0.2);
  NearKernel cube = seen("MatMulV2", 4e6, 8, 100);
  cube.family = "matmul";
  cube.cube = true;
  EXPECT_EQ(near_factor(asked, {cube}), 1);
}

// VN-106: a device whose types have costs of their own, which grow with size, and whose clock is
// not quite steady. Half of the shapes tell the other half, and the file tells what the device
// takes.
TEST(Calibrate, AHiddenDeviceIsTold) {
  const DeviceFile device = load_device_file("a2");
  CostFile secret = default_costs();
  number(&secret, "cube_efficiency")->value *= 1.2;
  number(&secret, "head_vector_us")->value *= 1.3;
  std::vector<Sample> samples;
  for (int round = 0; round < 4; ++round)
    for (Sample s : kernels()) {
      for (Product& p : s.work.products) p.n += p.n / 16 * round;
      for (double* v : {&s.work.vector_bytes, &s.moved.cold, &s.moved.warm}) *v *= 1 + 0.06 * round;
      s.work.operands[0].bytes += s.work.operands[0].bytes / 16 * round;
      s.shapes += "/" + std::to_string(round);
      samples.push_back(std::move(s));
    }
  std::uint32_t dice = 1;
  for (Sample& s : samples) {
    const double plain = predicted_us(s, device, secret);
    const double own = s.type == "Add" ? 1.5 : s.type == "Mul" ? std::pow(plain, 0.3) : 1;
    dice = dice * 1664525 + 1013904223;
    s.us = plain * own * (0.98 + 0.04 * static_cast<double>(dice >> 16U) / 65536);
  }
  const Calibration c = calibrate(samples, device, default_costs());
  EXPECT_GT(c.before.median, 0.15);
  EXPECT_LT(c.held_out.median, 0.05);
  EXPECT_LE(c.lowest, c.highest);
  EXPECT_LT(c.highest, 0.08);
  // What is written is what was found.
  const std::string file = ::testing::TempDir() + "/near_costs.json";
  write_file(file, cost_json(c, "a test"));
  const CostFile read = load_costs(file);
  ASSERT_EQ(read.measured.size(), samples.size());
  for (const Sample& s : samples)
    EXPECT_NEAR(predicted_us(s, device, read) / predicted_us(s, device, c.costs), 1, 1e-3)
        << s.type;
  // A damaged entry is named.
  nlohmann::json broken = nlohmann::json::parse(cost_json(c, "a test"));
  for (const nlohmann::json& bad : {nlohmann::json(-1), nlohmann::json("x"), nlohmann::json()}) {
    broken["measured"][0]["factor"] = bad;
    write_file(file, broken.dump());
    EXPECT_EQ(code_of([&] { load_costs(file); }), "TK1412") << bad;
  }
}

// A profile has no addresses: what was written shortly before is in L2, what was not is not.
TEST(Samples, ResidencyIsToldByTheOrderOfKernels) {
  std::string csv =
      "Name,Type,Accelerator Core,Start Time(us),Duration(us),Block Num,Input Shapes,Input Data "
      "Types,Input Formats,Output Shapes,Output Data Types,Output Formats\n";
  double at = 0;
  const auto add = [&](const char* type, const char* in, const char* out) {
    csv += cat(type, ",", type, ",AI_VECTOR_CORE,", at, ",9.0,40,", in, ",FLOAT,ND,", out,
               ",FLOAT,ND\n");
    at += 10;
  };
  for (int i = 0; i < 20; ++i) {
    add("Exp", "1048576", "1048576");     // what it wrote the time before, 400 MB ago
    add("Abs", "1048576", "1048578");     // what was just written
    add("Neg", "2097152", "1048577");     // nobody writes what it reads
    add("Sqrt", "52428800", "52428800");  // 200 MB: nothing of that size stays
  }
  const std::string file = ::testing::TempDir() + "/kernel_details.csv";
  write_file(file, csv);
  const Timeline t = load_profile(find_profiles(file).front(), {});
  const ProfileSamples p = samples_of(t, "p", 192e6);
  ASSERT_EQ(p.samples.size(), 4U);
  const auto of = [&](const char* type) {
    return std::find_if(p.samples.begin(), p.samples.end(),
                        [&](const Sample& s) { return s.type == type; });
  };
  EXPECT_EQ(of("Neg")->moved.cold, 4.0 * 2097152);
  EXPECT_GT(of("Sqrt")->moved.cold, 1e8);
  EXPECT_EQ(of("Sqrt")->moved.warm, 0);
  EXPECT_EQ(of("Exp")->moved.cold, 4.0 * 1048576);
  EXPECT_EQ(of("Abs")->moved.cold, 0);
  EXPECT_GT(of("Abs")->moved.warm, 8e6);
}

Timeline two_streams(int kernels, Ns gap) {
  std::vector<KernelText> texts;
  Ns at = 0;
  for (int i = 0; i < kernels; ++i) {
    KernelText k;
    k.start = at;
    k.duration = 10000;
    k.name = k.type = "Add";
    k.core = "AI_VECTOR_CORE";
    k.stream = i % 2;
    k.step = 1;
    texts.push_back(k);
    at += k.duration + gap;
  }
  return make_timeline(texts, 0);
}

// VN-105: one after the other over two streams; each waits for the one before it.
TEST(Replay, OrderIsKeptAcrossStreams) {
  const DeviceFile device = load_device_file("a2");
  const Replay r = replay(two_streams(60, 150), "", device, default_costs());
  EXPECT_EQ(r.streams, 2U);
  EXPECT_EQ(r.edges, 59U);
  EXPECT_EQ(r.unexplained_us, 0);
  EXPECT_NEAR(r.replayed_us / r.measured_us, 1, 0.01);
  const Replay late = replay(two_streams(60, 90000), "1", device, default_costs());
  EXPECT_NEAR(late.unexplained_us, 59 * 90, 1);
  EXPECT_EQ(code_of([&] { replay(two_streams(60, 0), "7", device, default_costs()); }), "TK1433");
}

// The results of the micro-benchmarks are samples; those of an emulation are none.
TEST(Microbench, ResultsAreRead) {
  const auto file = [](const char* emulated, const char* us) {
    return cat(R"({"format": "tokamak-microbench-1", "device": "Ascend910B3", "emulated": )",
               emulated,
               R"(, "quick": false, "host": {"host_eager_us": 80.5, "graph_launch_us": 320},
                  "rows": [{"type": "MatMulV2", "in_shapes": "16,4096;4096,12288",
                            "in_types": "DT_BF16;DT_BF16", "out_shapes": "16,12288",
                            "out_types": "DT_BF16", "count": 64, "us": )",
               us, R"(}, {"type": "Magic", "in_shapes": "1", "in_types": "FLOAT",
                        "out_shapes": "1", "out_types": "FLOAT", "us": 2}]})");
  };
  const Microbench m = read_microbench(file("false", "88.5"), "r.json", 192e6);
  ASSERT_EQ(m.samples.samples.size(), 1U);
  const Sample& s = m.samples.samples[0];
  EXPECT_EQ(s.work.products[0].m, 16);
  EXPECT_EQ(s.work.products[0].n, 12288);
  EXPECT_EQ(s.work.products[0].k, 4096);
  EXPECT_EQ(s.moved.cold, 2.0 * 4096 * 12288);
  EXPECT_EQ(s.us, 88.5);
  EXPECT_EQ(m.host_eager_us, 80.5);
  EXPECT_EQ(m.samples.left_out.at("Magic"), 1U);
  for (const std::string& bad : {file("true", "1"), file("false", "-1"), file("false", "null"),
                                 std::string("[]"), std::string("{")})
    EXPECT_EQ(code_of([&] { read_microbench(bad, "r.json", 192e6); }), "TK1430") << bad;
}

// VN-100, VN-106 (X): what cannot be calibrated from is refused with the reason.
TEST(Samples, Refusals) {
  // No shapes.
  EXPECT_EQ(code_of([] { samples_of(two_streams(60, 0), "p", 192e6); }), "TK1430");
  ProfileSamples a;
  ProfileSamples b;
  a.cubes = 20;
  b.cubes = 24;
  EXPECT_EQ(code_of([&] { joined_samples({a, b}, {"a", "b"}); }), "TK1431");
}

}  // namespace
}  // namespace tk
