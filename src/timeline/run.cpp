#include "timeline/run.h"

#include <fmt/format.h>

#include <algorithm>
#include <iostream>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "timeline/analysis.h"
#include "timeline/artifacts.h"
#include "timeline/ask.h"
#include "timeline/insights.h"
#include "timeline/page/insights_page.h"
#include "timeline/page/page.h"
#include "timeline/split.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

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

std::string result_text(const Analysis& a) {
  std::string text = cat(a.label, ": ", describe(a.files), "\n");
  if (!a.metrics) {
    if (!a.structure.reason.empty()) text += cat("no layers: ", a.structure.reason, "\n");
    return text + overview_text(a.timeline, a.overview);
  }
  text += cat("step ", a.step().name, " (", a.choice.origin, "), ", a.ops.size(), " kernels");
  for (const Phase& p : a.structure.phases) text += cat("; ", p.name, ": ", p.layers, " layers");
  text +=
      cat("\nkernels of no component: ", a.structure.pre.size(), " before, ",
          a.structure.between.size(), " between, ", a.structure.post.size(), " after the layers\n");
  for (const Section& s : a.metrics->sections) {
    text += fmt::format(
        "  {:<16} {:>4} x  TOTAL {:>10.1f} us  bubble {:>9.1f} us{}\n", s.type, s.instances.size(),
        s.total.series.median / 1e3, s.items.back().series.median / 1e3,
        s.total.outliers.empty() ? "" : fmt::format("  {} outliers", s.total.outliers.size()));
    for (const SubItem& i : s.items)
      if (!i.bubble)
        text += fmt::format(
            "      {:<22} {:>10.1f} us  {:5.1f} %\n", i.name, i.series.median / 1e3,
            s.total.series.median > 0 ? 100 * i.series.median / s.total.series.median : 0.0);
  }
  for (const std::string& n : a.timeline.notes) text += cat("  note: ", n, "\n");
  if (!a.reuse.text.empty()) text += cat(a.reuse.text, "\n");
  return text;
}

std::string history_text(const Analysis& a, const fs::path& page) {
  std::string text = cat("- profile: ", a.files.root.string(), "\n- step ", a.step().name, " (",
                         a.choice.origin, "), ", a.ops.size(), " kernels\n");
  if (!a.structure.found)
    return text +
           cat("- structure: none (", a.structure.reason, ")\n- page: ", page.string(), "\n");
  text += "- structure: ";
  for (const Phase& p : a.structure.phases) text += cat(p.name, " ", p.layers, " layers; ");
  text += cat("origin ", a.structure.origin, "\n");
  for (const std::string& type : a.structure.expected)
    if (const std::string line = sample_line(a.timeline, a.ops, a.structure, type); !line.empty())
      text += cat("- sample ", line, "\n");
  if (!a.reuse.text.empty()) text += cat("- ", a.reuse.text, "\n");
  return text + cat("- rules: ", a.rules.origin, "\n- page: ", page.string(), "\n");
}

// Writes insights/ and gives the main page its column.
std::vector<RowInsight> make_insights(Analysis& a, const ProfileOptions& o,
                                      const fs::path& page_folder) {
  std::vector<RowInsight> rows;
  if (!a.metrics || o.no_insights) return rows;
  const Insights found = find_insights({a.timeline, a.ops, a.structure, *a.metrics, *a.gaps,
                                        a.roles, o.taxonomy, o.annotations, a.theory, a.alignment});
  for (const std::string& w : found.warnings) a.warnings.push_back(w);
  write_insights((page_folder / "insights").string(), found);
  write_output(page_folder / "insights" / "index.html", insights_page(found, a.label));
  for (const Insight& x : found.all)
    if (x.confidence != "low" && !x.type.empty())
      rows.push_back({x.type, x.item, x.confidence, std::string(insight_category(x.kind)),
                      x.summary, x.reason, x.origin, x.mapping_note});
  return rows;
}

}  // namespace

void refuse_inside(const fs::path& run, const ProfileFiles& files) {
  std::error_code ignored;
  const fs::path inside = fs::weakly_canonical(fs::absolute(run), ignored);
  const bool folder = fs::is_directory(files.root, ignored);
  const fs::path profile =
      fs::weakly_canonical(fs::absolute(folder ? files.root : files.folder), ignored);
  const auto end =
      std::mismatch(profile.begin(), profile.end(), inside.begin(), inside.end()).first;
  // A single file may lie anywhere, also above the results; only its own folder's tables matter.
  if (end == profile.end() && folder)
    throw UserError("TK0916", cat("the results' folder ", run.string(), " is inside the profile ",
                                  profile.string()))
        .help("give another folder with -o; a profile is never written to");
}

std::string rank_folder(const ProfileFiles& f) {
  std::string name = f.rank ? cat("rank", *f.rank) : f.folder.filename().string();
  if (!f.rank && f.folder.filename() == "ASCEND_PROFILER_OUTPUT")
    name = f.folder.parent_path().filename().string();
  return f.stage.empty() ? name : cat(name, "_", f.stage);
}

RunResult run_profile(const ProfileFiles& files, const ProfileOptions& o, const fs::path& folder) {
  RunResult r;
  r.label = o.label.empty() ? default_label(files) : o.label;
  r.run_folder = folder.empty() ? fs::path("perf_breakdown") / r.label : folder;
  refuse_inside(r.run_folder, files);
  ProfileOptions with_folder = o;
  with_folder.run_folder = r.run_folder.string();
  const auto analysis = analyse(files, with_folder);
  Analysis& a = *analysis;
  r.page_folder = r.run_folder / "runs" / a.label;
  fs::create_directories(r.page_folder);
  // A person's file stays as it is until it is deleted.
  WrittenFiles written = written_files(r.run_folder);
  auto write_own = [&](const std::string& name, const json& value) {
    if (edited(r.run_folder, written, name)) return;
    const std::string text = json_text(value);
    written[name] = file_hash(text);
    write_output(r.run_folder / name, text);
  };
  write_json(r.page_folder / "overview.json", overview_json(a.timeline, a.overview));
  // The two large texts beside the page: the second core is free here.
  std::exception_ptr failed;
  std::thread side([&] {
    try {
      write_output(r.run_folder / "raw_ops.json", raw_ops_text(a.timeline, a.ops, a.step()));
      write_output(r.run_folder / "raw_ops_details.json",
                   raw_ops_details_text(a.timeline, a.ops, a.step(), a.theory));
    } catch (...) {
      failed = std::current_exception();
    }
  });
  try {
    if (a.structure.found) {
      // What a person gave is not overwritten by what was made of it.
      if (o.structure.empty() && a.reuse.structure.empty()) {
        write_own("structure_spec.json", structure_spec_json(a.structure));
        write_own("sample_ack.json", sample_ack_json(a.timeline, a.ops, a.structure));
      }
      write_json(r.run_folder / "structure_draft.json",
                 structure_draft_json(a.timeline, a.ops, a.structure));
      if (o.rules.empty() && a.reuse.rules.empty())
        write_own(cat(a.label, "_spec.json"), cluster_rules_json(a.rules));
    }
    if (o.ask)
      write_output(r.run_folder / "questions.md", questions_text(a.timeline, a.ops, a.structure));
    json inputs = inputs_json(a, o);
    inputs["written"] = written;
    write_json(r.run_folder / "inputs.json", inputs);
    const fs::path page = r.page_folder / "index.html";
    if (!a.blocked) {
      const std::vector<RowInsight> insights = make_insights(a, o, r.page_folder);
      const PageInput in{
          a.timeline,
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
          a.theory.kind.empty() ? "" : cat(a.theory.kind, " (", a.theory.source, ")"),
          a.warnings,
          a.metrics && !o.no_insights};
      if (a.metrics)
        write_output(r.page_folder / "metrics.json",
                     metrics_text(a.timeline, a.ops, a.structure, *a.metrics, a.theory));
      write_output(page, profile_page(in));
    }
    if (o.split && a.structure.found) write_splits(r.run_folder, a.timeline, a.ops, a.structure);
    r.code = a.blocked ? 1 : 0;
    if (o.json)
      r.text = a.metrics ? metrics_text(a.timeline, a.ops, a.structure, *a.metrics, a.theory)
                         : overview_json(a.timeline, a.overview)
                                   .dump(1, ' ', false, json::error_handler_t::replace) +
                               "\n";
    else
      r.text = result_text(a) +
               (a.blocked ? std::string("no page: see the warnings; --accept CODE lets one pass\n")
                          : cat("page: ", page.string(), "\n"));
    r.history = history_text(a, page);
  } catch (...) {
    side.join();
    throw;
  }
  side.join();
  if (failed) std::rethrow_exception(failed);
  for (const std::string& w : a.warnings) std::cerr << "warning: " << w << "\n";
  return r;
}

}  // namespace tk
