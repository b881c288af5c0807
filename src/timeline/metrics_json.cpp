#include <fmt/format.h>

#include <iterator>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/artifacts.h"
#include "timeline/metrics.h"

namespace tk {

using nlohmann::json;

namespace {

double ms(double ns) { return ns / 1e6; }

json series_json(const Series& s) {
  return {{"count", s.count},    {"median_ms", ms(s.median)}, {"mean_ms", ms(s.mean)},
          {"std_ms", ms(s.std)}, {"p95_ms", ms(s.p95)},       {"min_ms", ms(s.low)},
          {"max_ms", ms(s.high)}};
}

// The names are those of the skill's render.py.
json theory_json(const StepOps& ops, const SubItem& item) {
  if (!item.theory) return nullptr;
  const TheorySummary& x = *item.theory;
  json instances = json::array();
  for (std::size_t i = 0; i < x.per_instance.size(); ++i) {
    const TheoryCandidate& c = x.per_instance[i];
    json streams = json::array();
    for (const TheoryStream& s : c.streams)
      streams.push_back({{"stream_id", ops.stream_name(s.stream)},
                         {"op_count", s.ops},
                         {"supported_count", s.supported},
                         {"observed_union_us", static_cast<double>(s.busy) / 1e3},
                         {"theoretical_sum_us", s.supported ? json(s.sum_us) : json(nullptr)}});
    json e = {{"instance_idx", i},
              {"needs_agent_review", c.review},
              {"multi_stream", c.streams.size() > 1},
              {"effective_theoretical_us", c.us ? json(*c.us) : json(nullptr)},
              {"missing_theory_count", c.unsupported},
              {"stream_candidates", std::move(streams)}};
    if (!c.streams.empty()) e["selected_stream"] = ops.stream_name(c.streams[c.selected].stream);
    if (!c.note.empty()) e["semantic_note"] = c.note;
    if (!c.warning.empty()) e["selection_warning"] = c.warning;
    instances.push_back(std::move(e));
  }
  return {{"median_theoretical_ms", x.median_us ? json(*x.median_us / 1e3) : json(nullptr)},
          {"supported_instance_count", x.supported},
          {"instance_count", x.per_instance.size()},
          {"needs_agent_review_count", x.review},
          {"multi_stream_count", x.multi_stream},
          {"missing_theory_count", x.unsupported_kernels},
          {"semantic_notes", x.notes},
          {"per_instance", std::move(instances)}};
}

// The kernels of one sub-item, one a line. They are most of the file, so they are written as text.
void append_records(std::string& out, const Timeline& t, const StepOps& ops, const Structure& s,
                    const Section& x, const SubItem& item) {
  std::string phase, type;
  out += "[";
  for (std::size_t i = 0; i < item.records.size(); ++i) {
    const OpRecord& r = item.records[i];
    const Component& c = s.components[x.instances[r.instance]];
    phase.clear();
    type.clear();
    append_json_text(phase, c.phase);
    append_json_text(type, t.text(t.kernels[ops.ops[r.op]].type));
    fmt::format_to(std::back_inserter(out),
                   "{}\n{{\"inst_idx\": {}, \"op_idx\": {}, \"phase\": {}, \"layer_idx\": {}, "
                   "\"op_name\": {}, \"occurrence\": {}}}",
                   i ? "," : "", r.instance, r.op, phase, c.layer, type, r.occurrence);
  }
  out += "]";
}

// An object without its closing brace: more members follow.
std::string opened(const json& object) {
  std::string text = object.dump(-1, ' ', false, json::error_handler_t::replace);
  text.pop_back();
  return text;
}

}  // namespace

std::string metrics_text(const Timeline& t, const StepOps& ops, const Structure& s,
                         const Metrics& m, const Theory& theory) {
  std::string sections;
  for (const Section& x : m.sections) {
    auto where = [&](std::size_t i) {
      const Component& c = s.components[x.instances[i]];
      return json{{"phase", c.phase}, {"layer_idx", c.layer}};
    };
    auto item_json = [&](const SubItem& item) {
      json outliers = json::array();
      for (std::size_t i : item.outliers) {
        json o = where(i);
        o["value_ms"] = ms(static_cast<double>(item.per_instance[i]));
        outliers.push_back(std::move(o));
      }
      json values = json::array();
      for (Ns v : item.per_instance) values.push_back(ms(static_cast<double>(v)));
      json j = {{"description", item.description},
                {"metric", series_json(item.series)},
                {"outliers", std::move(outliers)},
                {"outlier_idx", item.outliers},
                {"per_instance_ms", std::move(values)}};
      return j;
    };
    std::string items;
    for (const SubItem& item : x.items) {
      json j = item_json(item);
      j["name"] = item.name;
      j["kind"] = item.bubble ? "bubble" : "cluster";
      if (!item.bubble) {
        json ko = json::array(), ca = json::array();
        for (const KernelOutlier& o : item.kernel_outliers) {
          json e = where(o.instance);
          e.update({{"op_name", t.text(o.op)},
                    {"occurrence", o.occurrence},
                    {"instance_idx", o.instance},
                    {"duration_us", static_cast<double>(o.duration) / 1e3},
                    {"baseline_median_us", o.baseline / 1e3}});
          ko.push_back(std::move(e));
        }
        for (const CountAnomaly& a : item.count_anomalies) {
          json e = where(a.instance);
          e.update({{"op_name", t.text(a.op)},
                    {"instance_idx", a.instance},
                    {"count", a.count},
                    {"modal_count", a.usual}});
          ca.push_back(std::move(e));
        }
        j["kernel_outliers"] = std::move(ko);
        j["kernel_count_anomalies"] = std::move(ca);
        j["theoretical"] = theory_json(ops, item);
      }
      items += cat(items.empty() ? "" : ",", "\n", opened(j));
      if (!item.bubble) {
        items += ", \"op_records\": ";
        append_records(items, t, ops, s, x, item);
      }
      items += "}";
    }
    json meta = json::array();
    for (std::size_t i = 0; i < x.instances.size(); ++i) meta.push_back(where(i));
    json pairs = json::array();
    for (const OverlapPair& p : x.pairs)
      pairs.push_back({{"cluster_a", p.a},
                       {"cluster_b", p.b},
                       {"median_overlap_ms", ms(p.median)},
                       {"median_overlap_pct", p.percent},
                       {"max_overlap_ms", ms(static_cast<double>(p.high))}});
    json displaced = json::array();
    for (const DisplacedStream& d : x.displaced)
      displaced.push_back({{"stream_id", ops.stream_name(d.stream)},
                           {"op_count", d.ops},
                           {"median_wall_ms", ms(d.median_wall)},
                           {"pct_of_total", d.percent}});
    json unruled = json::object();
    for (const auto& [name, count] : x.unruled) unruled[name] = count;
    json total = item_json(x.total);
    total["theoretical"] = theory_json(ops, x.total);
    json section = {{"component_type", x.type},
                    {"instance_count", x.instances.size()},
                    {"instances_meta", std::move(meta)},
                    {"total", std::move(total)},
                    {"unmatched", unruled},
                    {"unruled_ops", unruled},
                    {"overlap",
                     {{"median_gap_ms", ms(x.median_gap)},
                      {"median_gap_pct", x.gap_percent},
                      {"max_gap_ms", ms(static_cast<double>(x.highest_gap))},
                      {"top_pairs", std::move(pairs)}}},
                    {"displaced", std::move(displaced)},
                    {"idle_rules", x.idle_rules}};
    section["cluster_sum_pct_of_total"] = x.coverage ? json(*x.coverage) : json(nullptr);
    sections +=
        cat(sections.empty() ? "" : ",", "\n", opened(section), ", \"sub_items\": [", items, "]}");
  }
  const json head = {{"label", m.label},
                     {"model_name", m.model_name},
                     {"outlier", {{"method", m.outlier.z ? "z" : "iqr"}, {"k", m.outlier.k}}},
                     {"generated_at", m.generated_at},
                     {"theoretical_perf_source", theory_source_json(theory)},
                     {"theory_decisions",
                      theory.decisions_path.empty() ? json(nullptr) : json(theory.decisions_path)},
                     {"insight_annotations", nullptr},
                     {"origin", {{"kind", t.origin.kind}, {"detail", t.origin.detail}}},
                     {"unowned_ops",
                      {{"compute_ops", m.compute_ops},
                       {"compute_unowned", m.compute_unowned},
                       {"pre", s.pre.size()},
                       {"between", s.between.size()},
                       {"post", s.post.size()}}},
                     {"warnings", m.warnings}};
  return cat(opened(head), ", \"sections\": [", sections, "\n]}\n");
}

}  // namespace tk
