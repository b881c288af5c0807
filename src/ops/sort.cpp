// Orders and counts of elements.
#include <cmath>
#include <numeric>

#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// NaN counts as the largest. Equal elements keep their order.
template <typename T>
bool less(T a, T b) {
  return b != b ? a == a : a < b;
}

// For each line of input 0: f(line, order, offsets of two outputs).
template <typename F>
void for_orders(const EvalArgs& args, int dim, bool descending, std::int64_t most,
                const TensorView& first, const TensorView& second, F f) {
  const TensorView& in = args.in(0);
  const std::int64_t n = line_size(in, dim);
  with_real(in.dtype, [&](auto tag) {
    using T = decltype(tag);
    std::vector<T> line(static_cast<std::size_t>(n));
    std::vector<std::int64_t> order(line.size());
    for_lines<3>({in, first, second}, dim, [&](const Offsets<3>& at) {
      read_line(in, {at[0], n, line_stride(in, dim)}, line.data());
      std::iota(order.begin(), order.end(), 0);
      const auto before = [&](std::int64_t i, std::int64_t j) {
        const T a = line[static_cast<std::size_t>(i)];
        const T b = line[static_cast<std::size_t>(j)];
        if (less(a, b)) return !descending;
        if (less(b, a)) return descending;
        return i < j;
      };
      std::partial_sort(order.begin(), order.begin() + most, order.end(), before);
      f(line, order, at[1], at[2]);
    });
  });
}

// Writes the first `count` of an order to values and indices.
template <bool values>
void write_order(const EvalArgs& args, int dim, bool descending, std::int64_t count) {
  const TensorView& indices = args.out(values ? 1 : 0);
  const TensorView& best = args.out(0);
  const auto write = [&](auto& line, auto& order, std::int64_t at_best, std::int64_t at_index) {
    write_line(indices, {at_index, count, line_stride(indices, dim)}, order.data());
    if (!values) return;
    auto chosen = line;
    for (std::int64_t i = 0; i < count; ++i)
      chosen[static_cast<std::size_t>(i)] =
          line[static_cast<std::size_t>(order[static_cast<std::size_t>(i)])];
    write_line(best, {at_best, count, line_stride(best, dim)}, chosen.data());
  };
  for_orders(args, dim, descending, count, best, indices, write);
}

void need_real(const Args& args) {
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers");
}

std::vector<Type> infer_sort(const Args& args) {
  need_real(args);
  axis(args, "dim", args.in(0).rank());
  return {args.in(0), {DType::i64, args.in(0).shape}};
}
void eval_sort(const EvalArgs& args) {
  const int dim = axis(args.i64("dim"), args.in(0).rank());
  write_order<true>(args, dim, args.flag("descending"), line_size(args.in(0), dim));
}

std::vector<Type> infer_argsort(const Args& args) { return {infer_sort(args)[1]}; }
void eval_argsort(const EvalArgs& args) {
  const int dim = axis(args.i64("dim"), args.in(0).rank());
  write_order<false>(args, dim, args.flag("descending"), line_size(args.in(0), dim));
}

std::vector<Type> infer_topk(const Args& args) {
  need_real(args);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  const Sym k = args.sym("k");
  const Sym n = t.rank() == 0 ? Sym(1) : t.dim(dim);
  const Sym room = n - k;
  if ((k.is_const() && k.value() < 0) || (room.is_const() && room.value() < 0))
    args.fail(cat("needs k within ", n.str(), ", got ", k.str()));
  if (t.rank() > 0) t.shape[static_cast<std::size_t>(dim)] = k;
  return {t, {DType::i64, t.shape}};
}
// Sorted always, which PyTorch allows.
void eval_topk(const EvalArgs& args) {
  const int dim = axis(args.i64("dim"), args.in(0).rank());
  const std::int64_t k = args.i64("k");
  if (k < 0 || k > line_size(args.in(0), dim))
    bad_index(args, k, line_size(args.in(0), dim) + 1, "k");
  write_order<true>(args, dim, args.flag("largest"), k);
}

// ---- counts

std::vector<Type> infer_histc(const Args& args) {
  if (args.in(0).dtype == DType::c64) args.fail("is not defined for complex numbers");
  if (args.i64("bins") < 1) args.fail(cat("needs bins, got ", args.i64("bins")));
  if (!(args.f64("min") <= args.f64("max"))) args.fail("needs min not above max");
  return {{args.in(0).dtype, {args.i64("bins")}}};
}
void eval_histc(const EvalArgs& args) {
  double low = args.f64("min");
  double high = args.f64("max");
  if (low == high) {  // the range of the data
    low = INFINITY;
    high = -INFINITY;
    for_values<double>(args.in(0), [&](const double* v, int n) {
      for (int i = 0; i < n; ++i) {
        low = std::min(low, v[i]);
        high = std::max(high, v[i]);
      }
    });
    if (low > high) low = high = 0;
    if (low == high) {
      low -= 1;
      high += 1;
    }
  }
  const std::int64_t bins = args.out().numel();
  std::vector<std::int64_t> counts(static_cast<std::size_t>(bins));
  for_values<double>(args.in(0), [&](const double* v, int n) {
    for (int i = 0; i < n; ++i) {
      if (!(v[i] >= low && v[i] <= high)) continue;
      const auto k =
          static_cast<std::int64_t>((v[i] - low) / (high - low) * static_cast<double>(bins));
      ++counts[static_cast<std::size_t>(std::min(k, bins - 1))];
    }
  });
  write_line(args.out(), {0, bins, 1}, counts.data());
}

std::vector<Type> infer_bincount(const Args& args) {
  need_rank(args, 0, 1, 1);
  need_integral(args, 0);
  const std::int64_t bins = args.i64("minlength");
  if (bins < 1) args.fail("needs minlength: the size of the result may not depend on values");
  if (!args.has(1)) return {{DType::i64, {bins}}};
  need_same(args, args.in(0).dim(0), args.in(1).numel(), "the sizes of self and weights");
  return {{args.in(1).dtype == DType::f32 ? DType::f32 : DType::f64, {bins}}};
}
void eval_bincount(const EvalArgs& args) {
  const std::int64_t bins = args.out().numel();
  const Tensor ids = cast_to(args.in(0), DType::i64);
  Tensor weights;
  if (args.has(1)) weights = cast_to(args.in(1), DType::f64);
  std::vector<double> sums(static_cast<std::size_t>(bins));
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t k = checked_index(args, ids.as<std::int64_t>()[i], bins, false);
    sums[static_cast<std::size_t>(k)] += args.has(1) ? weights.as<double>()[i] : 1;
  }
  write_line(args.out(), {0, bins, 1}, sums.data());
}

}  // namespace

const OpDef aten_sort{.name = "aten.sort",
                      .schema =
                          "(Tensor self, *, bool? stable=None, int dim=-1, "
                          "bool descending=false) -> (Tensor values, Tensor indices)",
                      .doc = "elements in order along dim, and where they were; always stable",
                      .infer = infer_sort,
                      .eval = eval_sort};
const OpDef aten_argsort{.name = "aten.argsort",
                         .schema =
                             "(Tensor self, *, bool stable=false, int dim=-1, "
                             "bool descending=false) -> Tensor",
                         .doc = "where the elements in order are along dim; always stable",
                         .infer = infer_argsort,
                         .eval = eval_argsort};
const OpDef aten_topk{.name = "aten.topk",
                      .schema =
                          "(Tensor self, int k, int dim=-1, bool largest=true, bool sorted=true)"
                          " -> (Tensor values, Tensor indices)",
                      .doc = "the k largest or smallest along dim, best first, and where they are",
                      .infer = infer_topk,
                      .eval = eval_topk};
const OpDef aten_histc{
    .name = "aten.histc",
    .schema = "(Tensor self, int bins=100, scalar min=0, scalar max=0) -> Tensor",
    .doc = "how many elements lie in each of bins equal parts of [min, max]",
    .infer = infer_histc,
    .eval = eval_histc};
const OpDef aten_bincount{
    .name = "aten.bincount",
    .schema = "(Tensor self, Tensor? weights=None, int minlength=0) -> Tensor",
    .doc = "how often each id occurs, or the sum of its weights; ids are below minlength",
    .infer = infer_bincount,
    .eval = eval_bincount};

}  // namespace tk::ops
