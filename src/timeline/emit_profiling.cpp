#include "timeline/emit_profiling.h"

#include <fmt/format.h>

#include <CLI/CLI.hpp>
#include <algorithm>
#include <iostream>
#include <vector>

#include "base/error.h"
#include "base/file.h"

namespace tk {

namespace {

const std::vector<std::string> levels = {"Level0", "Level1", "Level2", "none"};
const std::vector<std::string> groups = {"PipeUtilization",
                                         "ArithmeticUtilization",
                                         "Memory",
                                         "MemoryL0",
                                         "MemoryUB",
                                         "ResourceConflictRatio",
                                         "L2Cache",
                                         "MemoryAccess",
                                         "none"};
const std::vector<std::string> stages = {"prefill", "decode", "both", "timeline"};

void one_of(const std::vector<std::string>& names, const std::string& value, const char* what) {
  if (std::find(names.begin(), names.end(), value) != names.end()) return;
  std::string list;
  for (const std::string& n : names) list += cat(list.empty() ? "" : ", ", n);
  UserError e("TK0921", cat("there is no ", what, " ", value));
  const std::string near = nearest(value, names);
  if (!near.empty()) std::move(e).note(cat("nearest: ", near));
  throw std::move(e).help(cat("one of ", list));
}

}  // namespace

void check_plan(const ProfilingPlan& p) {
  one_of(stages, p.stage, "stage");
  one_of(levels, p.level, "level");
  one_of(groups, p.metrics, "metrics group");
  if ((p.level == "Level0" || p.level == "none") && p.metrics != "none")
    throw UserError("TK0921", cat("metrics ", p.metrics, " with level ", p.level,
                                  ": the profiler would drop the metrics"))
        .help("--level Level1, or --metrics none");
  if (p.decode_steps < 1 || p.prefill_steps < 1 || p.decode_steps > 100000 ||
      p.prefill_steps > 100000)
    throw UserError("TK0921", "the number of steps is between 1 and 100000");
}

Schedule plan_schedule(const ProfilingPlan& p, bool decode) {
  Schedule s;
  s.active = decode ? p.decode_steps : p.prefill_steps;
  if (p.stage == "timeline") s.active = p.prefill_steps + p.decode_steps;
  s.skip_first = p.skip >= 0 ? p.skip : decode && p.stage != "timeline" ? 3 : 0;
  return s;
}

std::string profiling_script(const ProfilingPlan& p) {
  check_plan(p);
  std::string s = fmt::format(
      R"PY(# Collects a profile of inference on an Ascend NPU.
# One step() per prefill or decode step; the device is synchronised before each; the first compile
# happens before the window; one closing step() makes sure that the window is saved.
import time

import torch
import torch_npu


def experimental_config():
    return torch_npu.profiler._ExperimentalConfig(
        profiler_level={level},{metrics}
        data_simplification=True,
    )


def make_profiler(path, active, skip_first):
    return torch_npu.profiler.profile(
        activities=[torch_npu.profiler.ProfilerActivity.CPU, torch_npu.profiler.ProfilerActivity.NPU],
        # warmup stays 0; the profiler's warning about it is expected
        schedule=torch_npu.profiler.schedule(wait=0, warmup=0, active=active, repeat=1, skip_first=skip_first),
        on_trace_ready=torch_npu.profiler.tensorboard_trace_handler(path),
        record_shapes={shapes},
        with_stack={stack},
        profile_memory={memory},
        experimental_config=experimental_config(),
    )


def profile_steps(path, step, steps, active, skip_first):
    """Runs step(i) `steps` times under the profiler; the window is skip_first + active steps."""
    needed = skip_first + active
    if steps < needed:
        raise SystemExit(f"{{steps}} steps are too few: the window needs skip_first {{skip_first}} + active {{active}} = {{needed}}")
    with make_profiler(path, active, skip_first) as profiler:
        for i in range(steps):
            begin = time.perf_counter()
            step(i)
            torch.npu.synchronize()
            print(f"step {{i}}: {{(time.perf_counter() - begin) * 1e3:.3f}} ms", flush=True)
            profiler.step()
        torch.npu.synchronize()
        profiler.step()  # closing step: runs no inference


def with_profile(path, active={decode_active}, skip_first={decode_skip}):
    """For a serving loop: `with with_profile(path) as next_step: ... next_step()` once per step."""

    class Context:
        def __enter__(self):
            self.profiler = make_profiler(path, active, skip_first)
            self.profiler.__enter__()
            return self.step

        def step(self):
            torch.npu.synchronize()
            self.profiler.step()

        def __exit__(self, *error):
            self.step()
            return self.profiler.__exit__(*error)

    return Context()

)PY",
      fmt::arg("level", p.level == "none" ? "torch_npu.profiler.ProfilerLevel.Level_none"
                                          : cat("torch_npu.profiler.ProfilerLevel.", p.level)),
      fmt::arg("metrics",
               p.metrics == "none"
                   ? "\n        aic_metrics=torch_npu.profiler.AiCMetrics.AiCoreNone,"
                   : cat("\n        aic_metrics=torch_npu.profiler.AiCMetrics.", p.metrics, ",")),
      fmt::arg("shapes", p.shapes ? "True" : "False"),
      fmt::arg("stack", p.stack ? "True" : "False"),
      fmt::arg("memory", p.memory ? "True" : "False"), fmt::arg("decode_active", p.decode_steps),
      fmt::arg("decode_skip", plan_schedule(p, true).skip_first));
  s += R"PY(
def main(load, prefill, decode):
    """load() -> state; prefill(state); decode(state): the project's own calls."""
    state = load()
    prefill(state)  # builds the graphs outside the window
    decode(state)
    torch.npu.synchronize()
)PY";
  const Schedule pre = plan_schedule(p, false), dec = plan_schedule(p, true);
  std::string out = p.out;
  for (char& c : out)
    if (c == '"' || c == '\\' || c == '\n') c = '_';
  // Two folders: a second run in one folder would make two profiles side by side.
  if (p.stage == "prefill" || p.stage == "both")
    s += fmt::format(
        "    profile_steps(\"{}/prefill\", lambda i: prefill(state), steps={}, active={}, "
        "skip_first={})\n",
        out, steps_needed(pre), pre.active, pre.skip_first);
  if (p.stage == "decode" || p.stage == "both")
    s += fmt::format(
        "    profile_steps(\"{}/decode\", lambda i: decode(state), steps={}, active={}, "
        "skip_first={})\n",
        out, steps_needed(dec), dec.active, dec.skip_first);
  if (p.stage == "timeline")
    s += fmt::format(
        "    profile_steps(\"{}/timeline\", lambda i: prefill(state) if i < {} else decode(state), "
        "steps={}, active={}, skip_first={})\n",
        out, p.prefill_steps + dec.skip_first, steps_needed(dec), dec.active, dec.skip_first);
  return s;
}

int emit_profiling_command(int argc, char** argv) {
  ProfilingPlan p;
  std::string file;
  CLI::App app{
      "Writes Python code that collects a usable profile with torch_npu.profiler.\n\n  tokamak "
      "emit profiling --stage decode --decode-steps 10 -o collect.py",
      argc > 0 ? argv[0] : "tokamak emit profiling"};
  app.add_option("--stage", p.stage, "prefill, decode, both or timeline");
  app.add_option("--decode-steps", p.decode_steps, "steps in the window");
  app.add_option("--prefill-steps", p.prefill_steps, "steps in the window");
  app.add_option("--skip", p.skip, "steps before the window (decode 3, prefill 0)");
  app.add_option("--level", p.level, "Level0, Level1, Level2 or none");
  app.add_option("--metrics", p.metrics, "one group of counters, or none");
  app.add_flag("--shapes,!--no-shapes", p.shapes, "record_shapes");
  app.add_flag("--stack", p.stack, "with_stack");
  app.add_flag("--memory", p.memory, "profile_memory");
  app.add_option("--out", p.out, "folder of the profile on the target machine");
  app.add_option("-o,--output", file, "file to write (default: stdout)");
  app.footer(
      "--project DIR [--way auto|framework|inject] [--yaml FILE]: a patch that sets the switch "
      "and\n"
      "the steps of a project that profiles itself; else this snippet.");
  try {
    app.parse(argc, argv);
    const std::string script = profiling_script(p);
    if (file.empty() || file == "-")
      std::cout << script;
    else
      write_file(file, script);
    return 0;
  } catch (const CLI::ParseError& e) {
    if (e.get_exit_code() == 0) {
      std::cout << app.help();
      return 0;
    }
    std::cerr << "error[TK0922]: " << e.what() << "\n";
    return 2;
  } catch (const UserError& e) {
    std::cerr << e.what() << "\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "internal error: " << e.what() << "\n";
    return 3;
  }
}

}  // namespace tk
