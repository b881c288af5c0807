// The gates of routed experts of torch_npu 2.14: k experts for each row of logits, with weights.
// Integers are i32 as there.
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
  SymDims rows;
  Sym experts;
  std::int64_t k;
  SymDims chosen() const {
    SymDims shape = rows;
    shape.emplace_back(k);
    return shape;
  }
};

GateShape gate_shape(const Args& args, int max_rank) {
  const Type& x = args.in(0);
  if (!is_one_of(x.dtype, {DType::f16, DType::bf16, DType::f32}))
    args.fail(cat("needs x of dtype f16, bf16 or f32, got ", x.str()));
  need_rank(args, 0, 2, max_rank);
  const std::int64_t k = args.i64("k");
  const Sym experts = x.dim(-1);
  if (k < 1 || (experts.is_const() && k > experts.value()))
    args.fail(cat("needs 1 <= k <= ", experts.str(), ", got ", k));
  SymDims rows = x.shape;
  rows.pop_back();
  return {rows, experts, k};
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
  const GateShape s = gate_shape(args, 3);
  if (args.has(1) && (args.in(1).dtype != DType::boolean || args.in(1).shape != s.rows))
    args.fail(cat("needs finished of type ", Type{DType::boolean, s.rows}.str(), ", got ",
                  args.in(1).str()));
  return {{args.in(0).dtype, s.chosen()}, {DType::i32, s.chosen()}, {DType::i32, s.chosen()}};
}

std::vector<Type> gate_softmax_v2_infer(const Args& args) {
  const std::int64_t renorm = args.i64("renorm");
  if (renorm != 0 && renorm != 1) args.fail(cat("needs renorm 0 or 1, got ", renorm));
  std::vector<Type> out = gate_softmax_infer(args);
  if (renorm == 0 && args.flag("output_softmax")) out[2] = {DType::f32, args.in(0).shape};
  return out;
}

void gate_softmax(const EvalArgs& a, bool top_first, bool softmax_out) {
  const std::int64_t n = a.in(0).shape.back();
  const std::int64_t k = a.i64("k");
  const RowWalk rows(a.in(0));
  const Tensor finished = a.has(1) ? contiguous(a.in(1)) : Tensor();
  std::vector<float> row(static_cast<std::size_t>(n));
  for (std::int64_t t = 0; t < rows.count(); ++t) {
    read_row(a.in(0), rows.offset(t), a.in(0).strides.at(-1), n, row.data());
    if (!top_first) softmax(&row);
    const std::vector<int> chosen = largest(row, k);
    std::vector<float> w;
    for (int e : chosen) w.push_back(row[static_cast<std::size_t>(e)]);
    if (top_first) softmax(&w);
    write_row(a.out(0), t * k, 1, k, w.data());
    const bool done = a.has(1) && finished.as<bool>()[t];
    for (std::int64_t j = 0; j < k; ++j)
      a.out(1).as<std::int32_t>()[t * k + j] =
          done ? static_cast<std::int32_t>(n) : chosen[static_cast<std::size_t>(j)];
    if (softmax_out) {
      write_row(a.out(2), t * n, 1, n, row.data());
      continue;
    }
    for (std::int64_t j = 0; j < k; ++j)
      a.out(2).as<std::int32_t>()[t * k + j] = static_cast<std::int32_t>(j * rows.count() + t);
  }
}

void gate_softmax_eval(const EvalArgs& a) { gate_softmax(a, false, false); }
void gate_softmax_v2_eval(const EvalArgs& a) {
  const bool renorm = a.i64("renorm") == 1;
  gate_softmax(a, renorm, !renorm && a.flag("output_softmax"));
}

std::vector<Type> gate_infer(const Args& args) {
  const GateShape s = gate_shape(args, 2);
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
  if (args.has(2) != args.has(3)) args.fail("needs input_ids and tid2eid together");
  if (args.has(2)) {
    need_integral(args, 2);
    need_integral(args, 3);
    if (args.in(2).shape != s.rows || args.in(3).rank() != 2 || !args.in(3).dim(1).is(s.k))
      args.fail(cat("needs input_ids [T] and tid2eid [V, ", s.k, "], got ", args.in(2).str(),
                    " and ", args.in(3).str()));
  }
  return {{args.in(0).dtype, s.chosen()}, {DType::i32, s.chosen()}, {DType::f32, args.in(0).shape}};
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

// The experts that the table names for the token.
std::vector<int> of_token(const EvalArgs& a, std::int64_t token, std::int64_t experts) {
  const TensorView& table = a.in(3);
  const std::int64_t id = static_cast<std::int64_t>(element(a.in(2), token));
  checked_index(a, id, table.shape[0], false);
  std::vector<int> chosen;
  for (std::int64_t j = 0; j < table.shape[1]; ++j) {
    const auto e = static_cast<std::int64_t>(element(table, id * table.shape[1] + j));
    chosen.push_back(static_cast<int>(checked_index(a, e, experts, false)));
  }
  return chosen;
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
    for (int e : a.has(2) ? of_token(a, t, n) : largest(choice, k)) {
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
constexpr std::string_view gate_notes[] = {
    "bias has the dtype of x: models cast the correction bias to float with fp32 logits",
    "two experts a group are refused: the group must have more than two",
    "norm_type: 0 softmax, 1 sigmoid; group_select_mode: 0 maximum, 1 sum of the two best",
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
    .notes = gate_notes,
    .symbols = gate_symbols,
    .limits = gate_limits,
};

constexpr Limit gate_softmax_limits[] = {
    {"moe_gating_top_k_softmax.k", "0 < k <= x.shape[-1] and k <= 1024"},
};
constexpr std::string_view gate_softmax_notes[] = {
    "weights are not renormalised: divide by the sum when the model does norm_topk_prob",
    "the wheel's text says that finished marks rows that take part, op-plugin's docs that it marks "
    "rows that do not: the latter is followed",
};
constexpr NpuFacts gate_softmax_facts{
    .group = "moe",
    .signature =
        "npu_moe_gating_top_k_softmax(Tensor x, Tensor? finished=None, int k=1) -> "
        "(Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes (op-plugin docs)",
    .graph_mode = "stated; shape function; GE converter",
    .notes = gate_softmax_notes,
    .limits = gate_softmax_limits,
};

constexpr Limit gate_softmax_v2_limits[] = {
    {"moe_gating_top_k_softmax_v2.k", "0 < k <= x.shape[-1] and k <= 1024"},
};
constexpr std::string_view gate_softmax_v2_notes[] = {
    "renorm: 0 softmax first, 1 top-k first",
};
constexpr NpuFacts gate_softmax_v2_facts{
    .group = "moe",
    .signature =
        "npu_moe_gating_top_k_softmax_v2(Tensor x, *, int k=1, Tensor? finished=None, int? "
        "renorm=0, bool? output_softmax=False) -> (Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = gate_softmax_v2_notes,
    .limits = gate_softmax_v2_limits,
};

}  // namespace

const OpDef npu_moe_gating_top_k_softmax{
    .name = "npu.npu_moe_gating_top_k_softmax",
    .schema =
        "(Tensor x, Tensor? finished=None, int k=1) -> "
        "(Tensor y, Tensor expert_idx, Tensor row_idx)",
    .doc =
        "The k largest of softmax(x) and their indices, i32; row_idx[t, j] = j * T + t. "
        "Weights are not renormalised. Rows that are `finished` get the index E, which is no "
        "expert. Of equal ones the lower index comes first.",
    .infer = gate_softmax_infer,
    .eval = gate_softmax_eval,
    .npu = &gate_softmax_facts,
};

const OpDef npu_moe_gating_top_k_softmax_v2{
    .name = "npu.npu_moe_gating_top_k_softmax_v2",
    .schema =
        "(Tensor x, Tensor? finished=None, int k=1, int? renorm=0, "
        "bool output_softmax=False) -> (Tensor y, Tensor expert_idx, Tensor row_idx)",
    .doc =
        "renorm 0: as npu_moe_gating_top_k_softmax. renorm 1: softmax over the k largest of x, "
        "which equals dividing those weights by their sum. With output_softmax and renorm 0 the "
        "third result is softmax(x), f32.",
    .infer = gate_softmax_v2_infer,
    .eval = gate_softmax_v2_eval,
    .npu = &gate_softmax_v2_facts,
};

const OpDef npu_moe_gating_top_k{
    .name = "npu.npu_moe_gating_top_k",
    .schema =
        "(Tensor x, Tensor? bias=None, Tensor? input_ids=None, Tensor? tid2eid=None, int k, "
        "int k_group=1, int group_count=1, "
        "int group_select_mode=0, int renorm=0, int norm_type=0, bool out_flag=False, "
        "float routed_scaling_factor=1.0, float eps=1e-20) -> "
        "(Tensor y, Tensor expert_idx, Tensor out)",
    .doc =
        "s = softmax(x) (norm_type 0) or sigmoid(x) (1); of s + bias, the k_group best groups "
        "of experts (by their best, or with group_select_mode 1 their two best summed) and in "
        "them the k best experts; y = s there, divided by its sum + eps for norm_type 1 or "
        "renorm 1, times routed_scaling_factor. out = s. With input_ids and tid2eid the experts of "
        "token t are tid2eid[input_ids[t]].",
    .infer = gate_infer,
    .eval = gate_eval,
    .npu = &gate_facts,
};

}  // namespace tk::ops
