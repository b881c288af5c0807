// A step that was simulated, and what a person wants to know of it: simulation.json, --explain,
// --compare (VN-90 to VN-93).
#pragma once

#include <string>
#include <utility>
#include <vector>

#include "npu/sim/simulate.h"
#include "npu/work.h"

namespace tk {

// What was asked for; printed with every result.
struct Scene {
  std::string model, phase, mode;
  std::int64_t batch = 0, tokens = 0, kv = 0, tp = 1, ep = 1;
  std::string without;
  std::int64_t bucket = 0;  // of the captured batches the one that it runs in (VN-52)
  std::string miss;         // what happens where none is large enough: eager, recapture
  double once_s = 0;        // of a miss: seconds of capturing, before the first such step
};

// Error of predictions of one kind over published cases (VN-110, VN-111).
struct Band {
  std::string kind;            // "graph step", "eager step", "served step", "kernel"
  int cases = 0;               // 0: nothing is known
  double median = 0, p90 = 0;  // |predicted / published - 1|
};
Band band_of(std::string_view kind);
// The kind of a step that runs in this mode.
std::string_view band_kind(sim::Mode mode);

struct KernelSum {
  std::string type, family;
  std::int64_t launches = 0;
  double us = 0;
  std::string bound;  // the term that decided most of it
};

// What a SuperKernel scope or prefetches do to the step.
struct StepGain {
  std::string what, detail;
  double before_ms = 0, after_ms = 0;
  // Of the gain, as a share of the step, with the guesses behind it half and one and a half times
  // as large (VN-62).
  double low = 0, high = 0;
  std::string verdict;  // kept, loss, no gain, pending: measure
  double gain() const { return before_ms > 0 ? 1 - after_ms / before_ms : 0; }
};

struct Simulation {
  Scene scene;
  std::string device, cost_id;
  sim::Plan plan;
  sim::DeviceParams params;
  sim::SimOptions options;
  sim::Result result;            // of two steps; the second is reported, with a warm L2
  std::vector<sim::Span> spans;  // of the second step, by start
  sim::Ps begin = 0, step = 0;   // of the second step
  Band band;
  std::vector<KernelSum> kernels;                       // by time
  std::vector<std::pair<std::string, double>> idle_us;  // of the main stream, by cause
  std::int64_t weight_bytes = 0, state_bytes = 0, hbm_bytes = 0, memory_bytes = 0;
  std::vector<StepGain> gains;
  std::int64_t default_rules = 0;  // launches whose operator has no cost rule of its own

  double step_ms() const { return static_cast<double>(step) / 1e9; }
};

sim::Mode parse_mode(std::string_view text);  // TK1417
std::string_view mode_name(sim::Mode mode);
std::string_view core_name(sim::Engine engine);  // as kernel_details.csv: "AI_CORE"
// Effects by name, apart by commas; TK1418 for one that is none.
std::uint32_t parse_effects(std::string_view text);

Simulation simulate_step(const Step& step, const DeviceFile& device, const CostFile& costs,
                         sim::Mode mode, Scene scene, std::uint32_t without = 0);
// The same of a Plan that plan_of made of the step, with two steps and what else `options` says.
Simulation simulate_plan(const Step& step, sim::Plan plan, const DeviceFile& device,
                         const CostFile& costs, Scene scene, const sim::SimOptions& options);
// Two steps, so that L2 is warm; in graph modes the host launches the next replay while one runs.
sim::SimOptions step_options(sim::Mode mode, std::uint32_t without);

std::string to_json(const Simulation& s);
std::string summary_text(const Simulation& s);
// Kernels whose name or type is `kernel`, term by term; TK1419 when there is none.
std::string explain_text(const Simulation& s, const DeviceFile& device, const CostFile& costs,
                         std::string_view kernel);
// Two simulation.json files; TK1420 for a file that is none.
std::string compare_text(const std::string& a_json, const std::string& a_name,
                         const std::string& b_json, const std::string& b_name);

}  // namespace tk
