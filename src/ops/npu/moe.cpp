// Routed experts of torch_npu 2.14: gates, routing there and back. Integers are i32 as there.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

struct GateShape {
  Sym tokens, experts;
  std::int64_t k;
};

GateShape gate_shape(const Args& args) {
  const Type& x = args.in(0);
  need_float(args, 0);
  need_rank(args, 0, 2, 2);
  const std::int64_t k = args.i64("k");
  const Sym experts = x.dim(1);
  if (k < 1 || (experts.is_const() && k > experts.value()))
    args.fail(cat("needs 1 <= k <= ", experts.str(), ", got ", k));
  return {x.dim(0), experts, k};
}

// Indices of the k largest, largest first, the lower index first among equals; NaN is largest.
std::vector<int> largest(const std::vector<float>& v, std::int64_t k) {
  std::vector<int> index(v.size());
  std::iota(index.begin(), index.end(), 0);
  auto greater = [&](int a, int b) {
    const float x = v[static_cast<std::size_t>(a)];
    const float y = v[static_cast<std::size_t>(b)];
    if (std::isnan(x) || std::isnan(y)) return std::isnan(x) && (!std::isnan(y) || a < b);
    return x != y ? x > y : a < b;
  };
  std::partial_sort(index.begin(), index.begin() + k, index.end(), greater);
  index.resize(static_cast<std::size_t>(k));
  return index;
}

void softmax(std::vector<float>* v) {
  const float top = *std::max_element(v->begin(), v->end());
  float sum = 0;
  for (float& x : *v) sum += x = std::exp(x - top);
  for (float& x : *v) x /= sum;
}

std::vector<Type> gate_softmax_infer(const Args& args) {
  const GateShape s = gate_shape(args);
  const SymDims shape{s.tokens, s.k};
  return {{args.in(0).dtype, shape}, {DType::i32, shape}, {DType::i32, shape}};
}

std::vector<Type> gate_softmax_v2_infer(const Args& args) {
  const std::int64_t renorm = args.i64("renorm");
  if (renorm != 0 && renorm != 1) args.fail(cat("needs renorm 0 or 1, got ", renorm));
  return gate_softmax_infer(args);
}

void gate_softmax(const EvalArgs& a, bool top_first) {
  const std::int64_t n = a.in(0).shape[1];
  const std::int64_t k = a.i64("k");
  const std::int64_t tokens = a.in(0).shape[0];
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t t = 0; t < tokens; ++t) {
    read_row(a.in(0), t * a.in(0).strides[0], a.in(0).strides[1], n, row.data());
    if (!top_first) softmax(&row);
    const std::vector<int> chosen = largest(row, k);
    std::vector<float> w;
    for (int e : chosen) w.push_back(row[static_cast<std::size_t>(e)]);
    if (top_first) softmax(&w);
    write_row(a.out(0), t * k, 1, k, w.data());
    for (std::int64_t j = 0; j < k; ++j) {
      a.out(1).as<std::int32_t>()[t * k + j] = chosen[static_cast<std::size_t>(j)];
      a.out(2).as<std::int32_t>()[t * k + j] = static_cast<std::int32_t>(j * tokens + t);
    }
  }
}

void gate_softmax_eval(const EvalArgs& a) { gate_softmax(a, false); }
void gate_softmax_v2_eval(const EvalArgs& a) { gate_softmax(a, a.i64("renorm") == 1); }

std::vector<Type> gate_infer(const Args& args) {
  const GateShape s = gate_shape(args);
  const std::int64_t groups = args.i64("group_count");
  const std::int64_t top = args.i64("k_group");
  if (args.has(1) && (args.in(1).rank() != 1 || !(args.in(1).dim(0) == s.experts)))
    args.fail(cat("needs a bias of shape [", s.experts.str(), "], got ", args.in(1).str()));
  if (!s.experts.is_const()) args.fail("needs a constant number of experts");
  const std::int64_t e = s.experts.value();
  if (groups < 1 || e % groups != 0 || top < 1 || top > groups || s.k > e / groups * top)
    args.fail(cat("needs group_count to divide ", e, " experts, 1 <= k_group <= group_count and ",
                  "k experts in the chosen groups; got group_count ", groups, ", k_group ", top,
                  ", k ", s.k));
  for (const char* name : {"group_select_mode", "norm_type", "renorm"}) {
    const std::int64_t v = args.i64(name);
    if (v != 0 && v != 1) args.fail(cat("needs ", name, " 0 or 1, got ", v));
  }
  if (args.i64("group_select_mode") == 1 && groups > 1 && e / groups < 2)
    args.fail("needs two experts in each group for the sum of the two best");
  const SymDims shape{s.tokens, s.k};
  return {{args.in(0).dtype, shape}, {DType::i32, shape}, {DType::f32, args.in(0).shape}};
}

// Scores of groups whose number is not chosen become -inf.
void keep_groups(std::vector<float>* choice, std::int64_t groups, std::int64_t top, bool two) {
  const std::int64_t size = static_cast<std::int64_t>(choice->size()) / groups;
  std::vector<float> score;
  for (std::int64_t g = 0; g < groups; ++g) {
    const std::vector<float> part(choice->begin() + g * size, choice->begin() + (g + 1) * size);
    float s = 0;
    for (int i : largest(part, two ? 2 : 1)) s += part[static_cast<std::size_t>(i)];
    score.push_back(s);
  }
  std::vector<bool> keep(static_cast<std::size_t>(groups), false);
  for (int g : largest(score, top)) keep[static_cast<std::size_t>(g)] = true;
  for (std::size_t i = 0; i < choice->size(); ++i)
    if (!keep[i / static_cast<std::size_t>(size)]) (*choice)[i] = -INFINITY;
}

void gate_eval(const EvalArgs& a) {
  const std::int64_t n = a.in(0).shape[1];
  const std::int64_t k = a.i64("k");
  const bool sig = a.i64("norm_type") == 1;
  const bool divide = sig || a.i64("renorm") == 1;
  const auto scale = static_cast<float>(a.f64("routed_scaling_factor"));
  const auto eps = static_cast<float>(a.f64("eps"));
  const Tensor bias = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t t = 0; t < a.in(0).shape[0]; ++t) {
    read_row(a.in(0), t * a.in(0).strides[0], a.in(0).strides[1], n, row.data());
    if (sig) {
      for (float& x : row) x = sigmoid(x);
    } else {
      softmax(&row);
    }
    write_row(a.out(2), t * n, 1, n, row.data());
    std::vector<float> choice = row;
    if (a.has(1))
      for (std::int64_t e = 0; e < n; ++e)
        choice[static_cast<std::size_t>(e)] += bias.as<float>()[e];
    if (a.i64("group_count") > 1)
      keep_groups(&choice, a.i64("group_count"), a.i64("k_group"), a.i64("group_select_mode") == 1);
    std::vector<float> w;
    float sum = 0;
    std::int64_t j = 0;
    for (int e : largest(choice, k)) {
      w.push_back(row[static_cast<std::size_t>(e)]);
      sum += w.back();
      a.out(1).as<std::int32_t>()[t * k + j++] = e;
    }
    for (float& x : w) x = (divide ? x / (sum + eps) : x) * scale;
    write_row(a.out(0), t * k, 1, k, w.data());
  }
}

constexpr Symbol gate_symbols[] = {
    {"E", "x.shape[-1]", "experts"},
    {"g", "group_count", "groups of experts"},
    {"kg", "k_group", "groups that are chosen"},
};
constexpr Limit gate_limits[] = {
    {"moe_gating_top_k.E", "E <= 2048"},
    {"moe_gating_top_k.k", "1 <= k <= E // g * kg"},
    {"moe_gating_top_k.kg", "1 <= kg <= g"},
    {"moe_gating_top_k.g", "E % g == 0 and E // g > 2 and (E // g + 31) // 32 * 32 * g <= 2048",
     "groups of more than two experts, each padded to 32"},
    {"moe_gating_top_k.renorm", "renorm == 0"},
};
constexpr NpuFacts gate_facts{
    .group = "moe",
    .signature =
        "npu_moe_gating_top_k(Tensor x, int k, *, Tensor? bias=None, Tensor? input_ids=None, "
        "Tensor? tid2eid=None, int k_group=1, int group_count=1, int group_select_mode=0, int "
        "renorm=0, int norm_type=0, bool out_flag=False, float routed_scaling_factor=1.0, float "
        "eps=1e-20) -> (Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .symbols = gate_symbols,
    .limits = gate_limits,
};

// ---- routing

std::vector<Type> init_routing_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& ids = args.in(1);
  if (x.rank() != 2 || ids.rank() != 2 || !(x.dim(0) == ids.dim(0)) || ids.dtype != DType::i32)
    args.fail(cat("needs x [T, H] and expert_idx i32[T, K], got ", x.str(), " and ", ids.str()));
  const std::int64_t experts = args.i64("expert_num");
  if (experts < 1) args.fail(cat("needs expert_num, got ", experts));
  if (args.i64("drop_pad_mode") != 0 || args.i64("quant_mode") != -1 ||
      args.i64("row_idx_type") != 0 || !args.flag("expert_tokens_num_flag") ||
      args.i64("expert_tokens_num_type") != 1)
    args.fail(
        "is known here without dropping and quantisation, with row_idx_type 0, "
        "expert_tokens_num_flag and counts (type 1)");
  const std::vector<std::int64_t> range = args.ints("active_expert_range");
  if (!range.empty() && (range.size() != 2 || range[0] != 0 || range[1] != experts))
    args.fail("is known here for the whole range of experts");
  const Sym pairs = x.dim(0) * ids.dim(1);
  return {{x.dtype, {pairs, x.dim(1)}},
          {DType::i32, {pairs}},
          {DType::i64, {experts}},
          {DType::f32, {pairs}}};
}

void init_routing_eval(const EvalArgs& a) {
  const std::int64_t tokens = a.in(1).shape[0];
  const std::int64_t k = a.in(1).shape[1];
  const std::int64_t experts = a.i64("expert_num");
  const Tensor ids = contiguous(a.in(1));
  std::vector<std::vector<std::int64_t>> of(static_cast<std::size_t>(experts));
  for (std::int64_t p = 0; p < tokens * k; ++p) {
    const std::int64_t e = checked_index(a, ids.as<std::int32_t>()[p], experts, false);
    of[static_cast<std::size_t>(e)].push_back(p);
  }
  std::int64_t place = 0;
  const std::int64_t h = a.in(0).shape[1];
  for (std::int64_t e = 0; e < experts; ++e) {
    const auto& list = of[static_cast<std::size_t>(e)];
    a.out(2).as<std::int64_t>()[e] = static_cast<std::int64_t>(list.size());
    for (std::int64_t p : list) {
      TensorView to = a.out(0);
      to.data = a.out(0).as<char>() + place * h * static_cast<std::int64_t>(size_of(to.dtype));
      to.shape = {h};
      to.strides = {1};
      TensorView from = a.in(0);
      from.data = a.in(0).as<char>() +
                  p / k * a.in(0).strides[0] * static_cast<std::int64_t>(size_of(from.dtype));
      from.shape = {h};
      from.strides = {a.in(0).strides[1]};
      copy_into(to, from);
      a.out(3).as<float>()[place] = 1.0F;
      a.out(1).as<std::int32_t>()[p] = static_cast<std::int32_t>(place++);
    }
  }
}

std::vector<Type> finalize_infer(const Args& args) {
  const Type& x = args.in(0);
  for (int i = 1; i < 4; ++i)
    if (i != 1 && args.has(i)) args.fail("is known here with skip1 only, without skip2 and bias");
  if (!args.has(4) || !args.has(5) || args.has(6))
    args.fail("is known here with scales and expanded_src_to_dst_row, without source rows");
  const Type& w = args.in(4);
  const Type& place = args.in(5);
  if (x.rank() != 2 || w.rank() != 2 || place.rank() != 1 || place.dtype != DType::i32 ||
      !(w.numel() == x.dim(0)) || !(place.dim(0) == x.dim(0)) || !is_float(w.dtype))
    args.fail(cat("needs rows [T*K, H], scales [T, K] and places i32[T*K], got ", x.str(), ", ",
                  w.str(), ", ", place.str()));
  if (args.i64("drop_pad_mode") != 2) args.fail("is known here in row order (drop_pad_mode 2)");
  const Type out{x.dtype, {w.dim(0), x.dim(1)}};
  if (args.has(1) && !(args.in(1) == out))
    args.fail(cat("needs skip1 of type ", out.str(), ", got ", args.in(1).str()));
  return {out};
}

void finalize_eval(const EvalArgs& a) {
  const std::int64_t tokens = a.in(4).shape[0];
  const std::int64_t k = a.in(4).shape[1];
  const std::int64_t h = a.in(0).shape[1];
  const Tensor w = to_dtype(a.in(4), DType::f32);
  const Tensor place = contiguous(a.in(5));
  std::vector<float> row(static_cast<std::size_t>(h));
  std::vector<float> sum(row.size());
  for (std::int64_t t = 0; t < tokens; ++t) {
    std::fill(sum.begin(), sum.end(), 0.0F);
    for (std::int64_t j = 0; j < k; ++j) {
      const std::int64_t at =
          checked_index(a, place.as<std::int32_t>()[t * k + j], a.in(0).shape[0], false);
      read_row(a.in(0), at * a.in(0).strides[0], a.in(0).strides[1], h, row.data());
      const float scale = w.as<float>()[t * k + j];
      for (std::size_t i = 0; i < row.size(); ++i) sum[i] += scale * row[i];
    }
    if (a.has(1)) {
      read_row(a.in(1), t * a.in(1).strides[0], a.in(1).strides[1], h, row.data());
      for (std::size_t i = 0; i < row.size(); ++i) sum[i] += row[i];
    }
    write_row(a.out(), t * h, 1, h, sum.data());
  }
}

}  // namespace

const OpDef npu_moe_gating_top_k_softmax{
    .name = "npu.npu_moe_gating_top_k_softmax",
    .schema = "(Tensor x, int k=1) -> (Tensor y, Tensor expert_idx, Tensor row_idx)",
    .doc =
        "The k largest of softmax(x) and their indices, i32; row_idx[t, j] = j * T + t. "
        "Weights are not renormalised. torch_npu's `finished` is not used.",
    .infer = gate_softmax_infer,
    .eval = gate_softmax_eval,
};

const OpDef npu_moe_gating_top_k_softmax_v2{
    .name = "npu.npu_moe_gating_top_k_softmax_v2",
    .schema = "(Tensor x, int k=1, int? renorm=0) -> (Tensor y, Tensor expert_idx, Tensor row_idx)",
    .doc =
        "renorm 0: as npu_moe_gating_top_k_softmax. renorm 1: softmax over the k largest of x, "
        "which equals dividing those weights by their sum.",
    .infer = gate_softmax_v2_infer,
    .eval = gate_softmax_v2_eval,
};

const OpDef npu_moe_gating_top_k{
    .name = "npu.npu_moe_gating_top_k",
    .schema =
        "(Tensor x, Tensor? bias=None, int k, int k_group=1, int group_count=1, "
        "int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, "
        "float routed_scaling_factor=1.0, float eps=1e-20) -> "
        "(Tensor y, Tensor expert_idx, Tensor out)",
    .doc =
        "s = softmax(x) (norm_type 0) or sigmoid(x) (1); of s + bias, the k_group best groups "
        "of experts (by their best, or with group_select_mode 1 their two best summed) and in "
        "them the k best experts; y = s there, divided by its sum + eps for norm_type 1 or "
        "renorm 1, times routed_scaling_factor. out = s.",
    .infer = gate_infer,
    .eval = gate_eval,
    .npu = &gate_facts,
};

const OpDef npu_moe_init_routing_v2{
    .name = "npu.npu_moe_init_routing_v2",
    .schema =
        "(Tensor x, Tensor expert_idx, int active_num=-1, int expert_capacity=-1, "
        "int expert_num=-1, int drop_pad_mode=0, int expert_tokens_num_type=0, "
        "bool expert_tokens_num_flag=False, int quant_mode=-1, "
        "int[] active_expert_range=[], int row_idx_type=0) -> "
        "(Tensor expanded_x, Tensor expanded_row_idx, Tensor expert_tokens_count, "
        "Tensor expanded_scale)",
    .doc =
        "Pairs (t, j), numbered t * K + j, sorted by expert, stable: expanded_x[place] = x[t], "
        "expanded_row_idx[pair] = place, counts of rows per expert.",
    .infer = init_routing_infer,
    .eval = init_routing_eval,
};

const OpDef npu_moe_finalize_routing{
    .name = "npu.npu_moe_finalize_routing",
    .schema =
        "(Tensor expanded_permuted_rows, Tensor? skip1, Tensor? skip2, Tensor? bias, "
        "Tensor? scales, Tensor expanded_src_to_dst_row, Tensor? export_for_source_row, "
        "int? drop_pad_mode=0) -> Tensor",
    .doc =
        "out[t] = sum over j of scales[t, j] * rows[expanded_src_to_dst_row[t * K + j]] "
        "(+ skip1[t]); drop_pad_mode 2. torch_npu wants scales of the rows' dtype; here they may "
        "be "
        "wider.",
    .infer = finalize_infer,
    .eval = finalize_eval,
};

}  // namespace tk::ops
