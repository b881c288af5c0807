// Rotary position embedding of torch_npu 2.14. Arithmetic in f32, rounded once.
#include "base/error.h"
#include "graph/graph.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

void need_even_head(const Args& args, int x) {
  if (args.in(x).rank() < 2 || !exact_div(args.in(x).dim(-1), 2))
    args.fail(cat("needs an even last axis, got ", args.in(x).str()));
  if (!is_float(args.in(x).dtype)) args.fail("needs floating-point tensors");
}

void need_table(const Args& args, int x, int table) {
  const Type& t = args.in(x);
  const Type& r = args.in(table);
  need_broadcastable(args, r.shape, t.shape,
                     args.op().parsed().tensors[static_cast<std::size_t>(table)].name);
  if (r.rank() < 1 || !(r.dim(-1) == t.dim(-1)))
    args.fail(cat("needs tables over the whole last axis of ", t.str(), ", got ", r.str()));
}

enum class Pairing : std::uint8_t { half, interleave, interleave_to_half };

// y = x * cos + rotate(x) * sin, the tables broadcast to x. half: rotate(x) = (-x2, x1) of the
// halves; interleave: of neighbours; interleave_to_half: neighbours are taken apart into halves
// first, then as half. y may be x itself.
void rotate(const TensorView& x, const TensorView& cos, const TensorView& sin, const TensorView& y,
            Pairing pairing) {
  const std::int64_t d = x.shape.back();
  const std::int64_t h = d / 2;
  const int last = x.rank() - 1;
  const TensorView c = broadcast_view(cos, x.shape);
  const TensorView s = broadcast_view(sin, x.shape);
  const RowWalk xs(x);
  const RowWalk ys(y);
  const RowWalk cs(c);
  const RowWalk ss(s);
  std::vector<float> in(static_cast<std::size_t>(d));
  std::vector<float> p(in.size());
  std::vector<float> co(in.size());
  std::vector<float> si(in.size());
  std::vector<float> out(in.size());
  for (std::int64_t i = 0; i < xs.count(); ++i) {
    read_row(x, xs.offset(i), x.strides[last], d, in.data());
    read_row(c, cs.offset(i), c.strides[last], d, co.data());
    read_row(s, ss.offset(i), s.strides[last], d, si.data());
    for (std::int64_t j = 0; j < d; ++j) {
      const auto k = static_cast<std::size_t>(j);
      const auto half = static_cast<std::size_t>(h);
      if (pairing == Pairing::interleave) {
        out[k] = in[k] * co[k] + (j % 2 == 0 ? -in[k + 1] : in[k - 1]) * si[k];
        continue;
      }
      if (pairing == Pairing::interleave_to_half) p[k] = j < h ? in[2 * k] : in[2 * (k - half) + 1];
      if (pairing == Pairing::half) p[k] = in[k];
    }
    if (pairing != Pairing::interleave)
      for (std::size_t k = 0; k < p.size(); ++k) {
        const auto half = static_cast<std::size_t>(h);
        out[k] = p[k] * co[k] + (k < half ? -p[k + half] : p[k - half]) * si[k];
      }
    write_row(y, ys.offset(i), y.strides[last], d, out.data());
  }
}

Pairing pairing_of(const std::string& mode) {
  return mode == "half" ? Pairing::half : Pairing::interleave;
}

void need_mode(const Args& args) {
  const std::string& mode = args.text("rotary_mode");
  if (mode != "half" && mode != "interleave")
    args.fail(cat("needs rotary_mode half or interleave, got '", mode, "'"));
}

std::vector<Type> rotary_mul_infer(const Args& args) {
  for (const int i : {0, 1, 2}) need_float(args, i);
  need_even_head(args, 0);
  need_table(args, 0, 1);
  need_table(args, 0, 2);
  need_mode(args);
  if (args.has(3)) {
    const Sym d = args.in(0).dim(-1);
    if (args.in(3).shape != SymDims{d, d} || !is_float(args.in(3).dtype))
      args.fail(
          cat("needs a matrix rotate [", d.str(), ", ", d.str(), "], got ", args.in(3).str()));
  }
  return {args.in(0)};
}

// x * cos + (x @ matrix) * sin.
void rotate_by_matrix(const EvalArgs& a) {
  const Tensor x = to_dtype(a.in(0), DType::f32);
  const Tensor cos = to_dtype(broadcast_view(a.in(1), x.shape), DType::f32);
  const Tensor sin = to_dtype(broadcast_view(a.in(2), x.shape), DType::f32);
  const Tensor matrix = to_dtype(a.in(3), DType::f32);
  const std::int64_t d = x.shape.back();
  std::vector<float> row(static_cast<std::size_t>(d));
  for (std::int64_t at = 0; at < x.numel(); at += d) {
    for (std::int64_t j = 0; j < d; ++j) {
      float turned = 0;
      for (std::int64_t k = 0; k < d; ++k)
        turned += x.as<float>()[at + k] * matrix.as<float>()[k * d + j];
      row[static_cast<std::size_t>(j)] =
          x.as<float>()[at + j] * cos.as<float>()[at + j] + turned * sin.as<float>()[at + j];
    }
    write_row(a.out(), at, 1, d, row.data());
  }
}

void rotary_mul_eval(const EvalArgs& a) {
  if (a.has(3)) return rotate_by_matrix(a);
  rotate(a.in(0), a.in(1), a.in(2), a.out(), pairing_of(a.text("rotary_mode")));
}

// The layout is in the shapes: the tables have one head, and broadcast.
std::vector<Type> apply_rotary_infer(const Args& args) {
  for (int x : {0, 1}) {
    need_even_head(args, x);
    need_table(args, x, 2);
    need_table(args, x, 3);
  }
  const std::string& layout = args.text("layout");
  if (layout != "BSND" && layout != "SBND" && layout != "BNSD" && layout != "TND")
    args.fail(cat("needs layout BSND, SBND, BNSD or TND, got '", layout, "'"));
  if (args.in(0).rank() != (layout == "TND" ? 3 : 4))
    args.fail(cat("needs a query of layout ", layout, ", got ", args.in(0).str()));
  need_mode(args);
  return {args.in(0), args.in(1)};
}

void apply_rotary_eval(const EvalArgs& a) {
  const Pairing p = pairing_of(a.text("rotary_mode"));
  rotate(a.in(0), a.in(2), a.in(3), a.out(0), p);
  rotate(a.in(1), a.in(2), a.in(3), a.out(1), p);
}

constexpr int query_and_key[] = {0, 1};

std::vector<Type> interleave_rope_infer(const Args& args) {
  need_even_head(args, 0);
  need_table(args, 0, 1);
  need_table(args, 0, 2);
  return {args.in(0)};
}

void interleave_rope_eval(const EvalArgs& a) {
  rotate(a.in(0), a.in(1), a.in(2), a.out(), Pairing::interleave_to_half);
}

// Which axis holds the heads shows in the tables, which have one head: [1, 1, S, D] of BNSD,
// [S, 1, 1, D] of SBND, else [B, S, N, D] and [T, N, D].
constexpr Symbol rotary_mul_symbols[] = {
    {"D", "input.shape[-1]", "head size"},
    {"bnsd", "input.ndim == 4 and r1.shape[1] == 1 and r1.shape[2] == input.shape[2]",
     "the layout is BNSD"},
    {"sbnd", "input.ndim == 4 and not bnsd and r1.shape[1] == 1 and r1.shape[0] > 1",
     "the layout is SBND"},
    {"N", "input.shape[1] if bnsd else input.shape[-2]", "heads"},
    {"B", "1 if input.ndim == 3 else input.shape[1] if sbnd else input.shape[0]", "sequences"},
};
constexpr Limit rotary_mul_limits[] = {
    {"rotary_mul.D", "D < 896 and D % 2 == 0"},
    {"rotary_mul.half_BN", "rotary_mode != \"half\" or (B < 1000 and N < 1000)"},
    {"rotary_mul.inter_BN", "rotary_mode != \"interleave\" or B * N < 1000"},
    {"rotary_mul.range", "max(r1) <= 1 and min(r1) >= -1 and max(r2) <= 1 and min(r2) >= -1",
     "tables of cosines and sines, not scaled"},
    {"rotary_mul.rank", "input.ndim in (3, 4) and r1.ndim == input.ndim"},
    {"rotary_mul.dtype", "input.dtype in (fp16, bf16, fp32)"},
};
constexpr std::string_view rotary_mul_notes[] = {
    "tables broadcast: BNSD 11SD B1SD BNSD; BSND 1S1D BS1D BSND; SBND S11D SB1D SBND; TND T1D TND; "
    "interleave takes the first of each alone",
    "half with BNSD and D not aligned to 32 bytes is slower than separate operators",
};
constexpr NpuFacts rotary_mul_facts{
    .group = "rope",
    .signature =
        "npu_rotary_mul(Tensor input, Tensor r1, Tensor r2, str rotary_mode='half', Tensor? "
        "rotate=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = rotary_mul_notes,
    .symbols = rotary_mul_symbols,
    .limits = rotary_mul_limits,
};

constexpr Symbol apply_rotary_pos_emb_symbols[] = {{"D", "query.shape[-1]", "head size"}};
constexpr Limit apply_rotary_pos_emb_limits[] = {
    {"apply_rotary_pos_emb.D",
     "D in (64, 128) and key.shape[-1] == D and cos.shape[-1] in (64, 128)"},
    {"apply_rotary_pos_emb.layout", "layout in (\"BSND\", \"TND\")"},
    {"apply_rotary_pos_emb.mode", "rotary_mode == \"half\""},
    {"apply_rotary_pos_emb.dtype", "query.dtype == key.dtype == cos.dtype == sin.dtype"},
    {"apply_rotary_pos_emb.lead",
     "query.shape[:-2] == key.shape[:-2] == cos.shape[:-2] == sin.shape[:-2]"},
    {"apply_rotary_pos_emb.cosn", "cos.shape[-2] == 1 and sin.shape[-2] == 1"},
    {"apply_rotary_pos_emb.rank", "query.ndim == (3 if layout == \"TND\" else 4)"},
    {"apply_rotary_pos_emb.empty", "query.numel > 0 and key.numel > 0"},
};
constexpr std::string_view apply_rotary_pos_emb_notes[] = {
    "the results overwrite the inputs: later users of query and key see them rotated",
    "older code passes layout BSH, which the document does not list; packed models pass TND",
};
constexpr NpuFacts apply_rotary_pos_emb_facts{
    .group = "rope",
    .signature =
        "npu_apply_rotary_pos_emb(Tensor query, Tensor key, Tensor cos, Tensor sin, str "
        "layout='BSND', str rotary_mode='half') -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = apply_rotary_pos_emb_notes,
    .symbols = apply_rotary_pos_emb_symbols,
    .limits = apply_rotary_pos_emb_limits,
};

constexpr Symbol interleave_rope_symbols[] = {{"D", "x.shape[-1]", "head size"}};
constexpr Limit interleave_rope_limits[] = {
    {"interleave_rope.D", "D == 64"},
    {"interleave_rope.cosn", "cos.shape[1] == 1"},
    {"interleave_rope.cosS", "cos.shape[2] in (1, x.shape[2])"},
    {"interleave_rope.rank", "x.ndim == 4 and cos.ndim == 4", "(B, N, S, 64)"},
    {"interleave_rope.dtype",
     "x.dtype in (bf16, fp16) and cos.dtype == x.dtype and sin.dtype == x.dtype"},
};
constexpr std::string_view interleave_rope_notes[] = {
    "the document excludes strided tensors; models pass parts of a split",
};
constexpr NpuFacts interleave_rope_facts{
    .group = "rope",
    .signature = "npu_interleave_rope(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    .source = "op-plugin docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated (op-plugin docs); shape function; GE converter",
    .notes = interleave_rope_notes,
    .symbols = interleave_rope_symbols,
    .limits = interleave_rope_limits,
};

}  // namespace

const OpDef npu_rotary_mul{
    .name = "npu.npu_rotary_mul",
    .schema =
        "(Tensor input, Tensor r1, Tensor r2, Tensor? rotate=None, str rotary_mode=\"half\") -> "
        "Tensor",
    .doc =
        "input * r1 + rotate(input) * r2, r1 the cosines, r2 the sines, over the whole last "
        "axis. half: rotate(x) = cat(-x2, x1) of the halves; interleave: the same of "
        "neighbours; with a matrix: rotate(x) = x @ rotate.",
    .infer = rotary_mul_infer,
    .eval = rotary_mul_eval,
    .npu = &rotary_mul_facts,
};

const OpDef npu_apply_rotary_pos_emb{
    .name = "npu.npu_apply_rotary_pos_emb",
    .schema =
        "(Tensor query, Tensor key, Tensor cos, Tensor sin, str layout=\"BSND\", "
        "str rotary_mode=\"half\") -> (Tensor query, Tensor key)",
    .doc = "npu_rotary_mul of query and key with the same tables, both overwritten.",
    .infer = apply_rotary_infer,
    .eval = apply_rotary_eval,
    .updates = query_and_key,
    .npu = &apply_rotary_pos_emb_facts,
};

const OpDef npu_interleave_rope{
    .name = "npu.npu_interleave_rope",
    .schema = "(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    .doc =
        "x's even and odd elements are taken apart into halves, then rotated as halves: the "
        "result is in half order.",
    .infer = interleave_rope_infer,
    .eval = interleave_rope_eval,
    .npu = &interleave_rope_facts,
};

}  // namespace tk::ops
