// Reductions over axes: sums, products, extremes, norms. Floats are summed in double.
#include <cmath>
#include <limits>

#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {

SymDims reduced_shape(const SymDims& shape, const std::vector<int>& gone, bool keepdim) {
  SymDims out;
  for (int i = 0; i < static_cast<int>(shape.size()); ++i) {
    if (std::find(gone.begin(), gone.end(), i) == gone.end()) {
      out.push_back(shape[static_cast<std::size_t>(i)]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

SymDims reduced_shape(const Args& args) {
  const Type& t = args.in(0);
  return reduced_shape(t.shape, axes(args, "dim", t.rank()), args.flag("keepdim"));
}

namespace {

std::vector<int> reduced_axes(const EvalArgs& args) { return axes(args, "dim", args.in(0).rank()); }

// Calls f with a value of the type that sums of `dtype` are made in.
template <typename F>
void with_sum(DType dtype, F f) {
  if (dtype == DType::c64) return f(std::complex<float>{});
  if (is_integral(dtype)) return f(std::int64_t{});
  f(double{});
}

std::vector<Type> infer_sum(const Args& args) {
  const DType dtype = args.in(0).dtype;
  const DType natural = is_integral(dtype) ? DType::i64 : dtype;
  return {{args.has_attr("dtype") ? args.dtype("dtype") : natural, reduced_shape(args)}};
}

std::vector<Type> infer_mean(const Args& args) {
  const DType dtype = args.has_attr("dtype") ? args.dtype("dtype") : args.in(0).dtype;
  if (is_integral(dtype)) args.fail("needs floating-point numbers or a dtype");
  return {{dtype, reduced_shape(args)}};
}

template <bool mean>
void eval_sum(const EvalArgs& args) {
  with_sum(args.out().dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      T sum{};
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k) sum = wrap_add(sum, v[k]);
      });
      if constexpr (mean && !std::is_integral_v<T>) {
        if constexpr (std::is_same_v<T, double>) {
          sum /= static_cast<double>(part.numel());
        } else {
          sum /= static_cast<float>(part.numel());
        }
      }
      store_one(args.out(), i, sum);
    });
  });
}

void eval_prod(const EvalArgs& args) {
  with_sum(args.out().dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      T product(1);
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k) product = wrap_mul(product, v[k]);
      });
      store_one(args.out(), i, product);
    });
  });
}

// ---- extremes

template <bool largest, typename T>
bool beats(T a, T b) {  // NaN beats all
  if (b != b) return false;
  return a != a || (largest ? a > b : a < b);
}

void need_elements(const Args& args, const std::vector<int>& gone) {
  for (int i : gone)
    if (args.in(0).dim(i).is(0)) args.fail("needs an element to choose from");
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers");
}

template <bool largest>
void eval_extreme(const EvalArgs& args) {
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      T best{};
      bool first = true;
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k)
          if (first || beats<largest>(v[k], best)) {
            best = v[k];
            first = false;
          }
      });
      need_shape(args, !first, args.in(0));
      store_one(args.out(), i, best);
    });
  });
}

std::vector<Type> infer_extreme(const Args& args) {
  need_elements(args, axes(args, "dim", args.in(0).rank()));
  return {{args.in(0).dtype, reduced_shape(args)}};
}

// The first place of the best element; values go to `values` where that has data.
template <bool largest>
void find_extreme(const EvalArgs& args, const TensorView& values, const TensorView& indices) {
  with_real(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      T best{};
      std::int64_t place = -1;
      std::int64_t at = 0;
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k)
          if (place < 0 || beats<largest>(v[k], best)) {
            best = v[k];
            place = at + k;
          }
        at += n;
      });
      need_shape(args, place >= 0, args.in(0));
      if (values.data != nullptr) store_one(values, i, best);
      store_one(indices, i, place);
    });
  });
}

std::vector<Type> infer_arg_extreme(const Args& args) {
  need_elements(args, axes(args, "dim", args.in(0).rank()));
  return {{DType::i64, reduced_shape(args)}};
}
template <bool largest>
void eval_arg_extreme(const EvalArgs& args) {
  find_extreme<largest>(args, {}, args.out());
}

// aten.max and min: of all elements, along a dim with the places, or of two tensors.
std::vector<Type> infer_max(const Args& args) {
  if (args.has(1)) {
    if (args.has_attr("dim")) args.fail("needs other or dim, not both");
    const DType dtype = result_type(args, {{0}, {1}});
    if (dtype == DType::c64) args.fail("is not defined for complex numbers");
    return {{dtype, broadcast(args, {{0}, {1}})}};
  }
  auto types = infer_extreme(args);
  if (args.has_attr("dim")) types.push_back({DType::i64, types[0].shape});
  return types;
}
template <bool largest>
void eval_max(const EvalArgs& args) {
  if (args.has(1)) {
    const auto in = operands(args, {{0}, {1}}, args.out().dtype);
    return with_real(args.out().dtype, [&](auto tag) {
      map<decltype(tag), 2>(args.out(), in.views(),
                            [](auto a, auto b) { return beats<largest>(b, a) ? b : a; });
    });
  }
  if (args.n_outputs() == 2) return find_extreme<largest>(args, args.out(0), args.out(1));
  eval_extreme<largest>(args);
}

// ---- any, all

std::vector<Type> infer_any(const Args& args) {
  const DType dtype = args.in(0).dtype == DType::u8 ? DType::u8 : DType::boolean;
  return {{dtype, reduced_shape(args)}};
}
template <bool any>
void eval_any(const EvalArgs& args) {
  with_math(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      bool found = false;  // one that is set (any) or not (all)
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k) found |= (v[k] != T(0)) == any;
      });
      store_one(args.out(), i, std::int64_t{found == any});
    });
  });
}

std::vector<Type> infer_count(const Args& args) {
  const Type& t = args.in(0);
  return {{DType::i64, reduced_shape(t.shape, axes(args, "dim", t.rank()), false)}};
}
void eval_count(const EvalArgs& args) {
  with_math(args.in(0).dtype, [&](auto tag) {
    using T = decltype(tag);
    for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
      std::int64_t count = 0;
      for_values<T>(part, [&](const T* v, int n) { count += n - std::count(v, v + n, T(0)); });
      store_one(args.out(), i, count);
    });
  });
}

// ---- variance, norms

std::vector<Type> infer_var(const Args& args) {
  need_float(args, 0);
  return {{args.in(0).dtype, reduced_shape(args)}};
}
std::vector<Type> infer_var_mean(const Args& args) {
  const Type t = infer_var(args)[0];
  return {t, t};
}
template <bool root>
void eval_var(const EvalArgs& args) {
  const double correction = args.has_attr("correction") ? args.f64("correction")
                            : args.flag("unbiased")     ? 1
                                                        : 0;
  for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
    double sum = 0;
    for_values<double>(part, [&](const double* v, int n) {
      for (int k = 0; k < n; ++k) sum += v[k];
    });
    const double mean = sum / static_cast<double>(part.numel());
    double squares = 0;
    for_values<double>(part, [&](const double* v, int n) {
      for (int k = 0; k < n; ++k) squares += (v[k] - mean) * (v[k] - mean);
    });
    const double var = squares / std::max(static_cast<double>(part.numel()) - correction, 0.0);
    store_one(args.out(), i, root ? std::sqrt(var) : var);
    if (args.n_outputs() == 2) store_one(args.out(1), i, mean);
  });
}

double norm_of(const TensorView& part, double p) {
  double sum = p == -INFINITY ? INFINITY : 0;
  for_values<double>(part, [&](const double* v, int n) {
    for (int k = 0; k < n; ++k) {
      const double x = std::abs(v[k]);
      if (p == INFINITY) {
        sum = beats<true>(x, sum) ? x : sum;
      } else if (p == -INFINITY) {
        sum = beats<false>(x, sum) ? x : sum;
      } else if (p == 0) {
        sum += x != 0 ? 1 : 0;
      } else {
        sum += p == 2 ? x * x : p == 1 ? x : std::pow(x, p);
      }
    }
  });
  if (p == 2) return std::sqrt(sum);
  return std::isinf(p) || p == 0 || p == 1 ? sum : std::pow(sum, 1 / p);
}

std::vector<Type> infer_norm(const Args& args) {
  need_float(args, 0);
  const DType dtype = args.has_attr("dtype") ? args.dtype("dtype") : args.in(0).dtype;
  if (!is_float(dtype)) args.fail("needs a floating-point dtype");
  return {{dtype, reduced_shape(args)}};
}
void eval_norm_of(const EvalArgs& args, double p) {
  for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
    store_one(args.out(), i, norm_of(part, p));
  });
}
void eval_vector_norm(const EvalArgs& args) { eval_norm_of(args, args.f64("ord")); }
void eval_norm(const EvalArgs& args) { eval_norm_of(args, args.has_attr("p") ? args.f64("p") : 2); }

std::vector<Type> infer_logsumexp(const Args& args) {
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers here");
  return {{float_of(args.in(0).dtype), reduced_shape(args)}};
}
void eval_logsumexp(const EvalArgs& args) {
  for_reduced(args.in(0), reduced_axes(args), [&](std::int64_t i, const TensorView& part) {
    double most = -INFINITY;
    for_values<double>(part, [&](const double* v, int n) {
      for (int k = 0; k < n; ++k) most = beats<true>(v[k], most) ? v[k] : most;
    });
    const double shift = std::isinf(most) ? 0 : most;
    double sum = 0;
    for_values<double>(part, [&](const double* v, int n) {
      for (int k = 0; k < n; ++k) sum += std::exp(v[k] - shift);
    });
    store_one(args.out(), i, std::log(sum) + shift);
  });
}

constexpr std::string_view sum_schema =
    "(Tensor self, int[]? dim=None, bool keepdim=false, *, dtype? dtype=None) -> Tensor";
constexpr std::string_view dims_schema =
    "(Tensor self, int[]? dim=None, bool keepdim=false) -> Tensor";
constexpr std::string_view dim_schema =
    "(Tensor self, int? dim=None, bool keepdim=false) -> Tensor";
constexpr std::string_view max_schema =
    "(Tensor self, Tensor? other=None, int? dim=None, bool keepdim=false)"
    " -> (Tensor values, Tensor indices)";
constexpr std::string_view var_schema =
    "(Tensor self, int[]? dim=None, bool unbiased=true, bool keepdim=false, *, "
    "scalar? correction=None) -> Tensor";

constexpr std::string_view var_mean_schema =
    "(Tensor self, int[]? dim=None, bool unbiased=true, bool keepdim=false, *, "
    "scalar? correction=None) -> (Tensor var, Tensor mean)";

constexpr OpDef reduction(std::string_view name, std::string_view schema, std::string_view doc,
                          std::vector<Type> (*infer)(const Args&), void (*eval)(const EvalArgs&)) {
  return {.name = name, .schema = schema, .doc = doc, .infer = infer, .eval = eval};
}

}  // namespace

const OpDef aten_sum =
    reduction("aten.sum", sum_schema, "the sum over dims, or over all", infer_sum, eval_sum<false>);
const OpDef aten_mean = reduction("aten.mean", sum_schema, "the mean over dims, or over all",
                                  infer_mean, eval_sum<true>);
const OpDef aten_prod = reduction(
    "aten.prod", "(Tensor self, int? dim=None, bool keepdim=false, *, dtype? dtype=None) -> Tensor",
    "the product over a dim, or over all", infer_sum, eval_prod);
const OpDef aten_amax =
    reduction("aten.amax", dims_schema, "the largest over dims", infer_extreme, eval_extreme<true>);
const OpDef aten_amin = reduction("aten.amin", dims_schema, "the smallest over dims", infer_extreme,
                                  eval_extreme<false>);
const OpDef aten_argmax =
    reduction("aten.argmax", dim_schema, "where the largest is, along a dim or of all",
              infer_arg_extreme, eval_arg_extreme<true>);
const OpDef aten_argmin =
    reduction("aten.argmin", dim_schema, "where the smallest is, along a dim or of all",
              infer_arg_extreme, eval_arg_extreme<false>);
const OpDef aten_max = reduction(
    "aten.max", max_schema, "the largest of all; along dim with its place; or of self and other",
    infer_max, eval_max<true>);
const OpDef aten_min = reduction(
    "aten.min", max_schema, "the smallest of all; along dim with its place; or of self and other",
    infer_max, eval_max<false>);
const OpDef aten_any =
    reduction("aten.any", dims_schema, "true where any is not 0", infer_any, eval_any<true>);
const OpDef aten_all =
    reduction("aten.all", dims_schema, "true where none is 0", infer_any, eval_any<false>);
const OpDef aten_var =
    reduction("aten.var", var_schema, "the variance over dims", infer_var, eval_var<false>);
const OpDef aten_std = reduction("aten.std", var_schema, "the standard deviation over dims",
                                 infer_var, eval_var<true>);
const OpDef aten_var_mean =
    reduction("aten.var_mean", var_mean_schema, "the variance over dims, and the mean",
              infer_var_mean, eval_var<false>);
const OpDef aten_std_mean =
    reduction("aten.std_mean", var_mean_schema, "the standard deviation over dims, and the mean",
              infer_var_mean, eval_var<true>);
const OpDef aten_count_nonzero =
    reduction("aten.count_nonzero", "(Tensor self, int[]? dim=None) -> Tensor",
              "how many elements over dims are not 0", infer_count, eval_count);
const OpDef aten_norm = reduction("aten.norm",
                                  "(Tensor self, scalar? p=None, int[]? dim=None, bool "
                                  "keepdim=false, *, dtype? dtype=None) -> Tensor",
                                  "the p-norm (2 where absent) over dims", infer_norm, eval_norm);
const OpDef aten_linalg_vector_norm =
    reduction("aten.linalg_vector_norm",
              "(Tensor self, scalar ord=2, int[]? dim=None, bool keepdim=false, *, "
              "dtype? dtype=None) -> Tensor",
              "the ord-norm over dims", infer_norm, eval_vector_norm);
const OpDef aten_logsumexp =
    reduction("aten.logsumexp", "(Tensor self, int[] dim, bool keepdim=false) -> Tensor",
              "ln of the sum of e^x over dims", infer_logsumexp, eval_logsumexp);

}  // namespace tk::ops
