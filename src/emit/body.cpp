#include "emit/body.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "emit/naming.h"
#include "emit/shape_up.h"
#include "graph/effects.h"

namespace tk::emit {
namespace {

constexpr std::string_view metadata = "forward_metadata";
constexpr std::size_t inline_width = 64;   // of an expression inside another
constexpr std::size_t return_width = 160;  // of one that is returned

std::string step_field(const Value& v) {
  static const std::map<std::string_view, std::string_view> names = {
      {"query_lens", "actual_seq_lengths_cu_q"}, {"kv_lens", "actual_seq_lengths_kv"}};
  const auto it = names.find(v.name);
  return cat(metadata, ".", it == names.end() ? std::string_view(v.name) : it->second);
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& p : parts) text += cat(text.empty() ? "" : ", ", p);
  return text;
}

bool is_builtin(const Region& r) { return is_torch_module(r.type); }

class Writer : public Scope {
 public:
  Writer(const Phase& phase, const Region& region) : phase_(phase), region_(region) {}

  Body run() {
    find_items();
    find_last_uses();
    Body body;
    for (const Value* v : region_.inputs) {
      const auto foreign = region_.foreign.find(v);
      const std::string name =
          foreign != region_.foreign.end() ? foreign->second : unused_name(base_name(*v), -1);
      bind(v, name);
      body.params.push_back(name);
    }
    for (std::size_t i = 0; i < region_.items.size();) i += write_item(static_cast<int>(i));
    std::vector<std::string> results;
    for (const Value* v : region_.outputs) results.push_back(value(*v).text);
    lines_.push_back("return " + joined(results));
    body.lines = std::move(lines_);
    body.helpers = helpers;
    body.uses_npu = uses_npu;
    body.unrolled = unrolled_;
    return body;
  }

  // ---- Scope

  Expr value(const Value& v) override {
    if (is_foreign(v)) return {names_.count(&v) != 0 ? names_.at(&v) : "None"};
    if (v.kind == ValueKind::weight)
      return {"self." + relative(phase_.paths.weight(v), region_.path)};
    switch (phase_.regions.role(&v)) {
      case Role::state:
        return cache(v);
      case Role::step:
        if (v.kind == ValueKind::input) return {step_field(v)};
        return express(*v.node, *this);
      default:
        break;
    }
    if (const auto it = inlined_.find(&v); it != inlined_.end()) return it->second;
    if (const auto it = names_.find(&v); it != names_.end()) return {it->second};
    if (const auto it = phase_.folded.find(&v); it != phase_.folded.end())
      return {"self." + it->second};
    if (v.kind == ValueKind::node && v.node->op == &none) return {"None"};
    TK_CHECK(false, "a value of ", region_.path, " has no name: ", print(*v.node));
  }

  std::string host_list(const Value& v) override {
    if (v.kind == ValueKind::input && v.name == "query_lens")
      return cat(metadata, ".actual_seq_lengths_cu_list_q");
    if (v.kind == ValueKind::input && v.name == "kv_lens")
      return cat(metadata, ".actual_seq_lengths_list_kv");
    return at_least(value(v), Binds::whole) + ".tolist()";
  }

  std::string size(const Sym& s, const Node& n) override {
    for (const Value* v : region_.inputs)
      for (int i = 0; i < v->type.rank() && !is_foreign(*v); ++i)
        if (v->type.dim(i) == s && names_.count(v) != 0)
          return cat(names_.at(v), ".shape[", i, "]");
    for (const Value* v : region_.inputs)
      for (int i = 0; i < v->type.rank() && !is_foreign(*v); ++i)
        if (const auto k = exact_div(s, v->type.dim(i)); k && k->is_const() && names_.count(v) != 0)
          return cat(k->value(), " * ", names_.at(v), ".shape[", i, "]");
    throw UserError("TK1202", cat("the size ", s.str(), " of ", n.op->name,
                                  " is no size of what the module takes"))
        .in_module(region_.path);
  }

  std::string device() override {
    for (const Value* v : region_.inputs)
      if (const auto it = names_.find(v); it != names_.end() && !is_foreign(*v))
        return it->second + ".device";
    return "";
  }

  bool contiguous(const Value& v) override {
    if (v.kind != ValueKind::node) return v.kind != ValueKind::input;
    const Node& n = *v.node;
    if (n.is("aten.reshape")) return contiguous(*n.in(0));
    return !is_plain_view(n) && n.op->name != "aten.split" && n.op->name != "aten.chunk" &&
           n.op->name != "aten.unbind" && region_holds(n);
  }

  bool always(const Node& n, std::string_view attr) override {
    return phase_.set_attrs.count(cat(n.op->name, ".", attr)) != 0;
  }

 private:
  Expr cache(const Value& v) {
    const Value* state = phase_.regions.states.at(&v);
    const std::string name = "self." + phase_.caches.at(state);
    if (v.type == state->type) return {name};
    SymDims flat(state->type.shape.begin(), state->type.shape.end() - 1);
    flat.back() = flat.back() * state->type.shape.back();
    if (v.type.shape == flat) return {cat(name, ".flatten(", flat.size() - 1, ")")};
    std::vector<std::string> sizes;
    for (const Sym& s : v.type.shape)
      sizes.push_back(s.is_const() ? constant("size", s.str()) : "-1");
    return {name + ".view(" + joined(sizes) + ")"};
  }

  // Of the other phase: None, or an argument that is passed on.
  bool is_foreign(const Value& v) const { return phase_.regions.roles.count(&v) == 0; }

  bool region_holds(const Node& n) const {
    const auto it = phase_.regions.of.find(&n);
    return it != phase_.regions.of.end() && it->second == &region_;
  }

  // The item of this region that holds the node; -1 when it lies outside.
  int item_of(const Node* n) const {
    if (n == nullptr) return -1;
    const auto own = item_of_node_.find(n);
    if (own != item_of_node_.end()) return own->second;
    const auto where = phase_.regions.of.find(n);
    if (where == phase_.regions.of.end()) return -1;
    for (const Region* r = where->second; r != nullptr; r = r->parent)
      if (const auto it = item_of_child_.find(r); it != item_of_child_.end()) return it->second;
    return -1;
  }

  void find_items() {
    for (std::size_t i = 0; i < region_.items.size(); ++i) {
      const Item& item = region_.items[i];
      if (item.node != nullptr)
        item_of_node_[item.node] = static_cast<int>(i);
      else
        item_of_child_[item.child] = static_cast<int>(i);
    }
  }

  void find_last_uses() {
    const int end = static_cast<int>(region_.items.size());
    const auto used = [&](const Value* v, int at) {
      if (v == nullptr) return;
      int& last = last_use_[v];
      last = std::max(last, at);
      ++n_uses_[v];
    };
    for (int i = 0; i < end; ++i) {
      const Item& item = region_.items[static_cast<std::size_t>(i)];
      if (item.node != nullptr)
        for (const Value* v : item.node->inputs) used(v, i);
      else
        for (const Value* v : item.child->inputs) used(v, i);
    }
    for (const Value* v : region_.outputs) used(v, end);
  }

  // A name may be taken again when what it stood for is not needed any more.
  std::string unused_name(const std::string& base, int at) {
    for (int k = 1;; ++k) {
      const std::string name = k == 1 ? base : cat(base, "_", k);
      const auto it = holders_.find(name);
      if (it == holders_.end() || last_use_[it->second] <= at) return name;
    }
  }

  void bind(const Value* v, const std::string& name) {
    names_[v] = name;
    holders_[name] = v;
  }

  // What a small module takes and gives has no part in the model as a whole: a norm of queries is a
  // norm.
  std::string base_name(const Value& v) const {
    const std::string name = name_of_value(phase_, v);
    static const std::set<std::string_view> parts = {"query",    "key",    "value",    "residual",
                                                     "q_latent", "latent", "latent_kv"};
    const bool small = region_.children.empty() && region_.inputs.size() == 1;
    return small && parts.count(name) != 0 ? "hidden_states" : name;
  }

  // A cache that a call has changed keeps its name.
  bool is_read(const Value* v) const {
    return last_use_.count(v) != 0 && phase_.regions.role(v) != Role::state;
  }

  std::string target(const Value* v, int at) {
    if (!is_read(v)) return "_";
    const std::string name = unused_name(base_name(*v), at);
    bind(v, name);
    return name;
  }

  // What an inlined expression reads lives until it is written.
  void keep_alive(const Node& n, int until) {
    for (const Value* v : n.inputs) keep_alive(v, until);
  }
  void keep_alive(const Value* v, int until) {
    if (v == nullptr) return;
    int& last = last_use_[v];
    last = std::max(last, until);
    if (inlined_.count(v) != 0 && v->kind == ValueKind::node) {
      const auto child = child_inputs_.find(v);
      if (child != child_inputs_.end())
        for (const Value* in : child->second->inputs) keep_alive(in, until);
      else
        keep_alive(*v->node, until);
    }
  }

  // The one node here that reads `v`; null when there are more readers, or a child.
  const Node* only_reader(const Value* v) const {
    const auto uses = n_uses_.find(v);
    if (uses == n_uses_.end() || uses->second != 1) return nullptr;
    for (const Use& use : v->uses)
      if (use.node != nullptr && region_holds(*use.node)) return use.node;
    return nullptr;
  }

  bool is_only_returned(const Value* v) const {
    const auto uses = n_uses_.find(v);
    return uses != n_uses_.end() && uses->second == 1 && region_.outputs.size() == 1 &&
           region_.outputs[0] == v;
  }

  bool may_inline(const Value* v, const Expr& e) const {
    const auto uses = n_uses_.find(v);
    return uses != n_uses_.end() && uses->second == 1 && e.text.size() <= inline_width;
  }

  // Returns how many items it wrote.
  std::size_t write_item(int at) {
    const Item& item = region_.items[static_cast<std::size_t>(at)];
    if (item.node != nullptr) {
      write_node(*item.node, at);
      return 1;
    }
    if (const std::size_t n = write_loop(at); n > 0) return n;
    write_call(*item.child, at);
    return 1;
  }

  void write_node(const Node& n, int at) {
    const Role role = phase_.regions.role(n.out());
    if (role == Role::step || (role == Role::state && is_plain_view(n)) || n.op == &none) return;
    if (n.op == &residual_norm) return write_norm(n, at);
    const Expr e = express(n, *this);
    if (n.outputs.size() == 1 && is_light(n) && may_inline(n.out(), e)) {
      inlined_[n.out()] = e;
      keep_alive(n, last_use_[n.out()]);
      return;
    }
    const int results = n_results(n);
    std::vector<std::string> targets;
    int last_used = -1;
    for (int i = 0; i < results; ++i)
      if (is_read(n.out(i))) last_used = i;
    if (last_used < 0) {  // a cache is written: nothing to name
      if (changes_state(n)) lines_.push_back(e.text);
      return;
    }
    if (results == 1 && is_only_returned(n.out()) && e.text.size() <= return_width) {
      inlined_[n.out()] = e;
      return;
    }
    if (results > 1 && last_used == 0 && is_only_returned(n.out()) &&
        e.text.size() <= return_width) {
      inlined_[n.out()] = {e.text + "[0]"};
      return;
    }
    if (results > 1 && last_used == 0 && e.text.size() <= inline_width) {
      lines_.push_back(target(n.out(), at) + " = " + e.text + "[0]");
      return;
    }
    for (int i = 0; i < results; ++i) targets.push_back(target(n.out(i), at));
    lines_.push_back(joined(targets) + " = " + e.text);
  }

  // The residual stream comes in beside; the first layer has none yet.
  void write_norm(const Node& n, int at) {
    uses_npu = true;
    const std::string x = value(*n.in(0)).text;
    const std::string residual = value(*n.in(1)).text;
    const std::string weight = value(*n.in(2)).text;
    const std::string epsilon = constant("epsilon", python(n.args().f64("epsilon")));
    const std::string alone =
        "torch_npu.npu_rms_norm(" + x + ", " + weight + ", epsilon=" + epsilon + ")[0]";
    if (region_.items.size() == 1) {
      lines_.push_back("if " + residual + " is None:");
      lines_.push_back("    normed = " + alone);
      lines_.push_back("    return normed, " + x);
    } else if (n.in(1)->node != nullptr && n.in(1)->node->op == &none) {
      int& last = last_use_[n.in(0)];  // it goes on as the residual
      last = std::max(last, last_use_[n.out(1)]);
      lines_.push_back(target(n.out(0), at) + " = " + alone);
      names_[n.out(1)] = x;
      return;
    }
    const std::string y = target(n.out(0), at);
    const std::string sum = target(n.out(1), at);
    lines_.push_back(y + ", _, " + sum + " = torch_npu.npu_add_rms_norm(" + residual + ", " + x +
                     ", " + weight + ", epsilon=" + epsilon + ")");
  }

  std::vector<std::string> arguments(const Region& child) {
    std::vector<std::string> args;
    for (const Value* v : child.inputs) args.push_back(value(*v).text);
    if (child.uses_step) args.emplace_back(metadata);
    return args;
  }

  void write_call(const Region& child, int at) {
    const std::string call =
        "self." + relative(child.path, region_.path) + "(" + joined(arguments(child)) + ")";
    if (child.outputs.empty()) {
      lines_.push_back(call);
      return;
    }
    const Value* first = child.outputs[0];
    if (child.outputs.size() == 1) {
      const Node* reader = only_reader(first);
      if (is_only_returned(first)) {
        inlined_[first] = {call};
        return;
      }
      if (is_builtin(child) && reader != nullptr && is_plain_view(*reader) &&
          may_inline(first, {call})) {
        inlined_[first] = {call};
        child_inputs_[first] = &child;
        for (const Value* in : child.inputs) keep_alive(in, last_use_[first]);
        return;
      }
    }
    std::vector<std::string> targets;
    for (const Value* v : child.outputs) targets.push_back(target(v, at));
    lines_.push_back(joined(targets) + " = " + call);
  }

  // Calls of "layers.0", "layers.1", ... one after the other, as a loop; 0 when they are none.
  std::size_t write_loop(int at);

  const Phase& phase_;
  const Region& region_;
  std::unordered_map<const Node*, int> item_of_node_;
  std::unordered_map<const Region*, int> item_of_child_;
  std::unordered_map<const Value*, int> last_use_, n_uses_;
  std::unordered_map<const Value*, std::string> names_;
  std::unordered_map<const Value*, Expr> inlined_;
  std::unordered_map<const Value*, const Region*> child_inputs_;
  std::map<std::string, const Value*> holders_;
  std::vector<std::string> lines_;
  bool unrolled_ = false;
};

// The name before the number: "model.layers" of "model.layers.3"; "" when there is no number.
std::string family_of(std::string_view path, std::int64_t* number) {
  const std::size_t dot = path.rfind('.');
  if (dot == std::string_view::npos) return "";
  const std::string last(path.substr(dot + 1));
  if (last.empty() || last.find_first_not_of("0123456789") != std::string::npos) return "";
  *number = std::stoll(last);
  return std::string(path.substr(0, dot));
}

std::size_t Writer::write_loop(int at) {
  std::vector<const Region*> layers;
  std::string family;
  for (std::size_t i = static_cast<std::size_t>(at); i < region_.items.size(); ++i) {
    const Region* child = region_.items[i].child;
    std::int64_t number = -1;
    if (child == nullptr) {
      const Node& n = *region_.items[i].node;  // silent nodes write nothing
      if (phase_.regions.role(n.out()) == Role::step || n.op == &none) continue;
      break;
    }
    const std::string name = family_of(child->path, &number);
    if (name.empty() || number != static_cast<std::int64_t>(layers.size())) break;
    if (!layers.empty() && name != family) break;
    family = name;
    layers.push_back(child);
  }
  if (layers.size() < 2) return 0;
  const std::size_t n_in = layers[0]->inputs.size();
  const std::size_t n_out = layers[0]->outputs.size();
  const auto give_up = [&] {
    unrolled_ = true;
    return std::size_t{0};
  };
  // Other work between two layers: a loop over all of them would be wrong.
  const auto of_family = [&](const auto& c) {
    std::int64_t number = -1;
    return family_of(c->path, &number) == family;
  };
  if (std::count_if(region_.children.begin(), region_.children.end(), of_family) !=
      static_cast<std::ptrdiff_t>(layers.size()))
    return give_up();
  for (const Region* l : layers)
    if (l->inputs.size() != n_in || l->outputs.size() != n_out ||
        l->uses_step != layers[0]->uses_step)
      return give_up();
  // Each argument is what the layer before gave, the same for all, or one of a few.
  std::vector<int> carried(n_in, -1);
  std::vector<std::size_t> varying;
  for (std::size_t j = 0; j < n_in; ++j) {
    bool same = true;
    for (const Region* l : layers) same = same && l->inputs[j] == layers[0]->inputs[j];
    if (same) continue;
    for (std::size_t k = 0; k < n_out && carried[j] < 0; ++k) {
      bool all = true;
      for (std::size_t i = 1; i < layers.size(); ++i)
        all = all && layers[i]->inputs[j] == layers[i - 1]->outputs[k];
      if (all) carried[j] = static_cast<int>(k);
    }
    if (carried[j] < 0) varying.push_back(j);
  }
  for (std::size_t i = 0; i + 1 < layers.size(); ++i)  // nobody else reads what is between layers
    for (const Value* v : layers[i]->outputs) {
      const auto uses = n_uses_.find(v);
      const bool read_on =
          std::count(layers[i + 1]->inputs.begin(), layers[i + 1]->inputs.end(), v);
      if (uses != n_uses_.end() && uses->second != (read_on ? 1 : 0)) return give_up();
    }
  // Which of the few: variants of the varying arguments, in the order of their first use.
  std::vector<std::vector<const Value*>> variants;
  std::vector<std::string> which;
  for (const Region* l : layers) {
    std::vector<const Value*> mine;
    for (const std::size_t j : varying) mine.push_back(l->inputs[j]);
    auto it = std::find(variants.begin(), variants.end(), mine);
    if (it == variants.end()) it = variants.insert(variants.end(), mine);
    which.push_back(std::to_string(it - variants.begin()));
  }
  if (variants.size() > 4) return give_up();
  for (const auto& variant : variants)
    for (const Value* v : variant)
      if (!is_foreign(*v) && names_.count(v) == 0 && inlined_.count(v) == 0 &&
          phase_.folded.count(v) == 0)
        return give_up();

  const Region& last = *layers.back();
  const int end = at + static_cast<int>(layers.size()) - 1;
  std::vector<std::string> out_names(n_out);
  for (std::size_t k = 0; k < n_out; ++k) out_names[k] = "_";
  // Carried values have one name, before and in the loop.
  for (std::size_t j = 0; j < n_in; ++j) {
    if (carried[j] < 0) continue;
    const Value* first = layers[0]->inputs[j];
    const auto k = static_cast<std::size_t>(carried[j]);
    const std::string text = value(*first).text;
    std::string name = names_.count(first) != 0 && last_use_[first] <= end ? text : "";
    if (name.empty()) {
      name = unused_name(name_of_value(phase_, *first), at - 1);
      lines_.push_back(name + " = " + text);
      inlined_.erase(first);  // it has a name now, which the loop changes
      bind(first, name);
    }
    last_use_[first] = std::max(last_use_[first], end);
    out_names[k] = name;
  }
  for (std::size_t k = 0; k < n_out; ++k)
    if (out_names[k] == "_" && last_use_.count(last.outputs[k]) != 0)
      out_names[k] = unused_name(name_of_value(phase_, *last.outputs[k]), end);
  std::vector<std::string> args;
  bool star = false;
  for (std::size_t j = 0; j < n_in; ++j) {
    const bool varies = std::find(varying.begin(), varying.end(), j) != varying.end();
    if (!varies) {
      args.push_back(value(*layers[0]->inputs[j]).text);
    } else if (!star) {
      args.emplace_back("*tables[kind]");
      star = true;
    }
  }
  // The varying arguments must stand together to be passed as one.
  for (std::size_t j = 1; j < varying.size(); ++j)
    if (varying[j] != varying[j - 1] + 1) return give_up();
  if (layers[0]->uses_step) args.emplace_back(metadata);
  const std::string modules = "self." + relative(family, region_.path);
  if (varying.empty()) {
    lines_.push_back("for layer in " + modules + ":");
  } else {
    std::vector<std::string> tuples;
    for (const auto& variant : variants) {
      std::vector<std::string> texts;
      for (const Value* v : variant) texts.push_back(value(*v).text);
      tuples.push_back("(" + joined(texts) + (texts.size() == 1 ? ",)" : ")"));
    }
    lines_.push_back("tables = (" + joined(tuples) + ")");
    lines_.push_back("for layer, kind in zip(" + modules + ", (" + joined(which) + ")):");
  }
  lines_.push_back("    " + joined(out_names) + " = layer(" + joined(args) + ")");
  for (std::size_t k = 0; k < n_out; ++k)
    if (out_names[k] != "_") bind(last.outputs[k], out_names[k]);
  std::size_t written = 0;
  for (std::size_t i = static_cast<std::size_t>(at), seen = 0; seen < layers.size(); ++i, ++written)
    if (region_.items[i].child != nullptr) ++seen;
  return written;
}

}  // namespace

Body body_of(const Phase& phase, const Region& region) { return Writer(phase, region).run(); }

}  // namespace tk::emit
