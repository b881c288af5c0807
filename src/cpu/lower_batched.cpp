// Batches of matrix products, and MLA over the cached latent, which is made of them.
#include "base/error.h"
#include "cpu/batched.h"
#include "cpu/lower_attention.h"
#include "cpu/prepare.h"
#include "cpu/product.h"
#include "cpu/rows.h"

namespace tk {
namespace {

// x [B, M, K] * w [B, K, N] -> y [B, M, N], by their strides; batch axes are merged before.
const char* batched(Prepare& p, const TensorView& x, const TensorView& w, const TensorView& y) {
  if (!kernel_float(x.dtype) || !kernel_float(w.dtype) || !kernel_float(y.dtype)) return "dtypes";
  if (y.numel() == 0 || x.shape[2] == 0) return "an empty operand";
  if ((x.strides[2] != 1 && x.shape[2] != 1) || (y.strides[2] != 1 && y.shape[2] != 1))
    return "the operands' strides";
  WeightView v;
  if (!weight_view(w, false, &v)) return "the second operand's strides";
  BatchedLinearArgs a;
  kernels::LinearArgs& l = a.first;
  l = product_args(x, w, v, y);
  l.m = x.shape[1];
  l.x_stride = x.strides[1];
  l.y_stride = y.strides[1];
  a.n = y.shape[0];
  a.x_step = x.strides[0] * static_cast<std::int64_t>(size_of(x.dtype));
  a.w_step = w.strides[0] * static_cast<std::int64_t>(size_of(w.dtype));
  a.y_step = y.strides[0] * static_cast<std::int64_t>(size_of(y.dtype));
  auto& args = p.launch<batched_linear>("batched_linear", x.bytes() + w.bytes() + y.bytes());
  args = a;
  p.scratch(&args.first.scratch, batched_scratch_bytes(&args, p.n_threads));
  return nullptr;
}

TensorView permuted(const TensorView& t, const Prepare& p, const char* attr) {
  TensorView v = t;
  if (!p.args.has_attr(attr) || p.args.ints(attr).empty()) return v;
  const Dims order = p.args.ints(attr);
  for (int i = 0; i < 3; ++i) {
    v.shape[i] = t.shape[static_cast<int>(order[i])];
    v.strides[i] = t.strides[static_cast<int>(order[i])];
  }
  return v;
}

// The leading axes of t over those of y as one, broadcasting.
bool one_batch(const TensorView& t, const TensorView& y, TensorView* out) {
  if (t.rank() < 2) return false;
  TensorView wide = t;  // y's leading axes, t's last two
  wide.shape = y.shape;
  wide.strides = y.strides;
  const int lead = y.rank() - t.rank();
  if (lead < 0) return false;
  for (int i = 0; i + 2 < y.rank(); ++i) {
    const int k = i - lead;
    wide.strides[i] = k < 0 || (t.shape[k] == 1 && y.shape[i] != 1) ? 0 : t.strides[k];
  }
  Levels l;
  if (!merge_axes(wide, 0, y.rank() - 2, 1, &l)) return false;
  *out = t;
  out->shape = {l.size[0], t.shape.at(-2), t.shape.at(-1)};
  out->strides = {l.stride[0], t.strides.at(-2), t.strides.at(-1)};
  return true;
}

}  // namespace

const char* prepare_batched_matmul(Prepare& p) {
  const TensorView& y = p.out();
  TensorView x, w, merged;
  if (p.packed(1)) return "a packed weight";
  if (p.in(0).rank() < 2 || p.in(1).rank() < 2 || y.rank() < 3) return "vectors";
  if (!one_batch(p.in(0), y, &x) || !one_batch(p.in(1), y, &w) || !one_batch(y, y, &merged))
    return "the batch axes' strides";
  return batched(p, x, w, merged);
}

const char* prepare_transpose_batchmatmul(Prepare& p) {
  const TensorView x = permuted(p.in(0), p, "perm_x1");
  const TensorView w = permuted(p.in(1), p, "perm_x2");
  TensorView y = p.out();
  if (p.args.has_attr("perm_y") && !p.args.ints("perm_y").empty()) {
    // Axis perm_y[i] of the product is axis i of the result.
    const Dims order = p.args.ints("perm_y");
    for (int i = 0; i < 3; ++i) {
      y.shape[static_cast<int>(order[i])] = p.out().shape[i];
      y.strides[static_cast<int>(order[i])] = p.out().strides[i];
    }
  }
  return batched(p, x, w, y);
}

// Absorbed: k_nope . q = latent . (W_uk^T q), and the values are W_uv times the weighted latents;
// so attention runs over the latent itself, and nothing of the cache is expanded.
const char* prepare_mla_attention(Prepare& p) {
  const TensorView& qn = p.in(0);
  const TensorView& qr = p.in(1);
  const TensorView& latent = p.in(2);
  const TensorView& rope = p.in(3);
  const TensorView& w = p.in(4);
  const TensorView& out = p.out();
  if (!kernel_float(qn.dtype) || qr.dtype != qn.dtype || !kernel_float(w.dtype)) return "dtypes";
  if (w.strides[1] != 1 || qn.strides[2] != 1 || out.numel() == 0) return "strides";
  const std::int64_t tokens = qn.shape[0];
  const std::int64_t heads = qn.shape[1];
  const std::int64_t nope = qn.shape[2];
  const std::int64_t rank = latent.shape[3];
  const std::int64_t v_dim = out.shape[2];
  // Queries and results against the latent, [T, H, rank], in memory that is found later.
  TensorView middle;
  middle.dtype = qn.dtype;
  middle.shape = {tokens, heads, rank};
  middle.strides = contiguous_strides(middle.shape);
  AttentionOperands o{.q = middle,
                      .q2 = &qr,
                      .k = latent,
                      .v = latent,
                      .k2 = &rope,
                      .table = p.in(5),
                      .query_lens = p.in(6),
                      .kv_lens = p.in(7),
                      .sinks = nullptr,
                      .out = middle,
                      .given_by = {5, 6, 7}};
  if (const char* no = attention_refuses(o)) return no;

  const auto size = static_cast<std::int64_t>(size_of(w.dtype));
  const auto each = static_cast<std::int64_t>(size_of(qn.dtype));
  const auto middle_bytes = static_cast<std::size_t>(middle.bytes());
  auto& absorb = p.launch<batched_linear>("mla_absorb", qn.bytes() + w.bytes() / 2);
  kernels::LinearArgs& a = absorb.first;
  a.x = qn.data;
  a.w = w.data;
  a.x_dtype = a.y_dtype = qn.dtype;
  a.w_dtype = w.dtype;
  a.layout = kernels::WeightLayout::k_n;
  a.m = tokens;
  a.k = nope;
  a.n = rank;
  a.x_stride = qn.strides[0];
  a.w_stride = w.strides[0];
  a.y_stride = heads * rank;
  absorb.n = heads;
  absorb.x_step = qn.strides[1] * each;
  absorb.w_step = (nope + v_dim) * w.strides[0] * size;
  absorb.y_step = rank * each;
  p.scratch(&absorb.first.y, middle_bytes);
  p.scratch(&absorb.first.scratch, batched_scratch_bytes(&absorb, p.n_threads));

  const AttentionLaunch attention = launch_attention(p, o);
  p.share_scratch(attention.q, &absorb.first.y);
  p.scratch(attention.out, middle_bytes);
  p.share_scratch(attention.combined_out, attention.out);
  p.share_scratch(attention.combined_q, &absorb.first.y);

  auto& expand = p.launch<batched_linear>("mla_expand", out.bytes() + w.bytes() / 2);
  kernels::LinearArgs& e = expand.first;
  e.w = static_cast<std::byte*>(w.data) + nope * w.strides[0] * size;
  e.y = out.data;
  e.x_dtype = e.y_dtype = qn.dtype;
  e.w_dtype = w.dtype;
  e.layout = kernels::WeightLayout::n_k;
  e.m = tokens;
  e.k = rank;
  e.n = v_dim;
  e.x_stride = heads * rank;
  e.w_stride = w.strides[0];
  e.y_stride = out.strides[0];
  expand.n = heads;
  expand.x_step = rank * each;
  expand.w_step = absorb.w_step;
  expand.y_step = out.strides[1] * each;
  p.share_scratch(&expand.first.x, attention.out);
  p.scratch(&expand.first.scratch, batched_scratch_bytes(&expand, p.n_threads));
  return nullptr;
}

}  // namespace tk
