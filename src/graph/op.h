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

// A hard constraint of a torch_npu operator. `expr` is what must hold, in the language of
// graph/limits.h, over the operator's arguments, attributes and symbols.
struct Limit {
  std::string_view id;        // check id of the operator table, e.g. "add_rms_norm.dtype"
  std::string_view expr;      // "x1.dtype == gamma.dtype"
  std::string_view why = "";  // in words, where the expression does not say it
  std::string_view soc = "";  // holds for this one alone: "a2", "a3"; "" for all
};

// A name that limits and readers use: {"He", "token_x.shape[-1]", "hidden size"}.
struct Symbol {
  std::string_view name;
  std::string_view expr;  // over arguments, attributes and the symbols before it
  std::string_view what = "";
};

// What is known of a torch_npu operator beyond what it computes.
struct NpuFacts {
  std::string_view group;      // attention, norm, rope, cache, moe, ffn, matmul, comm, quant, misc
  std::string_view signature;  // the library's schemas, one a line: real argument order and kinds
  std::string_view source;     // of the facts: "wheel docs", "op-plugin docs", "library schema"
  // "yes", "no", "not named" (the document lists others), "unknown" (there is no document); a
  // condition may follow: "yes (op-plugin docs)".
  std::string_view a2, a3;
  std::string_view graph_mode = "";              // what capture needs to know, in words
  std::span<const std::string_view> notes = {};  // rules without a single form, and conflicts
  std::span<const Symbol> symbols = {};
  std::span<const Limit> limits = {};
  bool documented() const { return source.find("docs") != std::string_view::npos; }
};

// What one call costs on a device with matrix and vector units.
struct Cost {
  double cube = 0;     // flop of the matrix units
  double vector = 0;   // flop of the vector units
  double read = 0;     // bytes from memory
  double written = 0;  // bytes to memory
};

// What types do not say.
struct Load {
  double kv_len = 0;  // tokens in the cache per sequence, this step's counted
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
  // Output i is input updates[i] changed in place (cache writes): the same storage; -1, and past
  // the end, it is new. What the library changes without returning it is an output here, after
  // the library's own.
  std::span<const int> updates = {};
  // Of a call whose sizes are all numbers. Null: every input is read and every output written once,
  // one vector operation an output element.
  Cost (*cost)(const Args& args, const Load& load) = nullptr;
  const NpuFacts* npu = nullptr;  // of npu.* operators

  const Schema& parsed() const;  // cached
};

// All operators, by name. Defined in src/ops (ops.def).
const OpDef* find_op(std::string_view name);
std::span<const OpDef* const> all_ops();  // sorted by name

Schema parse_schema(std::string_view text);  // internal error when malformed

}  // namespace tk
