#include "timeline/metrics.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "base/error.h"
#include "timeline/intervals.h"

namespace tk {

double median_of(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v.size() % 2 ? v[v.size() / 2] : (v[v.size() / 2 - 1] + v[v.size() / 2]) / 2;
}

Series series_of(const std::vector<Ns>& values) {
  Series s;
  s.count = values.size();
  if (values.empty()) return s;
  std::vector<double> v(values.begin(), values.end());
  std::sort(v.begin(), v.end());
  s.low = v.front();
  s.high = v.back();
  s.median = median_of(v);
  s.mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(v.size());
  double square = 0;
  for (double x : v) square += (x - s.mean) * (x - s.mean);
  s.std = v.size() > 1 ? std::sqrt(square / static_cast<double>(v.size())) : 0;
  const double rank = 0.95 * static_cast<double>(v.size() - 1);
  const auto lo = static_cast<std::size_t>(rank);
  const std::size_t hi = std::min(lo + 1, v.size() - 1);
  const double part = rank - static_cast<double>(lo);
  s.p95 = v[lo] * (1 - part) + v[hi] * part;
  return s;
}

std::vector<std::size_t> outliers_of(const std::vector<double>& v, const OutlierRule& rule) {
  std::vector<std::size_t> out;
  const std::size_t n = v.size();
  auto keep = [&](auto is) {
    for (std::size_t i = 0; i < n; ++i)
      if (is(v[i])) out.push_back(i);
  };
  if (n < 2) return out;
  if (n < 4) {
    const double m = median_of(v);
    if (m > 0) keep([&](double x) { return x > 1.5 * m; });
    return out;
  }
  if (rule.z) {
    const double mean = std::accumulate(v.begin(), v.end(), 0.0) / static_cast<double>(n);
    double square = 0;
    for (double x : v) square += (x - mean) * (x - mean);
    const double sd = std::sqrt(square / static_cast<double>(n));
    if (sd > 0) keep([&](double x) { return std::fabs(x - mean) / sd > rule.k; });
    return out;
  }
  std::vector<double> sorted = v;
  std::sort(sorted.begin(), sorted.end());
  const double q1 = sorted[n / 4], q3 = sorted[3 * n / 4], iqr = q3 - q1;
  if (iqr <= 0)
    keep([&](double x) { return x < q1 || x > q3; });
  else
    keep([&](double x) { return x < q1 - rule.k * iqr || x > q3 + rule.k * iqr; });
  return out;
}

namespace {

std::vector<double> doubles(const std::vector<Ns>& v) { return {v.begin(), v.end()}; }

void finish(SubItem& item, const OutlierRule& rule) {
  item.series = series_of(item.per_instance);
  item.outliers = outliers_of(doubles(item.per_instance), rule);
}

// Slots (op, n-th occurrence) over all instances of a cluster.
void kernel_deviations(const Timeline& t, const StepOps& ops, const OutlierRule& rule,
                       std::size_t instances, SubItem& item) {
  std::map<std::pair<StringId, int>, std::vector<const OpRecord*>> slots;
  std::map<StringId, std::vector<int>> counts;
  for (const OpRecord& r : item.records) {
    const StringId op = t.kernels[ops.ops[r.op]].type;
    slots[{op, r.occurrence}].push_back(&r);
    auto& c = counts[op];
    c.resize(instances);
    ++c[r.instance];
  }
  for (const auto& [slot, records] : slots) {
    if (records.size() < 4) continue;
    std::vector<double> v;
    for (const OpRecord* r : records)
      v.push_back(static_cast<double>(t.kernels[ops.ops[r->op]].duration));
    const auto out = outliers_of(v, rule);
    if (out.empty()) continue;
    const double baseline = median_of(v);
    for (std::size_t i : out)
      item.kernel_outliers.push_back({slot.first, slot.second, records[i]->instance,
                                      t.kernels[ops.ops[records[i]->op]].duration, baseline});
  }
  std::stable_sort(item.kernel_outliers.begin(), item.kernel_outliers.end(),
                   [](const KernelOutlier& a, const KernelOutlier& b) {
                     return std::fabs(static_cast<double>(a.duration) - a.baseline) >
                            std::fabs(static_cast<double>(b.duration) - b.baseline);
                   });
  for (const auto& [op, c] : counts) {
    std::map<int, std::size_t> frequency;
    for (int n : c) ++frequency[n];
    int usual = 0;
    std::size_t most = 0;
    for (const auto& [n, f] : frequency)  // a tie: the smaller count
      if (f > most) {
        most = f;
        usual = n;
      }
    if (most == instances) continue;
    for (std::size_t i = 0; i < instances; ++i)
      if (c[i] != usual) item.count_anomalies.push_back({op, i, c[i], usual});
  }
  std::stable_sort(item.count_anomalies.begin(), item.count_anomalies.end(),
                   [&](const CountAnomaly& a, const CountAnomaly& b) {
                     const int x = std::abs(a.count - a.usual), y = std::abs(b.count - b.usual);
                     if (x != y) return x > y;
                     if (a.op != b.op) return t.text(a.op) < t.text(b.op);
                     return a.instance < b.instance;
                   });
}

void add_theory(TheorySummary& sum, TheoryCandidate candidate) {
  if (candidate.us) {
    ++sum.supported;
    sum.series_us.push_back(*candidate.us);
  }
  sum.review += candidate.review;
  sum.multi_stream += candidate.streams.size() > 1;
  sum.unsupported_kernels += candidate.unsupported;
  if (candidate.streams.size() > 1 && !candidate.note.empty() &&
      std::find(sum.notes.begin(), sum.notes.end(), candidate.note) == sum.notes.end())
    sum.notes.push_back(candidate.note);
  sum.per_instance.push_back(std::move(candidate));
}

// Theory of every cluster and of TOTAL, instance by instance (BD-91).
void section_theory(const Timeline& t, const StepOps& ops, const Structure& s, const Theory& theory,
                    Section& section) {
  for (std::size_t x = 0; x <= section.items.size(); ++x) {
    SubItem& item = x < section.items.size() ? section.items[x] : section.total;
    if (item.bubble) continue;
    std::vector<std::vector<std::uint32_t>> members(section.instances.size());
    for (const OpRecord& r : item.records) members[r.instance].push_back(r.op);
    item.theory.emplace();
    for (std::size_t i = 0; i < section.instances.size(); ++i) {
      const Component& c = s.components[section.instances[i]];
      if (&item == &section.total)
        std::copy_if(
            c.ops.begin(), c.ops.end(), std::back_inserter(members[i]), [&](std::uint32_t op) {
              return std::find(c.displaced.begin(), c.displaced.end(), op) == c.displaced.end();
            });
      add_theory(*item.theory,
                 theory_of(t, ops, theory, members[i], section.type, item.name, c.phase, c.layer));
    }
    if (!item.theory->series_us.empty()) item.theory->median_us = median_of(item.theory->series_us);
  }
}

Section make_section(const Timeline& t, const StepOps& ops, const Structure& s,
                     const std::string& type, std::vector<std::size_t> instances,
                     const std::vector<Cluster>* clusters, const OutlierRule& rule) {
  Section section;
  section.type = type;
  section.instances = std::move(instances);
  section.has_rules = clusters != nullptr;
  const std::size_t n = section.instances.size();
  std::optional<Classifier> classifier;
  if (clusters) {
    classifier.emplace(t, *clusters, type);
    for (const Cluster& c : *clusters) {
      SubItem item;
      item.name = c.name;
      item.description = c.description;
      section.items.push_back(std::move(item));
    }
  }
  const std::size_t kinds = section.items.size();
  SubItem bubble;
  bubble.name = "bubble";
  bubble.bubble = true;
  bubble.description = "no kernel of the instance runs (span - wall)";
  section.total.name = "TOTAL";
  section.total.description = "from the first start to the last end, with bubble";
  std::map<std::string, std::size_t> unruled;
  std::vector<Ns> gaps;
  std::map<std::pair<std::size_t, std::size_t>, std::vector<Ns>> pairs;
  std::map<std::int32_t, std::pair<std::size_t, std::vector<double>>> displaced;
  for (std::size_t i = 0; i < n; ++i) {
    const Component& c = s.components[section.instances[i]];
    std::vector<std::uint32_t> off = c.displaced;
    std::sort(off.begin(), off.end());
    std::map<std::int32_t, Intervals> off_by_stream;
    for (std::uint32_t op : off) {
      const Kernel& k = t.kernels[ops.ops[op]];
      off_by_stream[ops.streams[op]].push_back({k.start, k.end()});
    }
    for (auto& [stream, v] : off_by_stream) {
      displaced[stream].first += v.size();
      displaced[stream].second.push_back(static_cast<double>(union_length(std::move(v))));
    }
    std::vector<Intervals> by_cluster(kinds);
    std::vector<std::map<StringId, int>> seen(kinds);
    Intervals all;
    Ns from = INT64_MAX, to = INT64_MIN;
    for (std::uint32_t op : c.ops) {
      if (std::binary_search(off.begin(), off.end(), op)) continue;
      const Kernel& k = t.kernels[ops.ops[op]];
      all.push_back({k.start, k.end()});
      from = std::min(from, k.start);
      to = std::max(to, k.end());
      const int cluster = classifier ? classifier->classify(k) : -1;
      if (cluster < 0) {
        ++unruled[std::string(t.text(k.type))];
        continue;
      }
      const auto x = static_cast<std::size_t>(cluster);
      by_cluster[x].push_back({k.start, k.end()});
      section.items[x].records.push_back({i, op, seen[x][k.type]++});
    }
    const Ns wall = union_length(std::move(all));
    const Ns span = from == INT64_MAX ? 0 : to - from;
    section.total.per_instance.push_back(span);
    bubble.per_instance.push_back(std::max<Ns>(0, span - wall));
    Ns sum = 0;
    for (std::size_t x = 0; x < kinds; ++x) {
      by_cluster[x] = merged(std::move(by_cluster[x]));
      const Ns w = total(by_cluster[x]);
      section.items[x].per_instance.push_back(w);
      sum += w;
    }
    gaps.push_back(std::max<Ns>(0, sum - wall));
    for (std::size_t x = 0; x < kinds; ++x)
      for (std::size_t y = x + 1; y < kinds; ++y) {
        const Ns both = total(intersection(by_cluster[x], by_cluster[y]));
        auto& v = pairs[{x, y}];
        v.push_back(both);
      }
  }
  for (std::size_t x = 0; x < kinds; ++x) {
    finish(section.items[x], rule);
    kernel_deviations(t, ops, rule, n, section.items[x]);
  }
  finish(bubble, rule);
  finish(section.total, rule);
  const double total_median = section.total.series.median;
  if (kinds && total_median > 0) {
    double sum = 0;
    for (std::size_t x = 0; x < kinds; ++x) sum += section.items[x].series.median;
    section.coverage = 100 * sum / total_median;
  }
  section.items.push_back(std::move(bubble));
  section.median_gap = median_of(doubles(gaps));
  section.highest_gap = gaps.empty() ? 0 : *std::max_element(gaps.begin(), gaps.end());
  section.gap_percent = total_median > 0 ? 100 * section.median_gap / total_median : 0;
  for (const auto& [key, v] : pairs) {
    const double m = median_of(doubles(v));
    if (m <= 0) continue;
    section.pairs.push_back({section.items[key.first].name, section.items[key.second].name, m,
                             total_median > 0 ? 100 * m / total_median : 0,
                             *std::max_element(v.begin(), v.end())});
  }
  std::stable_sort(section.pairs.begin(), section.pairs.end(),
                   [](const OverlapPair& a, const OverlapPair& b) { return a.median > b.median; });
  if (section.pairs.size() > 8) section.pairs.resize(8);
  for (const auto& [stream, d] : displaced)
    section.displaced.push_back({stream, d.first, median_of(d.second),
                                 total_median > 0 ? 100 * median_of(d.second) / total_median : 0});
  if (clusters) {
    for (auto& [name, count] : unruled) section.unruled.emplace_back(name, count);
    std::stable_sort(section.unruled.begin(), section.unruled.end(),
                     [](const auto& a, const auto& b) { return a.second > b.second; });
    for (std::size_t x = 0; x < kinds; ++x)
      for (std::size_t r = 0; r < classifier->wins()[x].size(); ++r)
        if (classifier->wins()[x][r] == 0)
          section.idle_rules.push_back(cat(section.items[x].name, ".rules[", r, "]"));
  } else {
    std::size_t sum = 0;
    for (const auto& [name, count] : unruled) sum += count;
    section.unruled.emplace_back("<no rules defined for this component type>", sum);
  }
  return section;
}

}  // namespace

Metrics compute_metrics(const Timeline& t, const StepOps& ops, const Structure& s,
                        const ClusterRules& rules, const Theory& theory) {
  Metrics m;
  m.model_name = rules.model_name;
  m.outlier = rules.outlier;
  std::map<std::string, std::vector<std::size_t>> by_type;
  for (std::size_t c = 0; c < s.components.size(); ++c) by_type[s.components[c].type].push_back(c);
  for (const auto& [type, clusters] : rules.types) {
    const auto it = by_type.find(type);
    if (it == by_type.end()) continue;
    m.sections.push_back(make_section(t, ops, s, type, it->second, &clusters, rules.outlier));
    by_type.erase(it);
  }
  for (const auto& [type, instances] : by_type)
    m.sections.push_back(make_section(t, ops, s, type, instances, nullptr, rules.outlier));
  if (!theory.kind.empty())
    for (Section& x : m.sections) section_theory(t, ops, s, theory, x);
  for (std::uint32_t op = 0; op < ops.size(); ++op) {
    const bool compute = t.kernels[ops.ops[op]].core != Core::communication;
    m.compute_ops += compute;
    m.compute_unowned += compute && s.owner[op] < 0;
  }
  for (const Section& x : m.sections)
    if (x.coverage && *x.coverage < 80)
      m.warnings.push_back(cat(x.type, ": the clusters cover ", static_cast<long>(*x.coverage),
                               " % of TOTAL, below 80 %"));
  return m;
}

}  // namespace tk
