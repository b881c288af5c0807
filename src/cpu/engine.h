// Runs a Plan on this machine: bound plans are kept by their sizes, the arena is shared.
#pragma once

#include <list>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "cpu/launch.h"
#include "cpu/prepare.h"
#include "plan/bind.h"

namespace tk {

// Memory that several engines share, one of them running at a time.
struct EngineMemory {
  Arena arena, scratch;
};

struct EngineOptions {
  PrepareOptions prepare;
  std::size_t max_bound = 32;  // bound plans kept; the one unused for longest goes
  // To measure what capture saves (bench.h): sizes are bound anew for each run; each launch is
  // handed to the team by itself.
  bool rebind = false, one_by_one = false;
};

// A plan for one set of sizes, ready to run. Fill `input`, run, read `output`; outputs are valid
// until the next run of any engine that shares the memory.
struct Bound {
  BoundPlan plan;
  LaunchList list;
  std::uint64_t arena_generation = 0, scratch_generation = 0;
};

class Engine {
 public:
  // `states` is the memory of the graph's states, in order, and stays the caller's.
  Engine(Plan plan, std::vector<Tensor> states, Team* team, std::shared_ptr<EngineMemory> memory,
         EngineOptions options = {});

  const Plan& plan() const { return plan_; }
  // Launch lists made so far: one for new sizes, and one when a larger arena has moved.
  std::int64_t n_made() const { return n_made_; }
  // Ready to run until the next call of `bound` (of any engine that shares the memory).
  Bound& bound(const SymEnv& env);
  void run(const Bound& bound, LaunchTimes* times = nullptr);

  // Everything at once, for tests and checks: inputs in the graph's order, outputs are copies.
  std::vector<Tensor> run(const std::vector<Tensor>& inputs);

 private:
  void make_ready(Bound* bound);
  Plan plan_;
  std::vector<TensorView> states_;
  std::vector<Tensor> kept_states_;
  Team* team_;
  std::shared_ptr<EngineMemory> memory_;
  EngineOptions options_;
  Replay replay_;
  std::list<Bound> bound_;  // most recently used first
  std::int64_t n_made_ = 0;
};

// One row per kind of launch: which kernels a bound plan uses, and which steps none took.
struct KernelUse {
  std::string op, kernel;
  std::size_t launches = 0;
  std::int64_t bytes = 0;
};
std::vector<KernelUse> kernel_use(const Bound& bound);  // most bytes first

}  // namespace tk
