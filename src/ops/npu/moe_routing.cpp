// Routing of torch_npu 2.14: rows in the order of their experts, and counts of them.
#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/int_rows.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

// ---- npu_moe_init_routing_v2

struct Range {
  std::int64_t first, last;  // of experts, half open
  std::int64_t size() const { return last - first; }
};

Range active_range(const std::vector<std::int64_t>& given, std::int64_t experts) {
  return given.empty() ? Range{0, experts} : Range{given[0], given[1]};
}

void need_rows_and_ids(const Args& args, int ids_index) {
  const Type& x = args.in(0);
  const Type& ids = args.in(ids_index);
  if (x.rank() != 2 || ids.rank() != 2 || !(x.dim(0) == ids.dim(0)) || ids.dtype != DType::i32)
    args.fail(cat("needs x [T, H] and expert_idx i32[T, K], got ", x.str(), " and ", ids.str()));
}

void need_scale(const Args& args, std::int64_t quant, const Range& range) {
  const auto shape = [&](int i) { return args.has(i) ? args.in(i).str() : "none"; };
  const Sym h = args.in(0).dim(1);
  bool good = !args.has(3) || quant == 0;
  if (args.has(2)) {
    const SymDims& s = args.in(2).shape;
    if (quant == -1) good = good && s == SymDims{args.in(0).dim(0)};
    if (quant == 0) good = s == SymDims{1} && args.has(3) && args.in(3).shape == SymDims{1};
    if (quant == 1) good = good && (s == SymDims{1, h} || s == SymDims{range.size(), h});
    good = good && args.in(2).dtype == DType::f32;
  } else {
    good = good && quant != 0;
  }
  if (!good)
    args.fail(
        cat("needs f32 scale [T] without quantisation, scale [1] and offset [1] with "
            "quant_mode 0, scale [1, H] or [experts of the range, H] or none with "
            "quant_mode 1; got scale ",
            shape(2), " and offset ", shape(3)));
}

std::vector<Type> init_routing_v2_infer(const Args& args) {
  need_rows_and_ids(args, 1);
  const Type& x = args.in(0);
  const std::int64_t experts = args.i64("expert_num");
  if (experts < 1) args.fail(cat("needs expert_num, got ", experts));
  const std::vector<std::int64_t> given = args.ints("active_expert_range");
  if (!given.empty() &&
      (given.size() != 2 || given[0] < 0 || given[0] >= given[1] || given[1] > experts))
    args.fail(cat("needs active_expert_range [first, last) within the ", experts, " experts"));
  const Range range = active_range(given, experts);
  const std::int64_t drop = args.i64("drop_pad_mode");
  const std::int64_t type = args.i64("expert_tokens_num_type");
  const std::int64_t quant = args.i64("quant_mode");
  const std::int64_t index = args.i64("row_idx_type");
  if ((drop != 0 && drop != 1) || type < 0 || type > 2 || (index != 0 && index != 1))
    args.fail("needs drop_pad_mode 0 or 1, expert_tokens_num_type 0 to 2 and row_idx_type 0 or 1");
  if (quant < -1 || quant > 1)
    args.fail(cat("is known here with quant_mode -1, 0, 1, got ", quant));
  if (quant != -1 ? !is_one_of(x.dtype, {DType::f16, DType::bf16, DType::f32})
                  : !is_one_of(x.dtype, {DType::f16, DType::bf16, DType::f32, DType::i8}))
    args.fail(cat("needs x in f16, bf16, f32, or int8 without quantisation, got ", x.str()));
  need_scale(args, quant, range);

  const Sym pairs = x.dim(0) * args.in(1).dim(1);
  Sym rows = pairs;
  const DType out = quant == -1 ? x.dtype : DType::i8;
  SymDims counts = type == 2 ? SymDims{experts, 2} : SymDims{range.size()};
  if (drop == 1) {
    const std::int64_t capacity = args.i64("expert_capacity");
    if (capacity < 1 || range.size() != experts || index != 0 || type != 1)
      args.fail(
          "needs expert_capacity >= 1, all experts in active_expert_range, row_idx_type 0 and "
          "expert_tokens_num_type 1 with drop_pad_mode 1");
    return {{out, {experts, capacity, x.dim(1)}},
            {DType::i32, {pairs}},
            {DType::i64, counts},
            {DType::f32, {experts * capacity}}};
  }
  const Sym active = args.sym("active_num");
  if (!active.is_const() || active.value() > 0) rows = smaller(active, pairs);
  return {
      {out, {rows, x.dim(1)}}, {DType::i32, {pairs}}, {DType::i64, counts}, {DType::f32, {rows}}};
}

// Pairs (numbered t * K + j) of each expert of the range, in order.
std::vector<std::vector<std::int64_t>> pairs_of_experts(const EvalArgs& a, const Range& range,
                                                        std::int64_t experts) {
  const Tensor ids = contiguous(a.in(1));
  std::vector<std::vector<std::int64_t>> of(static_cast<std::size_t>(range.size()));
  for (std::int64_t p = 0; p < ids.numel(); ++p) {
    const std::int64_t e = checked_index(a, ids.as<std::int32_t>()[p], experts, false);
    if (e >= range.first && e < range.last)
      of[static_cast<std::size_t>(e - range.first)].push_back(p);
  }
  return of;
}

void write_counts(const EvalArgs& a, const std::vector<std::vector<std::int64_t>>& of,
                  std::int64_t first) {
  auto* counts = a.out(2).as<std::int64_t>();
  std::fill_n(counts, a.out(2).numel(), 0);
  const std::int64_t type = a.i64("expert_tokens_num_type");
  std::int64_t total = 0;
  std::int64_t at = 0;
  for (std::size_t e = 0; e < of.size(); ++e) {
    const auto n = static_cast<std::int64_t>(of[e].size());
    total += n;
    if (type < 2) {
      counts[e] = type == 0 ? total : n;
    } else if (n > 0) {
      counts[at++] = first + static_cast<std::int64_t>(e);
      counts[at++] = n;
    }
  }
}

// Row `place` of the result from row t of x, quantised with the scales of expert e of the range.
void write_expanded(const EvalArgs& a, std::int64_t place, std::int64_t t, std::int64_t e) {
  const std::int64_t h = a.in(0).shape[1];
  const std::int64_t quant = a.i64("quant_mode");
  auto& scale = a.out(3).as<float>()[place];
  if (quant == -1) {
    TensorView rows = a.out(0);  // [experts, capacity, H] with drop_pad_mode 1
    rows.shape = {rows.numel() / h, h};
    rows.strides = {h, 1};
    copy_row(rows, place, a.in(0), t);
    if (a.has(2)) scale = static_cast<float>(element(a.in(2), t));
    return;
  }
  std::vector<float> row(static_cast<std::size_t>(h));
  read_row(a.in(0), t * a.in(0).strides[0], a.in(0).strides[1], h, row.data());
  auto* to = a.out(0).as<std::int8_t>() + place * h;
  if (quant == 0) {
    const auto s = static_cast<float>(element(a.in(2), 0));
    const auto o = static_cast<float>(element(a.in(3), 0));
    for (std::size_t i = 0; i < row.size(); ++i) to[i] = round_int8(row[i] * s + o);
    return;
  }
  if (a.has(2)) {
    std::vector<float> smooth(row.size());
    const std::int64_t line = a.in(2).shape[0] == 1 ? 0 : e;
    read_row(a.in(2), line * a.in(2).strides[0], a.in(2).strides[1], h, smooth.data());
    for (std::size_t i = 0; i < row.size(); ++i) row[i] *= smooth[i];
  }
  scale = quantise_row(row, to);
}

void init_routing_v2_eval(const EvalArgs& a) {
  const std::int64_t experts = a.i64("expert_num");
  const Dims given = a.ints("active_expert_range");
  const Range range = active_range({given.begin(), given.end()}, experts);
  const auto of = pairs_of_experts(a, range, experts);
  const std::int64_t k = a.in(1).shape[1];
  const bool drop = a.i64("drop_pad_mode") == 1;
  const std::int64_t capacity = drop ? a.i64("expert_capacity") : 0;
  const std::int64_t rows = drop ? experts * capacity : a.out(0).shape[0];
  const bool scatter = a.i64("row_idx_type") == 1;
  write_counts(a, of, range.first);
  std::memset(a.out(0).data, 0, static_cast<std::size_t>(a.out(0).bytes()));
  std::fill_n(a.out(3).as<float>(), rows, a.has(2) || a.i64("quant_mode") == 1 ? 0.0F : 1.0F);
  auto* index = a.out(1).as<std::int32_t>();
  std::fill_n(index, a.out(1).numel(), -1);
  std::int64_t next = 0;
  for (std::size_t e = 0; e < of.size(); ++e) {
    std::int64_t room = drop ? capacity : static_cast<std::int64_t>(of[e].size());
    if (drop) next = static_cast<std::int64_t>(e) * capacity;
    for (std::int64_t p : of[e]) {
      if (room-- == 0) break;  // the others are dropped
      index[scatter ? next : p] = static_cast<std::int32_t>(scatter ? p : next);
      if (next < rows) write_expanded(a, next, p / k, static_cast<std::int64_t>(e));
      ++next;
    }
  }
}

constexpr Limit init_routing_v2_limits[] = {
    {"moe_init_routing_v2.count_type", "expert_tokens_num_type in (1, 2)"},
    {"moe_init_routing_v2.flag", "expert_tokens_num_flag is True"},
    {"moe_init_routing_v2.quant", "quant_mode in (-1, 1)"},
    {"moe_init_routing_v2.drop", "drop_pad_mode == 0"},
    {"moe_init_routing_v2.experts",
     "0 < expert_num <= (5120 if expert_tokens_num_type == 2 else 10240)"},
    {"moe_init_routing_v2.range",
     "len(active_expert_range) == 0 or 0 <= active_expert_range[0] < active_expert_range[1] <= "
     "expert_num"},
};
constexpr std::string_view init_routing_v2_notes[] = {
    "op-plugin's docs also have count type 0, quant_mode 0 and drop_pad_mode 1; the wheel's text, "
    "which the limits follow, does not",
    "row_idx_type 0: places of the pairs (gather; -1 where a pair has none), 1: pairs of the "
    "places (scatter)",
    "low-latency template for x [1, 7168], K 8, 256 experts, expert_tokens_num_type 2, quant_mode "
    "1; big-batch template for 384 to 8192 rows, K 8, 256 experts, a range of at most 32, no "
    "quantisation, row_idx_type 1, expert_tokens_num_type 1",
};
constexpr NpuFacts init_routing_v2_facts{
    .group = "moe",
    .signature =
        "npu_moe_init_routing_v2(Tensor x, Tensor expert_idx, *, Tensor? scale=None, Tensor? "
        "offset=None, int active_num=-1, int expert_capacity=-1, int expert_num=-1, int "
        "drop_pad_mode=0, int expert_tokens_num_type=0, bool expert_tokens_num_flag=False, int "
        "quant_mode=-1, int[2] active_expert_range=[], int row_idx_type=0, int? x_dtype=None) -> "
        "(Tensor, Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = init_routing_v2_notes,
    .limits = init_routing_v2_limits,
};

// ---- npu_moe_init_routing

std::vector<Type> init_routing_infer(const Args& args) {
  need_rows_and_ids(args, 2);
  const Type& x = args.in(0);
  const Type& ids = args.in(2);
  if (args.in(1) != ids)
    args.fail(cat("needs row_idx of type ", ids.str(), ", got ", args.in(1).str()));
  const Sym active = args.sym("active_num");
  if (active.is_const() && active.value() < 0)
    args.fail(cat("needs active_num >= 0, got ", active.value()));
  const Sym k = ids.dim(1);
  return {{x.dtype, {smaller(x.dim(0), active) * k, x.dim(1)}},
          {DType::i32, {x.dim(0) * k}},
          {DType::i32, {x.dim(0) * k}}};
}

void init_routing_eval(const EvalArgs& a) {
  const std::int64_t tokens = a.in(0).shape[0];
  const Tensor rows = contiguous(a.in(1));
  const Tensor ids = contiguous(a.in(2));
  const std::int64_t pairs = ids.numel();
  std::vector<std::int64_t> order(static_cast<std::size_t>(pairs));
  for (std::size_t i = 0; i < order.size(); ++i) order[i] = static_cast<std::int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](std::int64_t i, std::int64_t j) {
    return ids.as<std::int32_t>()[i] < ids.as<std::int32_t>()[j];
  });
  std::fill_n(a.out(1).as<std::int32_t>(), pairs, -1);
  for (std::int64_t place = 0; place < pairs; ++place) {
    const std::int64_t p = order[static_cast<std::size_t>(place)];
    const std::int64_t from = checked_index(a, rows.as<std::int32_t>()[p], pairs, false);
    a.out(1).as<std::int32_t>()[from] = static_cast<std::int32_t>(place);
    a.out(2).as<std::int32_t>()[place] = ids.as<std::int32_t>()[p];
    if (place < a.out(0).shape[0]) copy_row(a.out(0), place, a.in(0), from % tokens);
  }
}

constexpr Limit init_routing_limits[] = {
    {"moe_init_routing.size", "x.numel < 16777216", "2^24"},
};
constexpr NpuFacts init_routing_facts{
    .group = "moe",
    .signature =
        "npu_moe_init_routing(Tensor x, Tensor row_idx, Tensor expert_idx, int active_num) -> "
        "(Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .limits = init_routing_limits,
};

// ---- npu_moe_compute_expert_tokens

std::vector<Type> expert_tokens_infer(const Args& args) {
  const Type& ids = args.in(0);
  const std::int64_t experts = args.i64("num_expert");
  if (ids.dtype != DType::i32 || ids.rank() != 1 || experts < 1)
    args.fail(
        cat("needs sorted experts i32[N] and num_expert >= 1, got ", ids.str(), " and ", experts));
  return {{DType::i32, {experts}}};
}

void expert_tokens_eval(const EvalArgs& a) {
  const Tensor ids = contiguous(a.in(0));
  const auto* begin = ids.as<std::int32_t>();
  const auto* end = begin + ids.numel();
  const std::int64_t experts = a.out().numel();
  for (const auto* p = begin; p != end; ++p) {
    checked_index(a, *p, experts, false);
    if (p != begin && p[-1] > *p) bad_index(a, *p, experts, "unsorted expert");
  }
  for (std::int64_t e = 0; e < experts; ++e)
    a.out().as<std::int32_t>()[e] =
        static_cast<std::int32_t>(std::upper_bound(begin, end, e) - begin);
}

constexpr Limit expert_tokens_limits[] = {
    {"moe_compute_expert_tokens.n", "0 < num_expert <= 2048"},
};
constexpr NpuFacts expert_tokens_facts{
    .group = "moe",
    .signature =
        "npu_moe_compute_expert_tokens(Tensor sorted_expert_for_source_row, int num_expert) -> "
        "Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .limits = expert_tokens_limits,
};

// ---- npu_moe_re_routing

std::vector<Type> re_routing_infer(const Args& args) {
  const Type& x = args.in(0);
  const Type& counts = args.in(1);
  if (x.rank() != 2 || counts.rank() != 2 || !is_one_of(counts.dtype, {DType::i32, DType::i64}))
    args.fail(cat("needs tokens [A, H] and counts i32 or i64 [ranks, experts], got ", x.str(),
                  " and ", counts.str()));
  if (!is_one_of(x.dtype, {DType::f16, DType::bf16, DType::i8}))
    args.fail(cat("needs tokens in f16, bf16 or int8, got ", x.str()));
  const Type scales{DType::f32, {x.dim(0)}};
  if (args.has(2) && args.in(2) != scales)
    args.fail(cat("needs per_token_scales of type ", scales.str(), ", got ", args.in(2).str()));
  if (args.i64("expert_token_num_type") != 1 || args.i64("idx_type") != 0)
    args.fail("is known with expert_token_num_type 1 and idx_type 0");
  return {x, scales, {DType::i32, {x.dim(0)}}, {counts.dtype, {counts.dim(1)}}};
}

void re_routing_eval(const EvalArgs& a) {
  const std::int64_t rows = a.in(0).shape[0];
  const std::int64_t ranks = a.in(1).shape[0];
  const std::int64_t experts = a.in(1).shape[1];
  const auto count = [&](std::int64_t r, std::int64_t e) {
    return static_cast<std::int64_t>(element(a.in(1), r * experts + e));
  };
  std::vector<std::int64_t> start;  // of (rank, expert) in the tokens
  std::int64_t total = 0;
  for (std::int64_t r = 0; r < ranks; ++r)
    for (std::int64_t e = 0; e < experts; ++e) {
      start.push_back(total);
      if (count(r, e) < 0) bad_index(a, count(r, e), rows + 1, "count");
      total += count(r, e);
      if (total > rows) bad_index(a, total, rows + 1, "sum of counts");
    }
  std::vector<std::int64_t> from;
  for (std::int64_t e = 0; e < experts; ++e) {
    std::int64_t sum = 0;
    for (std::int64_t r = 0; r < ranks; ++r) {
      for (std::int64_t i = 0; i < count(r, e); ++i)
        from.push_back(start[static_cast<std::size_t>(r * experts + e)] + i);
      sum += count(r, e);
    }
    set_element(a.out(3), e, static_cast<double>(sum));
  }
  for (std::int64_t i = total; i < rows; ++i) from.push_back(i);  // of no expert: they stay
  for (std::int64_t i = 0; i < rows; ++i) {
    const std::int64_t f = from[static_cast<std::size_t>(i)];
    copy_row(a.out(0), i, a.in(0), f);
    a.out(1).as<float>()[i] = a.has(2) ? static_cast<float>(element(a.in(2), f)) : 0.0F;
    a.out(2).as<std::int32_t>()[i] = static_cast<std::int32_t>(f);
  }
}

constexpr Symbol re_routing_symbols[] = {
    {"A", "tokens.shape[0]", "tokens that came from all ranks"},
    {"H", "tokens.shape[1]", "hidden size"},
};
constexpr Limit re_routing_limits[] = {
    {"moe_re_routing.H", "0 < H < 16384"},
    {"moe_re_routing.sum", "sum(expert_token_num_per_rank) == A"},
    {"moe_re_routing.type", "expert_token_num_type == 1"},
    {"moe_re_routing.idx", "idx_type == 0"},
};
constexpr NpuFacts re_routing_facts{
    .group = "moe",
    .signature =
        "npu_moe_re_routing(Tensor tokens, Tensor expert_token_num_per_rank, *, Tensor? "
        "per_token_scales=None, int expert_token_num_type=1, int idx_type=0, int? "
        "tokens_dtype=None) -> (Tensor, Tensor, Tensor, Tensor)",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated (op-plugin docs); shape function; GE converter",
    .symbols = re_routing_symbols,
    .limits = re_routing_limits,
};

}  // namespace

const OpDef npu_moe_init_routing_v2{
    .name = "npu.npu_moe_init_routing_v2",
    .schema =
        "(Tensor x, Tensor expert_idx, Tensor? scale=None, Tensor? offset=None, "
        "int active_num=-1, int expert_capacity=-1, int expert_num=-1, int drop_pad_mode=0, "
        "int expert_tokens_num_type=0, bool expert_tokens_num_flag=False, int quant_mode=-1, "
        "int[] active_expert_range=[], int row_idx_type=0) -> "
        "(Tensor expanded_x, Tensor expanded_row_idx, Tensor expert_tokens_count, "
        "Tensor expanded_scale)",
    .doc =
        "Pairs (t, j), numbered t * K + j, sorted by expert, stable, those outside the range left "
        "out: expanded_x[place] = x[t], expanded_row_idx[pair] = place (row_idx_type 1: the pair "
        "of the place). Counts per expert of the range: running totals (type 0), counts (1), "
        "[expert, count] of experts with rows (2). drop_pad_mode 1: expert_capacity places per "
        "expert, further rows dropped, counts taken before. quant_mode 0: int8 round(x * scale + "
        "offset); 1: per row, scale max|x * scale| / 127. Rows without a token are 0.",
    .infer = init_routing_v2_infer,
    .eval = init_routing_v2_eval,
    .npu = &init_routing_v2_facts,
};

const OpDef npu_moe_init_routing{
    .name = "npu.npu_moe_init_routing",
    .schema =
        "(Tensor x, Tensor row_idx, Tensor expert_idx, int active_num) -> "
        "(Tensor expanded_x, Tensor expanded_row_idx, Tensor expanded_expert_idx)",
    .doc =
        "expert_idx sorted, stable, and row_idx with it: expanded_x[place] = x[row % T], "
        "expanded_row_idx[row] = place, for the first min(T, active_num) * K places.",
    .infer = init_routing_infer,
    .eval = init_routing_eval,
    .npu = &init_routing_facts,
};

const OpDef npu_moe_compute_expert_tokens{
    .name = "npu.npu_moe_compute_expert_tokens",
    .schema = "(Tensor sorted_expert_for_source_row, int num_expert) -> Tensor",
    .doc = "Running totals of rows per expert, i32.",
    .infer = expert_tokens_infer,
    .eval = expert_tokens_eval,
    .npu = &expert_tokens_facts,
};

const OpDef npu_moe_re_routing{
    .name = "npu.npu_moe_re_routing",
    .schema =
        "(Tensor tokens, Tensor expert_token_num_per_rank, Tensor? per_token_scales=None, "
        "int expert_token_num_type=1, int idx_type=0) -> (Tensor permute_tokens, "
        "Tensor permute_per_token_scales, Tensor permute_token_idx, Tensor expert_token_num)",
    .doc =
        "Tokens in the order (rank, expert), as an all-to-all brings them, in the order (expert, "
        "rank): permute_tokens[i] = tokens[permute_token_idx[i]]; counts per expert.",
    .infer = re_routing_infer,
    .eval = re_routing_eval,
    .npu = &re_routing_facts,
};

}  // namespace tk::ops
