// Comparisons, logic and bits.
#include "ops/ops.h"
#include "ops/pointwise.h"

namespace tk::ops {
namespace {

template <typename F>
void eval_equality(const EvalArgs& args) {  // complex numbers too
  const DType dtype = result_type(args, {{0}, {1, "other"}});
  const auto in = operands(args, {{0}, {1, "other"}}, dtype);
  with_math(dtype, [&](auto tag) { map<decltype(tag), 2>(args.out(), in.views(), F{}); });
}

struct Equal {
  template <typename T>
  bool operator()(T a, T b) const {
    return a == b;
  }
};
struct NotEqual {
  template <typename T>
  bool operator()(T a, T b) const {
    return a != b;
  }
};

// Of each operand by itself: a promotion could round a small number to 0.
template <typename F>
void eval_logical(const EvalArgs& args) {
  const auto truth = [](const TensorView& t) {
    Tensor out = Tensor::empty(DType::boolean, t.shape);
    with_math(t.dtype, [&](auto tag) {
      map<decltype(tag), 1>(out, {t}, [](auto x) { return x != decltype(x)(0); });
    });
    return out;
  };
  const Tensor a = truth(args.in(0));
  const Tensor b = truth(args.in(1));
  map<std::int64_t, 2>(args.out(), {a, b}, F{});
}

std::vector<Type> infer_logical(const Args& args) {
  return {{DType::boolean, broadcast(args, {{0}, {1}})}};
}

template <typename F>
constexpr OpDef logical(std::string_view name, std::string_view doc, F) {
  return pointwise(name, "(Tensor self, Tensor other) -> Tensor", doc, infer_logical,
                   eval_logical<F>);
}

std::vector<Type> infer_bitwise(const Args& args) {
  auto types = infer_binary(args);
  if (!is_integral(types[0].dtype)) args.fail(cat("needs integers or bool, got ", types[0].str()));
  return types;
}

template <typename F>
void eval_bitwise(const EvalArgs& args) {
  const auto in = operands(args, {{0}, {1, "other"}}, args.out().dtype);
  map<std::int64_t, 2>(args.out(), in.views(), F{});
}

template <typename F>
constexpr OpDef bitwise(std::string_view name, std::string_view doc, F) {
  return pointwise(name, binary_schema, doc, infer_bitwise, eval_bitwise<F>);
}

struct And {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a & b; }
};
struct Or {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a | b; }
};
struct Xor {
  std::int64_t operator()(std::int64_t a, std::int64_t b) const { return a ^ b; }
};

// As PyTorch: a shift by less than 0 or by the width or more gives 0 (left) or the sign (right).
template <bool left>
void eval_shift(const EvalArgs& args) {
  const auto in = operands(args, {{0}, {1, "other"}}, args.out().dtype);
  const auto bits = static_cast<std::int64_t>(size_of(args.out().dtype) * 8);
  map<std::int64_t, 2>(args.out(), in.views(), [=](std::int64_t a, std::int64_t n) {
    const bool in_range = n >= 0 && n < bits;
    if (left)
      return in_range ? static_cast<std::int64_t>(static_cast<std::uint64_t>(a) << n)
                      : std::int64_t{0};
    return a >> (in_range ? n : bits - 1);
  });
}

}  // namespace

const OpDef aten_eq{.name = "aten.eq",
                    .schema = binary_schema,
                    .doc = "self == other",
                    .infer = infer_compare,
                    .eval = eval_equality<Equal>};
const OpDef aten_ne{.name = "aten.ne",
                    .schema = binary_schema,
                    .doc = "self != other",
                    .infer = infer_compare,
                    .eval = eval_equality<NotEqual>};
const OpDef aten_lt = compare("aten.lt", "self < other", [](auto a, auto b) { return a < b; });
const OpDef aten_le = compare("aten.le", "self <= other", [](auto a, auto b) { return a <= b; });
const OpDef aten_gt = compare("aten.gt", "self > other", [](auto a, auto b) { return a > b; });
const OpDef aten_ge = compare("aten.ge", "self >= other", [](auto a, auto b) { return a >= b; });

const OpDef aten_logical_and = logical("aten.logical_and", "self != 0 and other != 0", And{});
const OpDef aten_logical_or = logical("aten.logical_or", "self != 0 or other != 0", Or{});
const OpDef aten_logical_xor = logical("aten.logical_xor", "exactly one is not 0", Xor{});

const OpDef aten_bitwise_and = bitwise("aten.bitwise_and", "self & other", And{});
const OpDef aten_bitwise_or = bitwise("aten.bitwise_or", "self | other", Or{});
const OpDef aten_bitwise_xor = bitwise("aten.bitwise_xor", "self ^ other", Xor{});
// Python's operators: the same functions under the names that captures use.
const OpDef aten_and_operator = bitwise("aten.__and__", "self & other", And{});
const OpDef aten_or_operator = bitwise("aten.__or__", "self | other", Or{});
const OpDef aten_xor_operator = bitwise("aten.__xor__", "self ^ other", Xor{});

const OpDef aten_bitwise_left_shift{.name = "aten.bitwise_left_shift",
                                    .schema = binary_schema,
                                    .doc = "self << other",
                                    .infer = infer_bitwise,
                                    .eval = eval_shift<true>};
const OpDef aten_bitwise_right_shift{.name = "aten.bitwise_right_shift",
                                     .schema = binary_schema,
                                     .doc = "self >> other, with the sign",
                                     .infer = infer_bitwise,
                                     .eval = eval_shift<false>};
const OpDef aten_lshift_operator{.name = "aten.__lshift__",
                                 .schema = binary_schema,
                                 .doc = "self << other",
                                 .infer = infer_bitwise,
                                 .eval = eval_shift<true>};
const OpDef aten_rshift_operator{.name = "aten.__rshift__",
                                 .schema = binary_schema,
                                 .doc = "self >> other, with the sign",
                                 .infer = infer_bitwise,
                                 .eval = eval_shift<false>};

}  // namespace tk::ops
