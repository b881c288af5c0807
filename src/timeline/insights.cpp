#include "timeline/insights.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <set>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/input.h"
#include "timeline/insights_rules.h"
#include "timeline/insights_theory.h"
#include "timeline/intervals.h"
#include "timeline/split.h"

namespace tk {

namespace {

using nlohmann::json;
constexpr std::size_t top_k = 5;
double us(double ns) { return ns / 1e3; }

class Finder {
 public:
  explicit Finder(const InsightInput& in) : in_(in) {}

  Insights run() {
    read_taxonomy();
    bubbles();
    jitter();
    if (in_.theory.kind.empty()) {
      out_.data_limits.push_back("theory is off: no theoretical deviation");
    } else {
      add(theory_of_rows(in_));
      add(theory_of_kernels(in_));
      out_.data_limits.push_back(cat("theory (", in_.theory.source, "): ", in_.theory.supported,
                                     " of ", in_.ops.size(), " kernels are supported"));
    }
    vector_runs();
    movement();
    const StepAlignment& steps = in_.alignment;
    if (!steps.enough())
      out_.data_limits.push_back("one step only: jitter is between layers, not between steps");
    else
      out_.data_limits.push_back(
          cat(steps.steps.size(), " steps were aligned kernel by kernel",
              steps.skipped.empty()
                  ? std::string()
                  : cat("; ", steps.skipped.size(), " more have another order of kernels")));
    if (!in_.gaps.has_flows())
      out_.data_limits.push_back(
          "no flows from host to device: host bubbles cannot be told from others");
    annotate();
    return std::move(out_);
  }

 private:
  const Kernel& kernel(std::uint32_t op) const { return in_.timeline.kernels[in_.ops.ops[op]]; }
  std::string_view type_of(std::uint32_t op) const { return in_.timeline.text(kernel(op).type); }
  const Component& component(const Section& s, std::size_t i) const {
    return in_.structure.components[s.instances[i]];
  }

  bool first_or_last(const Component& c) const {
    for (const Phase& p : in_.structure.phases)
      if (p.name == c.phase) return c.local_layer == 0 || c.local_layer == p.layers - 1;
    return false;
  }

  json place(const Section& s, std::size_t i) const {
    const Component& c = component(s, i);
    return {{"component_id", c.id},
            {"phase", c.phase},
            {"layer_idx", c.layer},
            {"split", split_folder(c)}};
  }

  // Keeps the K largest of a list; annotated ones are added back by annotate().
  void add(std::vector<Insight> list) {
    std::stable_sort(list.begin(), list.end(), [](const Insight& a, const Insight& b) {
      return std::fabs(a.amount_us) > std::fabs(b.amount_us);
    });
    for (std::size_t i = 0; i < list.size(); ++i)
      (i < top_k ? out_.all : spare_).push_back(std::move(list[i]));
  }

  // Time without a kernel in one instance, by class.
  json bubble_classes_of(const Component& c, std::string* largest) const {
    std::vector<std::uint32_t> kernels;
    for (std::uint32_t op : c.ops)
      if (std::find(c.displaced.begin(), c.displaced.end(), op) == c.displaced.end())
        kernels.push_back(in_.ops.ops[op]);
    std::array<Ns, bubble_classes> sum{};
    for (const Gap& g : in_.gaps.gaps(kernels)) sum[static_cast<std::size_t>(g.kind)] += g.length();
    json j = json::object();
    std::size_t best = 0;
    for (std::size_t k = 0; k < bubble_classes; ++k) {
      if (sum[k])
        j[std::string(bubble_name(static_cast<Bubble>(k)))] = us(static_cast<double>(sum[k]));
      if (sum[k] > sum[best]) best = k;
    }
    if (largest) *largest = bubble_name(static_cast<Bubble>(best));
    return j;
  }

  void bubbles() {
    std::vector<Insight> persistent, single;
    for (const Section& s : in_.metrics.sections) {
      const SubItem& b = s.items.back();
      const std::size_t n = s.instances.size();
      std::vector<double> value, percent;
      std::vector<std::size_t> order;
      std::size_t high = 0;
      for (std::size_t i = 0; i < n; ++i) {
        const double v = static_cast<double>(b.per_instance[i]),
                     total = static_cast<double>(s.total.per_instance[i]);
        value.push_back(v);
        percent.push_back(total > 0 ? 100 * v / total : 0);
        high += percent.back() > 5;
        order.push_back(i);
      }
      std::vector<double> sorted = value;
      std::sort(sorted.begin(), sorted.end());
      std::stable_sort(order.begin(), order.end(),
                       [&](std::size_t x, std::size_t y) { return value[x] > value[y]; });
      const double median = b.series.median, share = median_of(percent),
                   ratio = static_cast<double>(high) / static_cast<double>(n);
      const double p90 = sorted[static_cast<std::size_t>(0.9 * static_cast<double>(n - 1))];
      if (median > 0) {
        Insight x;
        x.kind = InsightKind::module_bubble;
        x.list = "persistent_module_bubbles";
        x.key = cat("persistent:", s.type);
        x.type = s.type;
        x.item = "bubble";
        x.amount_us = us(median);
        std::string cause;
        const json classes = bubble_classes_of(component(s, order[n / 2]), &cause);
        x.title = fmt::format("{}: bubble {} in the median, {:.1f} % of TOTAL", s.type,
                              show_ns(median), share);
        json worst = json::array();
        for (std::size_t i = 0; i < order.size() && i < 5; ++i) {
          json w = place(s, order[i]);
          w["bubble_us"] = us(value[order[i]]);
          worst.push_back(std::move(w));
        }
        x.facts = {{"component_type", s.type},
                   {"instance_count", n},
                   {"median_bubble_us", us(median)},
                   {"p90_bubble_us", us(p90)},
                   {"max_bubble_us", us(sorted.back())},
                   {"median_pct_of_total", share},
                   {"high_bubble_instance_ratio", ratio},
                   {"worst_instances", std::move(worst)},
                   {"classes_us_of_median_instance", classes}};
        judge_persistent_bubble(x, ratio, share, cause);
        persistent.push_back(std::move(x));
      }
      for (std::size_t i : b.outliers) {
        const double v = value[i];
        Insight x;
        x.kind = InsightKind::module_bubble;
        x.list = "instance_bubble_outliers";
        const Component& c = component(s, i);
        x.key = cat("instance_bubble:", c.phase, ":", c.layer, ":", s.type);
        x.type = s.type;
        x.item = "bubble";
        x.amount_us = us(v - median);
        std::string cause;
        const json classes = bubble_classes_of(c, &cause);
        x.title = fmt::format("{} {} layer {}: bubble {} against {}", s.type, c.phase, c.layer,
                              show_ns(v), show_ns(median));
        x.facts = place(s, i);
        x.facts.update(
            {{"component_type", s.type},
             {"bubble_us", us(v)},
             {"delta_us", us(v - median)},
             {"ratio_to_median", median > 0 ? json(v / median) : json(nullptr)},
             {"classes_us", classes},
             {"envelope_us",
              {us(static_cast<double>(kernel(c.ops.front()).start)),
               us(static_cast<double>(kernel(c.ops.front()).start + s.total.per_instance[i]))}}});
        judge_instance(x, v, median, static_cast<double>(s.total.per_instance[i]), first_or_last(c),
                       cat("mostly ", cause));
        single.push_back(std::move(x));
      }
    }
    add(std::move(persistent));
    add(std::move(single));
  }

  void jitter() {
    std::vector<Insight> clusters, operators;
    for (const Section& s : in_.metrics.sections)
      for (const SubItem& item : s.items) {
        if (item.bubble) continue;
        const double median = item.series.median;
        for (std::size_t i : item.outliers) {
          const double v = static_cast<double>(item.per_instance[i]);
          const Component& c = component(s, i);
          Insight x;
          x.kind = InsightKind::operator_jitter;
          x.list = "cluster_jitter";
          x.key = cat("cluster_jitter:", s.type, ":", item.name, ":", c.phase, ":", c.layer);
          x.type = s.type;
          x.item = item.name;
          x.amount_us = us(v - median);
          x.title = fmt::format("{} / {}, {} layer {}: {} against {}", s.type, item.name, c.phase,
                                c.layer, show_ns(v), show_ns(median));
          x.facts = place(s, i);
          x.facts.update({{"component_type", s.type},
                          {"cluster", item.name},
                          {"wall_us", us(v)},
                          {"median_us", us(median)},
                          {"delta_us", us(v - median)}});
          judge_instance(x, v, median, static_cast<double>(s.total.per_instance[i]),
                         first_or_last(c), "the wall of the cluster");
          clusters.push_back(std::move(x));
        }
        std::set<std::pair<StringId, int>>
            seen;  // the list is by deviation: the first of a slot is its worst
        for (const KernelOutlier& o : item.kernel_outliers) {
          if (!seen.insert({o.op, o.occurrence}).second) continue;
          const double v = static_cast<double>(o.duration);
          const Component& c = component(s, o.instance);
          Insight x;
          x.kind = InsightKind::operator_jitter;
          x.list = "operator_jitter";
          const std::string op(in_.timeline.text(o.op));
          x.key = cat("op_jitter:", s.type, ":", item.name, ":", op, ":", o.occurrence);
          x.type = s.type;
          x.item = item.name;
          x.amount_us = us(v - o.baseline);
          x.title =
              fmt::format("{} #{} in {} / {}, {} layer {}: {} against {}", op, o.occurrence, s.type,
                          item.name, c.phase, c.layer, show_ns(v), show_ns(o.baseline));
          x.facts = place(s, o.instance);
          x.facts.update({{"component_type", s.type},
                          {"cluster", item.name},
                          {"op_name", op},
                          {"occurrence", o.occurrence},
                          {"duration_us", us(v)},
                          {"baseline_median_us", us(o.baseline)},
                          {"delta_us", us(v - o.baseline)}});
          judge_instance(x, v, o.baseline, static_cast<double>(s.total.per_instance[o.instance]),
                         first_or_last(c), "one kernel");
          over_steps(x, item, o);
          operators.push_back(std::move(x));
        }
      }
    add(std::move(clusters));
    add(std::move(operators));
  }

  // A kernel that is slow in its layer in every step, or in this step only (BD 16.3): by what its
  // median over the steps keeps of the deviation.
  void over_steps(Insight& x, const SubItem& item, const KernelOutlier& o) const {
    if (!in_.alignment.enough()) return;
    for (const OpRecord& r : item.records) {
      if (r.instance != o.instance || r.occurrence != o.occurrence || kernel(r.op).type != o.op)
        continue;
      const auto median = static_cast<double>(in_.alignment.median[r.op]);
      const double here = static_cast<double>(o.duration) - o.baseline;
      const bool always = ((median - o.baseline) * 2 > here) == (here > 0);
      x.facts["median_over_steps_us"] = us(median);
      x.facts["steps"] = in_.alignment.steps.size();
      x.facts["jitter"] = always ? "layer" : "step";
      x.reason += always ? "; so in the median of all steps" : "; in this step only";
      return;
    }
  }

  // (section, item) of an op; none if it is in no cluster.
  void index_clusters() {
    if (!cluster_of_.empty()) return;
    cluster_of_.assign(in_.ops.size(), {-1, -1});
    for (std::size_t s = 0; s < in_.metrics.sections.size(); ++s)
      for (std::size_t i = 0; i < in_.metrics.sections[s].items.size(); ++i)
        for (const OpRecord& r : in_.metrics.sections[s].items[i].records)
          cluster_of_[r.op] = {static_cast<int>(s), static_cast<int>(i)};
  }

  std::string cluster_text(std::uint32_t op) const {
    const auto [s, i] = cluster_of_[op];
    if (s < 0) return {};
    const Section& section = in_.metrics.sections[static_cast<std::size_t>(s)];
    return cat(section.type, '/', section.items[static_cast<std::size_t>(i)].name);
  }

  struct Run {
    std::vector<std::uint32_t> ops;
    Ns sum = 0;
  };

  std::string signature(const Run& r) const {
    std::string s;
    for (std::size_t i = 0; i < r.ops.size();) {
      std::size_t j = i;
      while (j < r.ops.size() && kernel(r.ops[j]).type == kernel(r.ops[i]).type) ++j;
      s += cat(i ? " -> " : "", type_of(r.ops[i]), j - i > 1 ? cat(" x", j - i) : std::string());
      i = j;
    }
    return s;
  }

  void vector_runs() {
    index_clusters();
    streams_ = ops_by_stream(in_.timeline, in_.ops);
    run_of_.assign(in_.ops.size(), -1);
    std::vector<Run> runs;
    for (const auto& [stream, sequence] : streams_) {
      Run run;
      auto close = [&] {
        if (run.ops.size() >= 5 && run.sum >= 20000) {
          for (std::uint32_t op : run.ops) run_of_[op] = static_cast<int>(runs.size());
          runs.push_back(run);
        }
        run = {};
      };
      for (std::uint32_t op : sequence) {
        if (kernel(op).core == Core::ai_vector) {
          run.ops.push_back(op);
          run.sum += kernel(op).duration;
        } else {
          close();
        }
      }
      close();
    }
    std::map<std::string, std::vector<const Run*>> by_signature;
    for (const Run& r : runs) {
      signatures_.push_back(signature(r));
      by_signature[signatures_.back()].push_back(&r);
    }
    std::vector<Insight> list;
    for (const auto& [text, members] : by_signature) {
      Ns sum = 0;
      std::set<std::string> components, clusters;
      std::map<std::pair<int, int>, Ns> where;
      json samples = json::array();
      bool crosses = false;
      for (const Run* r : members) {
        sum += r->sum;
        std::set<int> owners;
        for (std::uint32_t op : r->ops) {
          owners.insert(in_.structure.owner[op]);
          if (in_.structure.owner[op] >= 0)
            components.insert(
                in_.structure.components[static_cast<std::size_t>(in_.structure.owner[op])].type);
          if (cluster_of_[op].first >= 0) {
            where[cluster_of_[op]] += kernel(op).duration;
            clusters.insert(cluster_text(op));
          }
        }
        crosses = crosses || owners.size() > 1;
        if (samples.size() < 3)
          samples.push_back({{"first_op", r->ops.front()},
                             {"last_op", r->ops.back()},
                             {"excel_row", kernel(r->ops.front()).row + 2},
                             {"total_us", us(static_cast<double>(r->sum))}});
      }
      Insight x;
      x.kind = InsightKind::vector_sequence;
      x.list = "vector_sequence_candidates";
      x.key = cat("vec:", text);
      x.amount_us = us(static_cast<double>(sum));
      x.title = fmt::format("{} x {}: {} in all", members.size(), text,
                            show_ns(static_cast<double>(sum)));
      if (!where.empty()) {
        const auto best =
            std::max_element(where.begin(), where.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        const Section& s = in_.metrics.sections[static_cast<std::size_t>(best->first.first)];
        x.type = s.type;
        x.item = s.items[static_cast<std::size_t>(best->first.second)].name;
        if (where.size() > 1)
          x.mapping_note = "rule:largest_share: the run lies in several clusters";
      }
      x.facts = {{"signature", text},
                 {"occurrences", members.size()},
                 {"total_us", us(static_cast<double>(sum))},
                 {"typical_us", us(static_cast<double>(sum) / static_cast<double>(members.size()))},
                 {"kernels", members.front()->ops.size()},
                 {"components", components},
                 {"clusters", clusters},
                 {"samples", std::move(samples)}};
      judge_vector(x, crosses, clusters.size());
      list.push_back(std::move(x));
    }
    add(std::move(list));
  }

  // Family of an operator: by the user's taxonomy, else by its type.
  std::string family_of(std::string_view type) const {
    if (!taxonomy_.empty()) {
      const auto it = taxonomy_.find(std::string(type));
      return it == taxonomy_.end() ? "" : it->second;
    }
    return std::string(movement_family(type));
  }

  std::string kind_of(const std::string& family) const {
    const auto it = kinds_.find(family);
    return it != kinds_.end() ? it->second : std::string(movement_kind(family));
  }

  void read_taxonomy() {
    if (in_.taxonomy.empty()) return;
    const Buffer file = read_whole(in_.taxonomy, 64 << 20);
    json root = json::parse(file.text(), nullptr, false);
    auto bad = [&](const char* why) -> UserError {
      return UserError("TK0918", why)
          .at(in_.taxonomy)
          .help(
              "{\"families\": [{\"family\": \"cast\", \"ops\": [\"Cast\"], \"movement_kind\": "
              "\"layout\"}]}");
    };
    if (root.is_discarded()) throw bad("the taxonomy is no JSON");
    if (root.is_object() && root.contains("taxonomy")) root = json(root["taxonomy"]);
    if (root.is_object() && root.contains("families")) root = json(root["families"]);
    if (!root.is_array()) throw bad("the taxonomy has no list of families");
    for (const json& f : root) {
      if (!f.is_object() || !f.contains("family") || !f["family"].is_string() ||
          !f.contains("ops") || !f["ops"].is_array())
        throw bad("a family needs \"family\" and a list \"ops\"");
      const std::string name = f["family"];
      for (const json& op : f["ops"])
        if (op.is_string()) taxonomy_[op.get<std::string>()] = name;
      if (f.contains("movement_kind") && f["movement_kind"].is_string())
        kinds_[name] = f["movement_kind"].get<std::string>();
    }
  }

  void movement() {
    index_clusters();
    std::map<std::string, std::map<std::string, std::size_t>> candidates;
    struct Family {
      std::vector<std::uint32_t> ops;
      Ns sum = 0;
    };
    std::map<std::tuple<std::string, int, int>, Family> families;
    for (std::uint32_t op = 0; op < in_.ops.size(); ++op) {
      ++candidates[std::string(type_of(op))][std::string(core_name(kernel(op).core))];
      const std::string family = family_of(type_of(op));
      if (family.empty() || kernel(op).core == Core::communication || cluster_of_[op].first < 0)
        continue;
      Family& f = families[{family, cluster_of_[op].first, cluster_of_[op].second}];
      f.ops.push_back(op);
      f.sum += kernel(op).duration;
    }
    out_.taxonomy_candidates = candidates;
    std::vector<std::uint32_t> position(in_.ops.size());
    for (const auto& [stream, sequence] : streams_)
      for (std::uint32_t i = 0; i < sequence.size(); ++i) position[sequence[i]] = i;
    auto neighbour = [&](std::uint32_t op, int d) -> std::int64_t {
      const auto& sequence = streams_.at(in_.ops.streams[op]);
      const auto i = static_cast<std::int64_t>(position[op]) + d;
      return i < 0 || i >= static_cast<std::int64_t>(sequence.size())
                 ? -1
                 : static_cast<std::int64_t>(sequence[static_cast<std::size_t>(i)]);
    };
    std::vector<Insight> list;
    for (const auto& [key, f] : families) {
      const auto& [family, s, i] = key;
      const Section& section = in_.metrics.sections[static_cast<std::size_t>(s)];
      const SubItem& item = section.items[static_cast<std::size_t>(i)];
      Insight x;
      x.kind = InsightKind::tensor_movement;
      x.list = "data_movement_ops";
      x.key = cat("move:", family, ":", section.type, ":", item.name);
      x.type = section.type;
      x.item = item.name;
      x.amount_us = us(static_cast<double>(f.sum));
      x.title = fmt::format("{} in {} / {}: {} kernels, {}", family, section.type, item.name,
                            f.ops.size(), show_ns(static_cast<double>(f.sum)));
      json places = json::array();
      std::size_t cancelling = 0;
      for (std::uint32_t op : f.ops) {
        const std::int64_t before = neighbour(op, -1), after = neighbour(op, 1);
        const bool pair =
            after >= 0 && kernel(static_cast<std::uint32_t>(after)).type == kernel(op).type &&
            cancels(family, in_.timeline.text(kernel(op).in_shapes),
                    in_.timeline.text(kernel(op).out_shapes),
                    in_.timeline.text(kernel(static_cast<std::uint32_t>(after)).out_shapes),
                    cell(op, "Input Data Types"),
                    cell(static_cast<std::uint32_t>(after), "Output Data Types"));
        cancelling += pair;
        if (places.size() < 5) {
          json p = {{"op_idx", op},
                    {"excel_row", kernel(op).row + 2},
                    {"duration_us", us(static_cast<double>(kernel(op).duration))}};
          p["previous_on_stream"] =
              before >= 0 ? json(std::string(type_of(static_cast<std::uint32_t>(before))))
                          : json(nullptr);
          p["next_on_stream"] = after >= 0
                                    ? json(std::string(type_of(static_cast<std::uint32_t>(after))))
                                    : json(nullptr);
          if (run_of_[op] >= 0)
            p["vector_run"] = signatures_[static_cast<std::size_t>(run_of_[op])];
          places.push_back(std::move(p));
        }
      }
      x.facts = {{"family", family},
                 {"movement_kind", kind_of(family)},
                 {"component_type", section.type},
                 {"cluster", item.name},
                 {"count", f.ops.size()},
                 {"total_us", us(static_cast<double>(f.sum))},
                 {"cancelling_pairs", cancelling},
                 {"places", std::move(places)}};
      judge_movement(x, kind_of(family), cancelling, section.type);
      list.push_back(std::move(x));
    }
    add(std::move(list));
  }

  std::string cell(std::uint32_t op, std::string_view column) const {
    if (!in_.timeline.table) return {};
    const int c = in_.timeline.table->column(column);
    return c < 0 ? std::string() : in_.timeline.table->cell(kernel(op).row, c);
  }

  // A person's judgement replaces the rule's; its candidate is kept whatever its rank.
  void annotate() {
    if (in_.annotations.empty()) return;
    const Buffer file = read_whole(in_.annotations, 64 << 20);
    const json root = json::parse(file.text(), nullptr, false);
    if (!root.is_object())
      throw UserError("TK0918", "the annotations are no JSON object of keys")
          .at(in_.annotations)
          .help("start from insights/_review_stub.json");
    std::vector<std::string> keys;
    for (const auto* list : {&out_.all, &spare_})
      for (const Insight& x : *list) keys.push_back(x.key);
    for (const auto& [key, value] : root.items()) {
      if (!value.is_object()) continue;
      Insight* found = nullptr;
      for (Insight& x : out_.all)
        if (x.key == key) found = &x;
      if (!found)
        for (Insight& x : spare_)
          if (x.key == key) {
            out_.all.push_back(x);
            found = &out_.all.back();
          }
      if (!found) {
        std::string near;
        std::size_t best = SIZE_MAX;
        for (const std::string& k : keys)
          if (const std::size_t d = edit_distance(key, k); d < best) {
            best = d;
            near = k;
          }
        out_.warnings.push_back(cat("annotation ", key, " names nothing in this run",
                                    near.empty() ? "" : cat("; nearest: ", near)));
        continue;
      }
      bool said = false;
      auto take = [&](const char* name, std::string& to) {
        if (value.contains(name) && value[name].is_string() &&
            !value[name].get<std::string>().empty()) {
          to = value[name].get<std::string>();
          said = true;
        }
      };
      std::string confidence;
      take("confidence", confidence);
      if (!confidence.empty() && confidence != "high" && confidence != "medium" &&
          confidence != "low")
        throw UserError("TK0918", cat("annotation ", key, ": confidence \"", confidence,
                                      "\" is none of high, medium, low"))
            .at(in_.annotations);
      if (!confidence.empty()) found->confidence = confidence;
      take("summary", found->summary);
      take("semantic_summary", found->summary);
      take("reason", found->reason);
      take("fusion_candidate", found->direction);
      take("elimination_direction", found->direction);
      if (said) found->origin = "annotation";
    }
  }

  const InsightInput& in_;
  Insights out_;
  std::vector<Insight> spare_;
  std::vector<std::pair<int, int>> cluster_of_;
  std::map<std::int32_t, std::vector<std::uint32_t>> streams_;
  std::vector<int> run_of_;
  std::vector<std::string> signatures_;
  std::map<std::string, std::string> taxonomy_, kinds_;
};

}  // namespace

Insights find_insights(const InsightInput& in) { return Finder(in).run(); }

}  // namespace tk
