#include "timeline/command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/analysis.h"
#include "timeline/artifacts.h"
#include "timeline/check.h"
#include "timeline/compare.h"
#include "timeline/options.h"
#include "timeline/ranks.h"
#include "timeline/run.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

std::vector<ProfileFiles> choose(const std::string& path, const ProfileOptions& o) {
  const std::vector<ProfileFiles> found = find_profiles(path);
  std::vector<ProfileFiles> chosen;
  for (const ProfileFiles& f : found)
    // A single profile may be a table of several devices, of which --rank names one.
    if ((o.rank < 0 || f.rank == o.rank || (!f.rank && found.size() == 1)) &&
        (o.stage.empty() || f.stage.empty() || f.stage == o.stage))
      chosen.push_back(f);
  if (chosen.empty() || (chosen.size() > 1 && !o.all)) {
    UserError error("TK0917", chosen.empty()
                                  ? cat("no profile of that rank and stage in ", path)
                                  : cat(chosen.size(), " profiles in ", path, "; which one?"));
    for (std::size_t i = 0; i < found.size() && i < 40; ++i)
      std::move(error).note(describe(found[i]));
    throw std::move(error).help(
        "name --rank and --stage, give a deeper folder, or --all for each of them");
  }
  return chosen;
}

// --compare: a run's folder, or a profile, which is analysed first.
// `taken`: labels of the runs so far.
Run other_run(const std::string& path, const ProfileOptions& o, const fs::path& run_folder,
              const std::vector<Run>& taken) {
  std::error_code ignored;
  if (fs::exists(fs::path(path) / "metrics.json", ignored) ||
      fs::exists(fs::path(path) / "overview.json", ignored))
    return read_run(path);
  if (fs::is_directory(fs::path(path) / "runs", ignored)) {
    std::vector<Run> runs = read_runs(fs::path(path) / "runs");
    if (runs.size() == 1) return runs.front();
    if (runs.size() > 1) {
      UserError e("TK0920", cat(runs.size(), " runs in ", path, "; which one?"));
      for (const Run& r : runs) std::move(e).note(r.folder.string());
      throw std::move(e).help("give the folder of one run");
    }
  }
  ProfileOptions other = o;
  other.path = path;
  other.label.clear();
  other.structure.clear();
  other.samples.clear();
  other.all = false;
  const auto chosen = choose(path, other);
  const std::string label = default_label(chosen.front());
  auto is_taken = [&](const std::string& name) {
    return std::any_of(taken.begin(), taken.end(), [&](const Run& r) { return r.label == name; });
  };
  other.label = label;
  for (int n = 2; is_taken(other.label); ++n) other.label = cat(label, "_", n);
  const RunResult result = run_profile(chosen.front(), other, run_folder);
  return read_run(result.page_folder);
}

// A label is the name of a folder among the results: it must not lead out of them.
void check_label(const std::string& label) {
  const bool odd = std::any_of(label.begin(), label.end(), [](unsigned char c) {
    return c < ' ' || c == 0x7f || c == '/' || c == '\\';
  });
  if (odd || label == "." || label == ".." || label.size() > 120)
    throw UserError("TK0922", "--label: this is no name of a folder")
        .help("at most 120 bytes, without slashes and control characters");
}

int run(const ProfileOptions& o) {
  check_label(o.label);
  if (!o.withdraw.empty()) {
    withdraw_history(fs::path(o.out.empty() ? o.path : o.out) / "HISTORY.md", o.withdraw,
                     o.withdraw_reason);
    return 0;
  }
  if (o.check) {
    const CheckReport report = check_profile(o);
    if (!o.out.empty()) {
      ProfileFiles whole;
      whole.root = whole.folder = o.path;
      refuse_inside(o.out, whole);
      fs::create_directories(o.out);
      write_output(fs::path(o.out) / "profile_check.json",
                   check_json(report).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
    }
    if (o.json)
      std::cout << check_json(report).dump(1, ' ', false, json::error_handler_t::replace) << "\n";
    else
      std::cout << check_text(report);
    return report.usable() ? 0 : 1;
  }
  if (o.keep_ai_cpu && !o.overview)
    throw UserError("TK0922",
                    "--keep-ai-cpu shifts the index of operators and works with --overview only");
  int code = 0;
  const auto chosen = choose(o.path, o);
  for (const ProfileFiles& f : chosen) {
    RunResult result = run_profile(
        f, o,
        chosen.size() > 1 ? fs::path(o.out.empty() ? "perf_breakdown" : o.out) / rank_folder(f)
                          : fs::path(o.out));
    code = std::max(code, result.code);
    if (result.code != 0) {
      std::cout << result.text;
      continue;
    }
    std::vector<Run> runs;
    if (!o.compare.empty()) {
      runs.push_back(read_run(result.page_folder));
      for (const std::string& path : o.compare)
        runs.insert(runs.end() - 1, other_run(path, o, result.run_folder, runs));
    } else {
      runs = read_runs(result.run_folder / "runs");
    }
    const fs::path page = result.run_folder / "history.html";
    write_output(page, history_page(runs, o.baseline, o.metric));
    std::string observations;
    if (runs.size() > 1) {
      const Run& base = runs[runs.size() - 2];
      for (const std::string& line : largest_changes(base, runs.back(), o.metric, 4))
        observations += cat("- against ", base.label, ": ", line, "\n");
      if (!o.json) result.text += cat("compared: ", page.string(), "\n", observations);
    }
    append_history(result.run_folder / "HISTORY.md", result.label, result.history + observations);
    std::cout << result.text;
  }
  if (o.all && chosen.size() > 1) {
    const fs::path out = o.out.empty() ? "perf_breakdown" : o.out;
    const RankReport ranks = compare_ranks(chosen, o);
    write_output(out / "ranks.json",
                 ranks_json(ranks).dump(1, ' ', false, json::error_handler_t::replace) + "\n");
    if (!o.json) std::cout << ranks_text(ranks);
  }
  return code;
}

}  // namespace

int profile_command(int argc, char** argv, GraphReader read_graph) {
  try {
    ProfileOptions options;
    options.read_graph = std::move(read_graph);
    const int parsed = parse_profile_options(argc, argv, options);
    if (parsed >= 0) return parsed;
    return run(options);
  } catch (const UserError& e) {
    std::cerr << e.what() << (std::string_view(e.what()).ends_with('\n') ? "" : "\n");
    return 2;
  } catch (const InternalError& e) {
    std::cerr << e.what() << "\n";
    return 3;
  } catch (const fs::filesystem_error& e) {
    std::cerr << "error[TK0103]: " << e.what() << "\n";
    return 2;
  } catch (const std::bad_alloc&) {
    std::cerr << "error[TK0903]: not enough memory for this profile\n  help: collect fewer steps\n";
    return 2;
  } catch (const std::exception& e) {
    std::cerr << "internal error: " << e.what() << "\n";
    return 3;
  }
}

}  // namespace tk
