// The reference of the fused attentions: their arguments as index maps for attend().
#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/npu/attend.h"
#include "ops/npu/attention_layout.h"
#include "ops/npu/fused_attention.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

constexpr std::int64_t any_length = std::numeric_limits<std::int64_t>::max();

TensorView input(const EvalArgs& a, std::string_view name) {
  return given(a, name) ? a.in(input_of(a.op(), name)) : TensorView();
}

std::int64_t along(const TensorView& t, std::string_view axes, char letter) {
  const std::size_t i = axes.find(letter);
  return i == std::string_view::npos ? 1 : t.shape[static_cast<int>(i)];
}

// Lengths of one for all requests are repeated, those of more than there are cut.
std::vector<std::int64_t> fitted(const EvalArgs& a, std::vector<std::int64_t> lens,
                                 std::int64_t requests, std::string_view name) {
  const auto n = static_cast<std::size_t>(requests);
  if (lens.size() == 1) lens.resize(n, lens[0]);
  if (lens.size() < n)
    throw UserError(
        "TK0505", cat(a.op().name, " needs ", name, " of 1 or ", n, " lengths, got ", lens.size()));
  lens.resize(n);
  return lens;
}

// ---- which keys a query sees

// The mask of sparse_mode 2 to 4 is a triangle that the operator reads in parts: any other content
// is garbage there, so it is an error here.
void check_triangle(const EvalArgs& a, const TensorView& mask) {
  const std::int64_t n = mask.shape.at(-1);
  std::vector<std::uint8_t> pattern(static_cast<std::size_t>(2 * n), 0);  // n + 1 zeros, then ones
  std::fill(pattern.begin() + n, pattern.end(), std::uint8_t{1});
  const std::int64_t row = mask.strides.at(-2);
  const std::int64_t step = mask.strides.at(-1);
  for (std::int64_t i = 0; i < mask.shape.at(-2); ++i) {
    const auto* p = mask.as<std::uint8_t>() + i * row;
    const std::uint8_t* want = pattern.data() + n - std::min(i + 1, n);
    if (step == 1 && std::memcmp(p, want, static_cast<std::size_t>(n)) == 0) continue;
    for (std::int64_t j = 0; j < n; ++j)
      if ((p[j * step] != 0) != (j > i))
        throw UserError("TK0505", cat(a.op().name, " needs in sparse_mode ", a.i64("sparse_mode"),
                                      " an atten_mask that is true above the diagonal and false ",
                                      "elsewhere; [", i, ", ", j, "] is not so"))
            .help("torch.triu(torch.ones(2048, 2048, dtype=torch.bool), diagonal=1)");
  }
}

struct Window {
  std::int64_t mode = 0, pre = any_length, next = any_length;
  bool dense = false;  // mode 0 or 1 with a mask

  // The keys [from, to) that query i of n sees of `keys`, the mask apart.
  std::pair<std::int64_t, std::int64_t> range(std::int64_t i, std::int64_t n,
                                              std::int64_t keys) const {
    const std::int64_t right = i + keys - n;  // the key that lies below query i at the end
    const auto least = [](std::int64_t x, std::int64_t by) { return by > x ? 0 : x - by; };
    const auto most = [keys](std::int64_t x, std::int64_t by) {
      return by >= keys - x ? keys : std::max<std::int64_t>(x + by + 1, 0);
    };
    if (mode == 2) return {0, std::min(i + 1, keys)};
    if (mode == 3) return {0, std::clamp<std::int64_t>(right + 1, 0, keys)};
    if (mode == 4) return {least(right, pre), most(right, next)};
    if (mode == 0 && dense) return {least(i, pre), most(i, next)};
    return {0, keys};
  }
};

// Strides of a mask or bias for (request, head, query, key); 0 where it is repeated.
struct Plane {
  TensorView t;
  std::int64_t request = 0, head = 0, query = 0, key = 0;
};

Plane plane_of(const EvalArgs& a, const TensorView& t, std::int64_t q_len, std::int64_t keys,
               std::string_view what) {
  if (t.data == nullptr) return {};
  Plane p{.t = t, .key = t.strides.at(-1)};
  const int rank = t.rank();
  const auto stride = [&](int i) { return t.shape.at(i) == 1 ? 0 : t.strides.at(i); };
  if (rank == 2 && q_len == 1) {
    p.request = stride(-2);
  } else {
    p.query = t.strides.at(-2);
    if (t.shape.at(-2) < q_len)
      throw UserError("TK0505", cat(a.op().name, " needs ", what, " of ", q_len, " queries, got ",
                                    t.shape.str()));
  }
  if (rank >= 3) p.request = stride(-rank);
  if (rank == 4) p.head = stride(1);
  if (t.shape.at(-1) < keys)
    throw UserError("TK0505",
                    cat(a.op().name, " needs ", what, " of ", keys, " keys, got ", t.shape.str()));
  return p;
}

// ---- operands

// What a call needs while it runs.
struct Call {
  const EvalArgs& a;
  const AttentionNames& names;
  const AttentionLayout& layout;
  std::string_view kv_axes = {};
  std::int64_t heads = 0, kv_heads = 0, requests = 0;
  std::vector<std::int64_t> q_first = {}, kv_first = {};
  TensorView table = {};
  std::vector<Tensor> kept = {};  // copies that index maps point into

  RowMap query_map(const TensorView& t, std::string_view axes) const {
    RowMap m = row_map(t, axes, heads);
    m.first = q_first;
    return m;
  }
  // Rows of a cache, or of what goes with it, through the block table.
  void page(RowMap* m, std::int64_t block) const {
    m->table = table;
    m->block = block;
  }
  AttentionOperand kv(const TensorView& t) const {
    AttentionOperand o{.x = row_map(t, kv_axes, kv_heads)};
    o.dim = kv_axes.back() == 'H'   ? t.shape.back() / kv_heads
            : kv_axes.back() == 'L' ? t.shape[2] * t.shape[4]
                                    : t.shape.back();
    o.x.first = kv_first;
    if (table.data != nullptr) page(&o.x, along(t, kv_axes, 'S'));
    return o;
  }

  // A factor of key or value by its quantisation mode.
  RowMap factor(const TensorView& given_factor, std::int64_t mode, std::int64_t dim,
                std::string_view name) {
    if (given_factor.data == nullptr) return {};
    kept.push_back(contiguous(given_factor));
    const TensorView t = kept.back();
    const std::int64_t last = t.rank() == 0 ? 1 : t.shape.back();
    RowMap m{.data = t, .element = 0};
    const auto need = [&](bool ok, std::string_view shape) {
      if (!ok)
        throw UserError("TK0505", cat(a.op().name, " needs ", name, " of shape ", shape,
                                      " in quantisation mode ", mode, ", got ", t.shape.str()));
    };
    switch (mode) {
      case 0:
        if (t.numel() == 1) return m;
        need(t.numel() == kv_heads * dim, "[1] or [heads, D]");
        m.head = dim;
        m.element = 1;
        break;
      case 1:
        need(t.rank() >= 2 && t.numel() == requests * last, "[B, S]");
        m.request = last;
        m.position = 1;
        break;
      case 2:
        need(t.numel() == kv_heads, "[heads]");
        m.head = 1;
        break;
      case 3:
        need(t.numel() == requests * kv_heads * last, "[B, heads, S]");
        m.request = kv_heads * last;
        m.head = last;
        m.position = 1;
        break;
      case 4:
        need(t.rank() == 2 && table.data != nullptr, "[blocks, block] with a block_table");
        m.request = last;
        m.position = 1;
        page(&m, last);
        break;
      case 5:
        need(t.rank() == 3 && t.shape[1] == kv_heads && table.data != nullptr,
             "[blocks, heads, block] with a block_table");
        m.request = kv_heads * last;
        m.head = last;
        m.position = 1;
        page(&m, last);
        break;
      default:
        throw UserError("TK0505", cat(a.op().name, " has no quantisation mode ", mode));
    }
    return m;
  }

  // Half `which` of a tensor [2, ...] that holds the factors of key and value.
  static TensorView half(const TensorView& t, int which) {
    if (t.data == nullptr || t.rank() == 0) return t;
    TensorView v = t;
    v.data = t.as<char>() + which * t.strides[0] * static_cast<std::int64_t>(size_of(t.dtype));
    v.shape.erase(0);
    v.strides.erase(0);
    return v;
  }

  AttentionOperand quantised(const TensorView& t, bool is_key) {
    AttentionOperand o = kv(t);
    const int which = is_key ? 0 : 1;
    const auto mode = [&](std::string_view name) { return name.empty() ? 0 : a.i64(name); };
    const std::string_view scale = is_key ? names.key_scale : names.value_scale;
    if (given(a, scale)) {
      const std::string_view offset = is_key ? names.key_offset : names.value_offset;
      const std::int64_t m = mode(is_key ? names.key_mode : names.value_mode);
      o.scale = factor(input(a, scale), m, o.dim, scale);
      o.offset = factor(input(a, offset), m, o.dim, offset);
    } else if (given(a, names.both_scale)) {
      const std::int64_t m = mode(names.both_mode);
      o.scale = factor(half(input(a, names.both_scale), which), m, o.dim, names.both_scale);
      o.offset = factor(half(input(a, names.both_offset), which), m, o.dim, names.both_offset);
    }
    return o;
  }
};

// ---- results

// Writes rows as they are, or as int8: round(x * scale + offset).
auto writer(const Call& c, std::int64_t v_dim) {
  const EvalArgs& a = c.a;
  RowMap out = c.query_map(a.out(0), c.layout.out);
  const auto numbers = [&](std::string_view name) {
    const TensorView t = input(a, name);
    std::vector<float> v;
    if (t.data == nullptr) return v;
    const Tensor f = to_dtype(t, DType::f32);
    v.assign(f.as<float>(), f.as<float>() + f.numel());
    if (v.size() != 1 && static_cast<std::int64_t>(v.size()) != c.heads * v_dim)
      throw UserError("TK0505", cat(a.op().name, " needs ", name, " of 1 or ", c.heads * v_dim,
                                    " elements, got ", t.shape.str()));
    return v;
  };
  return [out, v_dim, scale = numbers(c.names.out_scale), offset = numbers(c.names.out_offset)](
             std::int64_t b, std::int64_t h, std::int64_t i, const float* row) {
    const std::int64_t at = out.offset(b, i, h);
    if (scale.empty()) return out.write(at, v_dim, row);
    const auto of = [&](const std::vector<float>& v, std::int64_t d) {
      return v.empty() ? 0.0F : v[static_cast<std::size_t>(v.size() == 1 ? 0 : h * v_dim + d)];
    };
    std::vector<float> scaled(row, row + v_dim);
    for (std::int64_t d = 0; d < v_dim; ++d)
      scaled[static_cast<std::size_t>(d)] = row[d] * of(scale, d) + of(offset, d);
    out.write(at, v_dim, scaled.data());
  };
}

Attention described(Call& c) {
  const EvalArgs& a = c.a;
  const AttentionLayout& layout = c.layout;
  Attention t;
  t.heads = c.heads;
  t.kv_heads = c.kv_heads;
  t.scale = static_cast<float>(a.f64(c.names.scale));
  const bool packed = layout.packed();
  const std::int64_t q_size = along(a.in(0), layout.in, packed ? 'T' : 'S');
  const std::int64_t kv_size =
      c.table.data != nullptr ? any_length : along(a.in(1), c.kv_axes, packed ? 'T' : 'S');
  const TensorView q_lens = input(a, c.names.q_lens);
  const TensorView kv_lens = input(a, c.names.kv_lens);
  if (packed) {
    t.q_lens = lengths(a, q_lens, true, q_size, c.names.q_lens);
    t.kv_lens = lengths(a, kv_lens, c.table.data == nullptr, kv_size, c.names.kv_lens);
    c.requests = static_cast<std::int64_t>(t.q_lens.size());
    t.kv_lens = fitted(a, t.kv_lens, c.requests, c.names.kv_lens);
    c.q_first = starts_of(t.q_lens);
    if (c.table.data == nullptr) c.kv_first = starts_of(t.kv_lens);
  } else {
    c.requests = along(a.in(0), layout.in, 'B');
    const auto of = [&](const TensorView& lens, std::int64_t size, std::string_view name) {
      if (lens.data == nullptr || (size == 1 && name == c.names.q_lens))
        return std::vector<std::int64_t>(static_cast<std::size_t>(c.requests), size);
      return fitted(a, lengths(a, lens, false, size, name), c.requests, name);
    };
    t.q_lens = of(q_lens, q_size, c.names.q_lens);
    t.kv_lens = of(kv_lens, kv_size, c.names.kv_lens);
  }
  if (c.table.data != nullptr && c.table.shape[0] < c.requests)
    throw UserError("TK0506", cat("a block table of ", c.table.shape[0], " requests is given, ",
                                  c.requests, " are asked"));
  const auto query_operand = [&](const TensorView& x) {
    return AttentionOperand{
        .x = c.query_map(x, layout.in),
        .dim = layout.in.back() == 'H' ? x.shape.back() / c.heads : x.shape.back()};
  };
  t.query = query_operand(a.in(0));
  if (given(a, c.names.query_scale)) {  // one a token and head; the axes of query without D
    const TensorView s = input(a, c.names.query_scale);
    std::string axes(layout.in.substr(0, layout.in.size() - 1));
    if (layout.in.back() == 'H') axes += "N";
    if (s.rank() == static_cast<int>(axes.size()) + 1) axes += "1";
    if (s.rank() != static_cast<int>(axes.size()) || s.numel() * t.query.dim != a.in(0).numel())
      throw UserError("TK0505", cat(a.op().name, " needs ", c.names.query_scale, " of axes ", axes,
                                    ", got ", s.shape.str()));
    t.query.scale = c.query_map(s, axes);
  }
  t.key = c.quantised(a.in(1), true);
  t.value = c.quantised(a.in(2), false);
  if (given(a, "query_rope")) {
    t.query_rope = query_operand(input(a, "query_rope"));
    t.key_rope = c.kv(input(a, "key_rope"));
  }
  t.sinks = input(a, c.names.sinks);
  return t;
}

void set_bias(const Call& c, Attention* t) {
  const EvalArgs& a = c.a;
  Window w;
  const TensorView mask = input(a, "atten_mask");
  if (!c.names.decode) {
    w.mode = a.i64("sparse_mode");
    w.pre = a.i64("pre_tokens");
    w.next = a.i64("next_tokens");
  }
  w.dense = mask.data != nullptr && w.mode < 2;
  if (mask.data != nullptr && w.mode >= 2) check_triangle(a, mask);
  std::int64_t keys = 0;
  std::int64_t queries = 0;
  for (const std::int64_t n : t->kv_lens) keys = std::max(keys, n);
  for (const std::int64_t n : t->q_lens) queries = std::max(queries, n);
  const Plane m = w.dense ? plane_of(a, mask, queries, keys, "atten_mask") : Plane();
  const Plane pse = plane_of(a, input(a, "pse_shift"), queries, keys, "pse_shift");
  t->bias = [w, m, pse, q_lens = t->q_lens](std::int64_t b, std::int64_t h, std::int64_t i,
                                            std::vector<float>* scores) {
    const auto keys_of = static_cast<std::int64_t>(scores->size());
    const auto [from, to] = w.range(i, q_lens[static_cast<std::size_t>(b)], keys_of);
    for (std::int64_t j = 0; j < keys_of; ++j) {
      float& s = (*scores)[static_cast<std::size_t>(j)];
      if (pse.t.data != nullptr) {
        float bias = 0;
        read_row(pse.t, b * pse.request + h * pse.head + i * pse.query + j * pse.key, 1, 1, &bias);
        s += bias;
      }
      const bool hidden = m.t.data != nullptr &&
                          m.t.as<std::uint8_t>()[b * m.request + i * m.query + j * m.key] != 0;
      if (j < from || j >= to || hidden) s = -INFINITY;
    }
  };
}

}  // namespace

void fused_attention_eval(const EvalArgs& a, const AttentionNames& names) {
  Call c{.a = a, .names = names, .layout = *attention_layout(a.text("input_layout"))};
  c.table = input(a, "block_table");
  c.kv_axes = c.table.data != nullptr ? cache_axes(a.in(1).rank()) : c.layout.in;
  c.heads = a.i64(names.heads);
  c.kv_heads = a.has_attr("num_key_value_heads") ? a.i64("num_key_value_heads") : 0;
  if (c.kv_heads == 0) c.kv_heads = c.heads;
  Attention t = described(c);
  set_bias(c, &t);
  std::fill_n(a.out(0).as<char>(), a.out(0).bytes(), char{0});
  t.out = writer(c, t.value.dim);
  if (!names.lse.empty() && a.flag(names.lse)) {
    const TensorView& lse = a.out(1);
    std::fill_n(lse.as<float>(), lse.numel(), INFINITY);
    t.lse = c.query_map(lse, c.layout.packed() ? "TND" : "BNSD");
  }
  attend(t);
}

}  // namespace tk::ops
