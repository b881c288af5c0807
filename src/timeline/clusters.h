// Cluster rules (BD §7): which kernels of a block form a named sub-step.
#pragma once

#include <filesystem>
#include <map>
#include <memory>
#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "timeline/roles.h"
#include "timeline/structure.h"

namespace tk {

struct ClusterRule {
  bool catch_all = false;
  std::string op_name, op_name_regex;
  std::string input_contains, input_regex, output_contains, output_regex;
};

struct Cluster {
  std::string name, description;
  std::vector<ClusterRule> rules;
};

struct OutlierRule {
  bool z = false;
  double k = 1.5;
};

struct ClusterRules {
  std::string model_name = "model";
  OutlierRule outlier;
  std::vector<std::pair<std::string, std::vector<Cluster>>> types;  // in file order
  std::string origin = "auto:roles";
  const std::vector<Cluster>* of(const std::string& type) const;
};

// Throws TK0913 with the path of the entry: component_clusters.moe[3].rules[0].
ClusterRules read_cluster_rules(const std::filesystem::path& path);
nlohmann::json cluster_rules_json(const ClusterRules& rules);

// Rules made from the kernels' roles: one cluster per role in the order in which it occurs; matrix
// multiplications are told apart by their weights' shapes and their place (BD-66).
ClusterRules default_rules(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const Structure& s);

// The clusters of one type, ready to classify. Regular expressions are run once per distinct text,
// with a limit on backtracking.
class Classifier {
 public:
  Classifier(const Timeline& t, const std::vector<Cluster>& clusters, const std::string& where);
  ~Classifier();
  // The cluster, or -1; counts which rule won.
  int classify(const Kernel& k);
  const std::vector<std::vector<std::size_t>>& wins() const { return wins_; }  // cluster, rule

 private:
  struct Rule;
  const Timeline& t_;
  std::vector<std::vector<std::unique_ptr<Rule>>> rules_;
  std::vector<std::vector<std::size_t>> wins_;
};

}  // namespace tk
