#include "timeline/analysis.h"

#include <algorithm>
#include <cmath>
#include <ctime>
#include <map>
#include <set>

#include "base/error.h"
#include "timeline/check_tables.h"
#include "timeline/decimal.h"
#include "timeline/load.h"
#include "timeline/structure_auto.h"
#include "timeline/structure_modules.h"
#include "timeline/structure_sample.h"

namespace tk {

namespace {

OutlierRule outlier_rule(const std::string& text) {
  OutlierRule rule;
  const std::size_t at = text.find(':');
  const std::string method = text.substr(0, at);
  if (method != "iqr" && method != "z")
    throw UserError("TK0922", cat("--outlier ", text, ": the method is iqr or z"))
        .help("for example --outlier iqr:1.5");
  rule.z = method == "z";
  rule.k = rule.z ? 2 : 1.5;
  if (at != text.npos) {
    const auto k = decimal_double(text.substr(at + 1));
    if (!k || *k <= 0)
      throw UserError("TK0922", cat("--outlier ", text, ": the factor is a number above 0"));
    rule.k = *k;
  }
  return rule;
}

// A decode step's attention reads one token per sequence: the dimension of tokens equals the batch.
// Told by the matrix multiplications: the rows of the first operand that occur most.
void guess_stage(Analysis& a, const ProfileOptions& options) {
  if (!options.stage.empty()) {
    a.stage = options.stage;
    a.stage_origin = "user";
    return;
  }
  if (!a.files.stage.empty()) {
    a.stage = a.files.stage;
    a.stage_origin = "auto:folder_name";
    return;
  }
  const bool training = std::any_of(a.ops.ops.begin(), a.ops.ops.end(), [&](std::uint32_t i) {
    return a.timeline.text(a.timeline.kernels[i].type).find("Grad") != std::string_view::npos;
  });
  if (training) {  // neither of the two
    a.stage_origin = "auto:gradients";
    return;
  }
  for (std::uint32_t i : a.ops.ops) {
    const Kernel& k = a.timeline.kernels[i];
    const std::string_view type = a.timeline.text(k.type);
    const bool decode =
        type.starts_with("IncreFlashAttention") || type.starts_with("PagedAttention");
    const bool prefill =
        type.starts_with("PromptFlashAttention") || type.starts_with("FlashAttentionScore");
    if (!decode && !prefill) continue;
    a.stage = decode ? "decode" : "prefill";
    a.stage_origin = cat("auto:", type);
    return;
  }
  a.stage_origin = "auto:unknown";
}

// Paths from a captured model; false if they do not fit.
bool take_graph(Analysis& a, const ProfileOptions& o) {
  if (!o.read_graph)
    throw UserError("TK1704", "this program reads profiles only, no captured models")
        .help("use `tokamak profile`");
  const GraphAlignment x =
      align_graph(a.timeline, a.ops, a.roles, o.read_graph(o.graph, a.stage == "prefill"));
  const std::string found = cat(std::lround(x.coverage() * 1000) / 10.0, " % of ", x.compute,
                                " compute kernels are in the order of ", o.graph);
  if (!has_modules(a.timeline, a.ops) || x.coverage() < 0.9) {
    a.warnings.push_back(
        cat(found, ", fewer than 90 %: structure and names are the automatic ones"));
    return false;
  }
  a.timeline.notes.push_back(cat(found, "; names are the model's"));
  if (x.layers < x.graph_layers)
    a.timeline.notes.push_back(
        cat("of the model's ", x.graph_layers, " layers ", x.layers, " ran"));
  return true;
}

void make_theory(Analysis& a, const ProfileOptions& options) {
  if (options.theory == "off") return;
  a.theory = options.theory == "on" ? compute_theory(a.timeline, a.ops, a.roles)
                                    : read_theory(options.theory, a.timeline, a.ops);
  a.theory.review_ratio = options.theory_review_ratio;
  if (!options.theory_decisions.empty()) {
    a.theory.decisions_path = options.theory_decisions;
    a.theory.decisions = read_theory_decisions(options.theory_decisions);
  }
  for (const std::string& w : a.theory.warnings) a.warnings.push_back(w);
}

void gate(Analysis& a, const ProfileOptions& options) {
  const Metrics& m = *a.metrics;
  std::size_t unowned = m.compute_unowned;
  // Pre and post are parts of the step that were found; only what is left over speaks against a
  // structure that nobody declared.
  const bool automatic = a.structure.origin != "samples";
  if (automatic) {
    unowned = 0;
    // Between two phases stand the end of one and the inputs of the next: parts as well.
    struct Span {
      Ns from = INT64_MAX, to = INT64_MIN;
    };
    std::map<std::string, Span> phases;
    for (const Component& c : a.structure.components) {
      Span& s = phases[c.phase];
      s.from = std::min(s.from, a.timeline.kernels[a.ops.ops[c.ops.front()]].start);
      s.to = std::max(s.to, a.timeline.kernels[a.ops.ops[c.ops.back()]].start);
    }
    for (std::uint32_t op : a.structure.between) {
      const Kernel& k = a.timeline.kernels[a.ops.ops[op]];
      const bool inside = std::any_of(phases.begin(), phases.end(), [&](const auto& p) {
        return k.start > p.second.from && k.start < p.second.to;
      });
      unowned += inside && k.core != Core::communication;
    }
  }
  if (m.compute_ops == 0) return;
  const double share = static_cast<double>(unowned) / static_cast<double>(m.compute_ops);
  if (share <= options.unmatched_limit) return;
  std::string first;
  std::size_t n = 0;
  for (const auto* v : {&a.structure.pre, &a.structure.between, &a.structure.post})
    for (std::uint32_t op : *v)
      if (n++ < 20) first += cat(n > 1 ? ", " : "", op);
  const std::string text = cat(
      unowned, " of ", m.compute_ops, " compute kernels (", std::lround(share * 1000) / 10.0,
      " %) are in no component, more than ", options.unmatched_limit * 100, " %; first: ", first);
  if (options.accepts("unmatched")) {
    a.warnings.push_back(text + " (accepted)");
  } else {
    a.warnings.push_back(text +
                         ". Mostly sampling, embedding or copies: --accept unmatched. Long runs of "
                         "compute: declare a component (--structure, --samples)");
    a.blocked = true;
  }
}

}  // namespace

std::string default_label(const ProfileFiles& files) {
  std::string name = files.root.filename().string();
  if (name.empty()) name = files.root.parent_path().filename().string();
  for (const char* end : {".gz", ".csv", ".json", "_ascend_pt"})
    if (name.ends_with(end)) name.resize(name.size() - std::string(end).size());
  for (char& c : name)
    if (!(std::isalnum(static_cast<unsigned char>(c)) || c == '_' || c == '-' || c == '.')) c = '_';
  return name.empty() || name == "." || name == ".." ? "profile" : name;
}

namespace {

// A table of several devices is cut down to the chosen one; none is taken silently (BD-04).
void choose_device(Timeline& t, const ProfileOptions& options) {
  std::set<std::int32_t> devices;
  for (std::size_t i = 0; i < t.kernels.size(); ++i)
    if (i == 0 || t.kernels[i].device != t.kernels[i - 1].device)
      devices.insert(t.kernels[i].device);
  if (devices.size() < 2) return;
  std::string list;
  for (std::int32_t d : devices) list += cat(list.empty() ? "" : ", ", d);
  if (options.rank < 0 || !devices.contains(options.rank))
    throw UserError("TK0917", cat("the table holds kernels of devices ", list, "; which one?"))
        .at(t.table ? t.table->path : t.trace.path)
        .help("name one with --rank");
  std::erase_if(t.kernels, [&](const Kernel& k) { return k.device != options.rank; });
  t.notes.push_back(cat("device ", options.rank, " of ", list));
}

}  // namespace

namespace {

// AI CPU kernels are in no block; where they take much of a step that is said (VN-54).
void warn_of_ai_cpu(Analysis& a) {
  constexpr double much = 0.05;
  const Timeline& t = a.timeline;
  Ns sum = 0;
  std::size_t count = 0;
  const Kernel* longest = nullptr;
  for (const std::uint32_t i : a.by_step[a.choice.step]) {
    const Kernel& k = t.kernels[i];
    if (k.core != Core::ai_cpu) continue;
    sum += k.duration;
    ++count;
    if (longest == nullptr || k.duration > longest->duration) longest = &k;
  }
  const StepSummary& step = a.steps[a.choice.step];
  const double share =
      static_cast<double>(sum) / std::max(1.0, static_cast<double>(step.last - step.first));
  if (longest == nullptr || share < much) return;
  a.warnings.push_back(cat("ai_cpu_kernels: ", count, " AI CPU kernel", count == 1 ? "" : "s",
                           " take ", show_ns(static_cast<double>(sum)), ", ",
                           std::llround(100 * share), " % of the step; the longest is ",
                           t.text(longest->name),
                           ": replace the operator, or see it with "
                           "--overview --keep-ai-cpu"));
}

}  // namespace

std::unique_ptr<Analysis> analyse(const ProfileFiles& files, const ProfileOptions& options) {
  auto out = std::make_unique<Analysis>();
  Analysis& a = *out;
  a.files = files;
  LoadOptions load;
  load.trace = !options.no_trace;
  load.allow_truncated = options.allow_truncated;
  a.timeline = load_profile(files, load);
  Timeline& t = a.timeline;
  choose_device(t, options);
  if (const EngineCells engines = engine_cells(t); engines.disagree())
    a.warnings.push_back(cat("durations_disagree: engine time is longer than the kernel in ",
                             engines.longer, " of ", engines.timed,
                             " cells: the file was edited, or Duration(us) is another column"));
  a.label = options.label.empty() ? default_label(files) : options.label;
  std::optional<int> rank = files.rank ? files.rank : t.info.rank;
  if (!rank && options.rank >= 0) rank = options.rank;
  a.rank = rank ? std::to_string(*rank) : "unknown";
  a.roles = roles_of(t);
  if (!options.overview) cut_passes(t, a.roles);
  a.by_step = kernels_by_step(t);
  a.steps = summarize_steps(t, a.by_step);
  a.choice = choose_step(t, a.by_step, a.steps, options.step, options.strict_steps);
  for (const std::string& w : a.choice.warnings) a.warnings.push_back(w);
  a.ops = step_ops(t, static_cast<std::int32_t>(a.choice.step), a.by_step[a.choice.step],
                   options.keep_ai_cpu);
  if (a.ops.size() == 0)
    throw UserError("TK0912", cat("step ", a.step().name, " holds only AI CPU kernels"))
        .help("choose another --step, or --overview --keep-ai-cpu");
  warn_of_ai_cpu(a);
  a.gaps = std::make_unique<GapFinder>(t);
  a.overview = make_overview(t, a.steps, a.choice.step, a.ops, *a.gaps);
  guess_stage(a, options);
  if (options.overview) {
    a.structure.reason = "only the overview was asked for";
    return out;
  }
  if (!options.run_folder.empty() && options.structure.empty() && options.samples.empty())
    a.reuse = find_reuse(options.run_folder, options.reuse, t, a.ops);
  if (!options.structure.empty() || !options.samples.empty())
    a.structure = sample_structure(t, a.ops, options.structure, options.samples, options.accept);
  else if (!a.reuse.structure.empty())
    a.structure = sample_structure(t, a.ops, a.reuse.structure, a.reuse.samples, options.accept);
  else if (has_modules(t, a.ops) || (!options.graph.empty() && take_graph(a, options)))
    a.structure = module_structure(t, a.ops);
  else
    a.structure = auto_structure(t, a.ops, a.roles);
  for (const Warning& w : a.structure.warnings) a.warnings.push_back(cat(w.code, ": ", w.message));
  a.blocked = a.structure.blocked;
  if (!a.structure.found) {
    if (!t.has_stream && !options.structure.empty()) a.blocked = true;
    return out;
  }
  const std::string rules = options.rules.empty() ? a.reuse.rules.string() : options.rules;
  a.rules =
      rules.empty() ? default_rules(t, a.ops, a.roles, a.structure) : read_cluster_rules(rules);
  if (!options.outlier.empty()) a.rules.outlier = outlier_rule(options.outlier);
  a.alignment = align_steps(t, a.by_step, a.steps, a.choice.step, a.ops);
  make_theory(a, options);
  a.metrics = compute_metrics(t, a.ops, a.structure, a.rules, a.theory);
  a.metrics->label = a.label;
  a.metrics->generated_at = std::time(nullptr);
  for (const std::string& w : a.metrics->warnings) a.warnings.push_back(w);
  gate(a, options);
  return out;
}

}  // namespace tk
