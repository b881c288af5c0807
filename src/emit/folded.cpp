// Weights that are worked out once, after loading: the same expressions, from parameters.
#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "emit/body.h"

namespace tk::emit {
namespace {

class FoldScope : public Scope {
 public:
  FoldScope(const Phase& phase, const Region& home, const Value& root)
      : phase_(phase), home_(home) {
    count(root);
  }
  Expr value(const Value& v) override {
    if (const auto it = locals_.find(&v); it != locals_.end()) return {it->second};
    if (v.kind == ValueKind::weight) {
      last_weight = phase_.paths.weight(v);
      weights.push_back(last_weight);
      return {"self." + relative(last_weight, home_.path)};
    }
    TK_CHECK(v.kind == ValueKind::node, "a folded value from a step");
    const Expr e = express(*v.node, *this);
    if (v.node->outputs.size() == 1 && uses_[&v] > 1 && !v.node->inputs.empty()) {
      std::string name = is_angle(v) ? "angles" : "shared";
      if (const int k = ++taken_[name]; k > 1) name += cat("_", k);
      lines.push_back(cat(name, " = ", e.text));
      return {locals_[&v] = name};
    }
    if (v.node->outputs.size() == 1) return e;
    return {cat(e.text, "[", v.index, "]")};
  }
  std::string host_list(const Value& v) override { return value(v).text + ".tolist()"; }
  std::string size(const Sym& s, const Node&) override { return s.str(); }
  // New tensors lie where the weights do: a framework moves them before they are worked out.
  std::string device() override {
    if (any_weight_ == nullptr) return "";
    return cat("self.", relative(phase_.paths.weight(*any_weight_), home_.path), ".device");
  }
  bool contiguous(const Value& v) override { return v.kind == ValueKind::weight; }
  bool always(const Node&, std::string_view) override { return false; }

  std::string last_weight;
  std::vector<std::string> weights, lines;
  bool turns() const { return taken_.count("angles") != 0; }  // a table of cosines and sines

 private:
  void count(const Value& v) {
    if (v.kind == ValueKind::weight && any_weight_ == nullptr) any_weight_ = &v;
    if (v.node == nullptr) return;
    for (const Value* in : v.node->inputs)
      if (in != nullptr && ++uses_[in] == 1) count(*in);
  }
  static bool is_angle(const Value& v) {
    return std::any_of(v.uses.begin(), v.uses.end(), [](const Use& use) {
      return use.node != nullptr && (use.node->is("aten.cos") || use.node->is("aten.sin"));
    });
  }

  std::unordered_map<const Value*, int> uses_;
  std::unordered_map<const Value*, std::string> locals_;
  std::map<std::string, int> taken_;
  const Value* any_weight_ = nullptr;
  const Phase& phase_;
  const Region& home_;
};

// "qkv_proj_weight" of q_proj.weight, k_proj.weight and v_proj.weight.
std::string folded_name(const std::vector<std::string>& weights, const std::string& home) {
  std::vector<std::string> modules;
  std::string kind;
  for (const std::string& w : weights) {
    const std::size_t dot = w.rfind('.');
    const std::string module = dot == std::string::npos ? "" : w.substr(0, dot);
    kind = w.substr(dot + 1);
    modules.push_back(module.substr(module.rfind('.') + 1));
  }
  if (modules.size() == 1) {
    std::string name = relative(weights[0], home);  // in its place, when it is this module's own
    std::erase(name, ']');
    for (char& c : name) c = c == '.' || c == '[' ? '_' : c;
    return name;
  }
  std::string joint;
  bool letters = true;
  bool projections = true;
  for (const std::string& m : modules) {
    projections = projections && m.ends_with("_proj");
    const std::string stem = m.ends_with("_proj") ? m.substr(0, m.size() - 5) : m;
    letters = letters && stem.size() == 1;
    joint += cat(joint.empty() || letters ? "" : "_", stem);
  }
  return joint + (projections ? "_proj_" : "_") + kind;
}

}  // namespace

FoldedText folded_text(const Phase& phase, const Value& v, const Region& home) {
  FoldScope scope(phase, home, v);
  FoldedText out;
  out.text = scope.value(v).text;
  out.lines = scope.lines;
  out.name = scope.weights.empty() ? (v.node->is("aten.triu") ? "attention_mask" : "table")
                                   : folded_name(scope.weights, home.path);
  if (scope.turns()) out.name = "cos_sin";
  return out;
}

}  // namespace tk::emit
