// npu_fusion_attention of torch_npu 2.14, forward and without dropout: what diffusion models and
// encoders call. Its layouts, masks and biases are not quite those of the fused infer attention.
#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/attend.h"
#include "ops/npu/attention_layout.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

enum Input { query, key, value, pse, padding, mask, prefix, q_totals, kv_totals, sink, dropout };

constexpr std::string_view refused[] = {"padding_mask", "prefix", "dropout_mask"};
constexpr std::int64_t lanes = 8;  // of softmax_max and softmax_sum: one number, repeated

struct Sizes {
  std::string_view axes;
  bool packed;
  std::int64_t heads;
  Sym kv_heads, dim, v_dim, batch, queries, keys;  // tokens where they are packed
};

Sizes sizes_of(const Args& args) {
  Sizes s{};
  const std::string& layout = args.text("input_layout");
  for (const std::string_view name : {"BSH", "SBH", "BSND", "BNSD", "TND"})
    if (layout == name) s.axes = name;
  if (s.axes.empty())
    args.fail(cat("has input_layout BSH, SBH, BSND, BNSD and TND, got \"", layout, "\""));
  s.packed = s.axes == "TND";
  s.heads = args.i64("head_num");
  if (s.heads < 1) args.fail(cat("needs head_num of at least 1, got ", s.heads));
  for (const int i : {query, key, value}) {
    need_float(args, i);
    if (args.in(i).rank() != static_cast<int>(s.axes.size()))
      args.fail(cat("needs query, key and value of axes ", s.axes, ", got ", args.in(i).str()));
    if (args.in(i).dtype != args.in(query).dtype)
      args.fail(cat("needs query, key and value of one dtype, got ", args.in(query).str(), " and ",
                    args.in(i).str()));
  }
  const auto along = [&](int i, char letter, std::int64_t heads) {
    const auto size = size_along(args.in(i), s.axes, letter, heads);
    if (!size)
      args.fail(
          cat("needs an H of ", heads, " heads in axes ", s.axes, ", got ", args.in(i).str()));
    return *size;
  };
  s.dim = along(query, 'D', s.heads);
  need_same(args, along(query, 'N', s.heads), s.heads, "head_num and the heads of query");
  // An H of keys is so many heads of the query's D.
  const bool flat = s.axes.back() == 'H';
  const auto kv_heads =
      flat ? exact_div(args.in(key).shape.back(), s.dim) : std::optional(along(key, 'N', 1));
  if (!kv_heads || !kv_heads->is_const() || kv_heads->value() < 1 ||
      s.heads % kv_heads->value() != 0)
    args.fail(cat("needs key with heads of D = ", s.dim.str(), " that divide ", s.heads, ", got ",
                  args.in(key).str()));
  s.kv_heads = *kv_heads;
  s.v_dim = along(value, 'D', kv_heads->value());
  need_same(args, along(key, 'D', kv_heads->value()), s.dim, "D of query and key");
  need_same(args, along(value, 'N', kv_heads->value()), s.kv_heads, "heads of key and value");
  const char position = s.packed ? 'T' : 'S';
  s.batch = s.packed ? Sym(1) : along(query, 'B', 1);
  s.queries = along(query, position, 1);
  s.keys = along(key, position, 1);
  need_same(args, along(value, position, 1), s.keys, "tokens of key and value");
  if (!s.packed)
    for (const int i : {key, value}) need_same(args, along(i, 'B', 1), s.batch, "the batches");
  return s;
}

void need_options(const Args& args, const Sizes& s) {
  refuse_given(args, refused);
  if (args.f64("keep_prob") != 1)
    args.fail(cat("is known here without dropout (keep_prob 1), got ", args.f64("keep_prob")));
  const std::int64_t mode = args.i64("sparse_mode");
  if (mode < 0 || mode > 4) args.fail(cat("is known here with sparse_mode 0 to 4, got ", mode));
  const std::string& softmax = args.text("softmax_layout");
  if (!softmax.empty() && (softmax != "TND" || !s.packed))
    args.fail(cat("has softmax_layout \"\", and \"TND\" in that layout, got \"", softmax, "\""));
  for (const int i : {q_totals, kv_totals}) {
    if (args.has(i) != s.packed)
      args.fail("needs actual_seq_qlen and actual_seq_kvlen with TND, and with that alone");
    if (s.packed) need_rank(args, i, 1, 1), need_integral(args, i);
  }
  if (s.packed)
    need_same(args, args.in(q_totals).dim(0), args.in(kv_totals).dim(0), "the numbers of lengths");
  if (args.has(mask)) {
    const Type& m = args.in(mask);
    if (m.dtype != DType::boolean && m.dtype != DType::u8)
      args.fail(cat("needs atten_mask of bool or u8, got ", m.str()));
    if (m.rank() != 2 && (m.rank() != 4 || s.packed || mode >= 2))
      args.fail(
          cat("needs atten_mask [Sq, Skv], or without TND [B or 1, heads or 1, Sq, Skv], got ",
              m.str()));
    if (m.rank() == 4)
      need_broadcastable(args, {m.dim(0), m.dim(1)}, {s.batch, s.heads}, "atten_mask");
    if (mode < 2 && !s.packed) {
      need_same(args, m.dim(-2), s.queries, "atten_mask and queries");
      need_same(args, m.dim(-1), s.keys, "atten_mask and keys");
    }
  }
  if (args.has(pse)) {
    const Type& p = args.in(pse);
    if (s.packed) args.fail("is known here without pse in TND");
    if (p.rank() != 4 || p.dtype != args.in(query).dtype)
      args.fail(cat("needs pse [B or 1, heads, Sq or 1, Skv] of query's dtype, got ", p.str()));
    need_same(args, p.dim(1), s.heads, "pse and head_num");
    need_same(args, p.dim(3), s.keys, "pse and keys");
    need_broadcastable(args, p.shape, {s.batch, s.heads, s.queries, s.keys}, "pse");
  }
  if (args.has(sink) && (args.in(sink).dtype != DType::f32 || args.in(sink).rank() != 1 ||
                         !args.in(sink).dim(0).is(s.heads)))
    args.fail(cat("needs sink f32[", s.heads, "], got ", args.in(sink).str()));
}

std::vector<Type> fusion_infer(const Args& args) {
  const Sizes s = sizes_of(args);
  need_options(args, s);
  const DType d = args.in(query).dtype;
  const Type softmax{DType::f32, s.packed ? SymDims{s.queries, s.heads, lanes}
                                          : SymDims{s.batch, s.heads, s.queries, lanes}};
  return {
      {d, shape_of_axes(s.axes, s.batch, s.queries, s.heads, s.v_dim)}, softmax, softmax, {d, {0}}};
}

// ---- the reference

// Totals may end with zeros: requests that take no part.
std::vector<std::int64_t> lengths_of(const EvalArgs& a, int input, std::int64_t tokens,
                                     std::string_view name) {
  TensorView t = a.in(input);
  const Tensor totals = to_dtype(t, DType::i64);
  const auto* p = totals.as<std::int64_t>();
  while (t.shape[0] > 1 && p[t.shape[0] - 1] == 0) --t.shape[0];
  std::vector<std::int64_t> lens = lengths(a, t, true, tokens, name);
  lens.resize(static_cast<std::size_t>(a.in(input).shape[0]), 0);
  return lens;
}

// The keys [from, to) that query i of n sees of `keys` in a sparse_mode with a mask.
std::pair<std::int64_t, std::int64_t> range(std::int64_t mode, std::int64_t pre, std::int64_t next,
                                            std::int64_t i, std::int64_t n, std::int64_t keys) {
  const std::int64_t at = mode >= 3 ? i + keys - n : i;
  constexpr std::int64_t far = std::numeric_limits<std::int32_t>::max();
  if (mode == 1) return {0, keys};
  if (mode == 2 || mode == 3) return {0, std::clamp<std::int64_t>(at + 1, 0, keys)};
  pre = std::clamp(pre, -far, far);
  next = std::clamp(next, -far, far);
  return {std::max<std::int64_t>(at - pre, 0), std::clamp<std::int64_t>(at + next + 1, 0, keys)};
}

// Elements of a plane [requests, heads, queries, keys] or [queries, keys]; axes of 1 are repeated.
std::int64_t place(const TensorView& t, std::int64_t b, std::int64_t h, std::int64_t i,
                   std::int64_t j) {
  const std::int64_t at[] = {b, h, i, j};
  std::int64_t offset = 0;
  for (int axis = -1; axis >= -t.rank(); --axis)
    if (t.shape.at(axis) != 1) offset += at[4 + axis] * t.strides.at(axis);
  return offset;
}

void set_bias(const EvalArgs& a, Attention* t) {
  const TensorView hidden = a.in(mask);
  const TensorView bias = a.in(pse);
  const std::int64_t mode = a.i64("sparse_mode");
  if (hidden.data != nullptr && mode < 2)
    for (std::size_t b = 0; b < t->q_lens.size(); ++b)
      if (t->q_lens[b] > hidden.shape.at(-2) || t->kv_lens[b] > hidden.shape.at(-1))
        throw UserError("TK0505",
                        cat(a.op().name, " needs atten_mask for ", t->q_lens[b], " queries and ",
                            t->kv_lens[b], " keys, got ", hidden.shape.str()));
  t->bias = [=, scale = t->scale, q_lens = t->q_lens, pre = a.i64("pre_tockens"),
             next = a.i64("next_tockens")](std::int64_t b, std::int64_t h, std::int64_t i,
                                           std::vector<float>* scores) {
    const auto keys = static_cast<std::int64_t>(scores->size());
    auto [from, to] = range(mode, pre, next, i, q_lens[static_cast<std::size_t>(b)], keys);
    if (hidden.data == nullptr) from = 0, to = keys;  // modes count with a mask alone
    for (std::int64_t j = 0; j < keys; ++j) {
      float& s = (*scores)[static_cast<std::size_t>(j)];
      if (bias.data != nullptr) {
        float x = 0;
        read_row(bias, place(bias, b, h, i, j), 1, 1, &x);
        s += scale * x;
      }
      const bool masked = hidden.data != nullptr && mode < 2 &&
                          hidden.as<std::uint8_t>()[place(hidden, b, h, i, j)] != 0;
      if (j < from || j >= to || masked) s = -INFINITY;
    }
  };
}

void fusion_eval(const EvalArgs& a) {
  const std::string_view axes = a.text("input_layout");
  const bool packed = axes == "TND";
  const bool flat = axes.back() == 'H';
  Attention t;
  t.heads = a.i64("head_num");
  t.scale = static_cast<float>(a.f64("scale"));
  const auto size = [&](const TensorView& x, char letter) {
    return x.shape[static_cast<int>(axes.find(letter))];
  };
  const std::int64_t dim = flat ? size(a.in(query), 'H') / t.heads : size(a.in(query), 'D');
  t.kv_heads = flat ? size(a.in(key), 'H') / dim : size(a.in(key), 'N');
  const auto operand = [&](const TensorView& x, std::int64_t heads,
                           const std::vector<std::int64_t>& first) {
    AttentionOperand o{.x = row_map(x, axes, heads)};
    o.dim = flat ? size(x, 'H') / heads : size(x, 'D');
    o.x.first = first;
    return o;
  };
  if (packed) {
    t.q_lens = lengths_of(a, q_totals, size(a.in(query), 'T'), "actual_seq_qlen");
    t.kv_lens = lengths_of(a, kv_totals, size(a.in(key), 'T'), "actual_seq_kvlen");
  } else {
    const auto n = static_cast<std::size_t>(size(a.in(query), 'B'));
    t.q_lens.assign(n, size(a.in(query), 'S'));
    t.kv_lens.assign(n, size(a.in(key), 'S'));
  }
  const auto q_first = packed ? starts_of(t.q_lens) : std::vector<std::int64_t>();
  const auto kv_first = packed ? starts_of(t.kv_lens) : std::vector<std::int64_t>();
  t.query = operand(a.in(query), t.heads, q_first);
  t.key = operand(a.in(key), t.kv_heads, kv_first);
  t.value = operand(a.in(value), t.kv_heads, kv_first);
  t.sinks = a.in(sink);
  set_bias(a, &t);
  for (const int i : {0, 1, 2}) std::fill_n(a.out(i).as<char>(), a.out(i).bytes(), char{0});
  const auto softmax = [&](const TensorView& x) {
    RowMap m = row_map(x, packed ? "TND" : "BNSD");
    m.first = q_first;
    if (packed && a.text("softmax_layout").empty()) {  // heads come first, whatever the shape says
      m.head = x.shape[0] * lanes;
      m.position = lanes;
    }
    return m;
  };
  t.max = softmax(a.out(1));
  t.sum = softmax(a.out(2));
  t.out = [out = operand(a.out(0), t.heads, q_first)](std::int64_t b, std::int64_t h,
                                                      std::int64_t i, const float* row) {
    out.x.write(out.x.offset(b, i, h), out.dim, row);
  };
  attend(t);
}

Cost fusion_cost(const Args& args, const Load&) {
  const Sizes s = sizes_of(args);
  const auto number = [](const Sym& x) { return static_cast<double>(x.value()); };
  AttentionWork w{};
  w.sequences = s.packed ? number(args.in(q_totals).dim(0)) : number(s.batch);
  w.tokens = number(s.queries) * (s.packed ? 1 : w.sequences);
  w.heads = static_cast<double>(s.heads);
  w.kv_heads = number(s.kv_heads);
  w.dim = number(s.dim);
  w.v_dim = number(s.v_dim);
  w.kv_bytes = static_cast<double>(size_of(args.in(key).dtype));
  w.kv_len = number(s.keys) / (s.packed ? w.sequences : 1);
  return attention_cost(w);
}

constexpr Symbol symbols[] = {
    {"packed", "input_layout == \"TND\""},
    {"flat", "input_layout in (\"BSH\", \"SBH\")"},
    {"Nq", "head_num", "query heads"},
    {"D", "query.shape[-1] // Nq if flat else query.shape[-1]", "head dim of query and key"},
    {"Nkv",
     "key.shape[-1] // D if flat else key.shape[1] if input_layout in (\"BNSD\", \"TND\") "
     "else key.shape[2]",
     "kv heads"},
    {"Dv", "value.shape[-1] // Nkv if flat else value.shape[-1]", "head dim of value"},
    {"B",
     "actual_seq_qlen.shape[0] if packed else query.shape[1] if input_layout == \"SBH\" else "
     "query.shape[0]",
     "requests"},
};
constexpr Limit limits[] = {
    {"fusion_attention.layout", "input_layout in (\"BSH\", \"SBH\", \"BSND\", \"BNSD\", \"TND\")"},
    {"fusion_attention.dtype",
     "query.dtype in (fp16, bf16, fp32) and key.dtype == query.dtype and value.dtype == "
     "query.dtype and (pse is None or pse.dtype == query.dtype)"},
    {"fusion_attention.heads", "1 <= Nq <= 256 and Nq % Nkv == 0"},
    {"fusion_attention.dim", "1 <= Dv <= D <= 768"},
    {"fusion_attention.batch", "1 <= B <= (2048 if packed else 2097152)"},
    {"fusion_attention.mask_dtype", "atten_mask is None or atten_mask.dtype in (bool, uint8)"},
    {"fusion_attention.mask_2048",
     "atten_mask is None or sparse_mode not in (2, 3, 4) or atten_mask.shape == (2048, 2048)",
     "the compressed mask: a triangle, True where masked"},
    {"fusion_attention.mask_packed", "atten_mask is None or not packed or atten_mask.ndim == 2"},
    {"fusion_attention.keep_prob", "0 < keep_prob <= 1"},
    {"fusion_attention.sparse_mode",
     "0 <= sparse_mode <= 8 and (sparse_mode != 5 or not packed) "
     "and (sparse_mode not in (7, 8) or packed)"},
    {"fusion_attention.totals",
     "not packed or (actual_seq_qlen is not None and actual_seq_kvlen is not None)"},
    {"fusion_attention.softmax_layout",
     "softmax_layout == \"\" or (softmax_layout == \"TND\" and "
     "packed)"},
};
constexpr std::string_view notes[] = {
    "the document is of training; here it is the forward pass without dropout (keep_prob 1): seed, "
    "offset and numels are 0",
    "pse is added before the scale: softmax(scale * (q @ k^T + pse))",
    "without an atten_mask sparse_mode, pre_tockens and next_tockens do not count",
    "a query that sees no key gives zeros here (inner_precise 2 there)",
    "softmax_max and softmax_sum: 8 equal numbers a row; with TND their shape is [T, heads, 8] but "
    "their order [heads, T, 8] unless softmax_layout is TND",
    "not known here: padding_mask, prefix (sparse_mode 5 and 6), outer cuts (7 and 8), pse with "
    "TND and of 1024 rows (alibi)",
};
constexpr NpuFacts facts{
    .group = "attention",
    .signature =
        "npu_fusion_attention(Tensor query, Tensor key, Tensor value, int head_num, str "
        "input_layout, Tensor? pse=None, Tensor? padding_mask=None, Tensor? atten_mask=None, float "
        "scale=1., float keep_prob=1., int pre_tockens=2147483647, int next_tockens=2147483647, "
        "int inner_precise=0, int[]? prefix=None, int[]? actual_seq_qlen=None, int[]? "
        "actual_seq_kvlen=None, int sparse_mode=0, bool gen_mask_parallel=True, bool sync=False, "
        "str softmax_layout=\"\", Tensor? sink=None, Tensor? dropout_mask=None, int seed=0, int "
        "offset=0) -> (Tensor, Tensor, Tensor, Tensor, int, int, int)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = notes,
    .symbols = symbols,
    .limits = limits,
};

}  // namespace

const OpDef npu_fusion_attention{
    .name = "npu.npu_fusion_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? pse=None, Tensor? padding_mask=None, "
        "Tensor? atten_mask=None, Tensor? prefix=None, Tensor? actual_seq_qlen=None, Tensor? "
        "actual_seq_kvlen=None, Tensor? sink=None, Tensor? dropout_mask=None, int head_num, str "
        "input_layout, float scale=1.0, float keep_prob=1.0, int pre_tockens=2147483647, int "
        "next_tockens=2147483647, int inner_precise=0, int sparse_mode=0, bool "
        "gen_mask_parallel=True, bool sync=False, str softmax_layout=\"\", int seed=0, int "
        "offset=0) -> (Tensor attention_out, Tensor softmax_max, Tensor softmax_sum, Tensor "
        "softmax_out)",
    .doc =
        "softmax(scale * (query @ key^T + pse), masked) @ value per head, forward and without "
        "dropout; requests padded to one length, or packed with running totals (TND). The greatest "
        "score of each query and the sum of exp(score - greatest) are results too.",
    .infer = fusion_infer,
    .eval = fusion_eval,
    .cost = fusion_cost,
    .npu = &facts,
};

}  // namespace tk::ops
