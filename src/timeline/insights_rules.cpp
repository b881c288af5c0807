#include "timeline/insights_rules.h"

#include <fmt/format.h>

#include <cmath>

namespace tk {

void judge_persistent_bubble(Insight& x, double ratio, double share, const std::string& cause) {
  x.origin = "rule:persistent_bubble";
  x.confidence = ratio >= 0.8 && share >= 5   ? "high"
                 : ratio >= 0.5 || share >= 5 ? "medium"
                                              : "low";
  x.reason = fmt::format(
      "{:.0f} % of the instances lose more than 5 % of TOTAL; the median loses {:.1f} %",
      100 * ratio, share);
  x.summary = x.title + "; in a typical instance mostly " + cause;
  x.needs_followup = cause == "unknown";
}

void judge_instance(Insight& x, double value, double median, double total, bool edge,
                    const std::string& what) {
  x.origin = "rule:instance_deviation";
  const bool large = median > 0 ? value >= 1.5 * median : value > 0;
  const bool heavy = std::fabs(value - median) >= 0.01 * total;
  x.confidence = large && heavy && !edge ? "high" : large || heavy ? "medium" : "low";
  x.reason = fmt::format("{}: {}, {:.1f} % of the instance's TOTAL{}", what,
                         median > 0 ? fmt::format("{:.2f}x the median", value / median)
                                    : std::string("the median is 0"),
                         total > 0 ? 100 * std::fabs(value - median) / total : 0.0,
                         edge ? "; first or last layer of its phase: may be structure" : "");
  x.summary = x.title + (edge ? " (first or last layer: may be structure)" : "");
  x.needs_followup = true;
}

void judge_vector(Insight& x, bool crosses, std::size_t clusters) {
  x.origin = "rule:vector_sequence";
  if (crosses) {
    x.direction = "false";
    x.confidence = "low";
    x.reason = "the run crosses components";
  } else {
    x.direction = "uncertain";
    x.confidence = clusters <= 1 ? "medium" : "low";
    x.reason = clusters <= 1 ? "vector kernels in a row inside one cluster"
                             : "vector kernels in a row over several clusters";
  }
  x.summary = x.title;
  x.needs_followup = true;
}

bool cancels(std::string_view family, std::string_view in_shapes, std::string_view out_shapes,
             std::string_view next_out_shapes, std::string_view in_types,
             std::string_view next_out_types) {
  const std::string_view first = in_shapes.substr(0, in_shapes.find(';'));
  if (first.empty() || next_out_shapes.empty()) return false;
  if (family == "cast")
    return in_types.substr(0, in_types.find(';')) ==
               next_out_types.substr(0, next_out_types.find(';')) &&
           !in_types.empty();
  if (family == "transpose" || family == "transdata")
    return first == next_out_shapes && first != out_shapes;
  return false;
}

void judge_movement(Insight& x, const std::string& kind, std::size_t cancelling,
                    const std::string& type) {
  x.origin = "rule:movement";
  if (cancelling) {
    x.confidence = "high";
    x.direction = "remove_intermediate";
    x.reason = fmt::format("{} of them are undone by the next kernel of the stream", cancelling);
  } else if (kind == "cache_update" || kind == "communication_prep") {
    x.confidence = "low";
    x.direction = "none";
    x.reason = "needed: it writes the cache or prepares communication";
  } else if (kind == "layout") {
    x.confidence = "medium";
    x.direction = "layout_propagation";
    x.reason = "a layout may be chosen by the producer or the consumer";
  } else {
    x.confidence = "low";
    x.direction = "needs_code_check";
    x.reason = "what reads it decides";
  }
  x.summary = x.title;
  x.needs_followup = !type.empty() && x.confidence != "low";
}

}  // namespace tk
