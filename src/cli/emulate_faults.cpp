#include "cli/emulate_faults.h"

#include <filesystem>
#include <utility>

#include "base/error.h"
#include "base/file.h"

namespace tk::cli {

namespace fs = std::filesystem;

Faults parse_faults(std::string_view text) {
  Faults f;
  const std::pair<std::string_view, bool*> names[] = {{"cut-trace", &f.cut_trace},
                                                      {"missing-rank", &f.missing_rank},
                                                      {"clock-drop", &f.clock_drop},
                                                      {"run-failed", &f.run_failed},
                                                      {"ai-cpu-stall", &f.ai_cpu_stall}};
  while (!text.empty()) {
    const std::size_t comma = text.find(',');
    const std::string_view name = text.substr(0, comma);
    text = comma == std::string_view::npos ? "" : text.substr(comma + 1);
    std::string all;
    bool found = false;
    for (const auto& [known, flag] : names) {
      all += cat(all.empty() ? "" : ", ", known);
      if (known != name) continue;
      *flag = found = true;
    }
    if (!found)
      throw UserError("TK1458", cat("there is no fault '", name, "'")).help(cat("they are ", all));
  }
  return f;
}

void damage(const std::string& profile, const Faults& faults) {
  const fs::path tables = fs::path(profile) / "ASCEND_PROFILER_OUTPUT";
  if (faults.cut_trace) {
    const fs::path trace = tables / "trace_view.json";
    fs::resize_file(trace, fs::file_size(trace) * 2 / 3);
  }
  if (faults.run_failed) {
    fs::remove_all(tables);
    write_file(fs::path(profile) / "run.log",
               "emulated by tokamak simulate\n[ERROR] msprof: run failed, the tables were not "
               "written\n");
  }
}

}  // namespace tk::cli
