// Matrix products.
#include "ops/cost.h"
#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

DType one_dtype(const Args& args, int n) {
  for (int i = 1; i < n; ++i)
    if (args.has(i) && args.in(i).dtype != args.in(0).dtype)
      args.fail(
          cat("needs tensors of one dtype, got ", args.in(0).str(), " and ", args.in(i).str()));
  return args.in(0).dtype;
}

// Rank 2 views of a matrix operand: leading axes folded into the rows.
TensorView folded(const TensorView& t, Tensor* copy) {
  const std::int64_t k = t.shape.back();
  std::int64_t rows = 1;
  for (int i = 0; i + 1 < t.rank(); ++i) rows *= t.shape[i];
  TensorView out;
  if (reshape_view(t, {rows, k}, &out)) return out;
  *copy = contiguous(t);
  TK_CHECK(reshape_view(*copy, {rows, k}, &out));
  return out;
}

TensorView transposed(TensorView t) {
  std::swap(t.shape[0], t.shape[1]);
  std::swap(t.strides[0], t.strides[1]);
  return t;
}

// ---- linear

std::vector<Type> infer_linear(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  need_rank(args, 1, 1, 2);
  Type out = args.in(0);
  const Type& weight = args.in(1);
  one_dtype(args, 3);
  need_same(args, out.dim(-1), weight.dim(-1), "the last dims of input and weight");
  out.shape.pop_back();
  if (weight.rank() == 2) out.shape.push_back(weight.dim(0));
  if (args.has(2)) need_broadcastable(args, args.in(2).shape, out.shape, "bias");
  return {out};
}

void eval_linear(const EvalArgs& args) {
  Tensor copy;
  const TensorView x = folded(args.in(0), &copy);
  TensorView weight = args.in(1);
  if (weight.rank() == 1) {
    weight.shape.insert(0, 1);
    weight.strides.insert(0, 0);
  }
  TensorView out;
  TK_CHECK(reshape_view(args.out(), {x.shape[0], weight.shape[0]}, &out));
  if (!args.has(2)) return gemm(x, transposed(weight), out);
  if (args.in(2).rank() <= 1) return gemm(x, transposed(weight), out, 1, 1, args.in(2));
  Tensor bias_copy;
  const TensorView bias = folded(expand(args.in(2), args.out().shape), &bias_copy);
  gemm(x, transposed(weight), out, 1, 1, bias);
}

// ---- matmul

SymDims batch_of(const Type& t) {
  return t.rank() > 2 ? SymDims(t.shape.begin(), t.shape.end() - 2) : SymDims{};
}

std::vector<Type> infer_matmul(const Args& args) {
  need_rank(args, 0, 1, max_rank);
  need_rank(args, 1, 1, max_rank);
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  const DType dtype = one_dtype(args, 2);
  need_same(args, a.dim(-1), b.dim(b.rank() == 1 ? 0 : -2), "the inner dims");
  Type out{dtype, broadcast(args, batch_of(a), batch_of(b))};
  if (a.rank() > 1) out.shape.push_back(a.dim(-2));
  if (b.rank() > 1) out.shape.push_back(b.dim(-1));
  return {out};
}

TensorView matrix(const TensorView& t, std::int64_t offset) {
  TensorView out = moved(t, offset);
  out.shape = {t.shape.at(-2), t.shape.at(-1)};
  out.strides = {t.strides.at(-2), t.strides.at(-1)};
  return out;
}

void eval_matmul(const EvalArgs& args) {
  TensorView a = args.in(0);
  TensorView b = args.in(1);
  TensorView out = args.out();
  if (a.rank() == 1) {
    a.shape.insert(0, 1);
    a.strides.insert(0, 0);
    const int at = b.rank() > 1 ? out.rank() - 1 : out.rank();
    out.shape.insert(at, 1);
    out.strides.insert(at, 0);
  }
  if (b.rank() == 1) {
    b.shape.push_back(1);
    b.strides.push_back(0);
    out.shape.push_back(1);
    out.strides.push_back(0);
  }
  TensorView rows;
  if (b.rank() == 2 && a.rank() > 2 &&
      reshape_view(a, {a.numel() / std::max<std::int64_t>(a.shape.back(), 1), a.shape.back()},
                   &rows)) {
    TensorView to;
    TK_CHECK(reshape_view(out, {rows.shape[0], b.shape[1]}, &to));
    return gemm(rows, b, to);
  }
  batched_gemm(a, b, out);
}

// ---- mm, bmm, addmm, baddbmm, mv, dot, outer

template <int rank>
std::vector<Type> infer_mm(const Args& args) {
  need_rank(args, 0, rank, rank);
  need_rank(args, 1, rank, rank);
  if (rank == 3) need_same(args, args.in(0).dim(0), args.in(1).dim(0), "the batch sizes");
  return infer_matmul(args);
}

template <int rank>
std::vector<Type> infer_addmm(const Args& args) {
  need_rank(args, 1, rank, rank);
  need_rank(args, 2, rank, rank);
  const DType dtype = one_dtype(args, 3);
  const Type& a = args.in(1);
  const Type& b = args.in(2);
  need_same(args, a.dim(-1), b.dim(-2), "the inner dims");
  if (rank == 3) need_same(args, a.dim(0), b.dim(0), "the batch sizes");
  Type out{dtype, a.shape};
  out.shape.back() = b.dim(-1);
  need_broadcastable(args, args.in(0).shape, out.shape, "self");
  return {out};
}

void eval_addmm(const EvalArgs& args) {
  batched_gemm(args.in(1), args.in(2), args.out(), args.f64("alpha"), args.f64("beta"), args.in(0));
}

std::vector<Type> infer_mv(const Args& args) {
  need_rank(args, 0, 2, 2);
  need_rank(args, 1, 1, 1);
  return infer_matmul(args);
}

std::vector<Type> infer_dot(const Args& args) {
  need_rank(args, 0, 1, 1);
  need_rank(args, 1, 1, 1);
  return infer_matmul(args);
}

std::vector<Type> infer_outer(const Args& args) {
  need_rank(args, 0, 1, 1);
  need_rank(args, 1, 1, 1);
  return {{result_type(args, {{0}, {1}}), {args.in(0).dim(0), args.in(1).dim(0)}}};
}

void eval_outer(const EvalArgs& args) {
  const DType dtype = args.out().dtype;
  Tensor a = as_dtype(args.in(0), dtype);
  a.shape.push_back(1);
  a.strides.push_back(0);
  const Tensor b = as_dtype(args.in(1), dtype);
  with_math(dtype, [&](auto tag) {
    map<decltype(tag), 2>(args.out(), {a, b}, [](auto x, auto y) { return wrap_mul(x, y); });
  });
}

// ---- grouped_mm: rows of a, cut at the running totals `offs`, each group by a matrix of its own

std::vector<Type> infer_grouped(const Args& args) {
  const DType dtype = one_dtype(args, 2);
  need_float(args, 0);
  const Type& a = args.in(0);
  const Type& b = args.in(1);
  need_rank(args, 0, 2, 3);
  need_rank(args, 1, 3, 3);
  need_same(args, a.dim(-1), b.dim(1), "the inner dims");
  if (a.rank() == 3) {
    need_same(args, a.dim(0), b.dim(0), "the numbers of groups");
    return {{dtype, {a.dim(0), a.dim(1), b.dim(2)}}};
  }
  if (!args.has(2)) args.fail("needs offs: where the groups of rows end");
  need_rank(args, 2, 1, 1);
  need_integral(args, 2);
  need_same(args, args.in(2).dim(0), b.dim(0), "the numbers of groups");
  return {{dtype, {a.dim(0), b.dim(2)}}};
}

std::vector<Type> infer_grouped_mm(const Args& args) {
  if (args.has(3)) args.fail("does not take a bias here");
  auto types = infer_grouped(args);
  if (args.has_attr("out_dtype") && args.dtype("out_dtype") != types[0].dtype)
    args.fail("needs out_dtype to be that of the inputs");
  return types;
}

void eval_grouped_mm(const EvalArgs& args) {
  const TensorView& a = args.in(0);
  const TensorView& b = args.in(1);
  const TensorView& out = args.out();
  if (a.rank() == 3) return batched_gemm(a, b, out);
  const Tensor offs = cast_to(args.in(2), DType::i64);
  const auto rows = [&](const TensorView& t, std::int64_t from, std::int64_t to) {
    TensorView part = moved(t, from * t.strides[0]);
    part.shape[0] = to - from;
    return part;
  };
  std::int64_t from = 0;
  for (std::int64_t g = 0; g < b.shape[0]; ++g) {
    const std::int64_t to = offs.as<std::int64_t>()[g];
    if (to < from || to > a.shape[0]) bad_index(args, to, a.shape[0] + 1, "the end of a group");
    gemm(rows(a, from, to), matrix(b, g * b.strides[0]), rows(out, from, to));
    from = to;
  }
  const TensorView rest = rows(out, from, a.shape[0]);  // rows of no group
  cast(rest, expand(number(Attr(false), {}), rest.shape));
}

constexpr std::string_view pair_schema = "(Tensor self, Tensor mat2) -> Tensor";

}  // namespace

const OpDef aten_linear{.name = "aten.linear",
                        .schema = "(Tensor input, Tensor weight, Tensor? bias=None) -> Tensor",
                        .doc = "input [..., k] * weight [n, k] transposed, + bias [n]",
                        .infer = infer_linear,
                        .eval = eval_linear,
                        .cost = product_cost};
const OpDef aten_matmul{.name = "aten.matmul",
                        .schema = "(Tensor self, Tensor other) -> Tensor",
                        .doc = "the matrix product of the last two dims, the others broadcast",
                        .infer = infer_matmul,
                        .eval = eval_matmul,
                        .cost = product_cost};
const OpDef aten_mm{.name = "aten.mm",
                    .schema = pair_schema,
                    .doc = "the product of two matrices",
                    .infer = infer_mm<2>,
                    .eval = eval_matmul,
                    .cost = product_cost};
const OpDef aten_bmm{.name = "aten.bmm",
                     .schema = pair_schema,
                     .doc = "the products of two batches of matrices",
                     .infer = infer_mm<3>,
                     .eval = eval_matmul,
                     .cost = product_cost};
const OpDef aten_addmm{
    .name = "aten.addmm",
    .schema =
        "(Tensor self, Tensor mat1, Tensor mat2, *, scalar beta=1, scalar alpha=1)"
        " -> Tensor",
    .doc = "beta * self + alpha * mat1 * mat2",
    .infer = infer_addmm<2>,
    .eval = eval_addmm,
    .cost = addmm_cost};
const OpDef aten_baddbmm{
    .name = "aten.baddbmm",
    .schema =
        "(Tensor self, Tensor batch1, Tensor batch2, *, scalar beta=1, scalar alpha=1)"
        " -> Tensor",
    .doc = "beta * self + alpha * batch1 * batch2",
    .infer = infer_addmm<3>,
    .eval = eval_addmm,
    .cost = addmm_cost};
const OpDef aten_mv{.name = "aten.mv",
                    .schema = "(Tensor self, Tensor vec) -> Tensor",
                    .doc = "a matrix times a vector",
                    .infer = infer_mv,
                    .eval = eval_matmul,
                    .cost = product_cost};
const OpDef aten_dot{.name = "aten.dot",
                     .schema = "(Tensor self, Tensor tensor) -> Tensor",
                     .doc = "the inner product of two vectors",
                     .infer = infer_dot,
                     .eval = eval_matmul};
const OpDef aten_outer{.name = "aten.outer",
                       .schema = "(Tensor self, Tensor vec2) -> Tensor",
                       .doc = "the outer product of two vectors",
                       .infer = infer_outer,
                       .eval = eval_outer};
const OpDef aten_grouped_mm{
    .name = "aten._grouped_mm",
    .schema =
        "(Tensor self, Tensor mat2, Tensor? offs=None, Tensor? bias=None, "
        "dtype? out_dtype=None) -> Tensor",
    .doc = "rows of self, cut at the running totals offs, each group by its matrix of mat2",
    .infer = infer_grouped_mm,
    .eval = eval_grouped_mm,
    .cost = grouped_cost};
const OpDef transformers_grouped_mm_fallback{
    .name = "transformers.grouped_mm_fallback",
    .schema = "(Tensor input, Tensor weight, Tensor offs) -> Tensor",
    .doc = "as aten._grouped_mm",
    .infer = infer_grouped,
    .eval = eval_grouped_mm,
    .cost = grouped_cost};

}  // namespace tk::ops
