#include "timeline/insights_theory.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/split.h"

namespace tk {

using nlohmann::json;

namespace {

// Below this a figure says nothing about a theory of a few microseconds.
constexpr double least_gap_us = 1;

// BD-139: what the support, the size and the ratio are worth.
void judge_theory(Insight& x, const std::string& what, double actual_us, double theory_us,
                  double support, bool told) {
  const double ratio = theory_us > 0 ? actual_us / theory_us : 0;
  x.origin = "rule:theory";
  x.direction = "needs_code_check";
  if (theory_us < 5 || support < 0.5 || !told)
    x.confidence = "low";
  else if (ratio >= 1.5 && support >= 0.9)
    x.confidence = "high";
  else
    x.confidence = ratio >= 1.2 ? "medium" : "low";
  x.summary = fmt::format("{} takes {:.2f} times its theory, {} {}", what, ratio,
                          show_ns(std::fabs(actual_us - theory_us) * 1e3),
                          actual_us > theory_us ? "more" : "less");
  x.reason = fmt::format("theory {}, supported in {:.0f} % of the places", show_ns(theory_us * 1e3),
                         100 * support);
}

bool is_catch_all(const SubItem& item) { return item.name == "other"; }

}  // namespace

std::vector<Insight> theory_of_rows(const InsightInput& in) {
  std::vector<Insight> out;
  for (const Section& s : in.metrics.sections)
    for (std::size_t n = 0; n <= s.items.size(); ++n) {
      const SubItem& item = n < s.items.size() ? s.items[n] : s.total;
      if (item.bubble || is_catch_all(item) || !item.theory || !item.theory->median_us) continue;
      const TheorySummary& theory = *item.theory;
      const double actual = item.series.median / 1e3, gap = actual - *theory.median_us;
      // A median of 0: most instances have no such kernel, and the theory is of those that do.
      if (actual <= 0 || std::fabs(gap) < least_gap_us) continue;
      const double instances = static_cast<double>(theory.per_instance.size());
      const double support = static_cast<double>(theory.supported) / instances;
      Insight x;
      x.kind = InsightKind::theoretical_deviation;
      x.list = "sub_item_deviation";
      x.key = cat("sub_dev:", s.type, ":", item.name);
      x.type = s.type;
      x.item = item.name;
      x.amount_us = gap;
      x.title = fmt::format("{} / {}: {} against a theory of {}", s.type, item.name,
                            show_ns(item.series.median), show_ns(*theory.median_us * 1e3));
      json places = json::array();
      for (std::size_t i = 0; i < s.instances.size() && places.size() < 5; ++i) {
        const Component& c = in.structure.components[s.instances[i]];
        if (theory.per_instance[i].us)
          places.push_back(
              {{"phase", c.phase}, {"layer_idx", c.layer}, {"split", split_folder(c)}});
      }
      x.facts = {
          {"component_type", s.type},
          {"sub_item", item.name},
          {"actual_median_us", actual},
          {"theoretical_median_us", *theory.median_us},
          {"ratio", *theory.median_us > 0 ? json(actual / *theory.median_us) : json(nullptr)},
          {"absolute_gap_us", gap},
          {"support_ratio", support},
          {"unsupported_kernels", theory.unsupported_kernels},
          {"locations", std::move(places)}};
      // With kernels that have no theory in the row the ratio is of different things.
      judge_theory(x, cat(s.type, " / ", item.name), actual, *theory.median_us, support,
                   theory.unsupported_kernels == 0);
      out.push_back(std::move(x));
    }
  return out;
}

std::vector<Insight> theory_of_kernels(const InsightInput& in) {
  std::vector<Insight> out;
  for (const Section& s : in.metrics.sections)
    for (const SubItem& item : s.items) {
      if (item.bubble) continue;
      struct Slot {
        std::vector<double> actual, theory, gap;
      };
      std::map<std::pair<StringId, int>, Slot> slots;
      for (const OpRecord& r : item.records) {
        const Kernel& k = in.timeline.kernels[in.ops.ops[r.op]];
        const KernelTheory& theory = in.theory.ops[r.op];
        if (!theory.supported()) continue;
        Slot& slot = slots[{k.type, r.occurrence}];
        const double us = static_cast<double>(k.duration) / 1e3;
        slot.actual.push_back(us);
        slot.theory.push_back(theory.us);
        slot.gap.push_back(us - theory.us);
      }
      for (const auto& [key, slot] : slots) {
        const double gap = median_of(slot.gap);
        if (slot.gap.size() < 3 || gap <= least_gap_us) continue;
        const double actual = median_of(slot.actual), theory = median_of(slot.theory);
        const std::string op(in.timeline.text(key.first));
        Insight x;
        x.kind = InsightKind::theoretical_deviation;
        x.list = "operator_deviation";
        x.key = cat("op_dev:", s.type, ":", item.name, ":", op, ":", key.second);
        x.type = s.type;
        x.item = item.name;
        x.amount_us = gap;
        x.title = fmt::format("{} #{} in {} / {}: {} against {}", op, key.second, s.type, item.name,
                              show_ns(actual * 1e3), show_ns(theory * 1e3));
        x.facts = {{"component_type", s.type},
                   {"cluster", item.name},
                   {"op_name", op},
                   {"occurrence", key.second},
                   {"samples", slot.gap.size()},
                   {"actual_median_us", actual},
                   {"theoretical_median_us", theory},
                   {"median_gap_us", gap}};
        judge_theory(x, cat(op, " #", key.second, " in ", s.type, " / ", item.name), actual, theory,
                     1, true);
        out.push_back(std::move(x));
      }
    }
  return out;
}

}  // namespace tk
