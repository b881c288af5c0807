// A node as a Python expression: aten operators as ordinary PyTorch, npu operators by the
// library's signature, ours as functions that are written beside the modules.
#pragma once

#include <set>
#include <string>
#include <vector>

#include "graph/graph.h"

namespace tk::emit {

// How tightly a Python expression binds: of `a + b` it must be known before `.view` is put behind.
enum class Binds : std::uint8_t { compare, bits, sum, product, sign, power, whole };

struct Expr {
  std::string text;
  Binds binds = Binds::whole;
};
std::string at_least(const Expr& e, Binds binds);  // in parentheses when it binds less

// What an expression needs to know of its surroundings.
class Scope {
 public:
  virtual ~Scope() = default;
  virtual Expr value(const Value& v) = 0;
  // The host list of the step's lengths, or an expression that makes one.
  virtual std::string host_list(const Value& v) = 0;
  virtual std::string size(const Sym& s, const Node& n) = 0;  // a symbolic size
  virtual std::string device() = 0;                           // of new tensors
  virtual bool contiguous(const Value& v) = 0;
  // Attributes that any call of the operator sets are written in all of them.
  virtual bool always(const Node& n, std::string_view attr) = 0;

  std::set<std::string> helpers;  // functions of ours that are called
  bool uses_npu = false;
};

// A constant that may differ between layers: such ones become arguments of the class. The text
// between the marks is the value.
constexpr char mark_key = '\x01';
constexpr char mark_value = '\x02';
constexpr char mark_end = '\x03';
std::string constant(std::string_view key, std::string_view text);

// Throws TK1202 when the operator has no form.
Expr express(const Node& n, Scope& scope);
// The results that the call returns in Python; others are inputs that it changes.
int n_results(const Node& n);

bool is_plain_view(const Node& n);  // reshape, permute, slice and so on
bool is_light(const Node& n);       // a view, a cast or arithmetic: may stand inside another call

std::string torch_dtype(DType dtype);  // "torch.float32"
std::string python(const Attr& attr);
std::string python(double value);

}  // namespace tk::emit
