#include "import/pt2.h"

#include <algorithm>
#include <map>
#include <optional>
#include <unordered_map>

#include "base/error.h"
#include "import/functional.h"
#include "import/pt2_call.h"
#include "import/pt2_loc.h"
#include "import/pt2_signature.h"
#include "import/pt2_symbols.h"

namespace tk {
namespace {

using ByName = std::unordered_map<std::string_view, json::Value>;

ByName index(const json::Value& graph, std::string_view member) {
  ByName out;
  const auto object = graph.find(member);
  if (!object || object->is_null()) return out;
  for (const json::Member m : object->members()) out.emplace(m.name, m.value);
  return out;
}

UserError placed(UserError error, const json::Value& root, const Loc* loc) {
  if (loc == nullptr) return std::move(error).at(root.file());
  if (loc->file.empty()) return std::move(error).at(root.file()).in_module(loc->module);
  return std::move(error).at(loc->file, loc->line).in_module(loc->module);
}

// One graph of the file: the main one, or one that a higher-order operator calls.
struct Scope {
  json::Value graph;
  ByName tensors, ints, floats, bools;
  std::unordered_map<std::string_view, Places::Id> places;
  Numbers numbers;

  explicit Scope(const json::Value& g)
      : graph(g),
        tensors(index(g, "tensor_values")),
        ints(index(g, "sym_int_values")),
        floats(index(g, "sym_float_values")),
        bools(index(g, "sym_bool_values")) {}
};

const json::Value& meta_of(const Scope& scope, std::string_view name) {
  auto it = scope.tensors.find(name);
  if (it == scope.tensors.end())
    throw UserError("TK0205", cat("the tensor '", name, "' has no entry in tensor_values"))
        .at(scope.graph.file());
  return it->second;
}

class Importer {
 public:
  Importer(const json::Value& root, const ImportOptions& options)
      : root_(root),
        options_(options),
        main_(root["graph_module"]["graph"]),
        places_(out_.graph),
        inputs_(read_inputs(root["graph_module"]["signature"])),
        outputs_(read_outputs(root["graph_module"]["signature"])),
        symbols_(root, passed()),
        locations_(out_.graph, find_wrapper()) {}

  Pt2Graph run() && {
    refuse_unknown();
    add_inputs();
    for (const json::Value node : main_.graph["nodes"].elements()) add_node(main_, node);
    choose_output();
    out_.graph.erase_dead();
    out_.graph.erase_unused_weights();
    keep_used_ranges();
    return std::move(out_);
  }

 private:
  const Target& target(std::string_view name) {
    auto it = targets_.find(name);
    if (it == targets_.end()) it = targets_.emplace(name, resolve_target(name)).first;
    return it->second;
  }

  std::vector<TensorMeta> passed() const {
    std::vector<TensorMeta> metas;
    for (const Pt2Input& input : inputs_)
      if (!input.is_weight()) metas.push_back({input.value, meta_of(main_, input.value)});
    return metas;
  }

  const std::string& find_wrapper() {
    WrapperFinder finder;
    for (const Pt2Input& input : inputs_)
      if (input.is_weight() && input.kind != "tensor_constant") finder.add_weight(input.name);
    for (const json::Value node : main_.graph["nodes"].elements())
      if (auto metadata = node.find("metadata"))
        if (auto stack = metadata->find("nn_module_stack"); stack && stack->is_string())
          finder.add_module(innermost_module(stack->string()).path);
    return out_.wrapper = finder.prefix();
  }

  const Loc* loc_of(const json::Value& node) {
    const auto metadata = node.find("metadata");
    return metadata ? locations_.of(*metadata) : nullptr;
  }

  // All operators that cannot be imported at once, each with its first place.
  struct Unknown {
    std::string reason;
    std::size_t count = 0;
    const Loc* first = nullptr;
  };
  void collect_unknown(const json::Value& graph, std::map<std::string, Unknown>* unknown) {
    for (const json::Value node : graph["nodes"].elements()) {
      const Target& t = target(node["target"].string());
      std::string reason;
      if (t.kind == Target::inlined && !casts_inside(node, t)) {
        for (const json::Value input : node["inputs"].elements())
          if (auto g = input["arg"].find("as_graph")) collect_unknown((*g)["graph"], unknown);
        continue;
      }
      if (t.kind == Target::inlined) reason = " (autocast that is switched on)";
      if (t.kind == Target::op) {
        if (t.is_copy) continue;
        reason = why_not(*t.def, node);
        if (reason.empty()) continue;
        reason = cat(" with ", reason);
      } else if (t.kind != Target::unknown && t.kind != Target::inlined) {
        continue;
      } else if (reason.empty() && !read_results(node).numbers.empty()) {
        reason = " (a size that depends on data)";
      }
      Unknown& u = (*unknown)[cat(t.short_name, reason)];
      if (u.count++ == 0) u.first = loc_of(node);
    }
  }

  // An autocast that is on casts the tensors of the graph inside, which the graph does not say.
  static bool casts_inside(const json::Value& node, const Target& t) {
    if (!t.short_name.ends_with("wrap_with_autocast")) return false;
    for (const json::Value input : node["inputs"].elements())
      if (auto enabled = input["arg"].find("as_bool")) return enabled->boolean();
    return false;
  }

  void refuse_unknown() {
    if (options_.allow_unknown) return;
    std::map<std::string, Unknown> unknown;
    collect_unknown(main_.graph, &unknown);
    if (unknown.empty()) return;
    std::string list;
    for (const auto& [name, u] : unknown) {
      list += cat("\n    ", name, ": ", u.count, u.count == 1 ? " time" : " times");
      if (u.first == nullptr) continue;
      if (!u.first->file.empty()) list += cat(", first at ", u.first->file, ":", u.first->line);
      if (!u.first->module.empty()) list += cat(" in ", u.first->module);
    }
    throw UserError("TK0210", cat(unknown.size(), unknown.size() == 1 ? " operator" : " operators",
                                  " of the capture ", unknown.size() == 1 ? "is" : "are",
                                  " not supported:", list))
        .at(root_.file());
  }

  void add_inputs() {
    for (const Pt2Input& input : inputs_) {
      const Type type = symbols_.type(meta_of(main_, input.value));
      Value* v = input.is_weight() ? out_.graph.add_weight(input.name, type)
                                   : out_.graph.add_input(input.value, type);
      define(main_, input.value, places_.add_base(v, input.value));
    }
  }

  void define(Scope& scope, std::string_view name, Places::Id id) {
    if (!scope.places.emplace(name, id).second)
      throw UserError("TK0205", cat("the tensor '", name, "' is defined twice")).at(root_.file());
  }

  Places::Id place(const Scope& scope, std::string_view name) const {
    auto it = scope.places.find(name);
    if (it == scope.places.end())
      throw UserError("TK0205", cat("the tensor '", name, "' is used before it is defined"));
    return it->second;
  }

  void add_node(Scope& scope, const json::Value& node) {
    const Loc* loc = loc_of(node);
    try {
      add_node(scope, node, target(node["target"].string()), loc);
    } catch (UserError& error) {
      if (error.has_place()) throw;
      throw placed(std::move(error), root_, loc);
    }
  }

  void add_node(Scope& scope, const json::Value& node, const Target& t, const Loc* loc) {
    const Results results = read_results(node);
    for (const std::string_view name : results.numbers) define_number(scope, name);
    switch (t.kind) {
      case Target::number:
      case Target::check:
        return;
      case Target::getitem:
        return add_getitem(scope, node, results);
      case Target::inlined:
        return add_inlined(scope, node, results);
      case Target::op:
        if (!options_.allow_unknown || t.is_copy || why_not(*t.def, node).empty())
          return add_call(scope, node, t, results, loc);
        break;
      case Target::unknown:
        break;
    }
    add_opaque(scope, node, t, results, loc);
  }

  // Torch has worked out the sizes: sym_size, _operator.mul and the like become Syms.
  void define_number(Scope& scope, std::string_view name) {
    Number number;
    if (auto it = scope.ints.find(name); it != scope.ints.end()) {
      number = symbols_.size(it->second);
    } else if (auto f = scope.floats.find(name); f != scope.floats.end()) {
      if (auto v = f->second.find("as_float")) number = v->number();
    } else if (auto b = scope.bools.find(name); b != scope.bools.end()) {
      if (auto v = b->second.find("as_bool")) number = v->boolean();
    } else {
      throw UserError("TK0205", cat("the number '", name, "' has no entry in sym_int_values"));
    }
    if (!scope.numbers.emplace(name, std::move(number)).second)
      throw UserError("TK0205", cat("the number '", name, "' is defined twice"));
  }

  void add_getitem(Scope& scope, const json::Value& node, const Results& results) {
    std::vector<std::string_view> list;
    std::int64_t at = -1;
    for (const json::Value input : node["inputs"].elements()) {
      const Argument a = read_argument(input["arg"], scope.numbers);
      if (a.kind == Argument::tensors) list = a.names;
      if (a.kind == Argument::attr)
        if (const Sym* s = std::get_if<Sym>(&a.value); s != nullptr && s->is_const())
          at = s->value();
    }
    if (at < 0 || at >= static_cast<std::int64_t>(list.size()) || results.tensors.size() != 1)
      throw node.error("is a getitem of something that is not a list of tensors");
    define(scope, results.tensors[0], place(scope, list[static_cast<std::size_t>(at)]));
  }

  // wrap_with_set_grad_enabled and the like: the graph inside, with its inputs bound by position.
  void add_inlined(Scope& outer, const json::Value& node, const Results& results) {
    std::optional<json::Value> body;
    std::vector<Places::Id> inputs;
    std::vector<Number> numbers;
    for (const json::Value input : node["inputs"].elements()) {
      if (auto g = input["arg"].find("as_graph")) {
        body = (*g)["graph"];
        continue;
      }
      if (!body) continue;  // the flags of the mode come before the graph
      const Argument a = read_argument(input["arg"], outer.numbers);
      for (const std::string_view name : a.names) inputs.push_back(place(outer, name));
      if (const Sym* s = a.kind == Argument::attr ? std::get_if<Sym>(&a.value) : nullptr)
        numbers.emplace_back(*s);
    }
    if (!body) throw node.error("calls no graph");
    if (++inline_depth_ > 16) throw node.error("calls graphs nested deeper than 16");
    Scope inner(*body);
    std::size_t tensor = 0;
    std::size_t number = 0;
    for (const json::Value input : (*body)["inputs"].elements()) {
      if (auto t = input.find("as_tensor")) {
        if (tensor == inputs.size()) throw input.error("has no value in the call");
        define(inner, (*t)["name"].string(), inputs[tensor++]);
      } else if (auto n = input.find("as_sym_int")) {
        if (number == numbers.size()) throw input.error("has no value in the call");
        inner.numbers.emplace((*n)["as_name"].string(), numbers[number++]);
      }
    }
    for (const json::Value n : (*body)["nodes"].elements()) add_node(inner, n);
    std::size_t result = 0;
    for (const json::Value output : (*body)["outputs"].elements()) {
      const auto t = output.find("as_tensor");
      if (!t || result == results.tensors.size()) continue;
      define(outer, results.tensors[result++], place(inner, (*t)["name"].string()));
    }
    --inline_depth_;
  }

  void add_call(Scope& scope, const json::Value& node, const Target& t, const Results& results,
                const Loc* loc) {
    if (t.is_copy) return add_copy(scope, node, results, loc);
    Call call = read_call(*t.def, node, scope.numbers);
    std::vector<Value*> inputs;
    inputs.reserve(call.tensors.size());
    for (const std::string_view name : call.tensors)
      inputs.push_back(name.empty() ? nullptr : places_.read(place(scope, name), loc));
    if (t.in_place) return write_in_place(scope, t, call, std::move(inputs), results, loc);
    const OpDef* def = t.def;
    if (def->name == "aten.slice" && results.tensors.size() == 1 &&
        bounded_slice(inputs[0]->type, symbols_.type(meta_of(scope, results.tensors[0])), &call))
      def = find_op("aten.narrow");
    Node* n = out_.graph.insert(nullptr, *def, std::move(inputs), std::move(call.attrs), loc);
    if (results.tensors.size() > n->outputs.size())
      throw UserError("TK0205", cat(t.short_name, " has ", results.tensors.size(),
                                    " results in the file, expected ", n->outputs.size()));
    const bool fresh =
        n->inputs.empty() || call.tensors.empty() || call.tensors[0].empty() || makes_copy(node, t);
    for (std::size_t i = 0; i < results.tensors.size(); ++i) {
      const std::string_view name = results.tensors[i];
      if (name.empty()) continue;
      const int k = static_cast<int>(i);
      check_type(scope, name, n->out(k)->type, *n);
      define(scope, name,
             fresh ? places_.add_base(n->out(k), name)
                   : places_.add_result(place(scope, call.tensors[0]), n, k, name));
    }
  }

  // The first S rows of a table of 64, where the ranges of the capture keep S within 64 (causal
  // masks are cut like this). The slice's own rule says min(S, 64) rows; the capture says S, and
  // aten.narrow, which checks it, says so too. Changes the attributes when that is the case.
  static bool bounded_slice(const Type& from, const Type& to, Call* call) {
    const auto number = [&](std::string_view name) -> const Sym* {
      const Attr* attr = call->attrs.find(name);
      return attr == nullptr ? nullptr : std::get_if<Sym>(attr);
    };
    const Sym* dim = number("dim");
    const Sym* end = number("end");
    const Sym* start = number("start");
    const Sym* step = number("step");
    if (end == nullptr || end->is_const() || (start != nullptr && !start->is(0)) ||
        (step != nullptr && !step->is(1)) || from.rank() != to.rank())
      return false;
    const std::int64_t axis = dim == nullptr ? 0 : dim->value();
    const auto i = static_cast<std::size_t>(axis < 0 ? axis + from.rank() : axis);
    if (i >= from.shape.size() || !from.shape[i].is_const() || !(to.shape[i] == *end)) return false;
    call->attrs = Attrs{{"dim", Sym(axis)}, {"start", Sym(0)}, {"length", Sym(*end)}};
    return true;
  }

  static bool makes_copy(const json::Value& node, const Target& t) {
    if (t.short_name.find("_to_copy") != std::string::npos) return true;
    if (!t.def->name.ends_with(".to")) return false;
    for (const json::Value input : node["inputs"].elements())
      if (input["name"].string() == "copy")
        if (auto b = input["arg"].find("as_bool")) return b->boolean();
    return false;
  }

  // x.op_(...): the place of x receives op(x, ...).
  void write_in_place(Scope& scope, const Target& t, Call& call, std::vector<Value*> inputs,
                      const Results& results, const Loc* loc) {
    const Places::Id self = place(scope, call.tensors.at(0));
    Node* n = out_.graph.insert(nullptr, *t.def, std::move(inputs), std::move(call.attrs), loc);
    write(scope, self, n->out(), results, loc);
  }

  // x.copy_(y): the place of x receives y.
  void add_copy(Scope& scope, const json::Value& node, const Results& results, const Loc* loc) {
    std::optional<Places::Id> self;
    std::optional<Places::Id> source;
    for (const json::Value input : node["inputs"].elements()) {
      const Argument a = read_argument(input["arg"], scope.numbers);
      if (a.kind != Argument::tensor) continue;
      if (input["name"].string() == "self") self = place(scope, a.names[0]);
      if (input["name"].string() == "src") source = place(scope, a.names[0]);
    }
    if (!self || !source) throw node.error("is a copy_ without the tensors 'self' and 'src'");
    write(scope, *self, places_.read(*source, loc), results, loc);
  }

  // In the type of the place: what is written is cast and broadcast to it.
  void write(Scope& scope, Places::Id self, Value* v, const Results& results, const Loc* loc) {
    const Type type = places_.type(self);
    Builder b{out_.graph, nullptr, loc};
    if (v->type.dtype != type.dtype) v = b.op("aten.to", {v}, {{"dtype", type.dtype}});
    if (v->type.shape != type.shape) v = b.op("aten.expand", {v}, {{"size", type.shape}});
    places_.write(self, v, loc);
    for (const std::string_view name : results.tensors)
      if (!name.empty()) define(scope, name, self);
  }

  void add_opaque(Scope& scope, const json::Value& node, const Target& t, const Results& results,
                  const Loc* loc) {
    std::vector<Value*> inputs;
    std::vector<std::string_view> names;
    for (const json::Value input : node["inputs"].elements()) {
      const Argument a = read_argument(input["arg"], scope.numbers);
      for (const std::string_view name : a.names) {
        if (name.empty()) continue;
        inputs.push_back(places_.read(place(scope, name), loc));
        names.push_back(name);
      }
    }
    std::string dtypes;
    SymDims dims;
    SymDims ranks;
    for (const std::string_view name : results.tensors) {
      if (name.empty()) continue;
      const Type type = symbols_.type(meta_of(scope, name));
      dtypes += cat(dtypes.empty() ? "" : ",", name_of(type.dtype));
      ranks.emplace_back(type.rank());
      dims.insert(dims.end(), type.shape.begin(), type.shape.end());
    }
    if (ranks.empty()) return;
    Node* n = Builder{out_.graph, nullptr, loc}.node(
        "tk.opaque", std::move(inputs),
        {{"target", t.short_name}, {"dtypes", dtypes}, {"ranks", ranks}, {"dims", dims}});
    int k = 0;
    for (const std::string_view name : results.tensors)
      if (!name.empty()) define(scope, name, places_.add_base(n->out(k++), name));
  }

  // Guards our inference: the file says what torch found.
  void check_type(const Scope& scope, std::string_view name, const Type& ours, const Node& n) {
    const Type theirs = symbols_.type(meta_of(scope, name));
    if (symbols_.agree(ours, theirs)) return;
    throw UserError("TK0213", cat("'", name, "' is ", ours.str(), " by the rules of ", n.op->name,
                                  ", but the capture says ", theirs.str()))
        .note(cat("in ", print(n)));
  }

  void choose_output() {
    std::vector<std::string_view> matches;
    std::string list;
    for (const std::string_view name : outputs_) {
      const Type& type = places_.type(place(main_, name));
      list += cat("\n    ", name, ": ", type.str());
      if (options_.output.empty() ? type.rank() == 3 : name == options_.output)
        matches.push_back(name);
    }
    if (matches.size() == 1) {
      out_.graph.add_output(places_.read(place(main_, matches[0]), nullptr));
      return;
    }
    if (outputs_.empty()) list = " none";
    throw UserError("TK0207",
                    options_.output.empty()
                        ? cat("expected one result with three axes (the logits), found ",
                              matches.size(), "; the results are:", list)
                        : cat("there is no result '", options_.output, "'; the results are:", list))
        .at(root_.file());
  }

  void keep_used_ranges() {
    std::set<std::string, std::less<>> used;
    for (const auto& v : out_.graph.inputs())
      for (const Sym& s : v->type.shape) s.collect_symbols(&used);
    for (const auto& [name, range] : symbols_.ranges())
      if (used.count(name) != 0) out_.graph.ranges[name] = range;
  }

  const json::Value root_;
  const ImportOptions options_;
  Pt2Graph out_;
  Scope main_;
  Places places_;
  std::vector<Pt2Input> inputs_;
  std::vector<std::string_view> outputs_;
  Pt2Symbols symbols_;
  Locations locations_;
  std::unordered_map<std::string_view, Target> targets_;
  int inline_depth_ = 0;
};

void check_version(const json::Value& root) {
  const auto version = root.find("schema_version");
  const std::int64_t major = version ? json::integer_or(*version, "major", 0) : 0;
  if (major != 8)
    throw UserError("TK0202",
                    cat("the capture has schema version ",
                        version ? std::to_string(major) : std::string("none"), "; supported is 8"))
        .at(root.file())
        .help("export it again with torch 2.8 or newer");
}

}  // namespace

Pt2Graph import_pt2(const json::Value& root, const ImportOptions& options) {
  check_version(root);
  return Importer(root, options).run();
}

}  // namespace tk
