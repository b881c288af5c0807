#include "capi/tokamak_npu.h"

#include <functional>
#include <memory>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "graph/graph.h"
#include "graph/limits.h"

namespace {

using json = nlohmann::ordered_json;
using tk::cat;
using tk::UserError;

thread_local std::string text;

// Runs `body`, whose result becomes the text; nothing is thrown across the C interface.
int guarded(const std::function<std::string()>& body) {
  try {
    text = body();
    return 0;
  } catch (const UserError& e) {
    text = e.what();
    return 1;
  } catch (const std::exception& e) {
    text = e.what();
    return 2;
  }
}

const tk::OpDef& op_of(const tk_npu_call& call) {
  const tk::OpDef* op = tk::find_op(cat("npu.", call.op));
  TK_CHECK(op != nullptr, "no operator ", call.op);
  return *op;
}

tk::Attrs attrs_of(const tk_npu_attr* attrs, int n) {
  tk::Attrs out;
  for (int i = 0; i < n; ++i) out.set(attrs[i].name, tk::parse_attr(attrs[i].value));
  return out;
}

tk::Type type_of(const tk_npu_tensor& t) {
  tk::Type type;
  TK_CHECK(tk::parse_dtype(t.dtype, &type.dtype), "dtype ", t.dtype);
  type.shape = std::get<tk::SymDims>(tk::parse_attr(t.shape));
  return type;
}

// Without a data pointer when contents are not known. A tensor of no elements has contents, though
// libraries give it no address.
tk::TensorView view_of(const tk_npu_tensor& t, const tk::Type& type, bool contents) {
  static std::int64_t nothing;
  tk::TensorView view;
  if (t.dtype == nullptr) return view;
  for (const tk::Sym& d : type.shape)
    if (!d.is_const()) return view;
  if (type.rank() > tk::max_rank)
    throw UserError("TK0312", cat("a tensor of ", type.rank(), " axes: ", type.str()))
        .help(cat("tensors have at most ", tk::max_rank, " axes here"));
  view.dtype = type.dtype;
  view.shape = tk::concrete(type.shape, {});
  view.strides = tk::contiguous_strides(view.shape);
  if (t.strides != nullptr && view.numel() > 0)
    for (int i = 0; i < view.rank(); ++i) view.strides[i] = t.strides[i];
  view.data = t.data;
  if (contents && view.numel() == 0) view.data = &nothing;
  return view;
}

struct Call {
  explicit Call(const tk_npu_call& call)
      : op(op_of(call)), attrs(attrs_of(call.attrs, call.n_attrs)) {
    const tk::Schema& schema = op.parsed();
    TK_CHECK(schema.variadic() || call.n_inputs == static_cast<int>(schema.tensors.size()), op.name,
             " has ", schema.tensors.size(), " tensors, got ", call.n_inputs);
    for (const auto& [name, value] : attrs)
      TK_CHECK(schema.find_attr(name) != nullptr, op.name, " has no attribute ", name);
    for (int i = 0; i < call.n_inputs; ++i) {
      const tk_npu_tensor& t = call.inputs[i];
      types.push_back(t.dtype == nullptr ? tk::Type() : type_of(t));
      if (t.dtype == nullptr && !schema.variadic() &&
          !schema.tensors[static_cast<std::size_t>(i)].optional)
        throw UserError("TK0312", cat(op.name, " needs a tensor for '",
                                      schema.tensors[static_cast<std::size_t>(i)].name, "'"));
      values.push_back(t.dtype == nullptr ? nullptr : std::make_unique<tk::Value>());
      if (values.back() != nullptr) values.back()->type = types.back();
      inputs.push_back(values.back().get());
    }
  }
  tk::Args args() const { return {op, inputs, attrs}; }

  const tk::OpDef& op;
  tk::Attrs attrs;
  std::vector<tk::Type> types;
  std::vector<std::unique_ptr<tk::Value>> values;
  std::vector<tk::Value*> inputs;
};

json describe(const tk::OpDef& op) {
  json j{{"name", op.name.substr(4)}, {"schema", op.schema}, {"doc", op.doc}};
  const tk::Schema& schema = op.parsed();
  j["tensors"] = json::array();
  for (const auto& t : schema.tensors)
    j["tensors"].push_back({{"name", t.name}, {"optional", t.optional}, {"list", t.list}});
  j["attrs"] = json::array();
  for (const auto& a : schema.attrs)
    j["attrs"].push_back({{"name", a.name}, {"kind", a.kind}, {"list", a.list}});
  j["updates"] = std::vector<int>(op.updates.begin(), op.updates.end());
  if (op.npu == nullptr) return j;
  const tk::NpuFacts& facts = *op.npu;
  j["facts"] = {{"group", facts.group},
                {"signature", facts.signature},
                {"source", facts.source},
                {"documented", facts.documented()},
                {"a2", facts.a2},
                {"a3", facts.a3},
                {"graph_mode", facts.graph_mode}};
  json& symbols = j["facts"]["symbols"] = json::array();
  for (const tk::Symbol& y : facts.symbols) symbols.push_back({{"name", y.name}, {"expr", y.expr}});
  json& limits = j["facts"]["limits"] = json::array();
  for (const tk::Limit& l : facts.limits)
    limits.push_back({{"id", l.id}, {"expr", l.expr}, {"soc", l.soc}});
  return j;
}

std::string operators() {
  json all = json::array();
  for (const tk::OpDef* op : tk::all_ops())
    if (op->name.starts_with("npu.")) all.push_back(describe(*op));
  return all.dump();
}

std::string infer(const tk_npu_call& c) {
  const Call call(c);
  json types = json::array();
  for (const tk::Type& type : call.op.infer(call.args())) {
    json shape = json::array();
    for (const tk::Sym& d : type.shape) shape.push_back(d.str());
    types.push_back({tk::name_of(type.dtype), shape});
  }
  return types.dump();
}

std::string check(const tk_npu_call& c, const char* soc, const tk_npu_attr* facts, int n_facts) {
  const Call call(c);
  json violated = json::array();
  if (call.op.npu == nullptr) return violated.dump();
  std::vector<tk::TensorView> values;
  for (std::size_t i = 0; i < call.types.size(); ++i) {
    const tk_npu_tensor& t = c.inputs[i];
    const bool known = t.data != nullptr || t.strides != nullptr;  // no elements, no address
    // A tensor of too many axes has a limit that says so; its contents are not looked at.
    values.push_back(call.types[i].rank() > tk::max_rank ? tk::TensorView()
                                                         : view_of(t, call.types[i], known));
  }
  tk::LimitScope scope{call.args(), soc, values, {}};
  for (int i = 0; i < n_facts; ++i) scope.facts[facts[i].name] = tk::parse_attr(facts[i].value);
  for (const tk::LimitResult& r : tk::check_limits(scope)) {
    if (r.state != tk::LimitState::violated) continue;
    json v{
        {"id", r.limit->id}, {"expr", r.limit->expr}, {"why", r.limit->why}, {"values", r.values}};
    if (const auto change = tk::smallest_change(scope, *r.limit))
      v["change"] = {{"name", change->name}, {"from", change->from}, {"to", change->to}};
    violated.push_back(std::move(v));
  }
  return violated.dump();
}

std::string run(const tk_npu_call& c, const tk_npu_tensor* outputs, int n_outputs) {
  const Call call(c);
  const tk::OpDef& op = call.op;
  TK_CHECK(op.eval != nullptr, op.name, " has no reference");
  std::vector<tk::TensorView> in;
  for (std::size_t i = 0; i < call.types.size(); ++i) {
    in.push_back(view_of(c.inputs[i], call.types[i], true));
    TK_CHECK(call.inputs[i] == nullptr || in.back().data != nullptr, op.name, " input ", i,
             " has no contents");
  }
  const std::vector<tk::Type> types = op.infer(call.args());
  TK_CHECK(n_outputs == static_cast<int>(types.size()), op.name, " has ", types.size(), " outputs");
  std::vector<tk::TensorView> out;
  // References write contiguous outputs; a changed input of other strides is worked on as a copy.
  std::vector<std::pair<tk::TensorView, tk::Tensor>> copies;
  for (std::size_t i = 0; i < types.size(); ++i) {
    const int u = i < op.updates.size() ? op.updates[i] : -1;
    if (u >= 0 && call.inputs[static_cast<std::size_t>(u)] != nullptr) {
      tk::TensorView& changed = in[static_cast<std::size_t>(u)];
      TK_CHECK(tk::Type({changed.dtype, call.types[static_cast<std::size_t>(u)].shape}) == types[i],
               op.name, " changes input ", u, " into ", types[i].str());
      if (!changed.contiguous()) {
        copies.emplace_back(changed, tk::contiguous(changed));
        changed = copies.back().second;
      }
      out.push_back(changed);
      continue;
    }
    TK_CHECK(outputs[i].dtype != nullptr && type_of(outputs[i]) == types[i], op.name, " output ", i,
             " is ", types[i].str());
    out.push_back(view_of(outputs[i], types[i], true));
    TK_CHECK(out.back().data != nullptr && out.back().contiguous(), op.name, " output ", i);
  }
  op.eval(tk::EvalArgs(op, in, out, call.attrs, {}));
  for (const auto& [original, copy] : copies) tk::copy_into(original, copy);
  return "";
}

}  // namespace

const char* tk_npu_text(void) { return text.c_str(); }
int tk_npu_operators(void) { return guarded(operators); }
int tk_npu_infer(const tk_npu_call* call) {
  return guarded([&] { return infer(*call); });
}
int tk_npu_check(const tk_npu_call* call, const char* soc, const tk_npu_attr* facts, int n_facts) {
  return guarded([&] { return check(*call, soc, facts, n_facts); });
}
int tk_npu_run(const tk_npu_call* call, const tk_npu_tensor* outputs, int n_outputs) {
  return guarded([&] { return run(*call, outputs, n_outputs); });
}
