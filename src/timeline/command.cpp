#include "timeline/command.h"

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <iostream>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "report/profile/insights_page.h"
#include "report/profile/page.h"
#include "timeline/analysis.h"
#include "timeline/artifacts.h"
#include "timeline/insights.h"
#include "timeline/options.h"
#include "timeline/split.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// The folder of a run; never inside the profile (BD-01).
fs::path run_folder(const Analysis& a, const ProfileOptions& o, bool several) {
  fs::path run = o.out.empty() ? fs::path("perf_breakdown") / a.label : fs::path(o.out);
  if (several)
    run /= cat(a.label, a.rank == "unknown" ? "" : cat("_rank", a.rank),
               a.stage.empty() ? "" : cat("_", a.stage));
  std::error_code ignored;
  const fs::path inside = fs::weakly_canonical(run, ignored);
  const fs::path profile = fs::weakly_canonical(
      fs::is_directory(a.files.root, ignored) ? a.files.root : a.files.folder, ignored);
  const auto end =
      std::mismatch(profile.begin(), profile.end(), inside.begin(), inside.end()).first;
  const bool a_profile_folder = fs::is_directory(a.files.root, ignored) || !o.out.empty();
  if (end == profile.end() && a_profile_folder)
    throw UserError("TK0916", cat("the results' folder ", run.string(), " is inside the profile ",
                                  profile.string()))
        .help("give another folder with -o; a profile is never written to");
  return run;
}

json inputs_json(const Analysis& a, const ProfileOptions& o) {
  json j = {{"prof_dir", fs::absolute(a.files.root).string()},
            {"kernel_csv", a.files.kernels.empty() ? "" : fs::absolute(a.files.kernels).string()},
            {"trace_json", a.files.trace.empty() ? "" : fs::absolute(a.files.trace).string()},
            {"model_script_paths", json::array()},
            {"phase", a.stage.empty() ? "unknown" : a.stage},
            {"step", a.step().name}};
  if (a.rank == "unknown")
    j["rank"] = nullptr;
  else
    j["rank"] = std::stoi(a.rank);
  j["origin"] = {{"phase", a.stage_origin},
                 {"rank", o.rank >= 0 ? "user" : "auto:only"},
                 {"step", a.choice.origin},
                 {"structure", a.structure.found ? a.structure.origin : "none"},
                 {"rules", a.metrics ? a.rules.origin : "none"}};
  return j;
}

void say_result(const Analysis& a, const fs::path& page) {
  std::string text = cat(a.label, ": ", describe(a.files), "\n");
  if (!a.metrics) {
    if (!a.structure.reason.empty()) text += cat("no layers: ", a.structure.reason, "\n");
    text += overview_text(a.timeline, a.overview);
  } else {
    text += cat("step ", a.step().name, " (", a.choice.origin, "), ", a.ops.size(), " kernels");
    for (const Phase& p : a.structure.phases) text += cat("; ", p.name, ": ", p.layers, " layers");
    text += cat("\nkernels of no component: ", a.structure.pre.size(), " before, ",
                a.structure.between.size(), " between, ", a.structure.post.size(),
                " after the layers\n");
    for (const Section& s : a.metrics->sections) {
      char line[256];
      std::snprintf(
          line, sizeof line, "  %-16s %4zu x  TOTAL %10.1f us  bubble %9.1f us%s\n", s.type.c_str(),
          s.instances.size(), s.total.series.median / 1e3, s.items.back().series.median / 1e3,
          s.total.outliers.empty() ? "" : cat("  ", s.total.outliers.size(), " outliers").c_str());
      text += line;
      for (const SubItem& i : s.items) {
        if (i.bubble) continue;
        std::snprintf(
            line, sizeof line, "      %-22s %10.1f us  %5.1f %%\n", i.name.c_str(),
            i.series.median / 1e3,
            s.total.series.median > 0 ? 100 * i.series.median / s.total.series.median : 0.0);
        text += line;
      }
    }
    for (const std::string& n : a.timeline.notes) text += cat("  note: ", n, "\n");
  }
  std::cout << text;
  for (const std::string& w : a.warnings) std::cerr << "warning: " << w << "\n";
  std::cout << "page: " << page.string() << "\n";
}

// Writes insights/ and gives the main page its column.
std::vector<RowInsight> make_insights(Analysis& a, const ProfileOptions& o,
                                      const fs::path& page_folder) {
  std::vector<RowInsight> rows;
  if (!a.metrics || o.no_insights) return rows;
  const Insights found = find_insights({a.timeline, a.ops, a.structure, *a.metrics, *a.gaps,
                                        a.roles, o.taxonomy, o.annotations, false});
  for (const std::string& w : found.warnings) a.warnings.push_back(w);
  write_insights((page_folder / "insights").string(), found);
  write_file(page_folder / "insights" / "index.html", insights_page(found, a.label));
  for (const Insight& x : found.all)
    if (x.confidence != "low" && !x.type.empty())
      rows.push_back({x.type, x.item, x.confidence, std::string(insight_category(x.kind)),
                      x.summary, x.reason, x.origin, x.mapping_note});
  return rows;
}

int one_profile(const ProfileFiles& files, const ProfileOptions& o, bool several) {
  const auto analysis = analyse(files, o);
  Analysis& a = *analysis;
  const fs::path run = run_folder(a, o, several);
  const fs::path page_folder = run / "runs" / a.label;
  fs::create_directories(page_folder);
  write_json(run / "inputs.json", inputs_json(a, o));
  write_json(page_folder / "overview.json", overview_json(a.timeline, a.overview));
  write_file(run / "raw_ops.json", raw_ops_text(a.timeline, a.ops, a.step()));
  write_file(run / "raw_ops_details.json", raw_ops_details_text(a.timeline, a.ops, a.step()));
  if (a.structure.found) {
    write_json(run / "structure_spec.json", structure_spec_json(a.structure));
    write_json(run / "sample_ack.json", sample_ack_json(a.timeline, a.ops, a.structure));
    write_json(run / "structure_draft.json", structure_draft_json(a.timeline, a.ops, a.structure));
    write_json(run / cat(a.label, "_spec.json"), cluster_rules_json(a.rules));
  }
  const fs::path page = page_folder / "index.html";
  if (!a.blocked) {
    const std::vector<RowInsight> insights = make_insights(a, o, page_folder);
    PageInput in{a.timeline,
                 a.ops,
                 a.structure,
                 a.overview,
                 a.metrics ? &*a.metrics : nullptr,
                 insights,
                 a.label,
                 a.stage,
                 a.rank,
                 a.choice.origin,
                 a.metrics ? a.rules.origin : "none",
                 a.theory_source,
                 a.warnings,
                 a.metrics && !o.no_insights};
    if (a.metrics)
      write_json(page_folder / "metrics.json",
                 metrics_json(a.timeline, a.ops, a.structure, *a.metrics));
    write_file(page, profile_page(in));
  }
  if (o.split) write_splits(run, a.timeline, a.ops, a.structure);
  if (o.json)
    std::cout << (a.metrics ? metrics_json(a.timeline, a.ops, a.structure, *a.metrics)
                            : overview_json(a.timeline, a.overview))
                     .dump(1, ' ', false, json::error_handler_t::replace)
              << "\n";
  else
    say_result(a, page);
  return a.blocked ? 1 : 0;
}

int run(const ProfileOptions& o) {
  std::vector<ProfileFiles> found = find_profiles(o.path);
  std::vector<ProfileFiles> chosen;
  for (const ProfileFiles& f : found)
    if ((o.rank < 0 || f.rank == o.rank) &&
        (o.stage.empty() || f.stage.empty() || f.stage == o.stage))
      chosen.push_back(f);
  if (chosen.empty() || (chosen.size() > 1 && !o.all)) {
    UserError error("TK0917", chosen.empty()
                                  ? cat("no profile of that rank and stage in ", o.path)
                                  : cat(chosen.size(), " profiles in ", o.path, "; which one?"));
    for (std::size_t i = 0; i < found.size() && i < 40; ++i)
      error = std::move(error).note(describe(found[i]));
    throw std::move(error).help(
        "name --rank and --stage, give a deeper folder, or --all for each of them");
  }
  int code = 0;
  for (const ProfileFiles& f : chosen) code = std::max(code, one_profile(f, o, chosen.size() > 1));
  return code;
}

}  // namespace

int profile_command(int argc, char** argv) {
  try {
    ProfileOptions options;
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
