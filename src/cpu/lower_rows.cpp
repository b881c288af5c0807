// Rows chosen by index, softmax, the largest of a row, and gated activations.
#include "base/error.h"
#include "cpu/kernels/elementwise.h"
#include "cpu/prepare.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// Kernels check no index; this does before them. Negative ones are left to the reference's rules:
// the operators here take none.
struct IndexCheck {
  const void* ids;
  DType dtype;
  std::int64_t n, size;
  const char* what;
};
void check_ids(const IndexCheck& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.n; ++i) {
    const std::int64_t id = a.dtype == DType::i64 ? static_cast<const std::int64_t*>(a.ids)[i]
                                                  : static_cast<const std::int32_t*>(a.ids)[i];
    if (id < 0 || id >= a.size)
      throw UserError("TK0501",
                      cat(a.what, ": index ", id, " is out of range for a size of ", a.size));
  }
}

// t [N, ..] as [N, elements of the rest]; false when the rest is not contiguous.
bool flat_rows(const TensorView& t, Matrix* m) {
  Levels rest;
  if (t.rank() < 2 || !merge_axes(t, 1, t.rank(), 1, &rest)) return false;
  if (rest.size[0] != 1 && rest.stride[0] != 1) return false;
  *m = {t.shape[0], rest.size[0], t.strides[0]};
  return true;
}

// y = the rows of the table, [N, ..], that ids name.
const char* rows_of(Prepare& p, const TensorView& table, const TensorView& ids, const char* what) {
  const TensorView& y = p.out();
  Matrix mt;
  if (!kernel_float(table.dtype) || table.dtype != y.dtype) return "dtypes";
  if ((ids.dtype != DType::i64 && ids.dtype != DType::i32) || !ids.contiguous())
    return "the indices' layout";
  if (!flat_rows(table, &mt)) return "strides";
  if (y.numel() == 0) return "an empty result";
  p.launch<check_ids>("check_ids", ids.bytes()) = {ids.data, ids.dtype, ids.numel(), mt.rows, what};
  p.last().serial = true;
  auto& a = p.launch<kernels::embedding>("rows", 2 * y.bytes());
  a.table = {table.data, table.dtype, mt.stride};
  a.ids = ids.data;
  a.ids_dtype = ids.dtype;
  a.y = {y.data, y.dtype, mt.cols};
  a.rows = ids.numel();
  a.cols = mt.cols;
  return nullptr;
}

bool last_axis(const Prepare& p, const char* attr, int rank) {
  const std::int64_t dim = p.args.i64(attr);
  return rank > 0 && (dim == -1 || dim == rank - 1);
}

struct WidenArgs {
  const std::int32_t* from;
  std::int64_t* to;
  std::int64_t n;
};
void widen(const WidenArgs& a, int thread, int n_threads) {
  const kernels::Range r = kernels::share(a.n, 64, thread, n_threads);
  for (std::int64_t i = r.begin; i < r.end; ++i) a.to[i] = a.from[i];
}

// gate and up are parts of the last axis of x, [.., f] each.
const char* glu(Prepare& p, const kernels::Glu& g, bool gate_second) {
  const TensorView& x = p.in(0);
  Matrix mx, my;
  if (!kernel_float(x.dtype) || !kernel_float(p.out().dtype)) return "dtypes";
  if (!last_axis(p, "dim", x.rank())) return "not the last axis";
  if (!as_matrix(x, &mx) || !as_matrix(p.out(), &my)) return "strides";
  if (my.rows == 0 || my.cols == 0) return "an empty operand";
  kernels::GluArgs a;
  a.glu = g;
  a.x = {x.data, x.dtype, mx.stride};
  if (gate_second) {
    a.up = a.x;
    a.x.data =
        static_cast<std::byte*>(x.data) + my.cols * static_cast<std::int64_t>(size_of(x.dtype));
  }
  a.y = {p.out().data, p.out().dtype, my.stride};
  a.rows = my.rows;
  a.f = my.cols;
  p.launch<kernels::glu>("glu", x.bytes() + p.out().bytes()) = a;
  return nullptr;
}

}  // namespace

const char* prepare_embedding(Prepare& p) { return rows_of(p, p.in(0), p.in(1), "aten.embedding"); }
const char* prepare_index_select(Prepare& p) {
  if (p.args.i64("dim") != 0) return "not the first axis";
  if (p.in(1).rank() != 1) return "the index is no vector";
  return rows_of(p, p.in(0), p.in(1), "aten.index_select");
}

const char* prepare_softmax(Prepare& p) {
  const TensorView& x = p.in(0);
  Matrix mx, my;
  if (!kernel_float(x.dtype) || !kernel_float(p.out().dtype)) return "dtypes";
  if (!last_axis(p, "dim", x.rank())) return "not the last axis";
  if (!as_matrix(x, &mx) || !as_matrix(p.out(), &my) || x.numel() == 0) return "strides";
  auto& a = p.launch<kernels::softmax>("softmax", x.bytes() + p.out().bytes());
  a.x = {x.data, x.dtype, mx.stride};
  a.y = {p.out().data, p.out().dtype, my.stride};
  a.rows = mx.rows;
  a.cols = mx.cols;
  return nullptr;
}

const char* prepare_topk(Prepare& p) {
  const TensorView& x = p.in(0);
  Matrix m;
  if (!kernel_float(x.dtype)) return "dtypes";
  if (!last_axis(p, "dim", x.rank()) || !p.args.flag("largest")) return "not the largest of a row";
  if (!as_matrix(x, &m) || x.numel() == 0 || p.out().numel() == 0) return "strides";
  const std::int64_t k = p.args.i64("k");
  auto& a = p.launch<kernels::top_k>("top_k", x.bytes());
  a.x = {x.data, x.dtype, m.stride};
  a.values = {p.out(0).data, p.out(0).dtype, k};
  a.rows = m.rows;
  a.cols = m.cols;
  a.k = k;
  a.index_stride = k;
  p.scratch(&a.index, static_cast<std::size_t>(m.rows * k) * sizeof(std::int32_t));
  auto& w = p.launch<widen>("widen", p.out(1).bytes());
  w = {nullptr, p.out(1).as<std::int64_t>(), m.rows * k};
  p.share_scratch(&w.from, &a.index);
  return nullptr;
}

const char* prepare_swiglu(Prepare& p) {
  kernels::Glu g;
  g.act = kernels::Activation::silu;
  return glu(p, g, false);
}
const char* prepare_geglu(Prepare& p) {
  if (!p.unused(1)) return "the gelu alone is used";
  kernels::Glu g;
  g.act = p.args.i64("approximate") == 1 ? kernels::Activation::gelu_tanh
                                         : kernels::Activation::gelu_erf;
  return glu(p, g, !p.args.flag("activate_left"));
}
const char* prepare_clipped_swiglu(Prepare& p) {
  if (p.has(1)) return "rows past groups";
  kernels::Glu g;
  g.clamped = true;
  g.layout =
      p.args.flag("interleaved") ? kernels::GluLayout::interleaved : kernels::GluLayout::halves;
  g.limit = static_cast<float>(p.args.f64("limit"));
  g.alpha = static_cast<float>(p.args.f64("alpha"));
  g.up_offset = static_cast<float>(p.args.f64("bias"));
  return glu(p, g, false);
}

}  // namespace tk
