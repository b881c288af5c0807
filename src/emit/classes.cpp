#include "emit/classes.h"

#include <algorithm>
#include <functional>
#include <map>

#include "base/error.h"
#include "emit/module_text.h"
#include "emit/python_text.h"

namespace tk::emit {
namespace {

struct Class;

struct Instance {
  std::string path, type;
  Region* prefill = nullptr;
  Region* decode = nullptr;
  const Phase* only = nullptr;  // where one phase alone calls it
  int height = 0;
  ModuleText text;
  Class* of = nullptr;
};

struct Class {
  std::string name;
  std::vector<Instance*> members;
  std::vector<std::string> params;
  std::vector<std::vector<std::string>> values;  // of each member, one a param
  bool takes_config = false;
  std::string text;
};

int height_of(const Region& r) {
  int height = 0;
  for (const auto& c : r.children)
    if (!is_torch_module(c->type)) height = std::max(height, 1 + height_of(*c));
  return height;
}

class Writer {
 public:
  explicit Writer(const Source& source) : source_(source) {}

  Classes run(std::string* conflict) {
    collect();
    for (const auto& i : instances_)
      if ((i->prefill == nullptr || i->decode == nullptr) && !stands_in_one(i.get())) {
        *conflict = i->path;
        return {};
      }
    int top = 0;
    for (const auto& i : instances_) {
      i->height = std::max(height_of(*i->prefill), height_of(*i->decode));
      top = std::max(top, i->height);
    }
    Classes out;
    for (int height = 0; height <= top; ++height) {
      std::vector<Instance*> level;
      for (const auto& i : instances_)
        if (i->height == height) level.push_back(i.get());
      for (Instance* i : level) {
        Source source = source_;
        if (i->only != nullptr) source.prefill = source.decode = i->only;
        i->text = module_text(source, *i->prefill, *i->decode,
                              [&](const std::string& path) { return construction(path); });
        if (i->text.conflict) {
          *conflict = i->path;
          return {};
        }
        out.helpers.insert(i->text.helpers.begin(), i->text.helpers.end());
        out.uses_npu |= i->text.uses_npu;
        if (i->text.unrolled)
          out.notes.push_back(cat("the layers of '", i->path, "' are calls one by one"));
      }
      group(level);
    }
    for (const auto& c : classes_) out.text += "\n\n" + c->text;
    out.model = classes_.back()->name;
    return out;
  }

 private:
  // A small module that the other phase has fused into something else stays one; its weights are
  // read from outside there.
  bool stands_in_one(Instance* i) const {
    Region* r = i->prefill != nullptr ? i->prefill : i->decode;
    i->only = i->prefill != nullptr ? source_.prefill : source_.decode;
    i->prefill = i->decode = r;
    return r->children.empty() &&
           std::none_of(i->only->regions.folded.begin(), i->only->regions.folded.end(),
                        [&](const auto& f) { return f.second == r; });
  }

  void collect() {
    std::map<std::string, Instance*> by_path;
    const auto walk = [&](Region* r, bool prefill, const auto& self) -> void {
      if (is_torch_module(r->type)) return;
      Instance*& i = by_path[r->path];
      if (i == nullptr) {
        instances_.push_back(std::make_unique<Instance>());
        i = instances_.back().get();
        i->path = r->path;
        i->type = r->type;
      }
      (prefill ? i->prefill : i->decode) = r;
      for (const auto& c : r->children) self(c.get(), prefill, self);
    };
    walk(source_.prefill->regions.root.get(), true, walk);
    walk(source_.decode->regions.root.get(), false, walk);
  }

  Construction construction(const std::string& path) const {
    for (const auto& i : instances_) {
      if (i->path != path || i->of == nullptr) continue;
      Construction c{i->of->name, {}, i->of->takes_config};
      const auto at = std::find(i->of->members.begin(), i->of->members.end(), i.get());
      const auto& values = i->of->values[static_cast<std::size_t>(at - i->of->members.begin())];
      for (std::size_t k = 0; k < i->of->params.size(); ++k)
        c.args.emplace_back(i->of->params[k], values[k]);
      return c;
    }
    TK_CHECK(false, "no class of ", path);
  }

  void group(const std::vector<Instance*>& level) {
    std::vector<Class*> made;
    for (Instance* i : level) {
      Class* mine = nullptr;
      for (Class* c : made) {
        const Instance& first = *c->members[0];
        if (first.text.skeleton == i->text.skeleton && first.type == i->type) mine = c;
      }
      if (mine == nullptr) {
        classes_.push_back(std::make_unique<Class>());
        mine = classes_.back().get();
        made.push_back(mine);
      }
      mine->members.push_back(i);
      i->of = mine;
    }
    for (Class* c : made) {
      c->name = class_name(*c->members[0]);
      finish(c);
    }
  }

  // "Llama" of children that are LlamaAttention and LlamaMLP.
  std::string family_prefix(const Instance& i) const {
    std::string prefix;
    for (const auto& c : i.prefill->children) {
      if (c->type.empty() || is_torch_module(c->type)) continue;
      std::size_t n = 0;
      while (n < prefix.size() && n < c->type.size() && prefix[n] == c->type[n]) ++n;
      prefix = prefix.empty() ? c->type : prefix.substr(0, n);
    }
    // Up to the next word.
    while (!prefix.empty() && std::islower(static_cast<unsigned char>(prefix.back())) == 0 &&
           std::isdigit(static_cast<unsigned char>(prefix.back())) == 0)
      prefix.pop_back();
    return prefix;
  }

  // "layer" of "model.layers.3".
  static std::string stem_of(const std::string& path) {
    std::string stem = layer_of(path) == path ? path.substr(0, path.rfind('.')) : path;
    const bool list = stem != path;
    stem = stem.substr(stem.rfind('.') + 1);
    if (list && stem.ends_with('s')) stem.pop_back();
    return stem;
  }

  std::string class_name(const Instance& i) {
    std::string base = i.type;
    if (i.path.empty()) base = camel(source_.model->name) + "ForCausalLM";
    if (base.empty()) {
      base = family_prefix(i) + camel(stem_of(i.path));
    }
    std::string name = base;
    if (i.text.is_residual_norm)
      name = base.ends_with("Norm") ? base.substr(0, base.size() - 4) + "ResidualNorm" : base;
    // The kinds of a class after the first are called after the child that makes them another.
    for (int k = 2; names_.count(name) != 0; ++k) name = cat(base, k);
    names_.insert(name);
    return name;
  }

  // What differs between the members becomes arguments.
  void finish(Class* c) {
    const ModuleText& first = c->members[0]->text;
    std::vector<std::string> replace(first.constants.size());
    std::map<std::vector<std::string>, std::size_t> by_values;
    std::map<std::string, std::string> kept;  // attributes that methods read, and their values
    c->values.resize(c->members.size());
    for (std::size_t k = 0; k < first.constants.size(); ++k) {
      std::vector<std::string> values;
      for (const Instance* m : c->members) values.push_back(m->text.constants[k].second);
      const bool same = std::all_of(values.begin(), values.end(),
                                    [&](const std::string& v) { return v == values[0]; });
      if (same) {
        replace[k] = values[0];
        continue;
      }
      auto it = by_values.find(values);
      if (it == by_values.end()) {
        std::string name = first.constants[k].first;
        for (int i = 2; std::find(c->params.begin(), c->params.end(), name) != c->params.end(); ++i)
          name = cat(first.constants[k].first, "_", i);
        it = by_values.emplace(values, c->params.size()).first;
        c->params.push_back(name);
        for (std::size_t m = 0; m < values.size(); ++m) c->values[m].push_back(values[m]);
      }
      const std::string& name = c->params[it->second];
      if (k >= first.n_init_constants) kept.emplace(name, name);
      replace[k] = k < first.n_init_constants ? name : "self." + name;
    }
    // What methods compute with and config says is read from there.
    for (std::size_t k = first.n_init_constants; k < first.constants.size(); ++k) {
      const auto& [argument, value] = first.constants[k];
      if (replace[k] != value) continue;
      if (argument == "block_size" && value == std::to_string(source_.model->block_size)) {
        replace[k] = "BLOCK_SIZE";
        continue;
      }
      const auto field = config_value(source_.numbers, source_.reals, argument, value);
      if (!field) continue;
      const auto it = kept.emplace(field->attribute, field->expression).first;
      if (it->second == field->expression) replace[k] = "self." + field->attribute;
    }
    // The model's own class always takes it: who makes it need not know.
    const bool keeps_config = std::any_of(kept.begin(), kept.end(), [](const auto& attribute) {
      return attribute.second.find("config.") != std::string::npos;
    });
    c->takes_config = c->members[0]->path.empty() || keeps_config || reads_config(first, replace);
    c->text = class_text(first, c->name, c->takes_config, c->params, kept, replace);
  }

  const Source& source_;
  std::vector<std::unique_ptr<Instance>> instances_;
  std::vector<std::unique_ptr<Class>> classes_;
  std::set<std::string> names_;
};

}  // namespace

Classes write_classes(const Source& source, std::string* conflict) {
  return Writer(source).run(conflict);
}

}  // namespace tk::emit
