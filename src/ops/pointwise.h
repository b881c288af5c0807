// Makers of pointwise operators of one shape: a name, a line of doc and the formula.
#pragma once

#include "ops/compute.h"

namespace tk::ops {

constexpr OpDef pointwise(std::string_view name, std::string_view schema, std::string_view doc,
                          std::vector<Type> (*infer)(const Args&), void (*eval)(const EvalArgs&)) {
  return {.name = name, .schema = schema, .doc = doc, .infer = infer, .eval = eval};
}

template <typename F>
void eval_float_unary(const EvalArgs& args) {
  with_float(args.out().dtype,
             [&](auto tag) { map<decltype(tag), 1>(args.out(), {args.in(0)}, F{}); });
}

template <typename F>
void eval_real_unary(const EvalArgs& args) {
  with_real(args.in(0).dtype,
            [&](auto tag) { map<decltype(tag), 1>(args.out(), {args.in(0)}, F{}); });
}

constexpr std::string_view unary_schema = "(Tensor self) -> Tensor";
std::vector<Type> infer_real(const Args& args);  // as input 0, which is not complex
std::vector<Type> infer_real_float(const Args& args);

// Of floats; integers become f32.
template <typename F>
constexpr OpDef float_unary(std::string_view name, std::string_view doc, F) {
  return pointwise(name, unary_schema, doc, infer_real_float, eval_float_unary<F>);
}

// Of any real dtype, which is kept.
template <typename F>
constexpr OpDef real_unary(std::string_view name, std::string_view doc, F) {
  return pointwise(name, unary_schema, doc, infer_real, eval_real_unary<F>);
}

// self <op> other, both promoted; `other` is a tensor or a number.
constexpr std::string_view binary_schema =
    "(Tensor self, Tensor? other, scalar? other=None) -> Tensor";
std::vector<Type> infer_binary(const Args& args);   // the promoted dtype
std::vector<Type> infer_compare(const Args& args);  // bool
// Exactly one of the input and the attribute of that name is there.
void need_operand(const Args& args, const Operand& o);

template <typename F>
void eval_binary(const EvalArgs& args) {
  const DType dtype = result_type(args, {{0}, {1, "other"}});
  const auto in = operands(args, {{0}, {1, "other"}}, dtype);
  with_real(dtype, [&](auto tag) { map<decltype(tag), 2>(args.out(), in.views(), F{}); });
}

template <typename F>
constexpr OpDef real_binary(std::string_view name, std::string_view doc, F) {
  return pointwise(name, binary_schema, doc, infer_binary, eval_binary<F>);
}

template <typename F>
constexpr OpDef compare(std::string_view name, std::string_view doc, F) {
  return pointwise(name, binary_schema, doc, infer_compare, eval_binary<F>);
}

}  // namespace tk::ops
