#include "cli/trace.h"

#include <chrono>

#include "base/error.h"
#include "npu/kernel_types.h"

namespace tk::cli {
namespace {

template <class Clock>
std::int64_t now_ns() {
  return std::chrono::duration_cast<std::chrono::nanoseconds>(Clock::now().time_since_epoch())
      .count();
}

// "2,8;8,16": an absent input and a scalar are empty, as in kernel_details.csv.
void append(const Value* value, const SymEnv& env, bool first, std::string* shapes,
            std::string* types) {
  if (!first) {
    *shapes += ';';
    *types += ';';
  }
  if (value == nullptr) return;
  const Dims dims = concrete(value->type.shape, env);
  for (int i = 0; i < dims.size(); ++i) *shapes += cat(i > 0 ? "," : "", dims[i]);
  *types += profiler_dtype(value->type.dtype);
}

}  // namespace

void TraceRecorder::attach(Runner* runner) {
  base_steady_ns_ = now_ns<std::chrono::steady_clock>();
  base_system_ns_ = now_ns<std::chrono::system_clock>();
  threads_ = static_cast<std::uint32_t>(runner->n_threads());
  runner->on_run = [this](const Bound& bound, const LaunchTimes& times) { add(bound, times); };
}

void TraceRecorder::add(const Bound& bound, const LaunchTimes& times) {
  for (std::size_t i = 0; i < bound.list.launches.size(); ++i) {
    const Launch& l = bound.list.launches[i];
    KernelText k;
    k.start = times.start[i] - base_steady_ns_;
    k.duration = times.end[i] - times.start[i];
    k.type = l.node->op->name;
    k.name = cat(l.node->op->name, "_", l.kernel);
    k.core = "CPU";
    k.step = step_;
    k.blocks = l.serial ? 1 : threads_;
    if (l.node->loc != nullptr) k.module = l.node->loc->module;
    std::string out_types;
    for (std::size_t j = 0; j < l.node->inputs.size(); ++j)
      append(l.node->inputs[j], bound.plan.env, j == 0, &k.in_shapes, &k.in_types);
    for (std::size_t j = 0; j < l.node->outputs.size(); ++j)
      append(l.node->outputs[j].get(), bound.plan.env, j == 0, &k.out_shapes, &out_types);
    kernels_.push_back(std::move(k));
  }
  ++step_;
}

std::string TraceRecorder::write(const std::string& folder, const std::string& command) const {
  TK_CHECK(!kernels_.empty(), "attached, and nothing ran");
  return write_profile(make_timeline(kernels_, base_system_ns_), folder, {command, 0, "Level1"})
      .string();
}

}  // namespace tk::cli
