// VN-05, VN-74: what a Plan cannot be, with the launch that is at fault.
#include <gtest/gtest.h>

#include <functional>

#include "base/error.h"
#include "npu/sim/plans_test_util.h"

namespace tk::sim {
namespace {

TEST(Refusal, VN05_ImpossiblePlans) {
  struct Case {
    std::function<void(Plan*)> break_it;
    std::string why;
  };
  const std::vector<Case> cases = {
      {[](Plan* p) { p->launches[1].stream = 7; }, "stream 7 is not one"},
      {[](Plan* p) { p->launches[1].blocks = 0; }, "has 0 blocks"},
      {[](Plan* p) { p->launches[1].hbm_read = -1; }, "moves -1 bytes"},
      {[](Plan* p) { p->launches[1].vector_limit = 49; },
       "limit of 49 vector cores; the device has 40"},
      {[](Plan* p) { p->streams[0].cube_limit = 21; }, "limit of 21 cube cores"},
      {[](Plan* p) { p->launches[1].waits = append(p->events, {3}); },
       "event 3, which nothing records"},
      {[](Plan* p) {
         p->launches[0].records = append(p->events, {0});
         p->launches[1].records = append(p->events, {0});
       },
       "records already"},
      {[](Plan* p) { p->launches[1].engine = Engine::communication; }, "without a collective"},
      {[](Plan* p) { p->launches[1].host_sync = true; }, "inside a graph"},
      {[](Plan* p) {
         p->launches[1].engine = Engine::mix_aic;
         p->launches[1].vector_limit = 1;
       },
       "no block of it fits"},
      {[](Plan* p) { p->launches[1].accesses = append(p->accesses, {Access{-5, 8, false}}); },
       "8 bytes at -5"},
  };
  for (const Case& c : cases) {
    Plan p = plan_of(1);
    add(&p, kernel(0, Engine::ai_vector, 8, 1 * us));
    const std::int32_t bad = add(&p, kernel(0, Engine::ai_vector, 8, 1 * us));
    name(&p, bad, "Broken");
    p.texts[0].module = "model.layers.0.mlp";
    c.break_it(&p);
    try {
      simulate(p, {});
      ADD_FAILURE() << c.why;
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK1401");
      EXPECT_NE(e.message().find(c.why), std::string::npos) << e.message();
      if (c.why.find("cube") == std::string::npos) {
        EXPECT_NE(e.message().find("Broken (launch 1"), std::string::npos) << e.message();
        EXPECT_NE(e.message().find("model.layers.0.mlp"), std::string::npos) << e.message();
      }
    }
  }
}

TEST(Refusal, VN74_CollectivesInAnotherOrder) {
  Plan p;
  p.devices = {0, 1};
  p.streams.resize(2);
  p.streams[1].rank = 1;
  p.groups = {{{0, 1}}};
  p.collectives.resize(2);
  p.collectives[1].kind = CollectiveKind::all_gather;
  for (const auto& [stream, which] : {std::pair{0, 0}, {0, 1}, {1, 1}, {1, 0}}) {
    Launch l;
    l.stream = stream, l.engine = Engine::communication, l.collective = which, l.blocks = 0;
    name(&p, add(&p, l), which == 0 ? "AllReduce" : "AllGather");
  }
  try {
    simulate(p, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1403");
    EXPECT_NE(e.message().find("collective 0: rank 0 has AllReduce"), std::string::npos);
    EXPECT_NE(e.message().find("rank 1 has AllGather"), std::string::npos) << e.message();
  }
  std::swap(p.launches[2].collective, p.launches[3].collective);
  EXPECT_GT(simulate(p, {}).total, 0);
}

// VN-32: events of two streams that wait for each other.
TEST(Refusal, VN32_EventsInACircle) {
  Plan p = plan_of(2);
  for (const std::int32_t s : {0, 1}) {
    Launch l = kernel(s, Engine::ai_vector, 8, 1 * us);
    l.waits = append(p.events, {1 - s});
    l.records = append(p.events, {s});
    add(&p, l);
  }
  try {
    simulate(p, {});
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1402");
    EXPECT_NE(e.message().find("waits for event 1"), std::string::npos);
    EXPECT_NE(e.message().find("waits for event 0"), std::string::npos) << e.message();
  }
}

}  // namespace
}  // namespace tk::sim
