// Writing by index: a copy of self with some elements replaced or added to.
#include "ops/index.h"
#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// ---- index_put

std::vector<Type> infer_index_put(const Args& args) {
  if (args.in(1).dtype != args.in(0).dtype)
    args.fail(cat("needs values of the dtype of self, got ", args.in(0).str(), " and ",
                  args.in(1).str()));
  need_broadcastable(args, args.in(1).shape, indexed_shape(args, 2), "values");
  return {args.in(0)};
}

void add_into(const TensorView& to, const TensorView& from) {
  with_math(to.dtype, [&](auto tag) {
    map<decltype(tag), 2>(to, {to, from}, [](auto a, auto b) { return wrap_add(a, b); });
  });
}

void eval_index_put(const EvalArgs& args) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  const IndexPlan plan = plan_index(args, 2, out);
  Dims shape = plan.part.shape;
  for (int i = plan.index_shape.size() - 1; i >= 0; --i)
    shape.insert(plan.place, plan.index_shape[i]);
  std::vector<std::int64_t> at;
  const TensorView values = plan.other(expand(args.in(1), shape), &at);
  const bool accumulate = args.flag("accumulate");
  for (std::size_t i = 0; i < at.size(); ++i) {
    const TensorView to = moved(plan.part, plan.offsets[i]);
    const TensorView from = moved(values, at[i]);
    accumulate ? add_into(to, from) : copy_into(to, from);
  }
}

// ---- scatter

enum class Reduce { none, sum, prod, amax, amin, mean };

Reduce reduce_of(const std::string& name) {
  if (name == "add" || name == "sum") return Reduce::sum;
  if (name == "multiply" || name == "prod") return Reduce::prod;
  if (name == "amax") return Reduce::amax;
  if (name == "amin") return Reduce::amin;
  if (name == "mean") return Reduce::mean;
  return Reduce::none;
}

template <typename T>
T combined(Reduce how, T a, T b) {
  if constexpr (!std::is_same_v<T, Complex>) {
    if (how == Reduce::amax) return b != b || b > a ? b : a;
    if (how == Reduce::amin) return b != b || b < a ? b : a;
  }
  if (how == Reduce::prod) return wrap_mul(a, b);
  return how == Reduce::none ? b : wrap_add(a, b);
}

// out = self, then out[..., index, ...] (op)= src along dim. `counts`, where not null, has out's
// shape and counts what is combined; src repeats one number when it has no axes.
void scatter(const EvalArgs& args, const TensorView& index, TensorView src, Reduce how,
             const TensorView* counts, bool include_self) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  const int dim = axis(args.i64("dim"), out.rank());
  const std::int64_t n = line_size(index, dim);
  if (src.rank() < index.rank()) src = expand(src, index.shape);
  need_lines_fit(args, index, out, dim);
  need_lines_fit(args, index, src, -1);
  if (index.numel() == 0) return;
  const TensorView& count = counts != nullptr ? *counts : out;
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  with_math(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::vector<T> values(static_cast<std::size_t>(n));
    for_lines<4>({index, out, src, count}, dim, [&](const Offsets<4>& at) {
      read_line(index, {at[0], n, line_stride(index, dim)}, ids.data());
      read_line(src, {at[2], n, line_stride(src, dim)}, values.data());
      for (std::int64_t i = 0; i < n; ++i) {
        const std::int64_t id =
            checked_index(args, ids[static_cast<std::size_t>(i)], line_size(out, dim), false);
        const std::int64_t place = at[1] + id * line_stride(out, dim);
        T value = values[static_cast<std::size_t>(i)];
        bool replace = how == Reduce::none;
        if (counts != nullptr) {
          std::int64_t& c = count.as<std::int64_t>()[at[3] + id * line_stride(count, dim)];
          replace |= c == 0 && !include_self;
          ++c;
        }
        T buffer{};
        if (!replace) value = combined(how, *load(out, place, 1, 1, &buffer), value);
        store(out, place, 1, 1, &value);
      }
    });
  });
}

std::vector<Type> infer_scatter(const Args& args) {
  if (args.has(2) == args.has_attr("value")) args.fail("needs src or value");
  if (args.has_attr("reduce") && args.text("reduce") != "add" && args.text("reduce") != "multiply")
    args.fail(cat("needs reduce to be add or multiply, got ", args.text("reduce")));
  need_lines(args, 1, 2);
  return {args.in(0)};
}

void eval_scatter(const EvalArgs& args) {
  const Tensor src = operand(args, {2, "value"}, args.out().dtype, false);
  const Reduce how = args.has_attr("reduce") ? reduce_of(args.text("reduce")) : Reduce::none;
  scatter(args, args.in(1), src, how, nullptr, true);
}

std::vector<Type> infer_scatter_add(const Args& args) {
  need_lines(args, 1, 2);
  return {args.in(0)};
}
void eval_scatter_add(const EvalArgs& args) {
  scatter(args, args.in(1), args.in(2), Reduce::sum, nullptr, true);
}

std::vector<Type> infer_scatter_reduce(const Args& args) {
  if (reduce_of(args.text("reduce")) == Reduce::none)
    args.fail(cat("needs reduce to be sum, prod, mean, amax or amin, got ", args.text("reduce")));
  need_lines(args, 1, 2);
  return {args.in(0)};
}
void eval_scatter_reduce(const EvalArgs& args) {
  const TensorView& out = args.out();
  const Tensor counts = Tensor::zeros(DType::i64, out.shape);
  const Reduce how = reduce_of(args.text("reduce"));
  const bool self = args.flag("include_self");
  scatter(args, args.in(1), args.in(2), how, &counts, self);
  if (how != Reduce::mean) return;
  with_real(out.dtype, [&](auto tag) {
    using T = decltype(tag);
    const Tensor divisors = cast_to(counts, out.dtype);
    map<T, 2>(out, {out, divisors}, [&](T v, T n) {
      if (self) n += 1;
      if (n == T(0)) return v;
      if constexpr (std::is_integral_v<T>) return v / n - (v % n != 0 && v < 0 ? 1 : 0);
      return static_cast<T>(v / n);
    });
  });
}

// ---- index_add, index_copy: whole parts of a dim

std::vector<Type> infer_parts(const Args& args) {
  const Type& t = args.in(0);
  const Type& source = args.in(2);
  need_rank(args, 1, 0, 1);
  need_index(args, 1);
  const int dim = axis(args, "dim", t.rank());
  if (source.dtype != t.dtype) args.fail("needs self and source of one dtype");
  bool fits = source.rank() == t.rank();
  for (int i = 0; fits && i < t.rank(); ++i)
    fits = may_be_equal(source.dim(i), i == dim ? args.in(1).numel() : t.dim(i));
  if (!fits)
    args.fail(cat("needs a part of source for each index, got ", t.str(), ", ", args.in(1).str(),
                  " and ", source.str()));
  return {t};
}

template <bool add>
void eval_parts(const EvalArgs& args) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  Tensor source = as_dtype(args.in(2), out.dtype);
  if (add && !(args.f64("alpha") == 1)) {
    const Tensor alpha = number(*args.attr("alpha"), args.env());
    Tensor scaled = Tensor::empty(out.dtype, source.shape);
    with_math(out.dtype, [&](auto tag) {
      map<decltype(tag), 2>(scaled, {source, alpha}, [](auto a, auto b) { return wrap_mul(a, b); });
    });
    source = scaled;
  }
  const int dim = axis(args.i64("dim"), out.rank());
  const Tensor ids = cast_to(args.in(1), DType::i64);
  need_shape(args, line_size(source, dim) == ids.numel(), source);
  const auto part = [&](TensorView v, std::int64_t i) {
    if (v.rank() == 0) return v;
    v = moved(v, i * v.strides[dim]);
    v.shape.erase(dim);
    v.strides.erase(dim);
    return v;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t id =
        checked_index(args, ids.as<std::int64_t>()[i], line_size(out, dim), false);
    add ? add_into(part(out, id), part(source, i)) : copy_into(part(out, id), part(source, i));
  }
}

// ---- slice_scatter, select_scatter: a copy of self with one part replaced

std::vector<Type> infer_slice_scatter(const Args& args) {
  const Type part = infer_slice(args)[0];
  need_broadcastable(args, args.in(1).shape, part.shape, "src");
  return {args.in(0)};
}

void eval_slice_scatter(const EvalArgs& args) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  const int dim = axis(args.i64("dim"), out.rank());
  const std::int64_t n = out.shape[dim];
  const auto bound = [&](std::string_view name, std::int64_t otherwise) {
    if (!args.has_attr(name)) return otherwise;
    const std::int64_t v = args.i64(name);
    return std::clamp<std::int64_t>(v < 0 ? v + n : v, 0, n);
  };
  const std::int64_t start = bound("start", 0);
  const std::int64_t end = bound("end", n);
  const std::int64_t step = args.i64("step");
  TensorView part = moved(out, start * out.strides[dim]);
  part.shape[dim] = end > start ? (end - start - 1) / step + 1 : 0;
  if (step < n) part.strides[dim] *= step;  // else it is never used
  const TensorView& src = args.in(1);
  for (int i = 0; i < src.rank(); ++i)
    need_shape(args, src.shape[i] == 1 || src.shape[i] == part.shape.at(i - src.rank()), src);
  cast(part, expand(src, part.shape));
}

std::vector<Type> infer_select_scatter(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  SymDims shape = args.in(0).shape;
  const int dim = axis(args, "dim", args.in(0).rank());
  shape.erase(shape.begin() + dim);
  if (args.in(1).shape != shape)
    args.fail(cat("needs src of shape ", str(shape), ", got ", args.in(1).str()));
  return {args.in(0)};
}
void eval_select_scatter(const EvalArgs& args) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  const int dim = axis(args.i64("dim"), out.rank());
  const std::int64_t index = checked_index(args, args.i64("index"), out.shape[dim], true);
  TensorView part = moved(out, index * out.strides[dim]);
  part.shape.erase(dim);
  part.strides.erase(dim);
  cast(part, args.in(1));
}

}  // namespace

const OpDef aten_index_put{
    .name = "aten.index_put",
    .schema =
        "(Tensor self, Tensor values, Tensor?[] indices, *, bool accumulate=false)"
        " -> Tensor",
    .doc = "self with values at indices, or added there",
    .infer = infer_index_put,
    .eval = eval_index_put};
const OpDef aten_scatter{
    .name = "aten.scatter",
    .schema =
        "(Tensor self, int dim, Tensor index, Tensor? src, scalar? value=None, *, "
        "str? reduce=None) -> Tensor",
    .doc = "self with src (or a value) at the places that index names along dim",
    .infer = infer_scatter,
    .eval = eval_scatter};
const OpDef aten_scatter_add{.name = "aten.scatter_add",
                             .schema = "(Tensor self, int dim, Tensor index, Tensor src) -> Tensor",
                             .doc = "self with src added at the places that index names along dim",
                             .infer = infer_scatter_add,
                             .eval = eval_scatter_add};
const OpDef aten_scatter_reduce{
    .name = "aten.scatter_reduce",
    .schema =
        "(Tensor self, int dim, Tensor index, Tensor src, str reduce, *, "
        "bool include_self=true) -> Tensor",
    .doc = "self with src combined at the places that index names along dim",
    .infer = infer_scatter_reduce,
    .eval = eval_scatter_reduce};
const OpDef aten_index_add{
    .name = "aten.index_add",
    .schema = "(Tensor self, int dim, Tensor index, Tensor source, *, scalar alpha=1) -> Tensor",
    .doc = "self with parts of source added to the parts of dim that index names",
    .infer = infer_parts,
    .eval = eval_parts<true>};
const OpDef aten_index_copy{
    .name = "aten.index_copy",
    .schema = "(Tensor self, int dim, Tensor index, Tensor source) -> Tensor",
    .doc = "self with parts of source in place of the parts of dim that index names",
    .infer = infer_parts,
    .eval = eval_parts<false>};
const OpDef aten_slice_scatter{
    .name = "aten.slice_scatter",
    .schema =
        "(Tensor self, Tensor src, int dim=0, int? start=None, int? end=None, int step=1)"
        " -> Tensor",
    .doc = "self with src in place of self[start:end:step] of one dim",
    .infer = infer_slice_scatter,
    .eval = eval_slice_scatter};
const OpDef aten_select_scatter{.name = "aten.select_scatter",
                                .schema = "(Tensor self, Tensor src, int dim, int index) -> Tensor",
                                .doc = "self with src in place of the part at one index of a dim",
                                .infer = infer_select_scatter,
                                .eval = eval_select_scatter};

}  // namespace tk::ops
