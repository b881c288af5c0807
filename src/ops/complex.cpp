// Complex numbers: pairs of f32.
#include <cmath>

#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

void need_complex(const Args& args) {
  if (args.in(0).dtype != DType::c64)
    args.fail(cat("needs complex numbers, got ", args.in(0).str()));
}

std::vector<Type> infer_as_complex(const Args& args) {
  Type t = args.in(0);
  if (t.dtype != DType::f32 || t.rank() == 0 || !t.dim(-1).is(2))
    args.fail(cat("needs pairs of f32 in the last dim, got ", t.str()));
  t.dtype = DType::c64;
  t.shape.pop_back();
  return {t};
}

bool view_as_complex(const EvalArgs& args, std::span<TensorView> outputs) {
  TensorView t = args.in(0);
  if (t.strides.back() != 1) return false;
  t.dtype = DType::c64;
  t.shape.erase(t.rank() - 1);
  t.strides.erase(t.strides.size() - 1);
  for (auto& s : t.strides) {
    if (s % 2 != 0) return false;
    s /= 2;
  }
  outputs[0] = t;
  return true;
}

// The parts of complex elements: [..., 2] of f32.
TensorView parts_of(TensorView t) {
  t.dtype = DType::f32;
  for (auto& s : t.strides) s *= 2;
  t.shape.push_back(2);
  t.strides.push_back(1);
  return t;
}

void eval_as_complex(const EvalArgs& args) { copy_into(parts_of(args.out()), args.in(0)); }

std::vector<Type> infer_as_real(const Args& args) {
  need_complex(args);
  Type t = args.in(0);
  t.dtype = DType::f32;
  t.shape.push_back(2);
  return {t};
}

bool view_as_real(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = parts_of(args.in(0));
  return true;
}

template <int part>
bool view_part(const EvalArgs& args, std::span<TensorView> outputs) {
  TensorView t = args.in(0);
  if (t.dtype == DType::c64) {
    t.dtype = DType::f32;
    for (auto& s : t.strides) s *= 2;
    if (part == 1) t = moved(t, 1);
  }
  outputs[0] = t;
  return true;
}

std::vector<Type> infer_real(const Args& args) {
  const Type& t = args.in(0);
  return {{t.dtype == DType::c64 ? DType::f32 : t.dtype, t.shape}};
}
std::vector<Type> infer_imag(const Args& args) {
  need_complex(args);
  return {{DType::f32, args.in(0).shape}};
}

bool view_conj(const EvalArgs& args, std::span<TensorView> outputs) {
  outputs[0] = args.in(0);
  return args.in(0).dtype != DType::c64;
}
void eval_conj(const EvalArgs& args) {
  if (args.in(0).dtype != DType::c64) return copy_into(args.out(), args.in(0));
  map<Complex, 1>(args.out(), {args.in(0)}, [](Complex x) { return std::conj(x); });
}

std::vector<Type> infer_pair(const Args& args) {
  for (int i : {0, 1})
    if (args.in(i).dtype != DType::f32) args.fail(cat("needs f32, got ", args.in(i).str()));
  return {{DType::c64, broadcast(args, {{0}, {1}})}};
}
void eval_complex(const EvalArgs& args) {
  map<float, 2>(args.out(), {args.in(0), args.in(1)},
                [](float a, float b) { return Complex(a, b); });
}
void eval_polar(const EvalArgs& args) {
  map<float, 2>(args.out(), {args.in(0), args.in(1)}, [](float r, float angle) {
    return Complex(r * std::cos(angle), r * std::sin(angle));
  });
}

constexpr std::string_view one_schema = "(Tensor self) -> Tensor";

}  // namespace

const OpDef aten_view_as_complex{.name = "aten.view_as_complex",
                                 .schema = one_schema,
                                 .doc = "pairs in the last dim as complex numbers",
                                 .infer = infer_as_complex,
                                 .eval = eval_as_complex,
                                 .view = view_as_complex};
const OpDef aten_view_as_real{.name = "aten.view_as_real",
                              .schema = one_schema,
                              .doc = "complex numbers as pairs in a last dim",
                              .infer = infer_as_real,
                              .eval = eval_view<view_as_real>,
                              .view = view_as_real};
const OpDef aten_real{.name = "aten.real",
                      .schema = one_schema,
                      .doc = "the real part",
                      .infer = infer_real,
                      .eval = eval_view<view_part<0>>,
                      .view = view_part<0>};
const OpDef aten_imag{.name = "aten.imag",
                      .schema = one_schema,
                      .doc = "the imaginary part",
                      .infer = infer_imag,
                      .eval = eval_view<view_part<1>>,
                      .view = view_part<1>};
const OpDef aten_conj{.name = "aten.conj",
                      .schema = one_schema,
                      .doc = "the complex conjugate",
                      .infer = infer_same,
                      .eval = eval_conj,
                      .view = view_conj};
const OpDef aten_conj_view{.name = "aten._conj",
                           .schema = one_schema,
                           .doc = "the complex conjugate",
                           .infer = infer_same,
                           .eval = eval_conj,
                           .view = view_conj};
const OpDef aten_complex{.name = "aten.complex",
                         .schema = "(Tensor real, Tensor imag) -> Tensor",
                         .doc = "real + i imag",
                         .infer = infer_pair,
                         .eval = eval_complex};
const OpDef aten_polar{.name = "aten.polar",
                       .schema = "(Tensor abs, Tensor angle) -> Tensor",
                       .doc = "abs * e^(i angle)",
                       .infer = infer_pair,
                       .eval = eval_polar};

}  // namespace tk::ops
