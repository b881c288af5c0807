#include "emit/express.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "emit/library_args.h"
#include "emit/shape_up.h"

namespace tk::emit {

std::string at_least(const Expr& e, Binds binds) {
  return e.binds < binds ? "(" + e.text + ")" : e.text;
}

std::string constant(std::string_view key, std::string_view text) {
  return cat(mark_key, key, mark_value, text, mark_end);
}

namespace {

using Write = Expr (*)(const Node&, Scope&);

std::string ref(const Node& n, int i, Scope& s, Binds binds = Binds::compare) {
  return at_least(s.value(*n.in(i)), binds);
}

std::string number(const Sym& value, std::string_view key, const Node& n, Scope& s) {
  return value.is_const() ? constant(key, value.str()) : s.size(value, n);
}

bool attends(const Node& n) {
  return n.loc != nullptr && n.loc->module.find("att") != std::string::npos;
}

std::string attribute(const Node& n, const Schema::Arg& arg, Scope& s) {
  const Attr* a = n.attrs.find(arg.name);
  // Groups of experts are chosen by the same operator: its k need not be the number of experts.
  if (n.is("aten.topk") && arg.name == "k" && a != nullptr)
    return number(std::get<Sym>(*a), "count", n, s);
  if (a == nullptr) return arg.none_default ? "None" : constant(arg.name, python(arg.value));
  if (const Sym* sym = std::get_if<Sym>(a)) return number(*sym, arg.name, n, s);
  if (const SymDims* dims = std::get_if<SymDims>(a)) {
    if (arg.name == "dim" && dims->size() == 1) return number((*dims)[0], arg.name, n, s);
    std::string text;
    for (const Sym& d : *dims) text += cat(text.empty() ? "" : ", ", number(d, arg.name, n, s));
    return "[" + text + "]";
  }
  return constant(arg.name, python(*a));
}

std::string joined(const std::vector<std::string>& parts) {
  std::string text;
  for (const std::string& p : parts) text += cat(text.empty() ? "" : ", ", p);
  return text;
}

// The attributes that are set, as keywords.
void keywords(const Node& n, Scope& s, std::vector<std::string>* args,
              std::initializer_list<std::string_view> without = {}) {
  for (const Schema::Arg& arg : n.op->parsed().attrs) {
    if (std::find(without.begin(), without.end(), arg.name) != without.end()) continue;
    if (n.attrs.find(arg.name) == nullptr && !(s.always(n, arg.name) && arg.has_default)) continue;
    args->push_back(arg.name + "=" + attribute(n, arg, s));
  }
}

std::string short_name(const Node& n) {
  return std::string(n.op->name.substr(n.op->name.find('.') + 1));
}

// x.name(other inputs, attributes)
Expr method(const Node& n, Scope& s) {
  std::vector<std::string> args;
  for (int i = 1; i < static_cast<int>(n.inputs.size()); ++i)
    if (n.in(i) != nullptr) args.push_back(ref(n, i, s));
  keywords(n, s, &args);
  return {ref(n, 0, s, Binds::whole) + "." + short_name(n) + "(" + joined(args) + ")"};
}

// module.name(inputs, attributes)
Expr function(const Node& n, Scope& s, std::string_view module) {
  std::vector<std::string> args;
  for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i)
    args.push_back(n.in(i) == nullptr ? "None" : ref(n, i, s));
  while (!args.empty() && args.back() == "None") args.pop_back();
  keywords(n, s, &args);
  return {cat(module, ".", short_name(n), "(", joined(args), ")")};
}
Expr torch_function(const Node& n, Scope& s) { return function(n, s, "torch"); }
Expr nn_function(const Node& n, Scope& s) { return function(n, s, "F"); }

// A new tensor: needs a device.
Expr creation(const Node& n, Scope& s) {
  std::vector<std::string> args;
  for (const Schema::Arg& arg : n.op->parsed().attrs) {
    const bool set = n.attrs.find(arg.name) != nullptr;
    if (arg.name == "size" || arg.name == "end") {
      args.push_back(attribute(n, arg, s));
    } else if (arg.name == "fill_value") {
      args.push_back(attribute(n, arg, s));
    } else if (set) {
      args.push_back(arg.name + "=" + attribute(n, arg, s));
    }
  }
  if (!s.device().empty()) args.push_back("device=" + s.device());
  return {"torch." + short_name(n) + "(" + joined(args) + ")"};
}

Expr index_of(const Node& n, Scope& s, int axis, const std::string& index) {
  std::string lead;
  for (int i = 0; i < axis; ++i) lead += ":, ";
  return {ref(n, 0, s, Binds::whole) + "[" + lead + index + "]"};
}

int axis_of(const Node& n, std::string_view name = "dim") {
  const auto dim = static_cast<int>(n.args().i64(name));
  return dim < 0 ? dim + n.in(0)->type.rank() : dim;
}

// "k_proj" of the product that the value is a view of; "" when it is none.
std::string_view projection_of(const Value& v) {
  const Value* at = &v;
  while (at->kind == ValueKind::node && is_plain_view(*at->node)) at = at->node->in(0);
  if (at->kind != ValueKind::node || at->node->loc == nullptr) return {};
  const std::string_view module = at->node->loc->module;
  return module.substr(module.rfind('.') + 1);
}

// What a constant axis of a view is called: in attention the last two are heads and their size.
std::string_view axis_name(const Node& n, std::size_t axis) {
  const SymDims& to = n.out()->type.shape;
  const SymDims& from = n.in(0)->type.shape;
  if (!attends(n) || to.size() < 3 || from.empty() || !to[to.size() - 2].is_const() ||
      to[to.size() - 2] * to.back() != from.back())
    return "size";
  if (axis + 1 == to.size()) return "head_dim";
  const std::string_view projection = projection_of(*n.in(0));
  const bool stored = projection.starts_with('k') || projection.starts_with('v');
  return axis + 2 != to.size() ? "size" : stored ? "num_key_value_heads" : "num_heads";
}

Expr reshape(const Node& n, Scope& s) {
  const SymDims& to = n.out()->type.shape;
  const SymDims& from = n.in(0)->type.shape;
  int open = 0;
  for (const Sym& d : to) open += d.is_const() ? 0 : 1;
  std::vector<std::string> args;
  for (std::size_t i = 0; i < to.size(); ++i) {
    if (to[i].is_const())
      args.push_back(constant(axis_name(n, i), to[i].str()));
    else if (open == 1)
      args.push_back("-1");
    else
      args.push_back(s.size(to[i], n));
  }
  const std::string x = ref(n, 0, s, Binds::whole);
  // An axis of one, put in or taken out.
  if (to.size() == from.size() + 1)
    for (std::size_t at = 0; at < to.size(); ++at) {
      SymDims rest = to;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
      if (to[at].is(1) && rest == from) return {cat(x, ".unsqueeze(", at, ")")};
    }
  if (from.size() == to.size() + 1)
    for (std::size_t at = 0; at < from.size(); ++at) {
      SymDims rest = from;
      rest.erase(rest.begin() + static_cast<std::ptrdiff_t>(at));
      if (from[at].is(1) && rest == to) return {cat(x, ".squeeze(", at, ")")};
    }
  if (to.size() < from.size())  // neighbouring axes into one
    for (std::size_t at = 0; at < to.size(); ++at) {
      const std::size_t end = at + from.size() - to.size();  // the last of them
      SymDims merged(from.begin(), from.begin() + static_cast<std::ptrdiff_t>(at));
      Sym product(1);
      for (std::size_t i = at; i <= end; ++i) product = product * from[i];
      merged.push_back(product);
      merged.insert(merged.end(), from.begin() + static_cast<std::ptrdiff_t>(end) + 1, from.end());
      if (merged != to) continue;
      const std::string start = at == 0 ? "" : std::to_string(at);
      if (end + 1 == from.size()) return {x + ".flatten(" + start + ")"};
      return {cat(x, ".flatten(", at, ", ", end, ")")};
    }
  return {x + (s.contiguous(*n.in(0)) ? ".view(" : ".reshape(") + joined(args) + ")"};
}

Expr permute(const Node& n, Scope& s) {
  const std::vector<std::int64_t> dims = n.args().ints("dims");
  std::vector<int> moved;
  for (std::size_t i = 0; i < dims.size(); ++i)
    if (dims[i] != static_cast<std::int64_t>(i)) moved.push_back(static_cast<int>(i));
  const std::string x = ref(n, 0, s, Binds::whole);
  if (moved.size() == 2) return {cat(x, ".transpose(", moved[0], ", ", moved[1], ")")};
  std::vector<std::string> args;
  for (const std::int64_t d : dims) args.push_back(std::to_string(d));
  return {x + ".permute(" + joined(args) + ")"};
}

Expr slice(const Node& n, Scope& s) {
  const Args a = n.args();
  const int axis = axis_of(n);
  const Sym& extent = n.in(0)->type.dim(axis);
  const Attr* start = a.attr("start");
  const Attr* end = a.attr("end");
  const bool to_end =
      end == nullptr || std::get<Sym>(*end) == extent || std::get<Sym>(*end).is(INT64_MAX);
  std::string text;
  if (start != nullptr && !std::get<Sym>(*start).is(0))
    text = number(std::get<Sym>(*start), "start", n, s);
  text += ":";
  if (!to_end) text += number(std::get<Sym>(*end), "end", n, s);
  if (a.i64("step") != 1) text += cat(":", a.i64("step"));
  const int rank = n.in(0)->type.rank();
  if (axis == rank - 1 && rank > 1) return {ref(n, 0, s, Binds::whole) + "[..., " + text + "]"};
  return index_of(n, s, axis, text);
}

Expr select(const Node& n, Scope& s) {
  return index_of(n, s, axis_of(n), number(n.args().sym("index"), "index", n, s));
}

Expr to_dtype(const Node& n, Scope& s) {
  const DType d = n.out()->type.dtype;
  const std::string x = ref(n, 0, s, Binds::whole);
  if (d == DType::f32) return {x + ".float()"};
  if (d == DType::i64) return {x + ".long()"};
  return {x + ".to(" + torch_dtype(d) + ")"};
}

Expr expand(const Node& n, Scope& s) {
  std::vector<std::string> args;
  const SymDims& from = n.in(0)->type.shape;
  const SymDims& to = n.out()->type.shape;
  for (std::size_t i = 0; i < to.size(); ++i) {
    const std::size_t pad = to.size() - from.size();
    if (i >= pad && from[i - pad] == to[i])
      args.push_back("-1");
    else
      args.push_back(number(to[i], "size", n, s));
  }
  return {ref(n, 0, s, Binds::whole) + ".expand(" + joined(args) + ")"};
}

Expr index(const Node& n, Scope& s) {
  std::vector<std::string> parts;
  for (int i = 1; i < static_cast<int>(n.inputs.size()); ++i)
    parts.push_back(n.in(i) == nullptr ? ":" : ref(n, i, s));
  while (!parts.empty() && parts.back() == ":") parts.pop_back();
  return {ref(n, 0, s, Binds::whole) + "[" + joined(parts) + "]"};
}

Expr index_select(const Node& n, Scope& s) {
  if (axis_of(n) == 0) return {ref(n, 0, s, Binds::whole) + "[" + ref(n, 1, s) + "]"};
  return {cat(ref(n, 0, s, Binds::whole), ".index_select(", axis_of(n), ", ", ref(n, 1, s), ")")};
}

Expr gather(const Node& n, Scope& s) {
  return {
      cat(ref(n, 0, s, Binds::whole), ".gather(", n.args().i64("dim"), ", ", ref(n, 1, s), ")")};
}

Expr scatter(const Node& n, Scope& s) {
  const std::string value =
      n.in(2) != nullptr ? ref(n, 2, s) : constant("value", python(*n.args().attr("value")));
  return {cat(ref(n, 0, s, Binds::whole), ".scatter(", n.args().i64("dim"), ", ", ref(n, 1, s),
              ", ", value, ")")};
}

Expr index_put(const Node& n, Scope& s) {
  std::vector<std::string> parts;
  for (int i = 2; i < static_cast<int>(n.inputs.size()); ++i) parts.push_back(ref(n, i, s));
  const bool adds = n.args().flag("accumulate");
  return {ref(n, 0, s, Binds::whole) + ".index_put((" + joined(parts) +
          (parts.size() == 1 ? ",), " : "), ") + ref(n, 1, s) +
          (adds ? ", accumulate=True)" : ")")};
}

Expr split(const Node& n, Scope& s) {
  const Attr& sizes = *n.args().attr("split_size");
  const auto* all = std::get_if<SymDims>(&sizes);
  std::string text;
  if (all == nullptr || all->size() == 1) return method(n, s);
  const std::string_view key = !attends(n)                ? "size"
                               : n.in(0)->type.rank() > 2 ? "head_parts"
                                                          : "split_size";
  for (const Sym& d : *all) text += cat(text.empty() ? "" : ", ", number(d, key, n, s));
  const int axis = axis_of(n);
  return {cat(ref(n, 0, s, Binds::whole), ".split((", text,
              "), dim=", axis + 1 == n.in(0)->type.rank() ? -1 : axis, ")")};
}

Expr join(const Node& n, Scope& s) {
  std::vector<std::string> parts;
  for (int i = 0; i < static_cast<int>(n.inputs.size()); ++i) parts.push_back(ref(n, i, s));
  const std::int64_t dim = n.args().i64("dim");
  const std::string axis = dim == 0 ? "" : cat(", dim=", dim);
  return {"torch." + short_name(n) + "((" + joined(parts) + ")" + axis + ")"};
}

// A tensor or the scalar of the same name.
Expr operand(const Node& n, int i, std::string_view name, Scope& s) {
  if (n.in(i) != nullptr) return s.value(*n.in(i));
  const Attr* a = n.args().attr(name);
  TK_CHECK(a != nullptr, n.op->name, " without ", name);
  std::string text = python(*a);
  const bool negative = text.starts_with('-');
  if (const Sym* sym = std::get_if<Sym>(a); sym != nullptr && !sym->is_const())
    return {s.size(*sym, n)};
  return {constant(name, text), negative ? Binds::sign : Binds::whole};
}

struct Sign {
  std::string_view text;
  Binds binds;
  bool associative;
};

const std::map<std::string_view, Sign>& signs() {
  static const std::map<std::string_view, Sign> all = {
      {"aten.add", {"+", Binds::sum, true}},
      {"aten.sub", {"-", Binds::sum, false}},
      {"aten.mul", {"*", Binds::product, true}},
      {"aten.div", {"/", Binds::product, false}},
      {"aten.floor_divide", {"//", Binds::product, false}},
      {"aten.remainder", {"%", Binds::product, false}},
      {"aten.matmul", {"@", Binds::product, false}},
      {"aten.mm", {"@", Binds::product, false}},
      {"aten.bmm", {"@", Binds::product, false}},
      {"aten.pow", {"**", Binds::power, false}},
      {"aten.eq", {"==", Binds::compare, false}},
      {"aten.ne", {"!=", Binds::compare, false}},
      {"aten.lt", {"<", Binds::compare, false}},
      {"aten.le", {"<=", Binds::compare, false}},
      {"aten.gt", {">", Binds::compare, false}},
      {"aten.ge", {">=", Binds::compare, false}},
      {"aten.bitwise_and", {"&", Binds::bits, false}},
      {"aten.bitwise_or", {"|", Binds::bits, false}},
      {"aten.logical_and", {"&", Binds::bits, false}},
      {"aten.logical_or", {"|", Binds::bits, false}},
  };
  return all;
}

Binds above(Binds b) { return static_cast<Binds>(static_cast<int>(b) + 1); }

Expr binary(const Node& n, Scope& s) {
  const Attr* alpha =
      n.op->parsed().find_attr("alpha") != nullptr ? n.attrs.find("alpha") : nullptr;
  if (alpha != nullptr || n.attrs.find("rounding_mode") != nullptr) return torch_function(n, s);
  const Sign& sign = signs().at(n.op->name);
  const bool power = n.is("aten.pow");
  const Expr a = operand(n, 0, "self", s);
  const Expr b = operand(n, 1, power ? "exponent" : "other", s);
  return {cat(at_least(a, power ? above(sign.binds) : sign.binds), " ", sign.text, " ",
              at_least(b, above(sign.binds))),
          sign.binds};
}

Expr reversed_sub(const Node& n, Scope& s) {
  const Expr a = operand(n, 1, "other", s);
  return {a.text + " - " + ref(n, 0, s, Binds::product), Binds::sum};
}

Expr negative(const Node& n, Scope& s) { return {"-" + ref(n, 0, s, Binds::sign), Binds::sign}; }
Expr inverted(const Node& n, Scope& s) { return {"~" + ref(n, 0, s, Binds::sign), Binds::sign}; }

Expr where(const Node& n, Scope& s) {
  return {"torch.where(" + ref(n, 0, s) + ", " + operand(n, 1, "self", s).text + ", " +
          operand(n, 2, "other", s).text + ")"};
}

Expr masked_fill(const Node& n, Scope& s) {
  return {ref(n, 0, s, Binds::whole) + ".masked_fill(" + ref(n, 1, s) + ", " +
          operand(n, 2, "value", s).text + ")"};
}

Expr clamp(const Node& n, Scope& s) {
  std::vector<std::string> args;
  const char* names[] = {"min", "max"};
  for (int i = 0; i < 2; ++i)
    if (n.in(i + 1) != nullptr || n.args().has_attr(names[i]))
      args.push_back(cat(names[i], "=", operand(n, i + 1, names[i], s).text));
  return {ref(n, 0, s, Binds::whole) + ".clamp(" + joined(args) + ")"};
}

Expr embedding(const Node& n, Scope& s) {
  return {"F.embedding(" + ref(n, 1, s) + ", " + ref(n, 0, s) + ")"};
}

Expr nothing(const Node&, Scope&) { return {"None"}; }

// Ours, by the schema's names; the tables and lengths as host lists where the function loops.
Expr helper(const Node& n, Scope& s) {
  s.helpers.insert(short_name(n));
  std::vector<std::string> args;
  const Schema& schema = n.op->parsed();
  bool skipped = false;
  for (std::size_t i = 0; i < schema.tensors.size(); ++i) {
    const Value* v = n.in(static_cast<int>(i));
    const std::string& name = schema.tensors[i].name;
    if (v == nullptr) {
      skipped = true;
      continue;
    }
    const std::string text = name == "query_lens" || name == "kv_lens" || name == "group_list"
                                 ? s.host_list(*v)
                                 : s.value(*v).text;
    args.push_back(skipped ? name + "=" + text : text);
  }
  keywords(n, s, &args);
  return {short_name(n) + "(" + joined(args) + ")"};
}

Expr npu(const Node& n, Scope& s);

const std::map<std::string_view, Write>& table() {
  static const std::map<std::string_view, Write> all = [] {
    std::map<std::string_view, Write> t = {
        {"aten.reshape", reshape},      {"aten.view", reshape},
        {"aten._unsafe_view", reshape}, {"aten.flatten", reshape},
        {"aten.unsqueeze", reshape},    {"aten.squeeze", reshape},
        {"aten.permute", permute},      {"aten.slice", slice},
        {"aten.select", select},        {"aten.to", to_dtype},
        {"aten._to_copy", to_dtype},    {"aten.expand", expand},
        {"aten.index", index},          {"aten.index_select", index_select},
        {"aten.gather", gather},        {"aten.scatter", scatter},
        {"aten.index_put", index_put},  {"aten.cat", join},
        {"aten.stack", join},           {"aten.split", split},
        {"aten.rsub", reversed_sub},    {"aten.neg", negative},
        {"aten.bitwise_not", inverted}, {"aten.logical_not", inverted},
        {"aten.where", where},          {"aten.masked_fill", masked_fill},
        {"aten.clamp", clamp},          {"aten.clamp_min", clamp},
        {"aten.clamp_max", clamp},      {"aten.embedding", embedding},
        {"emit.none", nothing},
    };
    for (const auto& [name, sign] : signs()) t[name] = binary;
    for (const char* name :
         {"aten.transpose",   "aten.t",       "aten.contiguous", "aten.clone",
          "aten.sin",         "aten.cos",     "aten.exp",        "aten.log",
          "aten.sqrt",        "aten.rsqrt",   "aten.abs",        "aten.sigmoid",
          "aten.tanh",        "aten.square",  "aten.floor",      "aten.reciprocal",
          "aten.softmax",     "aten.sum",     "aten.mean",       "aten.amax",
          "aten.amin",        "aten.max",     "aten.min",        "aten.any",
          "aten.all",         "aten.cumsum",  "aten.argmax",     "aten.topk",
          "aten.sort",        "aten.argsort", "aten.histc",      "aten.bincount",
          "aten.triu",        "aten.tril",    "aten.repeat",     "aten.repeat_interleave",
          "aten.unbind",      "aten.chunk",   "aten.narrow",     "aten.index_add",
          "aten.scatter_add", "aten.flip",    "aten.new_zeros",  "aten.new_full"})
      t[name] = method;
    for (const char* name : {"aten.arange", "aten.full", "aten.zeros", "aten.ones", "aten.empty",
                             "aten.scalar_tensor", "aten.eye", "aten.linspace"})
      t[name] = creation;
    for (const char* name : {"aten.linear", "aten.silu", "aten.gelu", "aten.relu", "aten.softplus",
                             "aten.layer_norm", "aten.one_hot", "aten.pad", "aten.glu",
                             "aten.leaky_relu", "aten.hardswish", "aten.hardsigmoid"})
      t[name] = nn_function;
    return t;
  }();
  return all;
}

// ---- torch_npu

std::string_view first_signature(const Node& n) {
  if (n.op->npu == nullptr) return {};
  return n.op->npu->signature.substr(0, n.op->npu->signature.find('\n'));
}

// The operator takes this tensor only as it lies row by row: one of its limits says so.
bool wants_contiguous(const OpDef& op, std::string_view arg) {
  const std::string what = std::string(arg) + ".contiguous";
  return op.npu != nullptr &&
         std::any_of(op.npu->limits.begin(), op.npu->limits.end(),
                     [&](const Limit& l) { return l.expr.find(what) != std::string_view::npos; });
}

Expr npu(const Node& n, Scope& s) {
  s.uses_npu = true;
  const Schema& schema = n.op->parsed();
  const std::string_view signature = first_signature(n);
  std::vector<std::string> args;
  bool by_name = false;  // what comes after an argument that was left out
  const auto add = [&](const std::string& name, const std::string& text, bool positional) {
    args.push_back(positional && !by_name ? text : name + "=" + text);
  };
  if (signature.empty()) {
    for (std::size_t i = 0; i < schema.tensors.size(); ++i)
      if (const Value* v = n.in(static_cast<int>(i)))
        add(schema.tensors[i].name, s.value(*v).text, true);
      else
        by_name = true;
    keywords(n, s, &args);
    return {"torch_npu." + short_name(n) + "(" + joined(args) + ")"};
  }
  for (const LibraryArg& arg : library_args(signature)) {
    const int i = schema.tensor_index(arg.name);
    const bool positional = arg.required && !arg.keyword;
    if (i >= 0 && n.in(i) != nullptr) {
      const Value& v = *n.in(i);
      const bool tensor = arg.kind.starts_with("Tensor");
      std::string text = tensor ? s.value(v).text : s.host_list(v);
      if (tensor && wants_contiguous(*n.op, arg.name) && !s.contiguous(v)) text += ".contiguous()";
      if (tensor && arg.kind.find("[]") != std::string::npos) text = "[" + text + "]";
      add(arg.name, text, positional);
    } else if (const Schema::Arg* a = schema.find_attr(arg.name); a != nullptr && i < 0) {
      if (n.attrs.find(arg.name) != nullptr || (s.always(n, arg.name) && a->has_default) ||
          positional) {
        add(arg.name, attribute(n, *a, s), false);
        by_name = true;
      }
    } else if (positional) {
      add(arg.name, "None", true);
    }
  }
  const std::string call = "torch_npu." + short_name(n) + "(" + joined(args) + ")";
  return {signature.ends_with("-> Tensor[]") ? call + "[0]" : call};
}

}  // namespace

Expr express(const Node& n, Scope& scope) {
  const auto it = table().find(n.op->name);
  if (it != table().end()) return it->second(n, scope);
  if (n.op->name.starts_with("npu.")) return npu(n, scope);
  if (n.op->name.starts_with("tk.") && !n.is("tk.opaque") && !n.is("tk.attention"))
    return helper(n, scope);
  if (n.op->name.starts_with("aten.")) return torch_function(n, scope);
  throw UserError("TK1202", cat(n.op->name, " has no form in Python"))
      .in_module(n.loc == nullptr ? "" : n.loc->module);
}

int n_results(const Node& n) {
  const std::string_view signature = first_signature(n);
  if (signature.empty()) return static_cast<int>(n.outputs.size());
  const std::string_view results = signature.substr(signature.find(") ->"));
  int count = 0;
  for (std::size_t at = results.find("Tensor"); at != std::string_view::npos;
       at = results.find("Tensor", at + 1))
    ++count;
  return count;
}

bool is_plain_view(const Node& n) {
  static const std::set<std::string_view> names = {
      "aten.reshape",      "aten.view",    "aten.permute", "aten.transpose",
      "aten.unsqueeze",    "aten.squeeze", "aten.slice",   "aten.select",
      "aten._unsafe_view", "aten.expand",  "aten.flatten", "aten.t"};
  return names.count(n.op->name) != 0;
}

bool is_light(const Node& n) {
  static const std::set<std::string_view> names = {
      "aten.to",   "aten.neg",   "aten.cos",  "aten.sin",   "aten.sigmoid",
      "aten.rsub", "aten.rsqrt", "aten.silu", "aten.clamp", "aten.index_select"};
  return is_plain_view(n) || signs().count(n.op->name) != 0 || names.count(n.op->name) != 0;
}

}  // namespace tk::emit
