#include "graph/op.h"

#include <map>
#include <mutex>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

std::string_view trim(std::string_view s) {
  while (!s.empty() && s.front() == ' ') s.remove_prefix(1);
  while (!s.empty() && s.back() == ' ') s.remove_suffix(1);
  return s;
}

Schema::Arg parse_arg(std::string_view text, std::string_view schema) {
  Schema::Arg arg;
  const std::size_t eq = text.find('=');
  std::string_view head = trim(text.substr(0, eq));
  const std::size_t space = head.rfind(' ');
  TK_CHECK(space != std::string_view::npos, "schema argument '", text, "' of ", schema);
  std::string_view kind = trim(head.substr(0, space));
  arg.name = head.substr(space + 1);
  if (kind.ends_with("?")) {
    arg.optional = true;
    kind.remove_suffix(1);
  }
  if (kind.ends_with("[]")) {
    arg.list = true;
    kind.remove_suffix(2);
    if (kind.ends_with("?")) kind.remove_suffix(1);  // Tensor?[]
  }
  arg.kind = kind;
  if (eq != std::string_view::npos) {
    arg.has_default = true;
    const std::string_view value = trim(text.substr(eq + 1));
    if (value == "None") {
      arg.none_default = true;
    } else if (value == "True" || value == "False") {  // as torch's schemas spell them
      arg.value = value == "True";
    } else {
      arg.value = parse_attr(value);
    }
  }
  return arg;
}

}  // namespace

Schema parse_schema(std::string_view text) {
  Schema schema;
  const std::size_t open = text.find('(');
  const std::size_t close = text.rfind(") ->");
  TK_CHECK(open != std::string_view::npos && close != std::string_view::npos, "schema ", text);
  std::string_view rest = text.substr(open + 1, close - open - 1);
  int depth = 0;
  std::size_t start = 0;
  for (std::size_t i = 0; i <= rest.size(); ++i) {
    if (i < rest.size() && rest[i] == '[') ++depth;
    if (i < rest.size() && rest[i] == ']') --depth;
    if (i != rest.size() && (rest[i] != ',' || depth != 0)) continue;
    const std::string_view item = trim(rest.substr(start, i - start));
    start = i + 1;
    if (item.empty() || item == "*") continue;
    Schema::Arg arg = parse_arg(item, text);
    (arg.kind == "Tensor" ? schema.tensors : schema.attrs).push_back(std::move(arg));
  }
  return schema;
}

const Schema::Arg* Schema::find_attr(std::string_view name) const {
  for (const Arg& a : attrs)
    if (a.name == name) return &a;
  return nullptr;
}

int Schema::tensor_index(std::string_view name) const {
  for (std::size_t i = 0; i < tensors.size(); ++i)
    if (tensors[i].name == name) return static_cast<int>(i);
  return -1;
}

const Schema& OpDef::parsed() const {
  static std::mutex mutex;
  static std::map<const OpDef*, Schema> cache;
  const std::lock_guard lock(mutex);
  auto it = cache.find(this);
  if (it == cache.end()) it = cache.emplace(this, parse_schema(schema)).first;
  return it->second;
}

namespace {

// The attribute, the schema's default, or null for None.
const Attr* find_attr(const OpDef& op, const Attrs& attrs, std::string_view name) {
  if (const Attr* a = attrs.find(name)) return a;
  const Schema::Arg* arg = op.parsed().find_attr(name);
  TK_CHECK(arg != nullptr, op.name, " has no attribute '", name, "'");
  if (arg->has_default && !arg->none_default) return &arg->value;
  return nullptr;
}

[[noreturn]] void wrong_kind(const OpDef& op, std::string_view name, const Attr* attr,
                             std::string_view expected) {
  throw UserError("TK0311", cat(op.name, " needs ", expected, " for '", name, "', got ",
                                attr == nullptr ? "none" : str(*attr)));
}

double number(const OpDef& op, std::string_view name, const Attr* a, const SymEnv& env) {
  if (a != nullptr) {
    if (const auto* d = std::get_if<double>(a)) return *d;
    if (const auto* s = std::get_if<Sym>(a)) return static_cast<double>(s->eval(env));
    if (const auto* b = std::get_if<bool>(a)) return *b ? 1 : 0;
  }
  wrong_kind(op, name, a, "a number");
}

template <typename T>
const T& get(const OpDef& op, std::string_view name, const Attr* a, std::string_view expected) {
  if (a != nullptr)
    if (const T* v = std::get_if<T>(a)) return *v;
  wrong_kind(op, name, a, expected);
}

}  // namespace

const Type& Args::in(int i) const {
  TK_CHECK(has(i), op_.name, " input ", i);
  return inputs_[static_cast<std::size_t>(i)]->type;
}

const Attr* Args::attr(std::string_view name) const { return find_attr(op_, attrs_, name); }
Sym Args::sym(std::string_view name) const { return get<Sym>(op_, name, attr(name), "an int"); }
std::int64_t Args::i64(std::string_view name) const {
  const Sym& s = get<Sym>(op_, name, attr(name), "an int");
  if (!s.is_const()) wrong_kind(op_, name, attr(name), "a constant int");
  return s.value();
}
double Args::f64(std::string_view name) const { return number(op_, name, attr(name), {}); }
bool Args::flag(std::string_view name) const { return get<bool>(op_, name, attr(name), "a bool"); }
const std::string& Args::text(std::string_view name) const {
  return get<std::string>(op_, name, attr(name), "a string");
}
DType Args::dtype(std::string_view name) const {
  return get<DType>(op_, name, attr(name), "a dtype");
}
SymDims Args::syms(std::string_view name) const {
  const Attr* a = attr(name);
  if (a != nullptr)
    if (const Sym* s = std::get_if<Sym>(a)) return {*s};
  return get<SymDims>(op_, name, a, "a list of ints");
}
std::vector<std::int64_t> Args::ints(std::string_view name) const {
  std::vector<std::int64_t> out;
  for (const Sym& s : syms(name)) {
    if (!s.is_const()) wrong_kind(op_, name, attr(name), "a list of constant ints");
    out.push_back(s.value());
  }
  return out;
}

void Args::fail(const std::string& expected) const {
  std::string call = cat(op_.name, "(");
  for (int i = 0; i < n_inputs(); ++i)
    call += cat(i != 0 ? ", " : "", has(i) ? in(i).str() : std::string("none"));
  call += ")";
  if (!attrs_.empty()) {
    call += " {";
    bool first = true;
    for (const auto& [key, value] : attrs_) {
      call += cat(first ? "" : ", ", key, "=", str(value));
      first = false;
    }
    call += "}";
  }
  throw UserError("TK0312", cat(op_.name, " ", expected)).note(cat("in ", call));
}

const Attr* EvalArgs::attr(std::string_view name) const { return find_attr(op_, attrs_, name); }
std::int64_t EvalArgs::i64(std::string_view name) const {
  return get<Sym>(op_, name, attr(name), "an int").eval(env_);
}
double EvalArgs::f64(std::string_view name) const { return number(op_, name, attr(name), env_); }
bool EvalArgs::flag(std::string_view name) const {
  return get<bool>(op_, name, attr(name), "a bool");
}
const std::string& EvalArgs::text(std::string_view name) const {
  return get<std::string>(op_, name, attr(name), "a string");
}
DType EvalArgs::dtype(std::string_view name) const {
  return get<DType>(op_, name, attr(name), "a dtype");
}
Dims EvalArgs::ints(std::string_view name) const {
  const Attr* a = attr(name);
  if (a != nullptr)
    if (const Sym* s = std::get_if<Sym>(a)) return {s->eval(env_)};
  return concrete(get<SymDims>(op_, name, a, "a list of ints"), env_);
}

}  // namespace tk
