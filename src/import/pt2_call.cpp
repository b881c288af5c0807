#include "import/pt2_call.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "base/error.h"

namespace tk {
namespace {

// Names of PyTorch for an operator that has another name here, with the same arguments.
struct Alias {
  std::string_view theirs, ours;
};
constexpr std::array aliases = {
    Alias{"aten.__and__", "aten.bitwise_and"},
    Alias{"aten.__or__", "aten.bitwise_or"},
    Alias{"aten.__xor__", "aten.bitwise_xor"},
    Alias{"aten.__lshift__", "aten.bitwise_left_shift"},
    Alias{"aten.__rshift__", "aten.bitwise_right_shift"},
    Alias{"aten.max.other", "aten.maximum"},
    Alias{"aten.min.other", "aten.minimum"},
    Alias{"aten.absolute", "aten.abs"},
    Alias{"aten.clip", "aten.clamp"},
    Alias{"aten.concat", "aten.cat"},
    Alias{"aten.concatenate", "aten.cat"},
    Alias{"aten.divide", "aten.div"},
    Alias{"aten.true_divide", "aten.div"},
    Alias{"aten.greater", "aten.gt"},
    Alias{"aten.greater_equal", "aten.ge"},
    Alias{"aten.less", "aten.lt"},
    Alias{"aten.less_equal", "aten.le"},
    Alias{"aten.not_equal", "aten.ne"},
    Alias{"aten.multiply", "aten.mul"},
    Alias{"aten.negative", "aten.neg"},
    Alias{"aten.subtract", "aten.sub"},
    Alias{"aten.special_expit", "aten.sigmoid"},
    Alias{"aten.detach_copy", "aten.detach"},
    Alias{"aten.lift_fresh_copy", "aten.clone"},
    Alias{"aten.lift_fresh", "aten.alias"},
    Alias{"aten._to_copy", "aten.to"},
    Alias{"aten._unsafe_view", "aten.view"},
};

std::string_view our_name(std::string_view packet, std::string_view with_overload) {
  for (const Alias& a : aliases)
    if (a.theirs == packet || a.theirs == with_overload) return a.ours;
  return packet;
}

// What says nothing about values: where a result lies, how it is laid out, and gradients.
constexpr std::array ignorable = {
    std::string_view("device"),        std::string_view("layout"),
    std::string_view("pin_memory"),    std::string_view("memory_format"),
    std::string_view("non_blocking"),  std::string_view("copy"),
    std::string_view("requires_grad"), std::string_view("padding_idx"),
    std::string_view("sparse"),        std::string_view("scale_grad_by_freq"),
    std::string_view("implicit"),      std::string_view("unsafe"),
};

bool is_ignorable(std::string_view name) {
  return std::find(ignorable.begin(), ignorable.end(), name) != ignorable.end();
}

// In-place operators that have no functional operator of the same name.
constexpr std::array writers = {
    Alias{"aten.copy_", "aten.to"},           Alias{"aten.__iand__", "aten.bitwise_and"},
    Alias{"aten.__ior__", "aten.bitwise_or"}, Alias{"aten.__ixor__", "aten.bitwise_xor"},
    Alias{"aten.zero_", "aten.zeros_like"},
};

double float_of_text(const json::Value& v) {
  const std::string_view s = v.string();
  if (s == "Infinity") return INFINITY;
  if (s == "-Infinity") return -INFINITY;
  if (s == "NaN") return NAN;
  throw v.error("is not a number");
}

double read_float(const json::Value& v) { return v.is_string() ? float_of_text(v) : v.number(); }

Attr attr_of(const Number& number, const json::Value& where) {
  if (const Sym* s = std::get_if<Sym>(&number)) return *s;
  if (const double* d = std::get_if<double>(&number)) return *d;
  if (const bool* b = std::get_if<bool>(&number)) return *b;
  throw UserError("TK0212", cat("the number at ", where.path(),
                                " depends on sizes in a way that is not supported"));
}

// {"as_name": "sym_size_int"} or {"as_int": 3}
Attr read_number(const json::Value& v, const Numbers& numbers) {
  if (auto name = v.find("as_name")) {
    auto it = numbers.find(name->string());
    if (it == numbers.end())
      throw UserError("TK0205", cat("the number '", name->string(), "' is used at ", v.path(),
                                    " before it is defined"));
    return attr_of(it->second, v);
  }
  if (auto i = v.find("as_int")) return Sym(i->integer());
  if (auto f = v.find("as_float")) return read_float(*f);
  if (auto b = v.find("as_bool")) return b->boolean();
  throw v.error("is not a number: expected as_name, as_int, as_float or as_bool");
}

template <typename Read>
Attr read_list(const json::Value& list, Read read) {
  SymDims ints;
  std::vector<double> floats;
  bool all_ints = true;
  for (const json::Value v : list.elements()) {
    const Attr a = read(v);
    if (const Sym* s = std::get_if<Sym>(&a)) {
      ints.push_back(*s);
      floats.push_back(s->is_const() ? static_cast<double>(s->value()) : NAN);
    } else if (const double* d = std::get_if<double>(&a)) {
      all_ints = false;
      floats.push_back(*d);
    } else {
      throw v.error("is not a number");
    }
  }
  if (all_ints) return ints;
  return floats;
}

Argument attr(Attr value) { return {Argument::attr, {}, std::move(value)}; }

// As the schema wants it, so that one value has one spelling: 1 for a float is 1.0.
Attr convert(Attr value, const Schema::Arg& arg) {
  if (arg.kind == "float" && !arg.list)
    if (const Sym* s = std::get_if<Sym>(&value); s != nullptr && s->is_const())
      return static_cast<double>(s->value());
  if (arg.kind == "float" && arg.list)
    if (const SymDims* dims = std::get_if<SymDims>(&value)) {
      std::vector<double> out;
      for (const Sym& s : *dims) {
        if (!s.is_const()) return value;
        out.push_back(static_cast<double>(s.value()));
      }
      return out;
    }
  return value;
}

json::Member only_member(const json::Value& arg) {
  for (const json::Member m : arg.members()) return m;
  throw arg.error("is empty");
}

}  // namespace

Target resolve_target(std::string_view name) {
  Target t;
  t.name = name;
  constexpr std::string_view ops = "torch.ops.";
  if (!name.starts_with(ops)) {
    t.short_name = name;
    if (name == "_operator.getitem") {
      t.kind = Target::getitem;
    } else if (name.starts_with("_operator.") || name.starts_with("math.") ||
               name.starts_with("torch.sym_") || name.starts_with("torch._sym_") ||
               name.starts_with("builtins.")) {
      t.kind = Target::number;
    }
    return t;
  }
  const std::string_view full = name.substr(ops.size());
  t.short_name = full;
  const std::size_t first = full.find('.');
  const std::size_t last = first == std::string_view::npos ? first : full.find('.', first + 1);
  const std::string_view packet = full.substr(0, last);
  if (packet == "aten.sym_size" || packet == "aten.sym_numel" || packet == "aten.sym_stride" ||
      packet == "aten.sym_storage_offset") {
    t.kind = Target::number;
    return t;
  }
  if (packet.starts_with("aten._assert_") || packet.starts_with("aten.sym_constrain_range")) {
    t.kind = Target::check;
    return t;
  }
  if (packet == "higher_order.wrap_with_set_grad_enabled" ||
      packet == "higher_order.wrap_with_autocast") {
    t.kind = Target::inlined;
    return t;
  }
  // An overload with a name of its own here comes first: aten.min.other is no reduction.
  std::string_view ours = our_name("", full);
  if (ours.empty()) ours = find_op(packet) != nullptr ? packet : our_name(packet, full);
  t.def = find_op(ours);
  if (t.def == nullptr && ours.ends_with('_')) {
    std::string_view functional = our_name(ours.substr(0, ours.size() - 1), "");
    for (const Alias& w : writers)
      if (w.theirs == ours) functional = w.ours;
    t.def = find_op(functional);
    t.in_place = t.def != nullptr;
    t.is_copy = ours == "aten.copy_";
  }
  if (t.def != nullptr) t.kind = Target::op;
  return t;
}

Argument read_argument(const json::Value& arg, const Numbers& numbers) {
  const auto [kind, v] = only_member(arg);
  auto number = [&](const json::Value& x) { return read_number(x, numbers); };
  if (kind == "as_none") return {};
  if (kind == "as_tensor") return {Argument::tensor, {v["name"].string()}};
  if (kind == "as_tensors" || kind == "as_optional_tensors") {
    Argument out{Argument::tensors, {}};
    for (const json::Value t : v.elements()) {
      const auto inner = t.find("as_tensor");
      if (inner) {
        out.names.push_back((*inner)["name"].string());
      } else if (t.find("as_none")) {
        out.names.emplace_back();
      } else {
        out.names.push_back(t["name"].string());
      }
    }
    return out;
  }
  if (kind == "as_int") return attr(Sym(v.integer()));
  if (kind == "as_float") return attr(read_float(v));
  if (kind == "as_bool") return attr(v.boolean());
  if (kind == "as_string") return attr(std::string(v.string()));
  if (kind == "as_scalar_type") return attr(pt2_dtype(v));
  if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool")
    return attr(number(v));
  if (kind == "as_ints")
    return attr(read_list(v, [](const json::Value& x) { return Attr(Sym(x.integer())); }));
  if (kind == "as_floats")
    return attr(read_list(v, [](const json::Value& x) { return Attr(read_float(x)); }));
  if (kind == "as_sym_ints" || kind == "as_sym_floats") return attr(read_list(v, number));
  if (kind == "as_device" || kind == "as_layout" || kind == "as_memory_format")
    return {Argument::ignored, {}};
  if (kind == "as_graph") return {Argument::graph, {}};
  throw UserError("TK0212",
                  cat("an argument of kind ", kind, ", at ", arg.path(), ", is not supported"));
}

std::string why_not(const OpDef& def, const json::Value& node) {
  const Schema& schema = def.parsed();
  for (const json::Value input : node["inputs"].elements()) {
    const std::string_view name = input["name"].string();
    const auto [kind, v] = only_member(input["arg"]);
    const bool is_tensor =
        kind == "as_tensor" || kind == "as_tensors" || kind == "as_optional_tensors";
    if (kind == "as_none" || (is_tensor && v.is_array() && v.size() == 0)) continue;
    const bool known =
        is_tensor ? schema.tensor_index(name) >= 0 : schema.find_attr(name) != nullptr;
    if (!known && !(is_ignorable(name) && !is_tensor))
      return cat("the argument '", name, "'", is_tensor ? ", a tensor" : "");
  }
  return "";
}

Call read_call(const OpDef& def, const json::Value& node, const Numbers& numbers) {
  const Schema& schema = def.parsed();
  Call call;
  const std::size_t fixed = schema.tensors.size() - (schema.variadic() ? 1 : 0);
  call.tensors.resize(fixed);
  std::vector<std::string_view> rest;
  for (const json::Value input : node["inputs"].elements()) {
    const std::string_view name = input["name"].string();
    const bool known = schema.tensor_index(name) >= 0 || schema.find_attr(name) != nullptr;
    if (!known && is_ignorable(name)) continue;
    Argument a = read_argument(input["arg"], numbers);
    if (a.kind == Argument::none || a.kind == Argument::ignored) continue;
    if (a.kind == Argument::attr) {
      const Schema::Arg* arg = schema.find_attr(name);
      if (arg == nullptr) continue;  // why_not has refused what matters
      if (call.attrs.find(name) != nullptr)
        throw UserError("TK0205",
                        cat("the argument '", name, "' is given twice, at ", input.path()));
      call.attrs.set(name, convert(std::move(a.value), *arg));
      continue;
    }
    const int index = schema.tensor_index(name);
    const bool list = index >= 0 && static_cast<std::size_t>(index) >= fixed;
    if (index < 0 || list != (a.kind == Argument::tensors)) {
      if (a.names.empty()) continue;
      throw UserError("TK0205",
                      cat(def.name, " cannot take '", name, "' as given at ", input.path()))
          .note(cat("its schema is ", def.schema));
    }
    if (list) {
      rest = std::move(a.names);
    } else {
      call.tensors[static_cast<std::size_t>(index)] = a.names.front();
    }
  }
  for (std::size_t i = 0; i < fixed; ++i)
    if (call.tensors[i].empty() && !schema.tensors[i].optional)
      throw UserError("TK0205", cat(def.name, " needs the tensor '", schema.tensors[i].name, "'"))
          .note(cat("its schema is ", def.schema));
  for (const Schema::Arg& arg : schema.attrs)
    if (!arg.has_default && !arg.optional && call.attrs.find(arg.name) == nullptr)
      throw UserError("TK0205", cat(def.name, " needs the argument '", arg.name, "'"))
          .note(cat("its schema is ", def.schema));
  call.tensors.insert(call.tensors.end(), rest.begin(), rest.end());
  return call;
}

Results read_results(const json::Value& node) {
  Results out;
  for (const json::Value output : node["outputs"].elements()) {
    const auto [kind, v] = only_member(output);
    if (kind == "as_tensor") {
      out.tensors.push_back(v["name"].string());
    } else if (kind == "as_tensors") {
      for (const json::Value t : v.elements()) out.tensors.push_back(t["name"].string());
    } else if (kind == "as_none") {
      out.tensors.emplace_back();
    } else if (kind == "as_sym_int" || kind == "as_sym_float" || kind == "as_sym_bool") {
      out.numbers.push_back(v["as_name"].string());
    } else {
      throw UserError("TK0212",
                      cat("a result of kind ", kind, ", at ", output.path(), ", is not supported"));
    }
  }
  return out;
}

}  // namespace tk
