// VN-125: the SuperKernel chain, SK-60 to SK-66, and what a segment cannot be.
#include <gtest/gtest.h>

#include "base/error.h"
#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

constexpr Engine C = Engine::ai_core, V = Engine::ai_vector;

// An A2 as the specification has it, without the host: the chain alone.
DeviceParams device() {
  DeviceParams d;
  d.graph_launch = d.graph_entry = 0;
  return d;
}

// A kernel whose whole duration is known: `head` of it before its work (VN-25).
Launch measured(std::int32_t stream, Engine e, std::int32_t blocks, Ps duration, Ps head) {
  Launch l;
  l.stream = stream, l.engine = e, l.blocks = blocks;
  l.head = head;
  l.fixed = duration - head;
  return l;
}

Plan in_segment(Plan p, std::int32_t first, std::int32_t last) {
  p.segments.push_back({"scope", true, false});
  for (std::int32_t i = first; i <= last; ++i)
    p.launches[static_cast<std::size_t>(i)].segment =
        static_cast<std::int32_t>(p.segments.size()) - 1;
  return p;
}

double gain(const Plan& before, const Plan& after) {
  const auto a = static_cast<double>(simulate(before, device()).total);
  return (a - static_cast<double>(simulate(after, device()).total)) / a;
}

TEST(SuperKernel, VN125_SK60_HeadsGo) {
  Plan p = plan_of(1);
  for (int i = 0; i < 20; ++i) add(&p, measured(0, V, 1, 1'200'000, 540'000));
  EXPECT_EQ(simulate(p, device()).total, 20 * 1'200'000 + 19 * 20'000);
  const double g = gain(p, in_segment(p, 0, 19));
  EXPECT_GE(g, 0.25);
  EXPECT_LE(g, 0.45);
}

TEST(SuperKernel, VN125_SK61_GapsOfMixKernelsGo) {
  DeviceParams d = device();
  d.gap_mix = 1'200'000;
  Plan p = plan_of(1);
  for (int i = 0; i < 2; ++i) add(&p, measured(0, Engine::mix_aiv, 20, 10 * us, 2 * us));
  const Result plain = simulate(p, d), fused = simulate(in_segment(p, 0, 1), d);
  EXPECT_EQ(plain.total, 20 * us + d.gap_mix);
  // No gap, no second head; a switch and a synchronisation of all 60 cores for them.
  EXPECT_EQ(fused.total, 18 * us + d.part_preloaded + d.sync_full);
  EXPECT_EQ(span_of(fused, 1).idle[static_cast<std::size_t>(Cause::gap)], 0);
  EXPECT_EQ(span_of(fused, 1).start, span_of(fused, 0).end);
  EXPECT_EQ(span_of(fused, 1).vectors, 40);
}

TEST(SuperKernel, VN125_SK62_AnUnfusibleKernelInTheMiddle) {
  Plan p = plan_of(1);
  for (int i = 0; i < 9; ++i) add(&p, measured(0, V, 40, 5 * us, 1 * us));
  const Plan two = in_segment(in_segment(p, 0, 3), 5, 8);
  const Result r = simulate(two, device());
  int launches = 0;  // what begins with a head of its own
  for (const Span& s : r.spans) launches += s.head == 1 * us;
  EXPECT_EQ(launches, 3);
  // One name for both would be one scope that is interrupted.
  Plan one = in_segment(p, 0, 8);
  one.launches[4].segment = none;
  try {
    simulate(one, device());
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1401");
    EXPECT_NE(e.message().find("interrupted"), std::string::npos) << e.message();
  }
}

TEST(SuperKernel, VN125_SK63_StreamFusion) {
  const DeviceParams d = bare_device();
  Plan p = plan_of(2);
  add(&p, kernel(0, C, 24, 20 * us));
  add(&p, kernel(1, V, 48, 20 * us));
  EXPECT_EQ(simulate(p, d).total, 20 * us);
  Plan serial = in_segment(p, 0, 1);
  EXPECT_EQ(simulate(serial, d).total, 40 * us);  // the loss
  serial.segments[0].stream_fusion = true;
  EXPECT_EQ(simulate(serial, d).total, 20 * us);
  // What comes behind on either stream waits for the whole of a scope in one order.
  serial.segments[0].stream_fusion = false;
  add(&serial, kernel(0, C, 24, 5 * us));
  add(&serial, kernel(1, V, 48, 5 * us));
  EXPECT_EQ(simulate(serial, d).total, 45 * us);
}

TEST(SuperKernel, VN125_SK64_LongKernels) {
  Plan p = plan_of(1);
  for (int i = 0; i < 4; ++i) add(&p, measured(0, C, 20, 1000 * us, 2'700'000));
  const double g = gain(p, in_segment(p, 0, 3));
  EXPECT_GE(g, 0.0);
  EXPECT_LT(g, 0.01);
}

// SK-65: a decode step of 30.8 ms after graph mode: 80 layers of 385 us, in which attention's five
// kernels (86 us) can be fused and the experts, with their dispatch and combine, cannot.
TEST(SuperKernel, VN125_SK65_DecodeStep) {
  Plan p = plan_of(1), fused;
  for (int layer = 0; layer < 80; ++layer) {
    for (const Ps t : {2, 14, 44, 20, 6}) add(&p, measured(0, V, 40, t * us, 2 * us));
    for (const Ps t : {30, 40, 120, 5, 80, 24})
      add(&p, measured(0, V, 40, t * us - 20'000, 2 * us));
  }
  fused = p;
  for (std::int32_t layer = 0; layer < 80; ++layer)
    fused = in_segment(fused, layer * 11, layer * 11 + 4);
  EXPECT_NEAR(static_cast<double>(simulate(p, device()).total), 30.8e9, 0.1e9);
  const double g = gain(p, fused);
  EXPECT_GT(g, 0.01);
  EXPECT_LT(g, 0.03);
}

TEST(SuperKernel, VN125_SK66_Refusals) {
  const auto refused = [](const Plan& p, std::string_view why) {
    try {
      simulate(p, device());
      ADD_FAILURE() << why;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK1401");
      EXPECT_NE(e.message().find(why), std::string::npos) << e.message();
    }
  };
  Plan p = plan_of(3);
  for (const std::int32_t s : {0, 1, 2}) add(&p, measured(s, V, 8, 5 * us, us));
  Plan three = in_segment(p, 0, 2);
  three.segments[0].stream_fusion = true;
  refused(three, "more than 2 streams");
  Plan eager = in_segment(p, 0, 0);
  eager.mode = Mode::eager;
  refused(eager, "eager mode has none");
  p.launches[1].engine = Engine::ai_cpu;
  refused(in_segment(p, 0, 1), "cannot be a part of a SuperKernel");
}

}  // namespace
}  // namespace tk::sim
