// Tensors from nothing: constants, ranges, patterns of indices.
#include <cmath>

#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

void check_sizes(const Args& args, const SymDims& sizes) {
  for (const Sym& s : sizes)
    if (s.is_const() && s.value() < 0)
      args.fail(cat("needs sizes that are not negative, got ", str(sizes)));
}

Type sized(const Args& args, DType otherwise) {
  const SymDims sizes = args.syms("size");
  check_sizes(args, sizes);
  return {args.has_attr("dtype") ? args.dtype("dtype") : otherwise, sizes};
}

std::vector<Type> infer_sized(const Args& args) { return {sized(args, DType::f32)}; }
std::vector<Type> infer_new(const Args& args) { return {sized(args, args.in(0).dtype)}; }
std::vector<Type> infer_like(const Args& args) {
  const Type& t = args.in(0);
  return {{args.has_attr("dtype") ? args.dtype("dtype") : t.dtype, t.shape}};
}

DType dtype_of(const Args& args, std::string_view name) {
  const Attr* a = args.attr(name);
  if (a == nullptr) args.fail(cat("needs ", name));
  Promotion p;
  p.number(*a);
  return p.result();
}

std::vector<Type> infer_full(const Args& args) {
  return {sized(args, dtype_of(args, "fill_value"))};
}

// Memory that PyTorch leaves as it is: zeros, so that runs repeat.
template <int value>
void eval_constant(const EvalArgs& args) {
  cast(args.out(), expand(number(Attr(Sym(value)), {}), args.out().shape));
}
void eval_full(const EvalArgs& args) {
  cast(args.out(), expand(number(*args.attr("fill_value"), args.env()), args.out().shape));
}

std::vector<Type> infer_fill(const Args& args) {
  const bool tensor = args.has(1);
  if (tensor == args.has_attr("value")) args.fail("needs a value as a tensor or as a number");
  if (tensor && args.in(1).rank() != 0) args.fail("needs a value without axes");
  return {args.in(0)};
}
void eval_fill(const EvalArgs& args) {
  const Tensor value = operand(args, {1, "value"}, args.out().dtype, false);
  cast(args.out(), expand(value, args.out().shape));
}

std::vector<Type> infer_scalar_tensor(const Args& args) {
  dtype_of(args, "s");
  return {{args.has_attr("dtype") ? args.dtype("dtype") : DType::f32, {}}};
}
void eval_scalar_tensor(const EvalArgs& args) {
  cast(args.out(), number(*args.attr("s"), args.env()));
}

// ---- ranges

bool all_whole(const Args& args) {
  for (std::string_view name : {"start", "end", "step"})
    if (!std::holds_alternative<Sym>(*args.attr(name))) return false;
  return true;
}

std::vector<Type> infer_arange(const Args& args) {
  const bool whole = all_whole(args);
  const DType dtype = args.has_attr("dtype") ? args.dtype("dtype")
                      : whole                ? DType::i64
                                             : DType::f32;
  if (whole) {
    const Sym span = args.sym("end") - args.sym("start");
    const Sym step = args.sym("step");
    if (step.is(1)) {
      if (span.is_const() && span.value() < 0) args.fail("needs an end that is not before start");
      return {{dtype, {span}}};
    }
    if (step.is(0)) args.fail("needs a step that is not 0");
    const bool down = step.is_const() && step.value() < 0;
    const Sym n = floordiv(span + step + (down ? 1 : -1), step);
    if (n.is_const() && n.value() < 0) args.fail("needs an end that lies in the step's direction");
    return {{dtype, {n}}};
  }
  const double n = std::ceil((args.f64("end") - args.f64("start")) / args.f64("step"));
  if (!(n >= 0 && n < 9e15)) args.fail("needs an end that lies in the step's direction");
  return {{dtype, {static_cast<std::int64_t>(n)}}};
}

void eval_arange(const EvalArgs& args) {
  const std::int64_t n = args.out().numel();
  const auto whole = [&](std::string_view name) {
    return std::holds_alternative<Sym>(*args.attr(name));
  };
  if (whole("start") && whole("step")) {
    Tensor t = Tensor::empty(DType::i64, {n});
    const std::int64_t start = args.i64("start");
    const std::int64_t step = args.i64("step");
    for (std::int64_t i = 0; i < n; ++i) t.as<std::int64_t>()[i] = start + i * step;
    return cast(args.out(), t);
  }
  Tensor t = Tensor::empty(DType::f64, {n});
  for (std::int64_t i = 0; i < n; ++i)
    t.as<double>()[i] = args.f64("start") + static_cast<double>(i) * args.f64("step");
  cast(args.out(), t);
}

std::vector<Type> infer_linspace(const Args& args) {
  const Sym steps = args.sym("steps");
  check_sizes(args, {steps});
  args.f64("start");
  args.f64("end");
  return {{args.has_attr("dtype") ? args.dtype("dtype") : DType::f32, {steps}}};
}
// From both ends to the middle, so that both ends are exact.
void eval_linspace(const EvalArgs& args) {
  const double start = args.f64("start");
  const double end = args.f64("end");
  const std::int64_t n = args.out().numel();
  const double step = n > 1 ? (end - start) / static_cast<double>(n - 1) : 0;
  Tensor t = Tensor::empty(DType::f64, {n});
  for (std::int64_t i = 0; i < n; ++i)
    t.as<double>()[i] = i < n / 2 || n == 1 ? start + step * static_cast<double>(i)
                                            : end - step * static_cast<double>(n - 1 - i);
  cast(args.out(), t);
}

std::vector<Type> infer_eye(const Args& args) {
  const Sym n = args.sym("n");
  const Sym m = args.has_attr("m") ? args.sym("m") : n;
  check_sizes(args, {n, m});
  return {{args.has_attr("dtype") ? args.dtype("dtype") : DType::f32, {n, m}}};
}
void eval_eye(const EvalArgs& args) {
  const TensorView& out = args.out();
  eval_constant<0>(args);
  TensorView diagonal = out;
  diagonal.shape = {std::min(out.shape[0], out.shape[1])};
  diagonal.strides = {out.strides[0] + out.strides[1]};
  cast(diagonal, expand(number(Attr(true), {}), diagonal.shape));
}

// ---- triangles

template <bool upper>
void eval_triangle(const EvalArgs& args) {
  const TensorView& out = args.out();
  copy_into(out, args.in(0));
  const std::int64_t diagonal = args.i64("diagonal");
  const int rank = out.rank();
  const std::int64_t columns = out.shape[rank - 1];
  const std::int64_t rows = out.shape[rank - 2];
  if (out.numel() == 0) return;
  const std::int64_t matrices = out.numel() / (rows * columns);
  const Tensor zero = number(Attr(false), {});
  for (std::int64_t r = 0; r < matrices * rows; ++r) {
    // Row i keeps the columns from i + diagonal on (upper) or up to there (lower).
    const std::int64_t i = r % rows;
    const std::int64_t edge = std::clamp<std::int64_t>(i + diagonal + (upper ? 0 : 1), 0, columns);
    TensorView gone = moved(out, r * columns + (upper ? 0 : edge));
    gone.shape = {upper ? edge : columns - edge};
    gone.strides = {1};
    cast(gone, expand(zero, gone.shape));
  }
}

std::vector<Type> infer_triangle(const Args& args) {
  need_rank(args, 0, 2, max_rank);
  const std::int64_t diagonal = args.i64("diagonal");
  if (diagonal > (std::int64_t{1} << 40) || diagonal < -(std::int64_t{1} << 40))
    args.fail(cat("can't use diagonal ", diagonal));
  return {args.in(0)};
}

std::vector<Type> infer_one_hot(const Args& args) {
  need_integral(args, 0);
  if (args.in(0).dtype != DType::i64) args.fail("needs 64-bit integers");
  Type t = args.in(0);
  const Sym classes = args.sym("num_classes");
  if (classes.is_const() && classes.value() < 1)
    args.fail("needs num_classes: the size of the result may not depend on values");
  t.shape.push_back(classes);
  return {t};
}
void eval_one_hot(const EvalArgs& args) {
  eval_constant<0>(args);
  const Tensor ids = contiguous(args.in(0));
  const std::int64_t classes = args.out().shape.back();
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t k = checked_index(args, ids.as<std::int64_t>()[i], classes, false);
    args.out().as<std::int64_t>()[i * classes + k] = 1;
  }
}

// ---- the indices of triangles: [2, n], rows and columns

template <bool upper>
std::int64_t triangle_edge(std::int64_t row, std::int64_t offset, std::int64_t columns) {
  return std::clamp<std::int64_t>(row + offset + (upper ? 0 : 1), 0, columns);
}

template <bool upper>
std::vector<Type> infer_triangle_indices(const Args& args) {
  const std::int64_t rows = args.i64("row");
  const std::int64_t columns = args.i64("col");
  const std::int64_t offset = args.i64("offset");
  constexpr std::int64_t most = 1 << 20;
  if (rows < 0 || columns < 0 || rows > most || columns > most || std::abs(offset) > most)
    args.fail("needs sizes from 0 to 1048576");
  std::int64_t n = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    const std::int64_t edge = triangle_edge<upper>(r, offset, columns);
    n += upper ? columns - edge : edge;
  }
  return {{args.has_attr("dtype") ? args.dtype("dtype") : DType::i64, {2, n}}};
}

template <bool upper>
void eval_triangle_indices(const EvalArgs& args) {
  const std::int64_t columns = args.i64("col");
  const std::int64_t n = args.out().shape[1];
  Tensor t = Tensor::empty(DType::i64, args.out().shape);
  std::int64_t i = 0;
  for (std::int64_t r = 0; i < n; ++r) {
    const std::int64_t edge = triangle_edge<upper>(r, args.i64("offset"), columns);
    for (std::int64_t c = upper ? edge : 0; c < (upper ? columns : edge); ++c, ++i) {
      t.as<std::int64_t>()[i] = r;
      t.as<std::int64_t>()[n + i] = c;
    }
  }
  cast(args.out(), t);
}

// ---- grids

std::vector<Type> infer_meshgrid(const Args& args) {
  const std::string& indexing = args.text("indexing");
  if (indexing != "ij" && indexing != "xy")
    args.fail(cat("needs indexing to be ij or xy, got ", indexing));
  if (args.n_inputs() == 0) args.fail("needs a tensor");
  SymDims shape;
  for (int i = 0; i < args.n_inputs(); ++i) {
    need_rank(args, i, 0, 1);
    if (args.in(i).dtype != args.in(0).dtype) args.fail("needs tensors of one dtype");
    shape.push_back(args.in(i).numel());
  }
  if (indexing == "xy" && shape.size() > 1) std::swap(shape[0], shape[1]);
  return std::vector<Type>(shape.size(), {args.in(0).dtype, shape});
}
bool view_meshgrid_part(const EvalArgs& args, int i, TensorView* out) {
  const TensorView& t = args.in(i);
  const bool swap = args.text("indexing") == "xy" && i < 2 && args.n_inputs() > 1;
  *out = t;
  out->shape = args.out(i).shape;
  out->strides = out->shape;
  for (auto& s : out->strides) s = 0;
  out->strides[swap ? 1 - i : i] = t.rank() == 0 ? 0 : t.strides[0];
  return true;
}
void eval_meshgrid(const EvalArgs& args) {
  for (int i = 0; i < args.n_outputs(); ++i) {
    TensorView v;
    view_meshgrid_part(args, i, &v);
    copy_into(args.out(i), v);
  }
}

constexpr std::string_view size_schema = "(int[] size, *, dtype? dtype=None) -> Tensor";
constexpr std::string_view new_schema = "(Tensor self, int[] size, *, dtype? dtype=None) -> Tensor";
constexpr std::string_view like_schema = "(Tensor self, *, dtype? dtype=None) -> Tensor";
constexpr std::string_view triangle_schema =
    "(int row, int col, int offset=0, *, dtype? dtype=None) -> Tensor";
constexpr std::string_view full_doc = "fill_value everywhere";

constexpr OpDef maker(std::string_view name, std::string_view schema, std::string_view doc,
                      std::vector<Type> (*infer)(const Args&), void (*eval)(const EvalArgs&)) {
  return {.name = name, .schema = schema, .doc = doc, .infer = infer, .eval = eval};
}

}  // namespace

const OpDef aten_zeros = maker("aten.zeros", size_schema, "zeros", infer_sized, eval_constant<0>);
const OpDef aten_ones = maker("aten.ones", size_schema, "ones", infer_sized, eval_constant<1>);
const OpDef aten_empty = maker("aten.empty", size_schema, "zeros", infer_sized, eval_constant<0>);
const OpDef aten_new_zeros =
    maker("aten.new_zeros", new_schema, "zeros, dtype of self", infer_new, eval_constant<0>);
const OpDef aten_new_ones =
    maker("aten.new_ones", new_schema, "ones, dtype of self", infer_new, eval_constant<1>);
const OpDef aten_new_empty =
    maker("aten.new_empty", new_schema, "zeros, dtype of self", infer_new, eval_constant<0>);
const OpDef aten_zeros_like =
    maker("aten.zeros_like", like_schema, "zeros, shape of self", infer_like, eval_constant<0>);
const OpDef aten_ones_like =
    maker("aten.ones_like", like_schema, "ones, shape of self", infer_like, eval_constant<1>);
const OpDef aten_empty_like =
    maker("aten.empty_like", like_schema, "zeros, shape of self", infer_like, eval_constant<0>);
const OpDef aten_full =
    maker("aten.full", "(int[] size, scalar fill_value, *, dtype? dtype=None) -> Tensor", full_doc,
          infer_full, eval_full);
const OpDef aten_new_full = maker(
    "aten.new_full", "(Tensor self, int[] size, scalar fill_value, *, dtype? dtype=None) -> Tensor",
    full_doc, infer_new, eval_full);
const OpDef aten_full_like =
    maker("aten.full_like", "(Tensor self, scalar fill_value, *, dtype? dtype=None) -> Tensor",
          full_doc, infer_like, eval_full);
const OpDef aten_fill =
    maker("aten.fill", "(Tensor self, Tensor? value, scalar? value=None) -> Tensor",
          "value everywhere, shape and dtype of self", infer_fill, eval_fill);
const OpDef aten_scalar_tensor =
    maker("aten.scalar_tensor", "(scalar s, *, dtype? dtype=None) -> Tensor",
          "a number as a tensor without axes", infer_scalar_tensor, eval_scalar_tensor);
const OpDef aten_arange = maker(
    "aten.arange", "(scalar end, scalar start=0, scalar step=1, *, dtype? dtype=None) -> Tensor",
    "start, start + step, ... before end", infer_arange, eval_arange);
const OpDef aten_linspace =
    maker("aten.linspace", "(scalar start, scalar end, int steps, *, dtype? dtype=None) -> Tensor",
          "steps numbers evenly from start to end, both included", infer_linspace, eval_linspace);
const OpDef aten_eye = maker("aten.eye", "(int n, int? m=None, *, dtype? dtype=None) -> Tensor",
                             "ones on the diagonal, zeros elsewhere", infer_eye, eval_eye);
const OpDef aten_triu =
    maker("aten.triu", "(Tensor self, int diagonal=0) -> Tensor",
          "the part on and above a diagonal, zeros below", infer_triangle, eval_triangle<true>);
const OpDef aten_tril =
    maker("aten.tril", "(Tensor self, int diagonal=0) -> Tensor",
          "the part on and below a diagonal, zeros above", infer_triangle, eval_triangle<false>);
const OpDef aten_tril_indices =
    maker("aten.tril_indices", triangle_schema, "rows and columns of the lower triangle",
          infer_triangle_indices<false>, eval_triangle_indices<false>);
const OpDef aten_triu_indices =
    maker("aten.triu_indices", triangle_schema, "rows and columns of the upper triangle",
          infer_triangle_indices<true>, eval_triangle_indices<true>);
const OpDef aten_one_hot =
    maker("aten.one_hot", "(Tensor self, int num_classes=-1) -> Tensor",
          "1 at the place that an id names, 0 elsewhere", infer_one_hot, eval_one_hot);
const OpDef aten_meshgrid =
    maker("aten.meshgrid", "(Tensor[] tensors, str indexing=\"ij\") -> Tensor[]",
          "vectors repeated to a grid", infer_meshgrid, eval_meshgrid);

}  // namespace tk::ops
