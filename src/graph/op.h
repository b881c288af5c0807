// What an operator is: everything about it in one OpDef. The definitions are in src/ops; the
// list of all of them is ops.def there.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/type.h"

namespace tk {

struct OpDef;
struct Value;

// A parsed schema, e.g. "(Tensor self, Tensor? bias=None, int dim=-1) -> Tensor".
// Tensor arguments come first and are the inputs; the others are attributes. Kinds: Tensor,
// Tensor?, Tensor[] and Tensor?[] (last tensor argument only), int, int?, int[], int[]?, float,
// float?, bool, str, str?, dtype, dtype?, scalar, scalar? (int, float or bool). A "Tensor?" with
// a scalar of the same meaning, as aten.add's other, is written "Tensor? other, scalar?
// other=None": exactly one of the two is there.
struct Schema {
  struct Arg {
    std::string name, kind;
    bool optional = false;  // "?" on the kind
    bool list = false;      // "[]"
    bool has_default = false;
    Attr value = false;  // the default, when has_default and not None
    bool none_default = false;
  };
  std::vector<Arg> tensors, attrs;
  const Arg* find_attr(std::string_view name) const;
  int tensor_index(std::string_view name) const;  // -1 when none
  bool variadic() const { return !tensors.empty() && tensors.back().list; }
};

// Inputs and attributes of an operator call, for infer and limits.
class Args {
 public:
  Args(const OpDef& op, std::span<Value* const> inputs, const Attrs& attrs)
      : op_(op), inputs_(inputs), attrs_(attrs) {}

  int n_inputs() const { return static_cast<int>(inputs_.size()); }
  bool has(int i) const {
    return i < n_inputs() && inputs_[static_cast<std::size_t>(i)] != nullptr;
  }
  const Type& in(int i) const;  // internal error when absent
  const Value* value(int i) const {
    return has(i) ? inputs_[static_cast<std::size_t>(i)] : nullptr;
  }

  // Attributes by name, with the schema's default. Throws TK0311 when of another kind.
  bool has_attr(std::string_view name) const { return attr(name) != nullptr; }
  const Attr* attr(std::string_view name) const;  // null for None
  Sym sym(std::string_view name) const;
  std::int64_t i64(std::string_view name) const;
  double f64(std::string_view name) const;  // an int counts too
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  SymDims syms(std::string_view name) const;  // one int counts as a list of one
  std::vector<std::int64_t> ints(std::string_view name) const;

  // TK0312: the operator's own demand is not met. `expected` reads "needs gamma of shape ...".
  [[noreturn]] void fail(const std::string& expected) const;
  const OpDef& op() const { return op_; }
  const Attrs& attrs() const { return attrs_; }
  std::span<Value* const> inputs() const { return inputs_; }

 private:
  const OpDef& op_;
  std::span<Value* const> inputs_;
  const Attrs& attrs_;
};

// Concrete tensors for eval and view. Inputs that are absent have data == nullptr and rank 0.
class EvalArgs {
 public:
  EvalArgs(const OpDef& op, std::span<const TensorView> inputs, std::span<const TensorView> outputs,
           const Attrs& attrs, const SymEnv& env)
      : op_(op), inputs_(inputs), outputs_(outputs), attrs_(attrs), env_(env) {}

  int n_inputs() const { return static_cast<int>(inputs_.size()); }
  int n_outputs() const { return static_cast<int>(outputs_.size()); }
  bool has(int i) const {
    return i < n_inputs() && inputs_[static_cast<std::size_t>(i)].data != nullptr;
  }
  const TensorView& in(int i) const { return inputs_[static_cast<std::size_t>(i)]; }
  const TensorView& out(int i = 0) const { return outputs_[static_cast<std::size_t>(i)]; }

  const Attr* attr(std::string_view name) const;
  bool has_attr(std::string_view name) const { return attr(name) != nullptr; }
  std::int64_t i64(std::string_view name) const;
  double f64(std::string_view name) const;
  bool flag(std::string_view name) const;
  const std::string& text(std::string_view name) const;
  DType dtype(std::string_view name) const;
  Dims ints(std::string_view name) const;
  const SymEnv& env() const { return env_; }
  const OpDef& op() const { return op_; }

 private:
  const OpDef& op_;
  std::span<const TensorView> inputs_, outputs_;
  const Attrs& attrs_;
  const SymEnv& env_;
};

// A hard constraint of a torch_npu operator. `violated` returns the reason with the values found,
// or "" when it holds.
struct Limit {
  std::string_view id;      // check id of the operator table, e.g. "rms_norm.dtype"
  std::string_view text;    // the constraint in words
  std::string_view source;  // where it stands
  std::string (*violated)(const Args& args);
};

struct OpDef {
  std::string_view name;  // "aten.linear", "npu.npu_rms_norm", "tk.paged_attention"
  std::string_view schema;
  std::string_view doc;
  // Result types from input types and attributes; throws through Args::fail.
  std::vector<Type> (*infer)(const Args& args);
  // The reference: fills the outputs, which have the inferred types and are contiguous, from
  // inputs of any strides. Throws UserError for values that cannot be (an index out of range).
  void (*eval)(const EvalArgs& args) = nullptr;
  // For operators whose results may alias input 0: computes each output's view, without touching
  // data; false when a copy is needed (then eval runs).
  bool (*view)(const EvalArgs& args, std::span<TensorView> outputs) = nullptr;
  // Output i is input 0 changed in place (cache writes): the same storage. -1: none.
  int updates_input = -1;
  std::span<const Limit> limits = {};

  const Schema& parsed() const;  // cached
};

// All operators, by name. Defined in src/ops (ops.def).
const OpDef* find_op(std::string_view name);
std::span<const OpDef* const> all_ops();  // sorted by name

Schema parse_schema(std::string_view text);  // internal error when malformed

}  // namespace tk
