#include "emit/parameters.h"

#include <algorithm>
#include <array>
#include <map>

#include "base/error.h"

namespace tk::emit {
namespace {

std::string module_of(const std::string& weight) {
  const std::size_t dot = weight.rfind('.');
  return dot == std::string::npos ? "" : weight.substr(0, dot);
}
std::string leaf_of(const std::string& path) { return path.substr(path.rfind('.') + 1); }

bool is_number(const std::string& s) {
  return !s.empty() && s.find_first_not_of("0123456789") == std::string::npos;
}

template <typename T>
std::vector<std::string> numbers(const TensorView& t, std::string (*text)(T)) {
  std::vector<std::string> all;
  const Tensor flat = contiguous(t);
  for (std::int64_t i = 0; i < flat.numel(); ++i) all.push_back(text(flat.as<T>()[i]));
  return all;
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& p : parts) text += cat(text.empty() ? "" : ", ", p);
  return text;
}

class Writer {
 public:
  Writer(const Source& source, Region& prefill, Region& decode,
         const std::function<Construction(const std::string&)>& construct)
      : source_(source), prefill_(prefill), decode_(decode), construct_(construct) {}

  Parameters run() {
    find_weights();
    find_children();
    std::set<std::string> done;
    for (const auto& [name, v] : weights_) {
      const std::string child = child_of(name);
      if (!child.empty())
        write_child(child, &done);
      else
        write_holder(name, &done);
    }
    for (const std::string& child : children_) write_child(child, &done);
    write_cache();
    write_folds();
    return std::move(out_);
  }

 private:
  // Weights below this module, in the graph's order.
  void find_weights() {
    std::set<std::string> seen;
    for (const Phase* phase : {source_.prefill, source_.decode})
      for (const auto& w : phase->graph->weights()) {
        const std::string name = phase->paths.weight(*w);
        if (!is_inside(name, prefill_.path) || !seen.insert(name).second) continue;
        weights_.emplace_back(name, w.get());
      }
  }

  void find_children() {
    for (const Region* r : {&prefill_, &decode_})
      for (const auto& c : r->children)
        if (!is_torch_module(c->type) &&
            std::find(children_.begin(), children_.end(), c->path) == children_.end())
          children_.push_back(c->path);
  }

  std::string child_of(const std::string& weight) const {
    for (const std::string& c : children_)
      if (is_inside(weight, c)) return c;
    return "";
  }

  std::string rel(const std::string& path) const { return relative(path, prefill_.path); }

  // Modules on the way that are no region: "self.mlp" of "mlp.gate".
  void write_way(const std::string& path, std::set<std::string>* done) {
    const std::string parent = module_of(path);
    if (parent.size() <= prefill_.path.size() || !done->insert(parent).second) return;
    write_way(parent, done);
    if (is_number(leaf_of(path))) {
      std::set<std::int64_t> all;
      for (const auto& [name, v] : weights_)
        if (is_inside(name, parent)) {
          const std::string rest = name.substr(parent.size() + 1);
          all.insert(std::stoll(rest.substr(0, rest.find('.'))));
        }
      out_.init.push_back(cat("self.", rel(parent), " = nn.ModuleList(nn.Module() for _ in range(",
                              all.size(), "))"));
    } else if (!is_number(leaf_of(parent))) {
      out_.init.push_back("self." + rel(parent) + " = nn.Module()");
    }
  }

  std::string call(const Construction& c) {
    std::vector<std::string> args;
    if (c.takes_config) args.emplace_back("config");
    for (const auto& [name, value] : c.args) args.push_back(constant(name, value));
    return c.name + "(" + joined(args) + ")";
  }

  void write_child(const std::string& path, std::set<std::string>* done) {
    if (!done->insert(path).second) return;
    const std::string last = leaf_of(path);
    if (!is_number(last)) {
      write_way(path, done);
      out_.init.push_back("self." + rel(path) + " = " + call(construct_(path)));
      return;
    }
    // A list of layers, made at once.
    const std::string family = module_of(path);
    std::vector<std::pair<std::int64_t, Construction>> layers;
    for (const std::string& c : children_)
      if (module_of(c) == family && is_number(leaf_of(c))) {
        done->insert(c);
        layers.emplace_back(std::stoll(leaf_of(c)), construct_(c));
      }
    std::sort(layers.begin(), layers.end(),
              [](const auto& a, const auto& b) { return a.first < b.first; });
    if (module_of(family).size() > prefill_.path.size()) write_way(family, done);
    out_.init.push_back("self." + rel(family) + " = nn.ModuleList(" + list_of(layers) + ")");
  }

  // Of all layers.
  std::string count(std::size_t n) const {
    const auto it = source_.numbers.find("num_hidden_layers");
    const bool all = it != source_.numbers.end() && it->second == static_cast<std::int64_t>(n);
    return all ? "config.num_hidden_layers" : std::to_string(n);
  }

  std::string list_of(const std::vector<std::pair<std::int64_t, Construction>>& layers) {
    const Construction& first = layers[0].second;
    const bool one_class = std::all_of(layers.begin(), layers.end(),
                                       [&](const auto& l) { return l.second.name == first.name; });
    const bool no_args = std::all_of(layers.begin(), layers.end(),
                                     [](const auto& l) { return l.second.args.empty(); });
    const std::string config = first.takes_config ? "config, " : "";
    if (one_class && no_args) return call(first) + " for _ in range(" + count(layers.size()) + ")";
    if (one_class) {
      std::vector<std::string> names;
      for (const auto& [name, value] : first.args) names.push_back(name);
      std::vector<std::string> rows;
      for (const auto& [n, c] : layers) {
        std::vector<std::string> values;
        for (const auto& [name, value] : c.args) values.push_back(constant(name, value));
        rows.push_back(values.size() == 1 ? values[0] : "(" + joined(values) + ")");
      }
      if (names.size() == 1)
        return cat(first.name, "(", config, names[0], ") for ", names[0], " in (", joined(rows),
                   ")");
      out_.init.push_back("# of each layer: " + joined(names));
      return first.name + "(" + config + "*values) for values in (" + joined(rows) + ")";
    }
    // Runs of a class.
    std::string text;
    for (std::size_t i = 0; i < layers.size();) {
      std::size_t n = 1;
      while (i + n < layers.size() && layers[i + n].second.name == layers[i].second.name &&
             layers[i].second.args.empty() && layers[i + n].second.args.empty())
        ++n;
      text += text.empty() ? "" : ", ";
      text += n < 3 ? call(layers[i].second)
                    : cat("*(", call(layers[i].second), " for _ in range(", n, "))");
      if (n == 2) text += ", " + call(layers[i].second);
      i += n;
    }
    return "[" + text + "]";
  }

  std::string dtype_of(const Value& v, std::string_view before = ", ") const {
    return v.type.dtype == source_.dtype ? "" : cat(before, "dtype=", torch_dtype(v.type.dtype));
  }

  std::string size_of_axis(const Value& v, int axis, std::string_view key) const {
    const Sym& size = v.type.dim(axis);
    std::string text;
    if (v.kind == ValueKind::weight && size.is_const())
      text = config_size(source_.numbers, source_.prefill->paths.weight(v), v.type.rank(), axis,
                         size.value());
    return constant(key, text.empty() ? size.str() : text);
  }

  const Value* weight(const std::string& name) const {
    for (const auto& [n, v] : weights_)
      if (n == name) return v;
    return nullptr;
  }

  // Parameters of this module, and modules that only hold some.
  void write_holder(const std::string& name, std::set<std::string>* done) {
    const std::string module = module_of(name);
    if (module == prefill_.path) {
      write_parameter(name, *weight(name));
      return;
    }
    if (!done->insert(module).second) return;
    write_way(module, done);
    std::vector<std::pair<std::string, const Value*>> mine;
    std::vector<std::pair<std::string, const Value*>> buffers;
    for (const auto& [n, v] : weights_)
      if (module_of(n) == module)
        (source_.model->constants.count(v->name) != 0 ? buffers : mine).emplace_back(n, v);
    const Value* w = weight(module + ".weight");
    const Value* b = weight(module + ".bias");
    const auto type = source_.types.find(module);
    const bool embeds = type != source_.types.end() && type->second == "Embedding";
    std::string made;
    if (w != nullptr && w->type.rank() == 2 && mine.size() == (b != nullptr ? 2U : 1U) &&
        (b == nullptr || b->type.rank() == 1)) {
      if (embeds)
        made = "nn.Embedding(" + size_of_axis(*w, 0, "num_embeddings") + ", " +
               size_of_axis(*w, 1, "embedding_dim") + dtype_of(*w) + ")";
      else
        made = "nn.Linear(" + size_of_axis(*w, 1, "in_features") + ", " +
               size_of_axis(*w, 0, "out_features") + (b == nullptr ? ", bias=False" : "") +
               dtype_of(*w) + ")";
    } else {
      std::vector<std::string> items;
      for (const auto& [n, v] : mine) items.push_back("\"" + leaf_of(n) + "\": " + empty(*v));
      made = items.empty() ? "nn.Module()" : "nn.ParameterDict({" + joined(items) + "})";
    }
    out_.init.push_back("self." + rel(module) + " = " + made);
    for (const auto& [n, v] : buffers) write_parameter(n, *v);
  }

  std::string empty(const Value& v) const {
    std::vector<std::string> sizes;
    for (int i = 0; i < v.type.rank(); ++i) sizes.push_back(size_of_axis(v, i, "size"));
    return "torch.empty(" + (sizes.empty() ? std::string("()") : joined(sizes)) + dtype_of(v) + ")";
  }

  void write_parameter(const std::string& name, const Value& v) {
    const std::string attribute = "self." + rel(name);
    if (source_.model->constants.count(v.name) == 0) {
      out_.init.push_back(attribute + " = nn.Parameter(" + empty(v) + ")");
      return;
    }
    const auto it = source_.model->weights.find(v.name);
    if (it == source_.model->weights.end())
      throw UserError("TK1203", cat("the constant '", v.name, "' has no values"))
          .help("it is no weight of the checkpoint: capture the model with its weights");
    const std::string module = module_of(name);
    const std::string holder = module == prefill_.path ? "self" : "self." + rel(module);
    out_.init.push_back(holder + ".register_buffer(\"" + leaf_of(name) + "\", torch.tensor(" +
                        values_of(it->second) + ", dtype=" + torch_dtype(v.type.dtype) +
                        "), persistent=False)");
  }

  static std::string values_of(const Tensor& t) {
    std::vector<std::string> all;
    const Tensor wide = to_dtype(t, DType::f32);
    const float* data = wide.as<float>();
    for (std::int64_t i = 0; i < wide.numel(); ++i) {
      std::string text = cat(data[i]);
      char buffer[32];
      std::snprintf(buffer, sizeof buffer, "%.9g", static_cast<double>(data[i]));
      text = buffer;
      if (text.find_first_of(".en") == std::string::npos) text += ".0";
      all.push_back(constant("values", text));
    }
    const std::string list = t.rank() == 0 ? all[0] : "[" + joined(all) + "]";
    if (t.rank() <= 1) return list;
    throw UserError("TK1203", "a constant of several axes can't be written as code");
  }

  void write_cache() {
    std::vector<const Value*> states;
    std::vector<std::string> names;
    std::set<std::string> seen;
    for (const auto& [phase, r] :
         {std::pair{source_.prefill, &prefill_}, {source_.decode, &decode_}})
      for (const Node* n : r->nodes)
        for (const Value* v : n->inputs) {
          if (v == nullptr || phase->regions.role(v) != Role::state) continue;
          const Value* s = phase->regions.states.at(v);
          if (!seen.insert(s->name).second) continue;
          states.push_back(s);
          names.push_back(phase->caches.at(s));
        }
    for (std::size_t k = 0; k < states.size(); ++k) {
      const Value* s = states[k];
      std::vector<std::string> sizes{"num_blocks"};
      const bool latent = names[k].starts_with("nope") || names[k].starts_with("rope");
      const std::array keys = {"block_size", latent ? "size" : "num_key_value_heads",
                               !latent                        ? "head_dim"
                               : names[k].starts_with("nope") ? "kv_lora_rank"
                                                              : "qk_rope_head_dim"};
      for (int i = 1; i < s->type.rank(); ++i)
        sizes.push_back(
            size_of_axis(*s, i, i <= 3 ? keys[static_cast<std::size_t>(i - 1)] : "size"));
      out_.cache.push_back("self." + names[k] + " = torch.zeros(" + joined(sizes) +
                           ", dtype=" + torch_dtype(s->type.dtype) + ", device=device)");
    }
  }

  // Weights that are read as they are, in any phase, stay.
  bool is_read(const std::string& name) const {
    for (const Phase* phase : {source_.prefill, source_.decode})
      for (const auto& w : phase->graph->weights()) {
        if (phase->paths.weight(*w) != name) continue;
        for (const Use& use : w->uses)
          if (use.node == nullptr || phase->regions.role(use.node->out()) != Role::folded)
            return true;
      }
    return false;
  }

  void write_folds() {
    std::map<std::string, std::string> names;  // by text
    std::map<std::string, int> taken;
    std::vector<std::string> last;
    for (const auto& [phase, r] :
         {std::pair{source_.prefill, &prefill_}, {source_.decode, &decode_}})
      for (const auto& [v, home] : phase->regions.folded) {
        if (home != r) continue;
        const FoldedText f = folded_text(*phase, *v, *r);
        std::string key = f.text;
        for (const std::string& line : f.lines) key += cat("\n", line);
        auto it = names.find(key);
        if (it == names.end()) {
          const int k = ++taken[f.name];
          std::string name = k == 1 ? f.name : cat(f.name, "_", k);
          it = names.emplace(key, name).first;
          const bool fresh = key.find("self.") == std::string::npos;
          const bool view = is_plain_view(*v->node);
          std::vector<std::string>& to = fresh ? out_.folds : last;
          to.insert(to.end(), f.lines.begin(), f.lines.end());
          if (fresh)
            out_.folds.push_back("self.register_buffer(\"" + name + "\", " + f.text +
                                 ", persistent=False)");
          else
            last.push_back("self." + name + " = nn.Parameter(" + f.text +
                           (view ? ".contiguous()" : "") + ", requires_grad=False)");
        }
        const_cast<Phase*>(phase)->folded[v] = it->second;
      }
    out_.folds.insert(out_.folds.end(), last.begin(), last.end());
    if (last.empty()) return;
    // What went into them is not needed any more.
    std::map<std::string, bool> unused;
    std::vector<std::string> order;
    for (const auto& [name, v] : weights_) {
      if (!child_of(name).empty()) continue;
      const std::string module = module_of(name);
      const std::string key = module == prefill_.path ? name : module;
      if (unused.count(key) == 0) {
        order.push_back(key);
        unused[key] = true;
      }
      if (is_read(name)) unused[key] = false;
      for (const auto& [text, made] : names)
        if (rel(name) == made) unused[key] = false;  // replaced in place
    }
    std::vector<std::string> gone;
    for (const std::string& key : order)
      if (unused[key]) gone.push_back("self." + rel(key));
    const std::string all = joined(gone);
    if (!gone.empty() && all.size() <= 80) out_.folds.push_back("del " + all);
    if (all.size() > 80)
      for (const std::string& g : gone) out_.folds.push_back("del " + g);
  }

  const Source& source_;
  Region& prefill_;
  Region& decode_;
  const std::function<Construction(const std::string&)>& construct_;
  std::vector<std::pair<std::string, const Value*>> weights_;
  std::vector<std::string> children_;
  Parameters out_;
};

}  // namespace

Parameters parameters_of(const Source& source, Region& prefill, Region& decode,
                         const std::function<Construction(const std::string&)>& construct) {
  return Writer(source, prefill, decode, construct).run();
}

}  // namespace tk::emit
