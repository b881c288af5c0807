#include "ops/npu/fused_attention.h"

#include "base/error.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/attention_layout.h"

namespace tk::ops {
namespace {

struct Sizes {
  const AttentionLayout* layout;
  std::int64_t heads, kv_heads;
  std::string_view kv_axes;
  bool paged;
  Sym batch, q_len, dim, v_dim;  // q_len: tokens where they are packed
};

const Type& input(const Args& args, std::string_view name) {
  return args.in(input_of(args.op(), name));
}

Sym size(const Args& args, int i, std::string_view axes, char letter, std::int64_t heads) {
  const auto s = size_along(args.in(i), axes, letter, heads);
  if (!s)
    args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(i)].name,
                  " of axes ", axes, " with ", heads, " heads, got ", args.in(i).str()));
  return *s;
}

// Ranks, heads, head dims and lengths of query, key and value.
Sizes sizes_of(const Args& args, const AttentionNames& names) {
  Sizes s{};
  s.heads = args.i64(names.heads);
  s.kv_heads = args.has_attr("num_key_value_heads") ? args.i64("num_key_value_heads") : 0;
  if (s.kv_heads == 0) s.kv_heads = s.heads;
  if (s.heads < 1 || s.kv_heads < 1 || s.heads % s.kv_heads != 0)
    args.fail(cat("needs query heads in equal groups, got ", s.heads, " and ", s.kv_heads));
  s.layout = attention_layout(args.text("input_layout"));
  if (s.layout == nullptr || s.layout->in == "SBH")
    args.fail(cat("has no input_layout \"", args.text("input_layout"), "\"; there are ",
                  attention_layout_names()));
  s.paged = given(args, "block_table");
  s.kv_axes = s.paged ? cache_axes(args.in(1).rank()) : s.layout->in;
  if (args.in(0).rank() != static_cast<int>(s.layout->in.size()))
    args.fail(cat("needs query of axes ", s.layout->in, ", got ", args.in(0).str()));
  for (int i : {1, 2})
    if (s.kv_axes.empty() || args.in(i).rank() != static_cast<int>(s.kv_axes.size()))
      args.fail(cat("needs key and value of axes ", s.paged ? "BSH, BNSD or BNGSL" : s.kv_axes,
                    ", got ", args.in(i).str()));
  const std::string_view in = s.layout->in;
  s.dim = size(args, 0, in, 'D', s.heads);
  s.v_dim = size(args, 2, s.kv_axes, 'D', s.kv_heads);
  s.q_len = size(args, 0, in, s.layout->packed() ? 'T' : 'S', s.heads);
  const Sym key_dim = size(args, 1, s.kv_axes, 'D', s.kv_heads);
  if (!(size(args, 0, in, 'N', s.heads) == Sym(s.heads)))
    args.fail(cat("needs ", s.heads, " heads in query, got ", args.in(0).str()));
  for (int i : {1, 2})
    if (!(size(args, i, s.kv_axes, 'N', s.kv_heads) == Sym(s.kv_heads)))
      args.fail(cat("needs ", s.kv_heads, " heads in key and value of axes ", s.kv_axes, ", got ",
                    args.in(i).str()));
  need_same(args, s.dim, key_dim, "the head dims of query and key");
  for (const char c : s.kv_axes)
    if (c == 'B' || c == 'S' || c == 'T')
      need_same(args, size(args, 1, s.kv_axes, c, s.kv_heads),
                size(args, 2, s.kv_axes, c, s.kv_heads), "the axes of key and value");
  return s;
}

void need_lengths(const Args& args, const Sizes& s, const AttentionNames& names) {
  for (const std::string_view name : {names.q_lens, names.kv_lens}) {
    if (!given(args, name)) {
      if (s.layout->packed() || (s.paged && name == names.kv_lens))
        args.fail(cat("needs ", name, s.paged ? " with a block_table" : " for packed tokens"));
      continue;
    }
    const Type& t = input(args, name);
    if (t.rank() != 1 || (t.dtype != DType::i32 && t.dtype != DType::i64))
      args.fail(cat("needs ", name, " as a list of integers, got ", t.str()));
  }
  if (!s.paged) return;
  const Type& table = input(args, "block_table");
  if (table.rank() != 2 || table.dtype != DType::i32)
    args.fail(cat("needs block_table i32[B, blocks], got ", table.str()));
  const Sym block = *size_along(args.in(1), s.kv_axes, 'S', s.kv_heads);
  if (block.is_const() && !block.is(args.i64("block_size")))
    args.fail(cat("needs block_size ", block.str(), " as the cache has it, got ",
                  args.i64("block_size")));
}

void need_rope(const Args& args, const Sizes& s) {
  const bool q = given(args, "query_rope");
  if (q != given(args, "key_rope")) args.fail("needs both of query_rope and key_rope or neither");
  if (!q) return;
  const int qi = input_of(args.op(), "query_rope");
  const int ki = input_of(args.op(), "key_rope");
  if (args.in(qi).rank() != args.in(0).rank() || args.in(ki).rank() != args.in(1).rank())
    args.fail(cat("needs query_rope and key_rope of the axes of query and key, got ",
                  args.in(qi).str(), " and ", args.in(ki).str()));
  need_same(args, size(args, qi, s.layout->in, 'D', s.heads),
            size(args, ki, s.kv_axes, 'D', s.kv_heads), "the dims of query_rope and key_rope");
  for (const char c : s.layout->in)
    if (c != 'D' && c != 'H')
      need_same(args, size(args, qi, s.layout->in, c, s.heads),
                size(args, 0, s.layout->in, c, s.heads), "query_rope and query");
  for (const char c : s.kv_axes)
    if (c == 'B' || c == 'N' || c == 'S' || c == 'T')
      need_same(args, size(args, ki, s.kv_axes, c, s.kv_heads),
                size(args, 1, s.kv_axes, c, s.kv_heads), "key_rope and key");
}

void need_masks(const Args& args, const Sizes& s, const AttentionNames& names) {
  const std::int64_t mode = names.decode ? 0 : args.i64("sparse_mode");
  if (mode < 0 || mode > 4) args.fail(cat("is known here with sparse_mode 0 to 4, got ", mode));
  if (given(args, "atten_mask")) {
    const Type& m = input(args, "atten_mask");
    if (m.dtype != DType::boolean && m.dtype != DType::i8 && m.dtype != DType::u8)
      args.fail(cat("needs atten_mask of bool, i8 or u8, got ", m.str()));
    if (m.rank() < 2 || m.rank() > 4 || (m.rank() == 4 && !m.dim(1).is(1)))
      args.fail(cat("needs atten_mask [Q, K], [B, Q, K] or [B, 1, Q, K], got ", m.str()));
    if (s.layout->packed() && mode < 2)
      args.fail("is known here for packed tokens without atten_mask in sparse_mode 0 and 1");
  }
  if (!given(args, "pse_shift")) return;
  const Type& pse = input(args, "pse_shift");
  if (s.layout->packed()) args.fail("takes no pse_shift with packed tokens");
  if (pse.rank() != 4 || !is_float(pse.dtype) || !pse.dim(1).is(s.heads))
    args.fail(cat("needs pse_shift [B, ", s.heads, ", Q, K], got ", pse.str()));
}

void need_quant(const Args& args, const AttentionNames& names) {
  const DType kv = args.in(1).dtype;
  if (args.in(2).dtype != kv) args.fail("needs key and value of one dtype");
  if (kv != DType::i8 && !is_float(kv))
    args.fail(cat("is known here with key and value of floats or i8, got ", args.in(1).str()));
  const DType q = args.in(0).dtype;
  if (q != DType::i8 && !is_float(q))
    args.fail(cat("needs query of floats, got ", args.in(0).str()));
  if (q == DType::i8 && (!given(args, names.query_scale) || !given(args, "query_rope")))
    args.fail("is known here with an i8 query in MLA alone, with its scale and a rope part");
  if (given(args, names.key_scale) != given(args, names.value_scale))
    args.fail(cat("needs both of ", names.key_scale, " and ", names.value_scale, " or neither"));
  if (given(args, names.key_offset) != given(args, names.value_offset))
    args.fail(cat("needs both of ", names.key_offset, " and ", names.value_offset, " or neither"));
  const bool scaled = given(args, names.key_scale) || given(args, names.both_scale);
  if (kv == DType::i8 && !scaled) args.fail("needs scales of key and value, which are i8");
  if (kv != DType::i8 && scaled) args.fail("takes scales of key and value with i8 alone");
}

}  // namespace

void refuse_given(const Args& args, std::span<const std::string_view> names) {
  for (const std::string_view name : names) {
    const bool is_input = args.op().parsed().tensor_index(name) >= 0;
    if (is_input ? given(args, name) : args.has_attr(name))
      args.fail(cat("is not known here with ", name));
  }
}

std::vector<Type> fused_attention_infer(const Args& args, const AttentionNames& names) {
  refuse_given(args, names.refused);
  const Sizes s = sizes_of(args, names);
  need_lengths(args, s, names);
  need_rope(args, s);
  need_masks(args, s, names);
  need_quant(args, names);
  DType out = args.in(0).dtype == DType::i8 ? input(args, "query_rope").dtype : args.in(0).dtype;
  if (given(args, names.out_scale)) out = DType::i8;
  const Sym batch = s.layout->packed() ? Sym(1) : *size_along(args.in(0), s.layout->in, 'B', 1);
  std::vector<Type> types{{out, shape_of_axes(s.layout->out, batch, s.q_len, s.heads, s.v_dim)}};
  if (names.lse.empty()) return types;
  SymDims lse{0};
  if (args.flag(names.lse))
    lse = shape_of_axes(s.layout->packed() ? "TND" : "BNSD", batch, s.q_len, s.heads, 1);
  types.push_back({DType::f32, lse});
  return types;
}

Cost fused_attention_cost(const Args& args, const Load& load, const AttentionNames& names) {
  const Sizes s = sizes_of(args, names);
  const auto number = [](const Sym& x) { return static_cast<double>(x.value()); };
  AttentionWork w{};
  w.sequences = s.layout->packed() ? number(input(args, names.q_lens).dim(0))
                                   : number(*size_along(args.in(0), s.layout->in, 'B', 1));
  w.tokens = number(s.q_len) * (s.layout->packed() ? 1 : w.sequences);
  w.heads = static_cast<double>(s.heads);
  w.kv_heads = static_cast<double>(s.kv_heads);
  w.dim = number(s.dim);
  if (given(args, "query_rope"))
    w.dim += number(*size_along(input(args, "query_rope"), s.layout->in, 'D', s.heads));
  w.v_dim = number(s.v_dim);
  w.kv_bytes = static_cast<double>(size_of(args.in(1).dtype));
  w.kv_len = s.paged              ? load.kv_len
             : s.layout->packed() ? number(args.in(1).dim(s.kv_axes == "TND" ? 0 : 1)) / w.sequences
                                  : number(*size_along(args.in(1), s.kv_axes, 'S', s.kv_heads));
  if (!names.decode && args.i64("sparse_mode") == 4)
    w.window = static_cast<double>(args.i64("pre_tokens")) + 1;
  w.same_kv = args.value(1) == args.value(2);
  return attention_cost(w);
}

}  // namespace tk::ops
