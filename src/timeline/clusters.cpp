#define PCRE2_CODE_UNIT_WIDTH 8
#include "timeline/clusters.h"

#include <pcre2.h>

#include <algorithm>
#include <nlohmann/json.hpp>
#include <set>
#include <unordered_map>

#include "base/error.h"
#include "timeline/input.h"

namespace tk {

using nlohmann::json;

namespace {

[[noreturn]] void bad(const std::filesystem::path& file, const std::string& where,
                      const std::string& what) {
  throw UserError("TK0913", cat(where, ": ", what))
      .at(file.string())
      .help(
          "rule keys: op_name, op_name_regex, input_shapes_contains, input_shapes_regex, "
          "output_shapes_contains, output_shapes_regex, catch_all (alone, in the last cluster)");
}

ClusterRule read_rule(const json& j, const std::filesystem::path& file, const std::string& where) {
  if (!j.is_object()) bad(file, where, "a rule is an object");
  ClusterRule r;
  std::size_t keys = 0;
  for (const auto& [key, value] : j.items()) {
    ++keys;
    if (key == "catch_all") {
      if (!value.is_boolean()) bad(file, where, "catch_all is true or false");
      r.catch_all = value.get<bool>();
      if (!r.catch_all) --keys;
      continue;
    }
    std::string* to = key == "op_name"                  ? &r.op_name
                      : key == "op_name_regex"          ? &r.op_name_regex
                      : key == "input_shapes_contains"  ? &r.input_contains
                      : key == "input_shapes_regex"     ? &r.input_regex
                      : key == "output_shapes_contains" ? &r.output_contains
                      : key == "output_shapes_regex"    ? &r.output_regex
                                                        : nullptr;
    if (!to) bad(file, where, cat("unknown key \"", key, "\""));
    if (!value.is_string() || value.get<std::string>().empty())
      bad(file, where, cat(key, " is a text that is not empty"));
    *to = value.get<std::string>();
  }
  if (keys == 0) bad(file, where, "a rule without keys would match everything");
  return r;
}

}  // namespace

const std::vector<Cluster>* ClusterRules::of(const std::string& type) const {
  for (const auto& [name, clusters] : types)
    if (name == type) return &clusters;
  return nullptr;
}

ClusterRules read_cluster_rules(const std::filesystem::path& path) {
  const Buffer file = read_whole(path, 64 << 20);
  const nlohmann::ordered_json root = nlohmann::ordered_json::parse(file.text(), nullptr, false);
  if (root.is_discarded() || !root.is_object()) bad(path, "the file", "is no JSON object");
  ClusterRules rules;
  rules.origin = "user";
  if (root.contains("model_name") && root["model_name"].is_string())
    rules.model_name = root["model_name"];
  if (root.contains("outlier")) {
    const auto& o = root["outlier"];
    if (!o.is_object()) bad(path, "outlier", "is an object {method, k}");
    const std::string method = o.value("method", "iqr");
    if (method != "iqr" && method != "z")
      bad(path, "outlier.method", cat("\"", method, "\" is neither iqr nor z"));
    rules.outlier.z = method == "z";
    rules.outlier.k = o.contains("k") && o["k"].is_number() ? o["k"].get<double>()
                      : rules.outlier.z                     ? 2.0
                                                            : 1.5;
  }
  if (!root.contains("component_clusters") || !root["component_clusters"].is_object() ||
      root["component_clusters"].empty())
    bad(path, "component_clusters", "is missing or empty");
  for (const auto& [type, list] : root["component_clusters"].items()) {
    const std::string at_type = cat("component_clusters.", type);
    if (!list.is_array()) bad(path, at_type, "is a list of clusters");
    std::vector<Cluster> clusters;
    for (std::size_t c = 0; c < list.size(); ++c) {
      const std::string where = cat(at_type, "[", c, "]");
      if (!list[c].is_object() || !list[c].contains("cluster") || !list[c]["cluster"].is_string())
        bad(path, where, "needs a text \"cluster\"");
      Cluster cluster;
      cluster.name = list[c]["cluster"];
      if (cluster.name == "bubble" || cluster.name == "TOTAL")
        bad(path, where, "this name is taken by a row of its own");
      if (list[c].contains("description") && list[c]["description"].is_string())
        cluster.description = list[c]["description"];
      if (!list[c].contains("rules") || !list[c]["rules"].is_array() || list[c]["rules"].empty())
        bad(path, where, "a cluster without rules matches nothing");
      for (std::size_t r = 0; r < list[c]["rules"].size(); ++r) {
        const std::string at_rule = cat(where, ".rules[", r, "]");
        cluster.rules.push_back(read_rule(json(list[c]["rules"][r]), path, at_rule));
        if (cluster.rules.back().catch_all &&
            (c + 1 < list.size() || r + 1 < list[c]["rules"].size()))
          bad(path, at_rule, "catch_all must be the last rule");
      }
      for (const Cluster& other : clusters)
        if (other.name == cluster.name)
          bad(path, where, cat("cluster \"", cluster.name, "\" occurs twice"));
      clusters.push_back(std::move(cluster));
    }
    rules.types.emplace_back(type, std::move(clusters));
  }
  return rules;
}

json cluster_rules_json(const ClusterRules& rules) {
  json types = json::object();
  for (const auto& [type, clusters] : rules.types) {
    json list = json::array();
    for (const Cluster& c : clusters) {
      json entries = json::array();
      for (const ClusterRule& r : c.rules) {
        json e = json::object();
        if (r.catch_all) e["catch_all"] = true;
        auto put = [&](const char* key, const std::string& value) {
          if (!value.empty()) e[key] = value;
        };
        put("op_name", r.op_name);
        put("op_name_regex", r.op_name_regex);
        put("input_shapes_contains", r.input_contains);
        put("input_shapes_regex", r.input_regex);
        put("output_shapes_contains", r.output_contains);
        put("output_shapes_regex", r.output_regex);
        entries.push_back(std::move(e));
      }
      list.push_back(
          {{"cluster", c.name}, {"description", c.description}, {"rules", std::move(entries)}});
    }
    types[type] = std::move(list);
  }
  return {{"model_name", rules.model_name},
          {"outlier", {{"method", rules.outlier.z ? "z" : "iqr"}, {"k", rules.outlier.k}}},
          {"component_clusters", std::move(types)},
          {"origin", rules.origin}};
}

namespace {

struct Regex {
  pcre2_code* code = nullptr;
  pcre2_match_data* data = nullptr;
  pcre2_match_context* context = nullptr;
  explicit Regex(const std::string& pattern, const std::string& where) {
    int error = 0;
    PCRE2_SIZE offset = 0;
    code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF,
                         &error, &offset, nullptr);
    if (!code) {
      PCRE2_UCHAR text[256];
      pcre2_get_error_message(error, text, sizeof text);
      throw UserError("TK0913", cat(where, ": bad regular expression at character ", offset, ": ",
                                    reinterpret_cast<const char*>(text)));
    }
    data = pcre2_match_data_create_from_pattern(code, nullptr);
    context = pcre2_match_context_create(nullptr);
    pcre2_set_match_limit(context, 100000);
  }
  ~Regex() {
    pcre2_match_context_free(context);
    pcre2_match_data_free(data);
    pcre2_code_free(code);
  }
  Regex(const Regex&) = delete;
  Regex& operator=(const Regex&) = delete;
  bool search(std::string_view text) const {
    return pcre2_match(code, reinterpret_cast<PCRE2_SPTR>(text.data()), text.size(), 0, 0, data,
                       context) >= 0;
  }
};

// A test on texts of the pool, remembered per text.
struct TextTest {
  std::string exact, contains;
  std::unique_ptr<Regex> regex;
  std::unordered_map<StringId, bool> known;
  bool any() const { return exact.empty() && contains.empty() && !regex; }
  bool holds(const Timeline& t, StringId id) {
    if (any()) return true;
    const auto [it, fresh] = known.try_emplace(id, false);
    if (fresh) {
      const std::string_view text = t.text(id);
      it->second = (exact.empty() || text == exact) &&
                   (contains.empty() || text.find(contains) != text.npos) &&
                   (!regex || regex->search(text));
    }
    return it->second;
  }
};

}  // namespace

struct Classifier::Rule {
  bool catch_all = false;
  TextTest name, input, output;
};

Classifier::Classifier(const Timeline& t, const std::vector<Cluster>& clusters,
                       const std::string& where)
    : t_(t) {
  for (std::size_t c = 0; c < clusters.size(); ++c) {
    rules_.emplace_back();
    for (std::size_t r = 0; r < clusters[c].rules.size(); ++r) {
      const ClusterRule& from = clusters[c].rules[r];
      const std::string at = cat("component_clusters.", where, "[", c, "].rules[", r, "]");
      auto rule = std::make_unique<Rule>();
      rule->catch_all = from.catch_all;
      rule->name.exact = from.op_name;
      rule->input.contains = from.input_contains;
      rule->output.contains = from.output_contains;
      if (!from.op_name_regex.empty())
        rule->name.regex = std::make_unique<Regex>(from.op_name_regex, at);
      if (!from.input_regex.empty())
        rule->input.regex = std::make_unique<Regex>(from.input_regex, at);
      if (!from.output_regex.empty())
        rule->output.regex = std::make_unique<Regex>(from.output_regex, at);
      rules_.back().push_back(std::move(rule));
    }
    wins_.emplace_back(clusters[c].rules.size(), 0);
  }
}
Classifier::~Classifier() = default;

int Classifier::classify(const Kernel& k) {
  for (std::size_t c = 0; c < rules_.size(); ++c)
    for (std::size_t r = 0; r < rules_[c].size(); ++r) {
      Rule& rule = *rules_[c][r];
      if (rule.catch_all || (rule.name.holds(t_, k.type) && rule.input.holds(t_, k.in_shapes) &&
                             rule.output.holds(t_, k.out_shapes))) {
        ++wins_[c][r];
        return static_cast<int>(c);
      }
    }
  return -1;
}

namespace {

// The second operand, which is the weight: "64,160,16,16" of "1,1024;64,160,16,16".
std::string weight_of(std::string_view shapes) {
  const std::size_t at = shapes.find(';');
  if (at == shapes.npos) return {};
  std::string_view rest = shapes.substr(at + 1);
  return std::string(rest.substr(0, rest.find(';')));
}

// Places of a matrix multiplication in its block.
std::string matmul_cluster(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const Component& c, std::uint32_t op, bool attention) {
  auto role = [&](std::uint32_t o) { return roles[t.kernels[ops.ops[o]].type]; };
  auto start = [&](std::uint32_t o) { return t.kernels[ops.ops[o]].start; };
  bool before_mix = false, after_mix = false, before_activation = false, after_activation = false,
       moe = false;
  for (const StreamSegment& g : c.segments) {
    const bool own = std::find(g.ops.begin(), g.ops.end(), op) != g.ops.end();
    bool passed = false;
    for (std::uint32_t o : g.ops) {
      if (o == op) passed = true;
      const Role r = role(o);
      moe = moe || r == Role::grouped_matmul || r == Role::gate || r == Role::dispatch;
      if (r == Role::attention || r == Role::linear_attention)
        // Beside another stream's attention the order is that of time.
        ((own ? passed : start(op) <= start(o)) ? before_mix : after_mix) = true;
      if (own && r == Role::activation) (passed ? before_activation : after_activation) = true;
    }
  }
  const bool grouped = role(op) == Role::grouped_matmul;
  if (attention)
    return after_mix && !before_mix ? "out proj" : before_mix ? "qkv proj" : "attention proj";
  if (grouped)
    return before_activation ? "expert gate_up" : after_activation ? "expert down" : "experts";
  if (moe) {
    // The router's output is what the gate reads: the next kernel on the stream is the gate.
    for (const StreamSegment& g : c.segments)
      for (std::size_t i = 0; i + 1 < g.ops.size(); ++i)
        if (g.ops[i] == op)
          for (std::size_t j = i + 1; j < g.ops.size() && j < i + 4; ++j)
            if (role(g.ops[j]) == Role::gate) return "gate";
    return before_activation  ? "shared expert gate_up"
           : after_activation ? "shared expert down"
                              : "shared expert";
  }
  return before_activation ? "gate_up proj" : after_activation ? "down proj" : "mlp proj";
}

}  // namespace

ClusterRules default_rules(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const Structure& s) {
  ClusterRules rules;
  if (!s.hint.empty()) rules.model_name = s.hint;
  std::vector<std::string> types;  // as they occur
  for (const Component& c : s.components)
    if (std::find(types.begin(), types.end(), c.type) == types.end()) types.push_back(c.type);
  for (const std::string& type : types) {
    // (type of kernel, weight) -> cluster, by the most frequent place.
    std::map<std::pair<StringId, std::string>, std::map<std::string, std::size_t>> votes;
    std::map<std::string, std::pair<double, std::size_t>>
        place;  // mean relative place of a cluster
    std::map<std::string, Role> role_by_cluster;
    for (const Component& c : s.components) {
      if (c.type != type) continue;
      const bool attention = c.type.find("attn") != std::string::npos || c.type.starts_with("mla");
      for (std::size_t i = 0; i < c.ops.size(); ++i) {
        const Kernel& k = t.kernels[ops.ops[c.ops[i]]];
        const Role r = roles[k.type];
        std::string cluster(role_name(r));
        std::string weight;
        if (r == Role::matmul || r == Role::grouped_matmul) {
          cluster = matmul_cluster(t, ops, roles, c, c.ops[i], attention);
          weight = weight_of(t.text(k.in_shapes));
        }
        ++votes[{k.type, weight}][cluster];
        auto& [sum, n] = place[cluster];
        sum += static_cast<double>(i) / static_cast<double>(c.ops.size());
        ++n;
        role_by_cluster.emplace(cluster, r);
      }
    }
    std::map<std::string, Cluster> clusters;
    // Without a weight's shape a rule is by name alone and must come after those with one.
    for (int with_weight : {1, 0})
      for (const auto& [key, counts] : votes) {
        if (key.second.empty() == (with_weight == 1)) continue;
        const auto winner =
            std::max_element(counts.begin(), counts.end(),
                             [](const auto& a, const auto& b) { return a.second < b.second; });
        Cluster& cluster = clusters[winner->first];
        cluster.name = winner->first;
        if (cluster.description.empty())
          cluster.description = role_text(role_by_cluster.at(winner->first));
        ClusterRule rule;
        rule.op_name = t.text(key.first);
        // ";weight" so that the first operand cannot be taken for it.
        if (!key.second.empty()) rule.input_contains = cat(';', key.second);
        cluster.rules.push_back(std::move(rule));
      }
    std::vector<Cluster> ordered;
    for (auto& [name, cluster] : clusters) ordered.push_back(std::move(cluster));
    std::sort(ordered.begin(), ordered.end(), [&](const Cluster& a, const Cluster& b) {
      const auto& x = place[a.name];
      const auto& y = place[b.name];
      const double p = x.first / static_cast<double>(x.second),
                   q = y.first / static_cast<double>(y.second);
      return p != q ? p < q : a.name < b.name;
    });
    // A name-only rule of an early cluster would take kernels that a later cluster wants by weight.
    const bool conflict = std::any_of(votes.begin(), votes.end(), [&](const auto& v) {
      return v.first.second.empty() && std::any_of(votes.begin(), votes.end(), [&](const auto& w) {
               return w.first.first == v.first.first && !w.first.second.empty();
             });
    });
    if (conflict)
      std::stable_partition(ordered.begin(), ordered.end(), [](const Cluster& c) {
        return std::all_of(c.rules.begin(), c.rules.end(),
                           [](const ClusterRule& r) { return !r.input_contains.empty(); });
      });
    rules.types.emplace_back(type, std::move(ordered));
  }
  return rules;
}

}  // namespace tk
