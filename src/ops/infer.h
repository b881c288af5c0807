// Shape and dtype rules that operators share. Sizes are symbolic; a symbol is the size of an axis
// that is there, so it is at least 1.
#pragma once

#include <initializer_list>
#include <optional>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// torch.result_type: tensors with axes outrank those without, which outrank Python numbers; a
// lower rank counts only when its category (bool, int, float, complex) is higher.
class Promotion {
 public:
  void tensor(DType dtype, int rank);
  void number(const Attr& attr);
  DType result() const;

 private:
  std::optional<DType> axes_, scalars_, numbers_;
};

// An operand is input i, or where that is absent the attribute `name`.
struct Operand {
  int input;
  std::string_view name = {};
};
DType result_type(const Args& args, std::initializer_list<Operand> operands);
DType result_type(const EvalArgs& args, std::initializer_list<Operand> operands);
// Integers become f32, the default dtype.
DType float_of(DType dtype);

// `dim` counted from 0; fails (TK0312) when out of range. A rank of 0 allows 0 and -1.
int axis(const Args& args, std::int64_t dim, int rank);
int axis(const Args& args, std::string_view attr, int rank);
// For eval, where infer has checked the range.
int axis(std::int64_t dim, int rank);
// The axes named by a list attribute; all of them when it is None or empty.
std::vector<int> axes(const Args& args, std::string_view attr, int rank);
std::vector<int> axes(const EvalArgs& args, std::string_view attr, int rank);

// Sizes are equal (as far as can be seen, see may_be_equal) or one is 1; fails otherwise.
SymDims broadcast(const Args& args, const SymDims& a, const SymDims& b);
SymDims broadcast(const Args& args, std::initializer_list<Operand> operands);
// The demand that `from` broadcasts to `to`; `what` begins the message.
void need_broadcastable(const Args& args, const SymDims& from, const SymDims& to,
                        std::string_view what);
void need_rank(const Args& args, int input, int at_least, int at_most);
void need_same(const Args& args, const Sym& a, const Sym& b, std::string_view what);
void need_float(const Args& args, int input);
void need_integral(const Args& args, int input);

// The least value that `s` can take, when it is easily known.
std::optional<std::int64_t> lower_bound(const Sym& s);
// min and max that use lower_bound.
Sym smaller(const Sym& a, const Sym& b);
Sym larger(const Sym& a, const Sym& b);
// True when equality can't be excluded: a difference that contains min, max, mod or floordiv.
bool may_be_equal(const Sym& a, const Sym& b);

// Type rules.
std::vector<Type> infer_same(const Args& args);   // as input 0
std::vector<Type> infer_float(const Args& args);  // as input 0, integers become f32
std::vector<Type> infer_bool(const Args& args);   // shape of input 0, bool

}  // namespace tk::ops
