#include "timeline/structure_sample.h"

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "timeline/input.h"
#include "timeline/roles.h"
#include "timeline/stream_pairs.h"
#include "timeline/structure_walk.h"

namespace tk {

using nlohmann::json;

namespace {

struct Sample {
  std::int32_t stream = 0;
  std::string stream_text;
  bool primary = false;
  std::string head, tail;
  std::vector<std::uint32_t> ops;
};

struct SampleSet {
  std::string source;
  std::vector<Sample> samples;
};

json read_object(const std::string& file) {
  const Buffer text = read_whole(file, 256 << 20);
  json root = json::parse(text.text(), nullptr, false);
  if (root.is_discarded() || !root.is_object())
    throw UserError("TK0914", "the file is no JSON object").at(file);
  return root;
}

// All problems of a file at once.
class Problems {
 public:
  explicit Problems(std::string file) : file_(std::move(file)) {}
  void add(std::string text) { list_.push_back(std::move(text)); }
  void check() const {
    if (list_.empty()) return;
    UserError e("TK0914", cat(list_.size(), " problem", list_.size() > 1 ? "s" : "",
                              " in the file: ", list_.front()));
    for (std::size_t i = 1; i < list_.size() && i < 20; ++i) std::move(e).note(list_[i]);
    throw std::move(e).at(file_).help("see docs/commands/profile.md for the form of the file");
  }

 private:
  std::string file_;
  std::vector<std::string> list_;
};

void read_spec(const std::string& file, Structure& s) {
  const json root = read_object(file);
  Problems problems(file);
  if (!root.contains("phases") || !root["phases"].is_array() || root["phases"].empty()) {
    problems.add("\"phases\" is missing or empty");
    problems.check();
  }
  std::set<std::string> types, names;
  for (const json& p : root["phases"]) {
    Phase phase;
    if (!p.is_object() || !p.contains("name") || !p["name"].is_string() || !p.contains("layers") ||
        !p["layers"].is_number_integer() || p["layers"].get<std::int64_t>() < 0 ||
        p["layers"].get<std::int64_t>() > 100000) {
      problems.add("a phase needs a text \"name\" and a number \"layers\"");
      continue;
    }
    phase.name = p["name"];
    phase.layers = p["layers"];
    if (!names.insert(phase.name).second) problems.add(cat("phase ", phase.name, " occurs twice"));
    std::vector<std::string> taken(static_cast<std::size_t>(phase.layers));
    const json none = json::array();
    const json& compositions =
        p.contains("layer_compositions") && p["layer_compositions"].is_array()
            ? p["layer_compositions"]
            : none;
    for (const json& c : compositions) {
      Composition composition;
      if (!c.is_object() || !c.contains("components") || !c["components"].is_array()) {
        problems.add(cat("phase ", phase.name, ": a composition needs a list \"components\""));
        continue;
      }
      std::string shown;
      for (const json& name : c["components"])
        if (name.is_string()) {
          composition.components.push_back(name);
          types.insert(name.get<std::string>());
          shown += cat(shown.empty() ? "" : "+", name.get<std::string>());
        }
      auto number = [](const json& v) {
        return v.is_number_integer() && std::llabs(v.get<std::int64_t>()) <= 100000;
      };
      if (c.contains("layer_range") && c["layer_range"].is_array() &&
          c["layer_range"].size() == 2 && number(c["layer_range"][0]) &&
          number(c["layer_range"][1])) {
        for (int l = c["layer_range"][0]; l <= c["layer_range"][1].get<int>(); ++l)
          composition.layers.push_back(l);
      } else if (c.contains("layer_indices") && c["layer_indices"].is_array()) {
        for (const json& l : c["layer_indices"])
          if (number(l)) composition.layers.push_back(l);
      } else {
        s.warnings.push_back(
            {"composition_schedule_missing",
             cat("phase ", phase.name, ": ", shown, " has no layer_range or layer_indices")});
        continue;
      }
      std::vector<int> inside;
      for (int l : composition.layers) {
        if (l < 0 || l >= phase.layers) {
          s.warnings.push_back({"composition_mismatch", cat("phase ", phase.name, ": layer ", l,
                                                            " is outside 0..", phase.layers - 1)});
          continue;
        }
        std::string& before = taken[static_cast<std::size_t>(l)];
        if (!before.empty())
          problems.add(cat("phase ", phase.name, ": layer ", l, " is in two compositions, ", before,
                           " and ", shown, "; use layer_indices for alternating layers"));
        before = shown.empty() ? "-" : shown;
        inside.push_back(l);
      }
      composition.layers = inside;
      phase.compositions.push_back(std::move(composition));
    }
    for (int l = 0; l < phase.layers; ++l)
      if (taken[static_cast<std::size_t>(l)].empty())
        s.warnings.push_back({"composition_schedule_missing",
                              cat("phase ", phase.name, ": layer ", l, " has no composition")});
    s.phases.push_back(std::move(phase));
  }
  problems.check();
  if (root.contains("model_hint") && root["model_hint"].is_string()) s.hint = root["model_hint"];
  if (root.contains("expected_components") && root["expected_components"].is_array())
    for (const json& e : root["expected_components"])
      if (e.is_string()) types.insert(e.get<std::string>());
  s.expected.assign(types.begin(), types.end());
}

std::map<std::string, SampleSet> read_samples(const std::string& file, const StepOps& ops,
                                              const Structure& s) {
  const json root = read_object(file);
  Problems problems(file);
  if (root.contains("schema_version") && root["schema_version"] != "stream_sample_ack.v1")
    problems.add(cat("schema_version is ", root["schema_version"].dump(),
                     ", expected \"stream_sample_ack.v1\""));
  if (!root.contains("components") || !root["components"].is_object())
    problems.add("\"components\" is missing");
  problems.check();
  std::map<std::string, std::int32_t> stream_ids;
  for (std::int32_t stream : ops.streams) stream_ids.emplace(ops.stream_name(stream), stream);
  std::map<std::string, SampleSet> out;
  for (const auto& [name, body] : root["components"].items()) {
    SampleSet set;
    if (!body.is_object() || !body.contains("stream_samples") ||
        !body["stream_samples"].is_array() || body["stream_samples"].empty()) {
      problems.add(cat(name, ": no stream_samples"));
      continue;
    }
    if (body.contains("source") && body["source"].is_string()) set.source = body["source"];
    int primaries = 0;
    for (const json& entry : body["stream_samples"]) {
      Sample sample;
      if (!entry.is_object() || !entry.contains("stream_id")) {
        problems.add(cat(name, ": a sample without stream_id"));
        continue;
      }
      sample.stream_text = entry["stream_id"].is_string() ? entry["stream_id"].get<std::string>()
                                                          : entry["stream_id"].dump();
      const auto it = stream_ids.find(sample.stream_text);
      if (it == stream_ids.end()) {
        problems.add(cat(name, ": there is no stream ", sample.stream_text, " in this step"));
        continue;
      }
      sample.stream = it->second;
      sample.primary = entry.contains("role") && entry["role"] == "primary";
      primaries += sample.primary;
      auto text = [&](const char* key) {
        return entry.contains(key) && entry[key].is_string() ? entry[key].get<std::string>()
                                                             : std::string();
      };
      sample.head = text("head_op");
      sample.tail = text("tail_op");
      if (entry.contains("op_indices") && entry["op_indices"].is_array())
        for (const json& i : entry["op_indices"]) {
          if (!i.is_number_unsigned() || i.get<std::uint64_t>() >= ops.size()) {
            problems.add(cat(name, ": op index ", i.dump(), " is outside 0..", ops.size() - 1));
            break;
          }
          sample.ops.push_back(i);
        }
      if (sample.ops.empty())
        problems.add(cat(name, ", stream ", sample.stream_text, ": op_indices are empty"));
      for (std::uint32_t op : sample.ops)
        if (ops.streams[op] != sample.stream) {
          problems.add(cat(name, ": op ", op, " is on stream ", ops.stream_name(ops.streams[op]),
                           ", not ", sample.stream_text));
          break;
        }
      set.samples.push_back(std::move(sample));
    }
    if (primaries != 1)
      problems.add(cat(name, ": ", primaries, " primary streams, exactly one is needed"));
    out.emplace(name, std::move(set));
  }
  for (const std::string& type : s.expected)
    if (!out.contains(type)) problems.add(cat("no sample of component ", type));
  problems.check();
  return out;
}

struct Window {
  std::vector<std::uint32_t> ops;
  Scores scores;
};

// Windows of a stream that look like the sample (BD-34), slid by one. Counts are kept as the window
// moves, so a step costs the window's two ends and the positional comparison.
class WindowScan {
 public:
  WindowScan(const Timeline& t, const StepOps& ops) : t_(t), ops_(ops), roles_(roles_of(t)) {}

  std::vector<Window> scan(const std::vector<std::uint32_t>& sequence,
                           const std::vector<std::uint32_t>& sample,
                           std::vector<double>* low_shape) const {
    std::vector<Window> out;
    const std::size_t n = sample.size();
    if (n == 0 || n > sequence.size()) return out;
    // A norm is a norm, whether the addition before is fused into it or not: the first layer's is
    // not. Not so in a sample of little else.
    const bool any_norm = n >= 4;
    auto name = [&](std::uint32_t op) {
      const Kernel& k = t_.kernels[ops_.ops[op]];
      return any_norm && roles_[k.type] == Role::norm ? std::uint64_t{0} : std::uint64_t{k.type};
    };
    auto shape = [&](std::uint32_t op) {
      const Kernel& k = t_.kernels[ops_.ops[op]];
      if (any_norm && roles_[k.type] == Role::norm)
        return static_cast<std::uint64_t>(shape_width(t_.text(k.in_shapes)));
      return (std::uint64_t{k.type} << 42) ^ (std::uint64_t{k.in_shapes} << 21) ^ k.out_shapes;
    };
    std::map<std::uint64_t, int> names, shapes;  // sample's count minus window's count
    for (std::uint32_t op : sample) {
      ++names[name(op)];
      ++shapes[shape(op)];
    }
    Counts by_name(names), by_shape(shapes);
    for (std::size_t i = 0; i < sequence.size(); ++i) {
      by_name.enter(name(sequence[i]));
      by_shape.enter(shape(sequence[i]));
      if (i + 1 < n) continue;
      const std::size_t first = i + 1 - n;
      const double body = by_name.jaccard(n);
      if (body >= 0.85) {
        std::size_t equal = 0;
        for (std::size_t k = 0; k < n; ++k) equal += name(sequence[first + k]) == name(sample[k]);
        const double order = static_cast<double>(equal) / static_cast<double>(n),
                     form = by_shape.jaccard(n);
        if (order >= 0.75) {
          if (form >= 0.75) {
            Window w;
            w.ops.assign(sequence.begin() + static_cast<std::ptrdiff_t>(first),
                         sequence.begin() + static_cast<std::ptrdiff_t>(i + 1));
            w.scores = {order, body, form, 1};
            out.push_back(std::move(w));
          } else if (low_shape) {
            low_shape->push_back(form);
          }
        }
      }
      by_name.leave(name(sequence[first]));
      by_shape.leave(shape(sequence[first]));
    }
    return out;
  }

 private:
  // Overlap of two multisets of n each, as one of them changes by one.
  struct Counts {
    std::map<std::uint64_t, int> sample, window;
    int shared = 0;
    explicit Counts(std::map<std::uint64_t, int> s) : sample(std::move(s)) {}
    void enter(std::uint64_t key) {
      const auto it = sample.find(key);
      if (it != sample.end() && window[key] < it->second) ++shared;
      if (it != sample.end()) ++window[key];
    }
    void leave(std::uint64_t key) {
      const auto it = sample.find(key);
      if (it == sample.end()) return;
      if (--window[key] < it->second) --shared;
    }
    double jaccard(std::size_t n) const {
      return static_cast<double>(shared) / (2.0 * static_cast<double>(n) - shared);
    }
  };
  const Timeline& t_;
  const StepOps& ops_;
  std::vector<Role> roles_;
};

// BD-35: of overlapping windows of one stream the best stays, ties to the earliest.
std::size_t keep_best(std::vector<Window>& windows, const std::vector<std::uint32_t>& position) {
  std::vector<std::size_t> order(windows.size());
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    const Scores &x = windows[a].scores, &y = windows[b].scores;
    if (x.sequence != y.sequence) return x.sequence > y.sequence;
    if (x.body != y.body) return x.body > y.body;
    if (x.shape != y.shape) return x.shape > y.shape;
    return a < b;
  });
  std::map<std::uint32_t, std::uint32_t> taken;  // first position -> last
  std::vector<bool> keep(windows.size());
  for (std::size_t i : order) {
    const std::uint32_t from = position[windows[i].ops.front()],
                        to = position[windows[i].ops.back()];
    auto after = taken.upper_bound(to);
    if (after != taken.begin() && std::prev(after)->second >= from) continue;
    taken.emplace(from, to);
    keep[i] = true;
  }
  std::size_t removed = 0;
  std::vector<Window> kept;
  for (std::size_t i = 0; i < windows.size(); ++i) {
    if (keep[i])
      kept.push_back(std::move(windows[i]));
    else
      ++removed;
  }
  windows = std::move(kept);
  return removed;
}

const std::set<std::string> blocking = {"primary_stream_missing",
                                        "sample_ack_mismatch",
                                        "stream_shape_mismatch",
                                        "composition_mismatch",
                                        "composition_schedule_missing",
                                        "auxiliary_stream_temporally_displaced",
                                        "ambiguous_match",
                                        "op_membership_conflict",
                                        "auxiliary_stream_ambiguous",
                                        "stream_role_ambiguous"};

}  // namespace

Structure sample_structure(const Timeline& t, const StepOps& ops, const std::string& spec_file,
                           const std::string& sample_file, const std::vector<std::string>& accept) {
  if (spec_file.empty() || sample_file.empty())
    throw UserError("TK0914", "--structure and --samples belong together")
        .help("an automatic run writes both; correct those and give them");
  Structure s;
  s.origin = "samples";
  read_spec(spec_file, s);
  const auto samples = read_samples(sample_file, ops, s);
  const auto streams = ops_by_stream(t, ops);
  std::vector<std::uint32_t> position(ops.size());
  for (const auto& [stream, sequence] : streams)
    for (std::uint32_t i = 0; i < sequence.size(); ++i) position[sequence[i]] = i;
  const WindowScan scan(t, ops);
  struct Candidate {
    Component component;
    Ns start = 0;
  };
  std::vector<Candidate> candidates;
  for (const std::string& type : s.expected) {
    const SampleSet& set = samples.at(type);
    std::vector<Window> primary;
    std::int32_t primary_stream = 0;
    std::size_t auxiliaries = 0;
    std::vector<std::pair<std::int32_t, std::vector<Window>>> aux;
    for (const Sample& sample : set.samples) {
      auto type_of = [&](std::uint32_t op) {
        return std::string(t.text(t.kernels[ops.ops[op]].type));
      };
      if (!sample.head.empty() && sample.head != type_of(sample.ops.front()))
        s.warnings.push_back({"sample_ack_mismatch",
                              cat(type, ", stream ", sample.stream_text, ": head_op ", sample.head,
                                  ", the kernel is ", type_of(sample.ops.front()))});
      if (!sample.tail.empty() && sample.tail != type_of(sample.ops.back()))
        s.warnings.push_back({"sample_ack_mismatch",
                              cat(type, ", stream ", sample.stream_text, ": tail_op ", sample.tail,
                                  ", the kernel is ", type_of(sample.ops.back()))});
      std::vector<double> low;
      std::vector<Window> windows = scan.scan(streams.at(sample.stream), sample.ops, &low);
      if (windows.empty())
        for (std::size_t i = 0; i < low.size() && i < 3; ++i)
          s.warnings.push_back(
              {"stream_shape_mismatch",
               cat(type, ", stream ", sample.stream_text, ": names fit, shapes only ",
                   std::round(low[i] * 100) / 100, " (0.75 needed)")});
      if (const std::size_t removed = keep_best(windows, position))
        s.warnings.push_back(
            {"overlapping_windows", cat(type, ", stream ", sample.stream_text, ": ", removed,
                                        " windows that overlap a better one were left out")});
      if (sample.primary) {
        primary = std::move(windows);
        primary_stream = sample.stream;
      } else {
        ++auxiliaries;
        aux.emplace_back(sample.stream, std::move(windows));
      }
    }
    if (primary.empty()) {
      s.warnings.push_back({"primary_stream_missing",
                            cat(type, ": no stretch of the primary stream ",
                                ops.stream_name(primary_stream), " looks like the sample")});
      continue;
    }
    auto center = [&](const Window& w) {
      Ns from = INT64_MAX, to = INT64_MIN;
      for (std::uint32_t op : w.ops) {
        from = std::min(from, t.kernels[ops.ops[op]].start);
        to = std::max(to, t.kernels[ops.ops[op]].end());
      }
      return from + to;  // twice the centre, exact
    };
    std::vector<Ns> primary_centers;
    for (const Window& w : primary) primary_centers.push_back(center(w));
    std::vector<StreamPairs> pairs;
    for (const auto& [stream, windows] : aux) {
      std::vector<Ns> centers;
      for (const Window& w : windows) centers.push_back(center(w));
      pairs.push_back(pair_segments(primary_centers, centers));
    }
    for (std::size_t o = 0; o < primary.size(); ++o) {
      Candidate c;
      c.component.type = type;
      c.component.occurrence = static_cast<int>(o);
      c.component.scores = primary[o].scores;
      c.component.segments.push_back({primary_stream, true, primary[o].ops});
      std::size_t found = 0;
      for (std::size_t x = 0; x < aux.size(); ++x) {
        const int partner = pairs[x].partner[o];
        if (partner < 0) {
          s.warnings.push_back(
              {"auxiliary_stream_missing", cat(type, " occurrence ", o, ": nothing on stream ",
                                               ops.stream_name(aux[x].first))});
          continue;
        }
        ++found;
        const Window& w = aux[x].second[static_cast<std::size_t>(partner)];
        c.component.segments.push_back({aux[x].first, false, w.ops});
        c.component.scores.body = std::min(c.component.scores.body, w.scores.body);
        c.component.scores.shape = std::min(c.component.scores.shape, w.scores.shape);
        if (pairs[x].ambiguous[o])
          s.warnings.push_back({"auxiliary_stream_ambiguous",
                                cat(type, " occurrence ", o, ": another stretch of stream ",
                                    ops.stream_name(aux[x].first), " fits as well")});
      }
      c.component.scores.auxiliary_coverage =
          auxiliaries ? static_cast<double>(found) / static_cast<double>(auxiliaries) : 1;
      c.start = t.kernels[ops.ops[primary[o].ops.front()]].start;
      candidates.push_back(std::move(c));
    }
  }
  // BD-38: the better candidate keeps an op; of equally good ones the longer, as a short sample (a
  // dense layer whose products run on another stream) is found inside the longer ones, too.
  auto size = [](const Candidate& c) {
    std::size_t n = 0;
    for (const StreamSegment& g : c.component.segments) n += g.ops.size();
    return n;
  };
  std::stable_sort(candidates.begin(), candidates.end(),
                   [&](const Candidate& a, const Candidate& b) {
                     const Component &x = a.component, &y = b.component;
                     if (x.scores.sequence != y.scores.sequence)
                       return x.scores.sequence > y.scores.sequence;
                     if (x.scores.body != y.scores.body) return x.scores.body > y.scores.body;
                     if (size(a) != size(b)) return size(a) > size(b);
                     if (x.type != y.type) return x.type < y.type;
                     return x.occurrence < y.occurrence;
                   });
  std::vector<int> used(ops.size(), -1);  // by which candidate
  std::map<std::string, std::size_t> contained;
  std::map<std::string, std::vector<Candidate>> by_type;
  int number = 0;
  for (Candidate& c : candidates) {
    std::string conflict;
    std::size_t n = 0;
    std::set<int> others;
    for (const StreamSegment& g : c.component.segments)
      for (std::uint32_t op : g.ops) {
        if (used[op] < 0) continue;
        others.insert(used[op]);
        if (n++ < 20) conflict += cat(n > 1 ? ", " : "", op);
      }
    if (n == size(c) && others.size() == 1) {
      ++contained[c.component.type];
      continue;
    }
    if (n) {
      s.warnings.push_back(
          {"op_membership_conflict", cat(c.component.type, " occurrence ", c.component.occurrence,
                                         " shares ", n, " kernels with another: ", conflict)});
      continue;
    }
    for (const StreamSegment& g : c.component.segments)
      for (std::uint32_t op : g.ops) used[op] = number;
    ++number;
    by_type[c.component.type].push_back(std::move(c));
  }
  for (const auto& [type, n] : contained)
    s.warnings.push_back({"contained_windows", cat(type, ": ", n,
                                                   " stretches that lie whole in a longer "
                                                   "component were left out")});
  for (auto& [type, v] : by_type)
    std::sort(v.begin(), v.end(),
              [](const Candidate& a, const Candidate& b) { return a.start < b.start; });
  std::map<std::string, std::size_t> cursor;
  int base = 0;
  for (const Phase& phase : s.phases) {
    for (int l = 0; l < phase.layers; ++l)
      for (const Composition& c : phase.compositions) {
        if (std::find(c.layers.begin(), c.layers.end(), l) == c.layers.end()) continue;
        for (const std::string& type : c.components) {
          std::size_t& at = cursor[type];
          auto& available = by_type[type];
          if (at >= available.size()) {
            s.warnings.push_back({"composition_mismatch",
                                  cat("phase ", phase.name, " layer ", l, ": no ", type, " left")});
            continue;
          }
          Component x = available[at++].component;
          x.phase = phase.name;
          x.local_layer = l;
          x.layer = base + l;
          s.components.push_back(std::move(x));
        }
      }
    base += phase.layers;
  }
  for (const auto& [type, v] : by_type)
    if (cursor[type] < v.size())
      s.warnings.push_back(
          {"composition_mismatch", cat(type, ": ", v.size() - cursor[type],
                                       " occurrences are in no layer of the structure")});
  s.found = !s.components.empty();
  if (!s.found) s.reason = "no component was found with these samples";
  finish_structure(t, ops, s);
  std::vector<const Warning*> hard;
  for (const Warning& w : s.warnings)
    if (blocking.contains(w.code) &&
        std::find(accept.begin(), accept.end(), w.code) == accept.end())
      hard.push_back(&w);
  s.blocked = !hard.empty();
  return s;
}

}  // namespace tk
