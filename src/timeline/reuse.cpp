#include "timeline/reuse.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "timeline/artifacts.h"
#include "timeline/clusters.h"
#include "timeline/input.h"
#include "timeline/structure.h"

namespace tk {

namespace fs = std::filesystem;
using nlohmann::json;

namespace {

// An operator as raw_ops.json has it, or as it is now.
struct Op {
  std::string name, shapes, stream;
};
using Ops = std::vector<Op>;
using Streams = std::map<std::string, std::vector<std::uint32_t>>;  // indices, in stream order

json read_json_file(const fs::path& path) {
  std::error_code ignored;
  if (!fs::is_regular_file(path, ignored)) return {};
  const Buffer text = read_whole(path, std::uint64_t{1} << 30);
  json root = json::parse(text.text(), nullptr, false);
  return root.is_object() ? root : json();
}

std::string text_of(const json& object, const char* key) {
  const auto it = object.find(key);
  return it != object.end() && it->is_string() ? it->get<std::string>() : std::string();
}

Ops old_ops(const fs::path& file) {
  Ops out;
  const json root = read_json_file(file);
  if (!root.is_object() || !root.contains("operators") || !root["operators"].is_array()) return out;
  for (const json& o : root["operators"])
    if (o.is_object())
      out.push_back(
          {text_of(o, "normalized_name"), text_of(o, "input_shapes"), text_of(o, "stream_id")});
  return out;
}

Ops new_ops(const Timeline& t, const StepOps& ops) {
  Ops out;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    out.push_back({std::string(t.text(k.type)), std::string(t.text(k.in_shapes)),
                   ops.stream_name(ops.streams[i])});
  }
  return out;
}

Streams by_stream(const Ops& ops) {  // raw_ops.json is by row, which is by start
  Streams out;
  for (std::uint32_t i = 0; i < ops.size(); ++i) out[ops[i].stream].push_back(i);
  return out;
}

using Counts = std::map<std::string, std::size_t>;
Counts count_names(const Ops& ops) {
  Counts out;
  for (const Op& o : ops) ++out[o.name];
  return out;
}

// Population deviation over mean of the distances between places; large for fewer than 3.
double gap_variation(const std::vector<std::size_t>& places) {
  if (places.size() < 3) return 1e9;
  double sum = 0, squares = 0;
  const auto n = static_cast<double>(places.size() - 1);
  for (std::size_t i = 1; i < places.size(); ++i) {
    const auto gap = static_cast<double>(places[i] - places[i - 1]);
    sum += gap;
    squares += gap * gap;
  }
  const double mean = sum / n;
  return std::sqrt(std::max(0.0, squares / n - mean * mean)) / mean;
}

// Of each component's primary sample the two kernels that occur most evenly on their stream.
std::set<std::string> anchors_of(const json& samples, const Ops& ops, const Streams& streams) {
  std::set<std::string> out;
  for (const auto& [type, body] : samples.items()) {
    const json none = json::array();
    for (const json& s : body.is_object() ? body.value("stream_samples", none) : none) {
      if (text_of(s, "role") != "primary") continue;
      const auto stream = streams.find(text_of(s, "stream_id"));
      if (stream == streams.end()) continue;
      std::set<std::string> names;
      for (const json& i : s.value("op_indices", none))
        if (i.is_number_unsigned() && i.get<std::size_t>() < ops.size())
          names.insert(ops[i.get<std::size_t>()].name);
      std::vector<std::pair<double, std::string>> order;
      for (const std::string& name : names) {
        std::vector<std::size_t> places;
        for (std::size_t p = 0; p < stream->second.size(); ++p)
          if (ops[stream->second[p]].name == name) places.push_back(p);
        order.emplace_back(gap_variation(places), name);
      }
      std::sort(order.begin(), order.end());
      for (std::size_t i = 0; i < order.size() && i < 2; ++i) out.insert(order[i].second);
    }
  }
  return out;
}

std::vector<std::string> top_shapes(const Ops& ops, const std::string& name) {
  Counts count;
  for (const Op& o : ops)
    if (o.name == name) ++count[o.shapes];
  std::vector<std::pair<std::size_t, std::string>> order;
  for (const auto& [shapes, n] : count) order.emplace_back(n, shapes);
  std::sort(order.rbegin(), order.rend());
  std::vector<std::string> out;
  for (std::size_t i = 0; i < order.size() && i < 3; ++i) out.push_back(order[i].second);
  return out;
}

// Moves a sample's indices to the nearest equal stretch of the stream; the places that it moved by,
// or -1.
int move_sample(json& sample, const Ops& old, const Streams& old_streams, const Ops& now,
                const Streams& streams) {
  const std::string stream = text_of(sample, "stream_id");
  const auto from = old_streams.find(stream), to = streams.find(stream);
  if (from == old_streams.end() || to == streams.end() || !sample.contains("op_indices")) return -1;
  std::vector<std::uint32_t> indices;
  for (const json& i : sample["op_indices"])
    if (i.is_number_unsigned() && i.get<std::size_t>() < old.size()) indices.push_back(i);
  if (indices.empty()) return -1;
  const auto at = std::lower_bound(from->second.begin(), from->second.end(), indices.front());
  const auto place = at - from->second.begin();
  const auto n = static_cast<std::ptrdiff_t>(indices.size());
  const auto size = static_cast<std::ptrdiff_t>(to->second.size());
  for (std::ptrdiff_t away = 0; away <= size; ++away)
    for (const std::ptrdiff_t p : {place - away, place + away}) {
      if (p < 0 || p + n > size) continue;
      bool equal = true;
      for (std::ptrdiff_t i = 0; i < n && equal; ++i)
        equal = now[to->second[static_cast<std::size_t>(p + i)]].name ==
                old[indices[static_cast<std::size_t>(i)]].name;
      if (!equal) continue;
      json moved = json::array();
      for (std::ptrdiff_t i = 0; i < n; ++i)
        moved.push_back(to->second[static_cast<std::size_t>(p + i)]);
      sample["op_indices"] = std::move(moved);
      return static_cast<int>(away);
    }
  return -1;
}

double change(std::size_t from, std::size_t to) {
  return from ? std::abs(static_cast<double>(to) - static_cast<double>(from)) /
                    static_cast<double>(from)
              : (to ? 1e9 : 0);
}

// "still matches n ops" per rule of a file that is not applied (BD-22).
std::string rule_matches(const fs::path& file, const Timeline& t, const StepOps& ops) {
  std::string out;
  const ClusterRules rules = read_cluster_rules(file);
  for (const auto& [type, clusters] : rules.types) {
    Classifier classifier(t, clusters, type);
    for (std::uint32_t op : ops.ops) classifier.classify(t.kernels[op]);
    for (std::size_t c = 0; c < clusters.size(); ++c) {
      std::size_t n = 0;
      for (std::size_t w : classifier.wins()[c]) n += w;
      out += cat("\n  ", type, ".", clusters[c].name, " still matches ", n, " ops");
    }
  }
  return out;
}

}  // namespace

std::string file_hash(std::string_view text) {
  std::uint64_t h = 14695981039346656037ULL;  // FNV-1a
  for (const char c : text) h = (h ^ static_cast<unsigned char>(c)) * 1099511628211ULL;
  return fmt::format("{:016x}", h);
}

WrittenFiles written_files(const fs::path& run) {
  WrittenFiles out;
  const json inputs = read_json_file(run / "inputs.json");
  if (inputs.is_object() && inputs.contains("written") && inputs["written"].is_object())
    for (const auto& [name, hash] : inputs["written"].items())
      if (hash.is_string()) out[name] = hash;
  return out;
}

bool edited(const fs::path& run, const WrittenFiles& written, const std::string& name) {
  const auto it = written.find(name);
  std::error_code ignored;
  if (it == written.end() || !fs::is_regular_file(run / name, ignored)) return false;
  return file_hash(read_whole(run / name, std::uint64_t{1} << 30).text()) != it->second;
}

Reuse find_reuse(const fs::path& run, const std::string& mode, const Timeline& t,
                 const StepOps& ops) {
  Reuse r;
  const WrittenFiles written = written_files(run);
  bool structure = false;
  fs::path rules;
  for (const auto& [name, hash] : written) {
    if (!edited(run, written, name)) continue;
    if (name == "structure_spec.json" || name == "sample_ack.json")
      structure = true;
    else
      rules = run / name;
  }
  if (!structure && rules.empty()) return r;
  const Ops old = old_ops(run / "raw_ops.json"), now = new_ops(t, ops);
  json ack = read_json_file(run / "sample_ack.json");
  const bool have_samples = ack.is_object() && ack.contains("components") &&
                            ack["components"].is_object() &&
                            ack.value("schema_version", "") == "stream_sample_ack.v1";
  std::vector<std::string> large, medium;
  int moved = 0;
  if (old.empty() || !have_samples) {
    large.emplace_back("the files of the last run are of another schema or missing");
  } else {
    const Streams old_streams = by_stream(old), streams = by_stream(now);
    const Counts before = count_names(old), after = count_names(now);
    for (const auto& [name, n] : after)
      if (!before.contains(name)) medium.push_back(cat("new name ", name));
    for (const auto& [name, n] : before)
      if (!after.contains(name)) medium.push_back(cat("name gone ", name));
    if (change(old.size(), now.size()) > 0.3)
      large.push_back(cat("kernels ", old.size(), " -> ", now.size()));
    for (const std::string& anchor : anchors_of(ack["components"], old, old_streams)) {
      const std::size_t a = before.at(anchor), b = after.contains(anchor) ? after.at(anchor) : 0;
      if (b == 0)
        large.push_back(cat("anchor ", anchor, " vanished"));
      else if (change(a, b) > 0.1)
        large.push_back(cat("anchor ", anchor, " ", a, " -> ", b));
      else if (a != b)
        medium.push_back(cat("anchor ", anchor, " ", a, " -> ", b));
      else if (top_shapes(old, anchor) != top_shapes(now, anchor))
        medium.push_back(cat("shapes of ", anchor, " differ"));
    }
    for (auto& [type, body] : ack["components"].items())
      if (body.is_object() && body.contains("stream_samples") && body["stream_samples"].is_array())
        for (json& sample : body["stream_samples"]) {
          const int by =
              sample.is_object() ? move_sample(sample, old, old_streams, now, streams) : -1;
          if (by < 0 || by > 5)
            medium.push_back(by < 0 ? cat("sample ", type, " not found")
                                    : cat("sample ", type, " moved by ", by));
          moved = std::max(moved, by);
        }
  }
  bool equal = large.empty() && medium.empty() && moved == 0 && old.size() == now.size();
  for (std::size_t i = 0; i < now.size() && equal; ++i)
    equal = old[i].name == now[i].name && old[i].shapes == now[i].shapes;
  r.tier = !large.empty() ? "large" : !medium.empty() ? "medium" : equal ? "same profile" : "small";
  r.text = cat("reuse: tier ", r.tier);
  std::vector<std::string> signals = large;
  signals.insert(signals.end(), medium.begin(), medium.end());
  for (std::size_t i = 0; i < signals.size() && i < 10; ++i)
    r.text += cat(i ? ", " : " (", signals[i]);
  if (!signals.empty())
    r.text += signals.size() > 10 ? cat(" and ", signals.size() - 10, " more)") : ")";
  // What is taken: all in the small tier, rules in the medium one, nothing in the large one.
  bool take_structure = r.tier == "small" || r.tier == "same profile",
       take_rules = r.tier != "large";
  if (mode != "auto") {
    r.text += cat("; --reuse ", mode, " overrides");
    take_structure = mode == "all";
    take_rules = mode != "none";
  }
  if (take_rules && !rules.empty()) {
    r.rules = rules;
    r.text += cat("; your rules of ", rules.filename().string(), " are used");
  } else if (!rules.empty()) {
    r.text += cat("; your rules of ", rules.filename().string(),
                  " are not applied:", rule_matches(rules, t, ops));
  }
  if (take_structure && structure && have_samples) {
    if (r.tier == "small") write_json(run / "sample_ack.json", ack);
    r.structure = run / "structure_spec.json";
    r.samples = run / "sample_ack.json";
    r.text += "; your structure is used";
  } else if (structure) {
    r.text += "; your structure is left as it is and not applied";
  }
  return r;
}

}  // namespace tk
