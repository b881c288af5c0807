// The feed-forward block of torch_npu 2.14 in one call: two products with an activation between
// them, for all rows or for groups of rows by expert; plain, int8, or with int8 weights.
#include <algorithm>
#include <bit>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/quant.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

enum Input : std::uint8_t {
  x_in,
  weight1,
  weight2,
  expert_tokens,
  expert_tokens_index,
  bias1,
  bias2,
  scale,
  offset,
  deq_scale1,
  deq_scale2,
  antiquant_scale1,
  antiquant_scale2,
  antiquant_offset1,
  antiquant_offset2
};

bool is_glu(const std::string& activation) {
  return activation == "geglu" || activation == "swiglu" || activation == "reglu";
}

// [E, N] of experts, else [N].
bool per_channel(const Type& t, const Type& w) {
  return w.rank() == 3 ? t.shape == SymDims{w.dim(0), w.dim(2)} : t.shape == SymDims{w.dim(1)};
}

void need_weights(const Args& args) {
  const Type& x = args.in(x_in);
  const Type& w1 = args.in(weight1);
  const Type& w2 = args.in(weight2);
  const bool fit = x.rank() >= 2 && (w1.rank() == 2 || w1.rank() == 3) && w2.rank() == w1.rank() &&
                   w1.dim(-2) == x.dim(-1) && (w1.rank() == 2 || w1.dim(0) == w2.dim(0));
  if (!fit)
    args.fail(
        cat("needs x [.., K1], weight1 [K1, N1] and weight2 [K2, N2], both with an axis of "
            "experts before or none; got ",
            x.str(), ", ", w1.str(), " and ", w2.str()));
  const bool glu = is_glu(args.text("activation"));
  if (!(w1.dim(-1) == (glu ? w2.dim(-2) * Sym(2) : w2.dim(-2))))
    args.fail(cat("needs N1 == ", glu ? "2 * K2" : "K2", " with activation ",
                  args.text("activation"), ", got ", w1.str(), " and ", w2.str()));
  if (w1.dtype != w2.dtype || (w1.dtype != x.dtype && w1.dtype != DType::i8))
    args.fail(cat("needs weights of x's dtype or i8, got ", x.str(), " and ", w1.str()));
}

std::vector<Type> infer(const Args& args) {
  const std::string& activation = args.text("activation");
  if (!is_glu(activation) && activation != "fastgelu" && activation != "gelu" &&
      activation != "relu" && activation != "silu")
    args.fail(cat("needs activation fastgelu, gelu, relu, silu, geglu, swiglu or reglu, got '",
                  activation, "'"));
  need_weights(args);
  const Type& x = args.in(x_in);
  const Type& w1 = args.in(weight1);
  const Type& w2 = args.in(weight2);
  if (!is_float(x.dtype) && x.dtype != DType::i8)
    args.fail(cat("needs a floating-point or i8 x, got ", x.str()));
  const bool experts = w1.rank() == 3;
  if (args.has(expert_tokens) && args.has(expert_tokens_index))
    args.fail("needs expert_tokens or expert_tokens_index, not both");
  const int list = args.has(expert_tokens) ? expert_tokens : expert_tokens_index;
  if (args.has(list) != experts)
    args.fail(
        "needs expert_tokens (or expert_tokens_index) where weights have experts, only there");
  if (experts && (args.in(list).shape != SymDims{w1.dim(0)} || !is_integral(args.in(list).dtype)))
    args.fail(cat("needs expert_tokens [", w1.dim(0).str(), "], got ", args.in(list).str()));
  for (const auto& [i, w] : {std::pair(bias1, &w1), std::pair(bias2, &w2)})
    if (args.has(i) && !per_channel(args.in(i), *w))
      args.fail(cat("needs a bias for each column of ", w->str(), ", got ", args.in(i).str()));
  const bool quantised = x.dtype == DType::i8;
  const bool weights = !quantised && w1.dtype == DType::i8;
  if (quantised != (args.has(scale) && args.has(deq_scale1) && args.has(deq_scale2)))
    args.fail("needs scale, deq_scale1 and deq_scale2 for an i8 x, only there");
  if (weights != (args.has(antiquant_scale1) && args.has(antiquant_scale2)))
    args.fail(
        "needs antiquant_scale1 and antiquant_scale2 for i8 weights of a floating-point x, "
        "only there");
  for (const auto& [i, w] : {std::pair(deq_scale1, &w1), std::pair(antiquant_scale1, &w1),
                             std::pair(antiquant_offset1, &w1), std::pair(deq_scale2, &w2),
                             std::pair(antiquant_scale2, &w2), std::pair(antiquant_offset2, &w2)})
    if (args.has(i) && !per_channel(args.in(i), *w))
      args.fail(cat("needs ", args.op().parsed().tensors[i].name, " for each column of ", w->str(),
                    ", got ", args.in(i).str()));
  for (const Input i : {scale, offset}) {
    if (!args.has(i)) continue;
    const SymDims& given = args.in(i).shape;
    const SymDims one = experts ? SymDims{w1.dim(0)} : SymDims{1};
    if (given != one && (i == offset || !per_channel(args.in(i), w1)))
      args.fail(cat("needs scale and offset ", str(one), " or a scale for each column of ",
                    w1.str(), ", got ", args.in(i).str()));
  }
  Type out = x;
  out.shape.back() = w2.dim(-1);
  if (quantised)
    out.dtype = args.has_attr("output_dtype") ? args.dtype("output_dtype") : DType::f16;
  return {out};
}

float activate(const std::string& name, float v) {
  if (name == "fastgelu") return v * sigmoid(1.702F * v);
  if (name == "gelu" || name == "geglu") return gelu_erf(v);
  if (name == "relu" || name == "reglu") return std::max(v, 0.0F);
  return v * sigmoid(v);
}

// The part of expert e of a parameter, in f32; scales in the form of npu_trans_quant_param are
// taken from their bits.
Tensor part_of(const EvalArgs& a, int input, std::int64_t e, bool experts) {
  if (!a.has(input)) return {};
  TensorView v = a.in(input);
  if (experts) {
    v.data = v.as<char>() + e * v.strides[0] * static_cast<std::int64_t>(size_of(v.dtype));
    v.shape.erase(0);
    v.strides.erase(0);
  }
  if (v.dtype != DType::i64) return to_dtype(v, DType::f32);
  const Tensor words = contiguous(v);
  Tensor out = Tensor::empty(DType::f32, words.shape);
  for (std::int64_t i = 0; i < words.numel(); ++i)
    out.as<float>()[i] = std::bit_cast<float>(
        static_cast<std::uint32_t>(static_cast<std::uint64_t>(words.as<std::int64_t>()[i])));
  return out;
}

struct Layer {
  Tensor w, bias, deq;
};

Layer layer_of(const EvalArgs& a, bool first, std::int64_t e) {
  const bool experts = a.in(weight1).rank() == 3;
  Layer l{part_of(a, first ? weight1 : weight2, e, experts),
          part_of(a, first ? bias1 : bias2, e, experts),
          part_of(a, first ? deq_scale1 : deq_scale2, e, experts)};
  const Tensor factor = part_of(a, first ? antiquant_scale1 : antiquant_scale2, e, experts);
  const Tensor shift = part_of(a, first ? antiquant_offset1 : antiquant_offset2, e, experts);
  if (factor.data != nullptr)
    for (std::int64_t i = 0; i < l.w.numel(); ++i) {
      const std::int64_t c = i % l.w.shape[1];
      float& w = l.w.as<float>()[i];
      w = (w + (shift.data == nullptr ? 0.0F : shift.as<float>()[c])) * factor.as<float>()[c];
    }
  return l;
}

// (in @ w + bias) * deq
std::vector<float> product(const std::vector<float>& in, const Layer& l) {
  const std::int64_t n = l.w.shape[1];
  std::vector<double> sum(static_cast<std::size_t>(n), 0);
  for (std::size_t k = 0; k < in.size(); ++k) {
    const float* line = l.w.as<float>() + static_cast<std::int64_t>(k) * n;
    for (std::size_t j = 0; j < sum.size(); ++j)
      sum[j] += static_cast<double>(in[k]) * static_cast<double>(line[j]);
  }
  std::vector<float> out(sum.size());
  for (std::size_t j = 0; j < out.size(); ++j) {
    if (l.bias.data != nullptr) sum[j] += static_cast<double>(l.bias.as<float>()[j]);
    out[j] = static_cast<float>(sum[j]);
    if (l.deq.data != nullptr) out[j] *= l.deq.as<float>()[l.deq.numel() == 1 ? 0 : j];
  }
  return out;
}

// What goes into the second product is of x's dtype: rounded to 16 bits, or quantised.
void narrow(std::vector<float>* h, const EvalArgs& a, const Tensor& s, const Tensor& o) {
  const DType dtype = a.in(x_in).dtype;
  for (std::size_t k = 0; k < h->size(); ++k) {
    float& v = (*h)[k];
    if (dtype == DType::bf16) v = to_float(to_bf16(v));
    if (dtype == DType::f16) v = to_float(to_f16(v));
    if (dtype != DType::i8) continue;
    v = v * s.as<float>()[s.numel() == 1 ? 0 : k] + (o.data == nullptr ? 0.0F : o.as<float>()[0]);
    v = std::clamp(std::nearbyint(v), -128.0F, 127.0F);
  }
}

void eval(const EvalArgs& a) {
  const std::string& activation = a.text("activation");
  const bool glu = is_glu(activation);
  const bool experts = a.in(weight1).rank() == 3;
  const Tensor x = to_dtype(a.in(x_in), DType::f32);
  const std::int64_t k1 = x.shape.back();
  const std::int64_t n2 = a.out().shape.back();
  const std::int64_t rows = rows_of(x);
  const bool counts = a.has(expert_tokens);
  const std::vector<int> groups =
      experts ? groups_of_rows(a, counts ? expert_tokens : expert_tokens_index, rows, counts)
              : std::vector<int>(static_cast<std::size_t>(rows), 0);
  int loaded = -1;
  Layer first, second;
  Tensor s, o;
  for (std::int64_t i = 0; i < rows; ++i) {
    const int e = groups[static_cast<std::size_t>(i)];
    if (e < 0)
      throw UserError("TK0505", cat("npu_ffn: expert_tokens have ", i, " rows in all, x ", rows));
    if (e != loaded) {
      loaded = e;
      first = layer_of(a, true, e);
      second = layer_of(a, false, e);
      s = part_of(a, scale, e, experts && a.in(scale).rank() > 0);
      o = part_of(a, offset, e, experts && a.in(offset).rank() > 0);
    }
    std::vector<float> h = product({x.as<float>() + i * k1, x.as<float>() + (i + 1) * k1}, first);
    const std::size_t half = h.size() / 2;
    if (glu) {
      for (std::size_t k = 0; k < half; ++k) h[k] = activate(activation, h[k]) * h[half + k];
      h.resize(half);
    } else {
      for (float& v : h) v = activate(activation, v);
    }
    narrow(&h, a, s, o);
    const std::vector<float> y = product(h, second);
    write_row(a.out(), i * n2, 1, n2, y.data());
  }
}

Cost cost(const Args& args, const Load&) {
  Cost c = moved(args, 0);
  const Type& w1 = args.in(weight1);
  const Type& w2 = args.in(weight2);
  const double rows =
      elements_of(args.in(x_in)) / static_cast<double>(args.in(x_in).shape.back().value());
  const double experts = w1.rank() == 3 ? static_cast<double>(w1.dim(0).value()) : 1;
  c.cube = 2 * rows * (elements_of(w1) + elements_of(w2)) / experts;
  c.vector = 8 * rows * static_cast<double>(w1.dim(-1).value());
  // Experts without rows are not read.
  c.read -= (bytes_of(w1) + bytes_of(w2)) * (1 - std::min(1.0, rows / experts));
  return c;
}

constexpr Symbol symbols[] = {
    {"K1", "weight1.shape[-2]", "inputs of the first product"},
    {"N1", "weight1.shape[-1]", "outputs of the first product"},
    {"K2", "weight2.shape[-2]", "inputs of the second product"},
    {"N2", "weight2.shape[-1]", "outputs of the second product"},
    {"glu", "activation in (\"geglu\", \"swiglu\", \"reglu\")", "a gated activation"},
    {"no_experts", "expert_tokens is None and expert_tokens_index is None", "all rows alike"},
};
constexpr Limit limits[] = {
    {"ffn.glu",
     "not glu or (no_experts and x.dtype == fp16 and weight1.dtype == fp16 and inner_precise == 1 "
     "and N1 == 2 * K2)",
     "gated activations: float16 without experts, fast mode"},
    {"ffn.plain", "glu or N1 == K2"},
    {"ffn.k", "K1 == N2 and K1 < 65536 and K2 < 65536"},
    {"ffn.dtype", "x.dtype in (fp16, bf16, int8) and weight1.dtype in (x.dtype, int8)"},
    {"ffn.precise", "inner_precise in (None, 0) or (inner_precise == 1 and x.dtype != bf16)"},
    {"ffn.experts",
     "no_experts or ((expert_tokens is None or (expert_tokens.shape[0] <= 256 and "
     "sum(expert_tokens) == prod(x.shape[:-1]))) and (expert_tokens_index is None or "
     "(expert_tokens_index.shape[0] <= 256 and expert_tokens_index[-1] == prod(x.shape[:-1]))))",
     "at most 256 experts that take all rows"},
};
constexpr std::string_view notes[] = {
    "gated kinds pay where the vector part takes 30 us or more and a tenth of the block",
    "a gated block in bf16 is refused: its parts stay apart",
    "which half of a gated kind is activated is not documented: the first, as npu_swiglu",
};
constexpr NpuFacts facts{
    .group = "ffn",
    .signature =
        "npu_ffn(Tensor x, Tensor weight1, Tensor weight2, str activation, *, int[]? "
        "expert_tokens=None, int[]? expert_tokens_index=None, Tensor? bias1=None, Tensor? "
        "bias2=None, Tensor? scale=None, Tensor? offset=None, Tensor? deq_scale1=None, Tensor? "
        "deq_scale2=None, Tensor? antiquant_scale1=None, Tensor? antiquant_scale2=None, Tensor? "
        "antiquant_offset1=None, Tensor? antiquant_offset2=None, int? inner_precise=None, "
        "ScalarType? output_dtype=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = notes,
    .symbols = symbols,
    .limits = limits,
};

}  // namespace

const OpDef npu_ffn{
    .name = "npu.npu_ffn",
    .schema =
        "(Tensor x, Tensor weight1, Tensor weight2, Tensor? expert_tokens=None, "
        "Tensor? expert_tokens_index=None, Tensor? bias1=None, Tensor? bias2=None, "
        "Tensor? scale=None, Tensor? offset=None, Tensor? deq_scale1=None, "
        "Tensor? deq_scale2=None, Tensor? antiquant_scale1=None, Tensor? antiquant_scale2=None, "
        "Tensor? antiquant_offset1=None, Tensor? antiquant_offset2=None, str activation, "
        "int? inner_precise=None, dtype? output_dtype=None) -> Tensor",
    .doc =
        "act(x @ weight1 + bias1) @ weight2 + bias2, the activated rows rounded to x's dtype. int8 "
        "x: act((x @ weight1 + bias1) * deq_scale1) * scale + offset rounded to int8, the second "
        "product times deq_scale2. int8 weights alone: (w + antiquant_offset) * antiquant_scale. "
        "Groups of rows by expert_tokens (counts) or expert_tokens_index (ends).",
    .infer = infer,
    .eval = eval,
    .cost = cost,
    .npu = &facts,
};

}  // namespace tk::ops
