// Routed experts: gates, sorting by expert, products per expert, and the way back.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "cpu/glu.h"
#include "cpu/kernels/elementwise.h"
#include "cpu/kernels/linear.h"
#include "cpu/kernels/moe.h"
#include "cpu/prepare.h"
#include "cpu/product.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// ---- gates

const char* gate(Prepare& p, kernels::MoeGateArgs a) {
  const TensorView& x = p.in(0);
  const TensorView& y = p.out(0);
  if (!kernel_float(x.dtype) || !kernel_float(y.dtype)) return "dtypes";
  if (x.rank() != 2 || x.strides[1] != 1 || x.numel() == 0) return "strides";
  if (!p.unused(2)) return "a further result is used";
  a.logits = x.data;
  a.dtype = x.dtype;
  a.tokens = x.shape[0];
  a.n_experts = x.shape[1];
  a.logits_stride = x.strides[0];
  a.top_k = p.args.i64("k");
  a.ids = p.out(1).as<std::int32_t>();
  a.weights = y.dtype == DType::f32 ? y.as<float>() : nullptr;
  auto& g = p.launch<kernels::moe_gate>("moe_gate", x.bytes());
  g = a;
  p.scratch(&g.scratch, kernels::moe_gate_scratch_bytes(g, p.n_threads));
  if (g.weights != nullptr) return nullptr;
  p.scratch(&g.weights, static_cast<std::size_t>(y.numel()) * sizeof(float));
  auto& c = p.launch<kernels::unary>("cast", y.bytes());
  c.x = {nullptr, DType::f32, a.top_k};
  c.y = {y.data, y.dtype, a.top_k};
  c.rows = a.tokens;
  c.cols = a.top_k;
  p.share_scratch(&c.x.data, &g.weights);
  return nullptr;
}

// ---- sorting

struct ExpertCheck {
  const std::int32_t* ids;
  std::int64_t n, n_experts;
};
void check_experts(const ExpertCheck& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.ids[i] < 0 || a.ids[i] >= a.n_experts)
      throw UserError("TK0501", cat("npu.npu_moe_init_routing_v2: index ", a.ids[i],
                                    " is out of range for a size of ", a.n_experts));
}

// After the sort: the token of each place, the number of rows per expert, scales of 1.
struct SortedArgs {
  const std::int32_t *pair_at, *offsets;
  std::int32_t* token_at;
  std::int64_t* counts;
  float* ones;
  std::int64_t pairs, top_k, n_experts;
};
void describe_sorted(const SortedArgs& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.pairs; ++i) {
    a.token_at[i] = static_cast<std::int32_t>(a.pair_at[i] / a.top_k);
    a.ones[i] = 1.0F;
  }
  for (std::int64_t e = 0; e < a.n_experts; ++e) a.counts[e] = a.offsets[e + 1] - a.offsets[e];
}

// ---- products per expert

struct GroupArgs {
  const void* list;  // i64 or i32, counts or running totals
  DType dtype;
  bool counts;
  std::int32_t* offsets;  // [n + 1]
  std::int64_t n, rows;
  std::byte* y;  // rows of no group become zero
  std::int64_t row_bytes;
};
void make_offsets(const GroupArgs& a, int /*thread*/, int /*n_threads*/) {
  std::int64_t end = 0;
  a.offsets[0] = 0;
  for (std::int64_t e = 0; e < a.n; ++e) {
    const std::int64_t v = a.dtype == DType::i64 ? static_cast<const std::int64_t*>(a.list)[e]
                                                 : static_cast<const std::int32_t*>(a.list)[e];
    const std::int64_t next = a.counts ? end + v : v;
    if (next < end || next > a.rows)
      throw UserError("TK0501", cat("the rows of group ", e, " end at ", next, ", of ", a.rows,
                                    " rows, after ", end));
    end = next;
    a.offsets[e + 1] = static_cast<std::int32_t>(end);
  }
  std::memset(a.y + end * a.row_bytes, 0, static_cast<std::size_t>((a.rows - end) * a.row_bytes));
}

// x [M, K] * w [E, K, N] (+ bias [E, N]).
const char* grouped(Prepare& p, const TensorView& x, const TensorView& w, const TensorView* bias,
                    const TensorView& list, bool counts, const kernels::Glu* glu = nullptr) {
  const TensorView& y = p.out();
  if (!kernel_float(x.dtype) || !kernel_float(w.dtype) || !kernel_float(y.dtype)) return "dtypes";
  if (x.rank() != 2 || w.rank() != 3 || x.strides[1] != 1) return "strides";
  if (!list.contiguous() || (list.dtype != DType::i64 && list.dtype != DType::i32))
    return "the group list's layout";
  if (bias != nullptr && (!kernel_float(bias->dtype) || bias->strides[1] != 1))
    return "the bias's layout";
  if (y.numel() == 0 || x.shape[1] == 0) return "an empty operand";
  WeightView v;
  if (!weight_view(w, false, &v)) return "the weight's strides";
  if (p.packed(1)) v.layout = kernels::WeightLayout::packed;
  kernels::GroupedLinearArgs g;
  kernels::LinearArgs& a = g.linear;
  a = product_args(x, w, v, y, bias, glu);
  a.m = x.shape[0];
  a.x_stride = x.strides[0];
  a.y_stride = y.shape[1];
  if (bias != nullptr) g.bias_expert_stride = bias->strides[0];
  g.n_experts = w.shape[0];
  g.w_expert_stride = w.strides[0];
  auto& o = p.launch<make_offsets>("group_offsets", list.bytes());
  p.last().serial = true;
  o = {list.data,
       list.dtype,
       counts,
       nullptr,
       list.shape[0],
       a.m,
       static_cast<std::byte*>(y.data),
       a.y_stride * static_cast<std::int64_t>(size_of(y.dtype))};
  p.scratch(&o.offsets, static_cast<std::size_t>(list.shape[0] + 1) * sizeof(std::int32_t));
  // At most one expert's weight per row.
  const std::int64_t active = std::min(g.n_experts, a.m);
  auto& launched = p.launch<kernels::grouped_linear>(
      "grouped_linear", x.bytes() + y.bytes() + w.bytes() / g.n_experts * active);
  launched = g;
  p.share_scratch(&launched.offsets, &o.offsets);
  p.scratch(&launched.linear.scratch, kernels::grouped_linear_scratch_bytes(launched, p.n_threads));
  return nullptr;
}

struct PlaceCheck {
  const std::int32_t* places;
  std::int64_t n;
};
void check_places(const PlaceCheck& a, int /*thread*/, int /*n_threads*/) {
  for (std::int64_t i = 0; i < a.n; ++i)
    if (a.places[i] < 0 || a.places[i] >= a.n)
      throw UserError("TK0501", cat("npu.npu_moe_finalize_routing: index ", a.places[i],
                                    " is out of range for a size of ", a.n));
}

}  // namespace

const char* prepare_gate_softmax(Prepare& p) { return gate(p, {}); }
const char* prepare_gate_softmax_v2(Prepare& p) {
  kernels::MoeGateArgs a;
  if (p.args.i64("renorm") == 1) a.score = kernels::GateScore::softmax_of_top_k;
  return gate(p, a);
}
const char* prepare_gate(Prepare& p) {
  kernels::MoeGateArgs a;
  const bool sigmoid = p.args.i64("norm_type") == 1;
  a.score = sigmoid ? kernels::GateScore::sigmoid : kernels::GateScore::softmax;
  a.renormalize = sigmoid || p.args.i64("renorm") == 1;
  if (a.renormalize && p.args.f64("eps") > 1e-12) return "eps";
  a.scale = static_cast<float>(p.args.f64("routed_scaling_factor"));
  a.groups = p.args.i64("group_count");
  a.top_groups = p.args.i64("k_group");
  a.group_score = p.args.i64("group_select_mode") == 1 ? kernels::GroupScore::top2_sum
                                                       : kernels::GroupScore::max;
  if (p.has(1)) {
    if (p.in(1).dtype != DType::f32 || !p.in(1).contiguous()) return "the bias's layout";
    a.bias = p.in(1).as<float>();
  }
  return gate(p, a);
}

const char* prepare_init_routing(Prepare& p) {
  const TensorView& x = p.in(0);
  const TensorView& ids = p.in(1);
  if (!kernel_float(x.dtype)) return "dtypes";
  if (x.strides[1] != 1 || !ids.contiguous() || x.numel() == 0) return "strides";
  const std::int64_t experts = p.args.i64("expert_num");
  const std::int64_t pairs = ids.numel();
  p.launch<check_experts>("check_experts", ids.bytes()) = {ids.as<std::int32_t>(), pairs, experts};
  p.last().serial = true;
  auto& s = p.launch<kernels::moe_sort>("moe_sort", 4 * ids.bytes());
  p.last().serial = true;
  s.ids = ids.as<std::int32_t>();
  s.tokens = ids.shape[0];
  s.top_k = ids.shape[1];
  s.n_experts = experts;
  s.place_of_pair = p.out(1).as<std::int32_t>();
  const auto pair_bytes = static_cast<std::size_t>(pairs) * sizeof(std::int32_t);
  p.scratch(&s.pair_at, pair_bytes);
  p.scratch(&s.offsets, static_cast<std::size_t>(experts + 1) * sizeof(std::int32_t));
  auto& d = p.launch<describe_sorted>("describe_sorted", 4 * ids.bytes());
  p.last().serial = true;
  d.counts = p.out(2).as<std::int64_t>();
  d.ones = p.out(3).as<float>();
  d.pairs = pairs;
  d.top_k = ids.shape[1];
  d.n_experts = experts;
  p.share_scratch(&d.pair_at, &s.pair_at);
  p.share_scratch(&d.offsets, &s.offsets);
  p.scratch(&d.token_at, pair_bytes);
  auto& g = p.launch<kernels::gather_rows>("gather_rows", 2 * p.out(0).bytes());
  g.x = {x.data, x.dtype, x.strides[0]};
  g.y = {p.out(0).data, x.dtype, x.shape[1]};
  g.rows = pairs;
  g.cols = x.shape[1];
  p.share_scratch(&g.index, &d.token_at);
  return nullptr;
}

const char* prepare_grouped_matmul(Prepare& p) {
  return grouped(p, p.in(0), p.in(1), p.has(2) ? &p.in(2) : nullptr, p.in(3),
                 p.args.i64("group_list_type") == 1);
}
const char* prepare_grouped_linear_glu(Prepare& p) {
  const kernels::Glu glu = glu_of(p.args);
  return grouped(p, p.in(0), p.in(1), p.has(2) ? &p.in(2) : nullptr, p.in(3), true, &glu);
}
const char* prepare_grouped_mm(Prepare& p) {
  if (!p.has(2) || p.has(3)) return "no groups, or a bias";
  return grouped(p, p.in(0), p.in(1), nullptr, p.in(2), false);
}
const char* prepare_grouped_mm_fallback(Prepare& p) {
  return grouped(p, p.in(0), p.in(1), nullptr, p.in(2), false);
}

const char* prepare_finalize(Prepare& p) {
  const TensorView& x = p.in(0);
  const TensorView& w = p.in(4);
  const TensorView& places = p.in(5);
  const TensorView& y = p.out();
  if (!kernel_float(x.dtype) || y.dtype != x.dtype || !kernel_float(w.dtype)) return "dtypes";
  if (x.strides[1] != 1 || w.strides[1] != 1 || !places.contiguous() || y.numel() == 0)
    return "strides";
  if (w.strides[0] != w.shape[1] && w.shape[0] != 1) return "the scales' strides";
  if (p.has(1) && p.in(1).strides[1] != 1) return "skip1's strides";
  p.launch<check_places>("check_places", places.bytes()) = {places.as<std::int32_t>(),
                                                            places.numel()};
  p.last().serial = true;
  kernels::UnaryArgs* cast = nullptr;
  if (w.dtype != DType::f32) {
    cast = &p.launch<kernels::unary>("cast", w.bytes());
    cast->x = {w.data, w.dtype, w.shape[1]};
    cast->y = {nullptr, DType::f32, w.shape[1]};
    cast->rows = w.shape[0];
    cast->cols = w.shape[1];
    p.scratch(&cast->y.data, static_cast<std::size_t>(w.numel()) * sizeof(float));
  }
  auto& a = p.launch<kernels::moe_finalize>("moe_finalize", x.bytes() + y.bytes());
  a.x = x.data;
  a.weights = cast == nullptr ? w.as<float>() : nullptr;
  if (cast != nullptr) p.share_scratch(&a.weights, &cast->y.data);
  a.place_of_pair = places.as<std::int32_t>();
  if (p.has(1)) {
    a.residual = p.in(1).data;
    a.residual_stride = p.in(1).strides[0];
  }
  a.y = y.data;
  a.x_dtype = x.dtype;
  a.y_dtype = y.dtype;
  a.tokens = w.shape[0];
  a.top_k = w.shape[1];
  a.d = x.shape[1];
  a.x_stride = x.strides[0];
  a.y_stride = a.d;
  return nullptr;
}

}  // namespace tk
