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
// first, then as half.
void rotate(const TensorView& x, const TensorView& cos, const TensorView& sin, const TensorView& y,
            Pairing pairing) {
  const std::int64_t d = x.shape.back();
  const std::int64_t h = d / 2;
  const int last = x.rank() - 1;
  const TensorView c = broadcast_view(cos, x.shape);
  const TensorView s = broadcast_view(sin, x.shape);
  const RowWalk xs(x);
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
    write_row(y, i * d, 1, d, out.data());
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
  need_even_head(args, 0);
  need_table(args, 0, 1);
  need_table(args, 0, 2);
  need_mode(args);
  return {args.in(0)};
}

void rotary_mul_eval(const EvalArgs& a) {
  rotate(a.in(0), a.in(1), a.in(2), a.out(), pairing_of(a.text("rotary_mode")));
}

// Layouts are BSND (4-D) and TND (3-D): batch first, heads before the last axis.

std::vector<Type> apply_rotary_infer(const Args& args) {
  for (int x : {0, 1}) {
    need_even_head(args, x);
    need_table(args, x, 2);
    need_table(args, x, 3);
  }
  const std::string& layout = args.text("layout");
  if (layout != "BSND" && layout != "TND")
    args.fail(cat("needs layout BSND or TND, got '", layout, "'"));
  need_mode(args);
  return {args.in(0), args.in(1)};
}

void apply_rotary_eval(const EvalArgs& a) {
  const Pairing p = pairing_of(a.text("rotary_mode"));
  rotate(a.in(0), a.in(2), a.in(3), a.out(0), p);
  rotate(a.in(1), a.in(2), a.in(3), a.out(1), p);
}

std::vector<Type> interleave_rope_infer(const Args& args) {
  need_even_head(args, 0);
  need_table(args, 0, 1);
  need_table(args, 0, 2);
  return {args.in(0)};
}

void interleave_rope_eval(const EvalArgs& a) {
  rotate(a.in(0), a.in(1), a.in(2), a.out(), Pairing::interleave_to_half);
}

}  // namespace

const OpDef npu_rotary_mul{
    .name = "npu.npu_rotary_mul",
    .schema = "(Tensor input, Tensor r1, Tensor r2, str rotary_mode=\"half\") -> Tensor",
    .doc =
        "input * r1 + rotate(input) * r2, r1 the cosines, r2 the sines, over the whole last "
        "axis. half: rotate(x) = cat(-x2, x1) of the halves; interleave: the same of "
        "neighbours. torch_npu's matrix `rotate` is not used.",
    .infer = rotary_mul_infer,
    .eval = rotary_mul_eval,
};

const OpDef npu_apply_rotary_pos_emb{
    .name = "npu.npu_apply_rotary_pos_emb",
    .schema =
        "(Tensor query, Tensor key, Tensor cos, Tensor sin, str layout=\"BSND\", "
        "str rotary_mode=\"half\") -> (Tensor query, Tensor key)",
    .doc =
        "npu_rotary_mul of query and key with the same tables. torch_npu overwrites its "
        "inputs; here the results are new values.",
    .infer = apply_rotary_infer,
    .eval = apply_rotary_eval,
};

const OpDef npu_interleave_rope{
    .name = "npu.npu_interleave_rope",
    .schema = "(Tensor x, Tensor cos, Tensor sin) -> Tensor",
    .doc =
        "x's even and odd elements are taken apart into halves, then rotated as halves: the "
        "result is in half order.",
    .infer = interleave_rope_infer,
    .eval = interleave_rope_eval,
};

}  // namespace tk::ops
