#include "ops/npu/stated_call.h"

#include <algorithm>
#include <array>
#include <memory>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

constexpr std::string_view general[] = {"graph", "phase", "world", "weight_nz"};

std::pair<std::string, std::string> halves(const std::string& text, std::string_view flag) {
  const std::size_t at = text.find('=');
  if (at == std::string::npos || at == 0 || at + 1 == text.size())
    throw UserError("TK0323", cat("--", flag, " ", text, " is not NAME=VALUE"))
        .help(cat("write for instance --", flag,
                  flag == "shape"   ? " x=[4, 7168]"
                  : flag == "dtype" ? " x=bf16"
                                    : " k=8"));
  return {text.substr(0, at), text.substr(at + 1)};
}

DType dtype_of(std::string_view text) {
  if (text.starts_with("torch.")) text.remove_prefix(6);
  static constexpr std::array<std::pair<std::string_view, DType>, 13> others = {
      {{"fp32", DType::f32},
       {"float32", DType::f32},
       {"fp16", DType::f16},
       {"float16", DType::f16},
       {"bfloat16", DType::bf16},
       {"fp64", DType::f64},
       {"float64", DType::f64},
       {"int8", DType::i8},
       {"int16", DType::i16},
       {"int32", DType::i32},
       {"int64", DType::i64},
       {"uint8", DType::u8},
       {"boolean", DType::boolean}}};
  DType dtype{};
  if (parse_dtype(text, &dtype)) return dtype;
  for (const auto& [name, d] : others)
    if (name == text) return d;
  throw UserError("TK0323", cat("'", text, "' is no dtype"))
      .help("dtypes are bf16, fp16, fp32, int8, int32, int64, uint8, bool");
}

[[noreturn]] void no_such(const OpDef& op, std::string_view what, const std::string& name,
                          const std::vector<std::string>& names) {
  std::string list;
  for (const std::string& n : names) list += cat(list.empty() ? "" : ", ", n);
  UserError e("TK0322", cat(op.name.substr(4), " has no ", what, " '", name, "'"));
  if (const std::string near = nearest(name, names); !near.empty())
    throw std::move(e).help(cat("did you mean '", near, "'? It has ", list));
  throw std::move(e).help(list.empty() ? cat("it has none") : cat("it has ", list));
}

// The call as graph values, and what is not known of it.
class Call {
 public:
  Call(const OpDef& op, const StatedCall& stated) : op_(op) {
    take_dtypes(stated);
    take_shapes(stated);
    take_attrs(stated);
    take_symbols(stated);
    for (const Schema::Arg& a : op.parsed().tensors)
      if (!a.optional && input(a.name) == nullptr) unknown_.push_back(a.name);
    for (const Schema::Arg& a : op.parsed().attrs)
      if (!a.has_default && !a.none_default && attrs_.find(a.name) == nullptr)
        unknown_.push_back(a.name);
  }

  LimitScope scope(std::string_view soc) const {
    LimitScope s{args(), soc, {}, facts_, {}};
    s.unknown.insert(unknown_.begin(), unknown_.end());
    return s;
  }
  const std::vector<std::string>& unknown() const { return unknown_; }
  const Args& args() const {
    if (!args_) args_ = std::make_unique<Args>(op_, inputs_, attrs_);
    return *args_;
  }

 private:
  std::size_t tensor(const std::string& name) {
    const Schema& schema = op_.parsed();
    int i = schema.tensor_index(name);
    if (i < 0 && (name == "x" || name == "self") && !schema.tensors.empty()) i = 0;
    if (i >= 0) return static_cast<std::size_t>(i);
    std::vector<std::string> names;
    for (const Schema::Arg& a : schema.tensors) names.push_back(a.name);
    no_such(op_, "tensor", name, names);
  }

  const Value* input(const std::string& name) const {
    const int i = op_.parsed().tensor_index(name);
    return i < 0 ? nullptr : inputs_[static_cast<std::size_t>(i)];
  }

  void take_dtypes(const StatedCall& stated) {
    dtypes_.resize(op_.parsed().tensors.size());
    inputs_.resize(dtypes_.size());
    for (const std::string& text : stated.dtypes) {
      if (text.find('=') == std::string::npos) {
        every_ = dtype_of(text);
        continue;
      }
      const auto [name, value] = halves(text, "dtype");
      const std::size_t i = tensor(name);
      dtypes_[i] = dtype_of(value);
      facts_[op_.parsed().tensors[i].name + ".dtype"] = *dtypes_[i];
    }
  }

  void take_shapes(const StatedCall& stated) {
    for (const std::string& text : stated.shapes) {
      const auto [name, value] = halves(text, "shape");
      const std::size_t i = tensor(name);
      const std::optional<DType> dtype = dtypes_[i] ? dtypes_[i] : every_;
      if (!dtype)
        throw UserError("TK0323", cat("the dtype of '", name, "' is not stated"))
            .help(cat("add --dtype ", name, "=bf16, or --dtype bf16 for all tensors"));
      if (inputs_[i] != nullptr)
        throw UserError("TK0323", cat("--shape ", text, ": the shape of '",
                                      op_.parsed().tensors[i].name, "' is stated twice"));
      const SymDims sizes = sizes_of(text, value);
      const SymDims* dims = &sizes;
      for (const Sym& d : *dims)
        if (d.is_const() && d.value() < 0)
          throw UserError("TK0323", cat("--shape ", text, " has a size below 0"));
      facts_.erase(op_.parsed().tensors[i].name + ".dtype");  // the type has it
      values_.push_back(std::make_unique<Value>());
      values_.back()->type = {*dtype, *dims};
      inputs_[i] = values_.back().get();
    }
  }

  // "[4, 7168]", or "(4, 7168)" as Python prints it.
  static SymDims sizes_of(const std::string& text, std::string value) {
    if (value.front() == '(' && value.back() == ')') {
      if (value[value.size() - 2] == ',') value.erase(value.size() - 2, 1);
      value.front() = '[';
      value.back() = ']';
    }
    if (value.front() == '[') {
      const Attr shape = parse_attr(value);
      if (const auto* dims = std::get_if<SymDims>(&shape)) return *dims;
    }
    throw UserError("TK0323", cat("--shape ", text, " is no list of sizes"))
        .help("write for instance --shape x=[4, 7168] or x=[T, 7168]");
  }

  void take_attrs(const StatedCall& stated) {
    for (const std::string& text : stated.attrs) {
      const auto [name, value] = halves(text, "attr");
      const Schema::Arg* arg = op_.parsed().find_attr(name);
      if (arg == nullptr) {
        std::vector<std::string> names;
        for (const Schema::Arg& a : op_.parsed().attrs) names.push_back(a.name);
        no_such(op_, "attribute", name, names);
      }
      attrs_.set(name, attr(*arg, text, value));
    }
  }

  Attr attr(const Schema::Arg& arg, const std::string& text, const std::string& value) const {
    const std::string_view kind =
        std::string_view(arg.kind).substr(0, arg.kind.find_first_of("?["));
    const bool in_quotes = value.size() >= 2 && value.front() == '"' && value.back() == '"';
    if (kind == "str") return in_quotes ? value.substr(1, value.size() - 2) : value;
    if (kind == "dtype") return dtype_of(value);
    Attr a = parse_attr(value == "True" ? "true" : value == "False" ? "false" : value);
    const bool fits =
        arg.list
            ? std::holds_alternative<SymDims>(a) || std::holds_alternative<std::vector<double>>(a)
        : kind == "bool"  ? std::holds_alternative<bool>(a)
        : kind == "float" ? std::holds_alternative<double>(a) ||
                                (std::holds_alternative<Sym>(a) && std::get<Sym>(a).is_const())
        : kind == "int" ? std::holds_alternative<Sym>(a)
                        : true;
    if (!fits)
      throw UserError("TK0323", cat("--attr ", text, ": ", arg.name, " is of kind ", arg.kind));
    return a;
  }

  void take_symbols(const StatedCall& stated) {
    std::vector<std::string> names;
    for (const Symbol& s : op_.npu->symbols) names.emplace_back(s.name);
    for (const std::string_view name : general) names.emplace_back(name);
    for (const std::string& text : stated.symbols) {
      const auto [name, value] = halves(text, "sym");
      if (std::find(names.begin(), names.end(), name) == names.end())
        no_such(op_, "symbol", name, names);
      const bool word = std::isalpha(static_cast<unsigned char>(value.front())) != 0 &&
                        value != "true" && value != "false";
      facts_[name] = word ? Attr(value) : parse_attr(value);
    }
  }

  const OpDef& op_;
  std::vector<std::optional<DType>> dtypes_;
  std::optional<DType> every_;
  std::vector<std::unique_ptr<Value>> values_;
  std::vector<Value*> inputs_;
  Attrs attrs_;
  std::map<std::string, Attr, std::less<>> facts_;
  std::vector<std::string> unknown_;
  mutable std::unique_ptr<Args> args_;
};

// Why the facts alone don't settle it for a device; empty when they do. `no`: it is not there.
std::string standing(const OpDef& op, std::string_view soc, bool* no) {
  const std::string_view name = op.name.substr(4);
  if (soc.empty()) return "no device is named (--target a2 or a3)";
  const std::string_view has = soc == "a2" ? op.npu->a2 : op.npu->a3;
  *no = has == "no";
  if (*no) return cat(name, " is not there on ", soc);
  if (!op.npu->documented()) return cat(name, " has no document (", op.npu->source, ")");
  if (!has.starts_with("yes")) return cat("the document of ", name, " does not name ", soc);
  return "";
}

}  // namespace

CheckedCall check_stated(const OpDef& op, const StatedCall& stated, std::string_view soc) {
  TK_CHECK(op.npu != nullptr, op.name, " has no facts");
  const Call call(op, stated);
  const LimitScope scope = call.scope(soc);
  CheckedCall found;
  found.unknown = call.unknown();
  std::string failed;
  for (LimitResult& r : check_limits(scope)) {
    CheckedCall::Row row{std::move(r), {}};
    if (row.result.state == LimitState::violated) {
      row.change = smallest_change(scope, *row.result.limit);
      failed += cat(failed.empty() ? "" : ", ", row.result.limit->id);
    }
    found.rows.push_back(std::move(row));
  }
  if (found.unknown.empty()) try {
      op.infer(call.args());
    } catch (const UserError& e) {
      found.refused = e.message();
    }
  bool no = false;
  found.why = standing(op, soc, &no);
  if (!failed.empty() || !found.refused.empty() || no) {
    found.legal = Legal::no;
    found.why = no ? found.why : !failed.empty() ? cat("fails ", failed) : found.refused;
  } else if (!found.why.empty()) {
    found.legal = Legal::pending;
  }
  return found;
}

}  // namespace tk
