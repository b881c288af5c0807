#include "timeline/structure.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"

namespace tk {

using nlohmann::json;

namespace {

struct Span {
  Ns from = INT64_MAX, to = INT64_MIN;
  void add(const Kernel& k) {
    from = std::min(from, k.start);
    to = std::max(to, k.end());
  }
};

// BD-43: a stream is displaced for a type if more than half of its segments do not overlap their
// block and more than double its span.
void mark_displaced(const Timeline& t, const StepOps& ops, Structure& s) {
  struct Tally {
    int all = 0, off = 0;
  };
  std::map<std::pair<std::string, std::int32_t>, Tally> tally;
  auto spans = [&](const Component& c, const StreamSegment& g, Span& primary, Span& aux) {
    for (const StreamSegment& p : c.segments)
      if (p.primary)
        for (std::uint32_t op : p.ops) primary.add(t.kernels[ops.ops[op]]);
    for (std::uint32_t op : g.ops) aux.add(t.kernels[ops.ops[op]]);
    return primary.to > primary.from && !g.ops.empty();
  };
  for (const Component& c : s.components)
    for (const StreamSegment& g : c.segments) {
      if (g.primary) continue;
      Span p, a;
      if (!spans(c, g, p, a)) continue;
      Tally& x = tally[{c.type, g.stream}];
      ++x.all;
      const Ns shared = std::min(p.to, a.to) - std::max(p.from, a.from);
      const Ns span = p.to - p.from, with = std::max(p.to, a.to) - std::min(p.from, a.from);
      x.off += shared <= 0 && with - span > span;
    }
  for (Component& c : s.components) {
    c.displaced.clear();
    for (const StreamSegment& g : c.segments) {
      if (g.primary) continue;
      const Tally& x = tally[{c.type, g.stream}];
      if (x.off * 2 > x.all) c.displaced.insert(c.displaced.end(), g.ops.begin(), g.ops.end());
    }
  }
  for (const auto& [key, x] : tally)
    if (x.off * 2 > x.all)
      s.warnings.push_back(
          {"auxiliary_stream_temporally_displaced",
           cat("stream ", ops.stream_name(key.second), " of ", key.first, " runs away from it in ",
               x.off, " of ", x.all, " instances; it is outside wall, bubble and TOTAL")});
}

// BD-42: more than 30 compute kernels in a row that are in no block, between blocks: one may be
// missing from the structure.
void mark_regions(const Timeline& t, const StepOps& ops, Structure& s) {
  const std::set<std::uint32_t> between(s.between.begin(), s.between.end());
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    std::vector<std::uint32_t> run;
    auto close = [&] {
      if (run.size() > 30)
        s.warnings.push_back(
            {"large_unmatched_region",
             cat("stream ", ops.stream_name(stream), ": ", run.size(),
                 " kernels in a row are in no block, rows ",
                 t.kernels[ops.ops[run.front()]].row + 2, " to ",
                 t.kernels[ops.ops[run.back()]].row + 2, " as Excel counts them")});
      run.clear();
    };
    for (std::uint32_t op : sequence) {
      if (between.contains(op) && t.kernels[ops.ops[op]].core != Core::communication)
        run.push_back(op);
      else
        close();
    }
    close();
  }
}

json ops_json(const std::vector<std::uint32_t>& v) { return json(v); }

std::string stream_json(const StepOps& ops, std::int32_t stream) { return ops.stream_name(stream); }

}  // namespace

std::map<std::int32_t, std::vector<std::uint32_t>> ops_by_stream(const Timeline& t,
                                                                 const StepOps& ops) {
  std::map<std::int32_t, std::vector<std::uint32_t>> out;
  for (std::uint32_t i = 0; i < ops.size(); ++i) out[ops.streams[i]].push_back(i);
  for (auto& [stream, v] : out)
    std::stable_sort(v.begin(), v.end(), [&](std::uint32_t a, std::uint32_t b) {
      return t.kernels[ops.ops[a]].start < t.kernels[ops.ops[b]].start;
    });
  return out;
}

void finish_structure(const Timeline& t, const StepOps& ops, Structure& s) {
  auto start = [&](std::uint32_t op) { return t.kernels[ops.ops[op]].start; };
  s.owner.assign(ops.size(), -1);
  std::map<std::string, int> occurrence;
  std::set<std::string> types;
  Ns first = INT64_MAX, last = INT64_MIN;
  for (std::size_t c = 0; c < s.components.size(); ++c) {
    Component& x = s.components[c];
    x.ops.clear();
    for (const StreamSegment& g : x.segments) x.ops.insert(x.ops.end(), g.ops.begin(), g.ops.end());
    std::sort(x.ops.begin(), x.ops.end(), [&](std::uint32_t a, std::uint32_t b) {
      return start(a) != start(b) ? start(a) < start(b) : a < b;
    });
    for (std::uint32_t op : x.ops) {
      TK_CHECK(op < ops.size() && s.owner[op] < 0, "op ", op, " of ", x.type);
      s.owner[op] = static_cast<std::int32_t>(c);
      first = std::min(first, start(op));
      last = std::max(last, start(op));
    }
    x.occurrence = occurrence[x.type]++;
    x.id = fmt::format("{}.L{:03}.{}.{}", x.phase, x.layer, x.type, x.occurrence);
    types.insert(x.type);
  }
  if (s.expected.empty()) s.expected.assign(types.begin(), types.end());
  s.pre.clear();
  s.post.clear();
  s.between.clear();
  for (std::uint32_t op = 0; op < ops.size(); ++op) {
    if (s.owner[op] >= 0) continue;
    (start(op) < first ? s.pre : start(op) > last ? s.post : s.between).push_back(op);
  }
  mark_displaced(t, ops, s);
  mark_regions(t, ops, s);
}

json structure_spec_json(const Structure& s) {
  json phases = json::array();
  int layers = 0;
  for (const Phase& p : s.phases) {
    json compositions = json::array();
    for (const Composition& c : p.compositions) {
      const bool range = !c.layers.empty() && c.layers.back() - c.layers.front() + 1 ==
                                                  static_cast<int>(c.layers.size());
      json item = {{"components", c.components}};
      if (range)
        item["layer_range"] = {c.layers.front(), c.layers.back()};
      else
        item["layer_indices"] = c.layers;
      compositions.push_back(std::move(item));
    }
    phases.push_back(
        {{"name", p.name}, {"layers", p.layers}, {"layer_compositions", std::move(compositions)}});
    layers += p.layers;
  }
  return {{"model_hint", s.hint},
          {"phases", std::move(phases)},
          {"expected_components", s.expected},
          {"expected_layer_count", layers},
          {"origin", s.origin}};
}

json sample_ack_json(const Timeline& t, const StepOps& ops, const Structure& s) {
  json components = json::object();
  for (const std::string& type : s.expected) {
    std::vector<const Component*> all;
    for (const Component& c : s.components)
      if (c.type == type) all.push_back(&c);
    if (all.empty()) continue;
    const Component& c = *all[all.size() / 2];  // neither first nor last where there are three
    json samples = json::array();
    std::string primary;
    for (const StreamSegment& g : c.segments) {
      if (g.ops.empty()) continue;
      if (g.primary) primary = stream_json(ops, g.stream);
      samples.push_back({{"stream_id", stream_json(ops, g.stream)},
                         {"role", g.primary ? "primary" : "auxiliary"},
                         {"head_op", t.text(t.kernels[ops.ops[g.ops.front()]].type)},
                         {"tail_op", t.text(t.kernels[ops.ops[g.ops.back()]].type)},
                         {"op_indices", ops_json(g.ops)}});
    }
    components[type] = {{"source", s.origin},
                        {"primary_stream_id", primary},
                        {"stream_samples", std::move(samples)},
                        {"agent_note", cat("instance ", c.id)}};
  }
  return {{"schema_version", "stream_sample_ack.v1"},
          {"acked_at", ""},
          {"components", std::move(components)}};
}

json structure_draft_json(const Timeline& t, const StepOps& ops, const Structure& s) {
  json d;
  d["mode"] = "stream_sample_driven";
  d["schema_version"] = "structure_draft.stream.v1";
  d["structure_spec"] = structure_spec_json(s);
  d["samples_used"] = json::array();
  json components = json::array(), op_to = json::object();
  for (const Component& c : s.components) {
    json segments = json::array();
    std::string primary;
    for (const StreamSegment& g : c.segments) {
      if (g.primary) primary = stream_json(ops, g.stream);
      segments.push_back({{"stream_id", stream_json(ops, g.stream)},
                          {"role", g.primary ? "primary" : "auxiliary"},
                          {"op_indices", ops_json(g.ops)}});
    }
    json x = {{"component_id", c.id},
              {"type", c.type},
              {"phase", c.phase},
              {"layer_idx", c.layer},
              {"occurrence_idx", c.occurrence},
              {"primary_stream_id", primary},
              {"op_indices", ops_json(c.ops)},
              {"stream_segments", std::move(segments)},
              {"scores",
               {{"primary_stream_sequence", c.scores.sequence},
                {"stream_body", c.scores.body},
                {"stream_shape", c.scores.shape},
                {"auxiliary_stream_coverage", c.scores.auxiliary_coverage}}}};
    if (!c.displaced.empty()) x["displaced_op_indices"] = ops_json(c.displaced);
    components.push_back(std::move(x));
    for (std::uint32_t op : c.ops) op_to[std::to_string(op)] = c.id;
  }
  d["components"] = std::move(components);
  d["op_to_component"] = std::move(op_to);
  std::vector<std::uint32_t> unowned;
  for (const auto* v : {&s.pre, &s.between, &s.post})
    unowned.insert(unowned.end(), v->begin(), v->end());
  std::sort(unowned.begin(), unowned.end());
  d["unmatched_op_indices"] = ops_json(unowned);
  d["unowned_ops"] = {
      {"pre", ops_json(s.pre)}, {"between", ops_json(s.between)}, {"post", ops_json(s.post)}};
  json runs = json::array();
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    std::vector<std::uint32_t> run;
    auto close = [&] {
      if (!run.empty())
        runs.push_back({{"stream_id", stream_json(ops, stream)}, {"op_indices", ops_json(run)}});
      run.clear();
    };
    for (std::uint32_t op : sequence) {
      if (s.owner[op] < 0)
        run.push_back(op);
      else
        close();
    }
    close();
  }
  d["unmatched_stream_segments"] = std::move(runs);
  json warnings = json::array();
  for (const Warning& w : s.warnings)
    warnings.push_back({{"code", w.code}, {"message", w.message}});
  d["warnings"] = std::move(warnings);
  int declared = 0;
  json match = json::object();
  std::map<std::string, std::set<int>> seen;
  for (const Component& c : s.components) seen[c.phase].insert(c.layer);
  std::size_t detected = 0;
  for (const Phase& p : s.phases) {
    declared += p.layers;
    detected += seen[p.name].size();
    match[p.name] = static_cast<int>(seen[p.name].size()) == p.layers;
  }
  d["validation"] = {{"declared_layer_count", declared},
                     {"detected_layer_count", detected},
                     {"per_phase_layer_match", std::move(match)},
                     {"missing_samples", json::array()},
                     {"ambiguous_matches", json::array()}};
  return d;
}

}  // namespace tk
