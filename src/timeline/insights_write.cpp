#include <fmt/format.h>

#include <algorithm>
#include <filesystem>

#include "timeline/artifacts.h"
#include "timeline/insights.h"

namespace tk {

std::string_view insight_category(InsightKind kind) {
  switch (kind) {
    case InsightKind::module_bubble:
      return "module_bubble";
    case InsightKind::operator_jitter:
      return "operator_jitter";
    case InsightKind::theoretical_deviation:
      return "theoretical_deviation";
    case InsightKind::vector_sequence:
      return "vector_sequence";
    case InsightKind::tensor_movement:
      return "tensor_movement";
  }
  return "";
}

using nlohmann::json;

namespace {

json review(const Insight& x) {
  json r = {{"summary", x.summary},
            {"confidence", x.confidence},
            {"reason", x.reason},
            {"needs_followup", x.needs_followup},
            {"origin", x.origin}};
  if (x.kind == InsightKind::vector_sequence) r["fusion_candidate"] = x.direction;
  if (x.kind == InsightKind::tensor_movement) r["elimination_direction"] = x.direction;
  return r;
}

constexpr struct {
  const char *file, *schema;
  InsightKind kind;
} files[] = {
    {"module_bubble.json", "insight.module_bubble.v1", InsightKind::module_bubble},
    {"operator_jitter.json", "insight.operator_jitter.v1", InsightKind::operator_jitter},
    {"theoretical_deviation.json", "insight.theoretical_deviation.v1",
     InsightKind::theoretical_deviation},
    {"vector_sequence_candidates.json", "insight.vector_sequence_candidates.v1",
     InsightKind::vector_sequence},
    {"data_movement_ops.json", "insight.data_movement_ops.v1", InsightKind::tensor_movement},
};

std::string conclusions(const Insights& in) {
  std::string out = "# Conclusions\n";
  for (const char* level : {"high", "medium", "low"}) {
    std::string title = level;
    title[0] = static_cast<char>(title[0] - 32);
    out += fmt::format("\n## {}\n", title);
    bool any = false;
    for (const Insight& x : in.all)
      if (x.confidence == level) {
        any = true;
        out +=
            fmt::format("- {} ({}; evidence: {})\n", x.summary, insight_category(x.kind), x.reason);
      }
    if (!any) out += "none found\n";
  }
  out += "\n## Data limits\n";
  for (const std::string& l : in.data_limits) out += "- " + l + "\n";
  out += "\n## Next actions\n";
  bool any = false;
  for (const Insight& x : in.all)
    if (x.needs_followup && x.confidence == "high") {
      any = true;
      out += fmt::format("- look at `{}`\n", x.key);
    }
  if (!any) out += "none found\n";
  constexpr struct {
    const char *list, *title;
  } tables[] = {{"persistent_module_bubbles", "Persistent bubbles"},
                {"instance_bubble_outliers", "Bubble outliers"},
                {"cluster_jitter", "Cluster jitter"},
                {"operator_jitter", "Operator jitter"},
                {"sub_item_deviation", "Theory by sub-item"},
                {"operator_deviation", "Theory by operator"},
                {"vector_sequence_candidates", "Vector patterns"},
                {"data_movement_ops", "Data movement"}};
  for (const auto& t : tables) {
    out += fmt::format("\n## Top5: {}\n", t.title);
    std::size_t n = 0;
    for (const Insight& x : in.all)
      if (x.list == t.list && n++ < 5) {
        if (n == 1) out += "| what | amount us | confidence |\n|---|---|---|\n";
        std::string title = x.title;
        std::replace(title.begin(), title.end(), '|', '/');
        out += fmt::format("| {} | {:.3f} | {} |\n", title, x.amount_us, x.confidence);
      }
    if (n == 0) out += "none found\n";
  }
  return out;
}

}  // namespace

void write_insights(const std::string& folder, const Insights& in) {
  const std::filesystem::path to(folder);
  std::filesystem::create_directories(to);
  for (const auto& f : files) {
    json j = {{"schema_version", f.schema}, {"data_limits", in.data_limits}};
    if (f.kind == InsightKind::module_bubble)
      j.update({{"persistent_module_bubbles", json::array()},
                {"instance_bubble_outliers", json::array()}});
    if (f.kind == InsightKind::operator_jitter)
      j.update({{"cluster_jitter", json::array()}, {"operator_jitter", json::array()}});
    if (f.kind == InsightKind::theoretical_deviation)
      j.update({{"sub_item_deviation", json::array()}, {"operator_deviation", json::array()}});
    if (f.kind == InsightKind::vector_sequence) j["vector_sequence_candidates"] = json::array();
    if (f.kind == InsightKind::tensor_movement) j["data_movement_ops"] = json::array();
    for (const Insight& x : in.all) {
      if (x.kind != f.kind) continue;
      json e = x.facts;
      e["stable_key"] = x.key;
      e["agent_review"] = review(x);
      j[x.list].push_back(std::move(e));
    }
    write_json(to / f.file, j);
  }
  json stub = json::object(), items = json::array();
  for (const Insight& x : in.all) {
    stub[x.key] = {
        {"summary", ""}, {"confidence", ""}, {"reason", ""}, {"needs_followup", x.needs_followup}};
    if (x.confidence == "low" || x.type.empty()) continue;
    items.push_back({{"category", insight_category(x.kind)},
                     {"target",
                      {{"component_type", x.type},
                       {"sub_item", x.item},
                       {"mapping_type", x.mapping_note.empty() ? "direct" : "agent_primary"},
                       {"mapping_note", x.mapping_note},
                       {"related_targets", json::array()}}},
                     {"confidence", x.confidence},
                     {"summary", x.summary},
                     {"source", x.origin},
                     {"evidence", x.reason}});
  }
  write_json(to / "_review_stub.json", stub);
  write_json(to / "main_report_insights.json",
             {{"schema_version", "main_report_insights.v1"}, {"items", std::move(items)}});
  write_json(to / "_taxonomy_candidates.json", in.taxonomy_candidates);
  write_output(to / "final_conclusions.md", conclusions(in));
}

}  // namespace tk
