// The gated delta rule of torch_npu 2.14, for steps of a few tokens and for whole prompts. Both are
// the same recurrence here, in f32:
//   S = S * exp(g) * exp(gk) along Dk;  S += beta * (v - S k) k';  o = S (scale * q)
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

struct Sizes {
  Sym tokens, nk, nv, dk, dv;
};

// query, key [T, Nk, Dk], value [T, Nv, Dv].
Sizes sizes_of(const Args& args) {
  for (const int i : {0, 1, 2}) {
    need_float(args, i);
    need_rank(args, i, 3, 3);
  }
  const Type& q = args.in(0);
  const Type& v = args.in(2);
  if (args.in(1).shape != q.shape || !(v.dim(0) == q.dim(0)))
    args.fail(cat("needs query and key [T, Nk, Dk] and value [T, Nv, Dv], got ", q.str(), ", ",
                  args.in(1).str(), " and ", v.str()));
  if (q.dim(1).is_const() && v.dim(1).is_const() &&
      (q.dim(1).is(0) || v.dim(1).value() % q.dim(1).value() != 0))
    args.fail(cat("needs heads of value to be a multiple of those of key, got ", v.str(), " and ",
                  q.str()));
  return {q.dim(0), q.dim(1), v.dim(1), q.dim(2), v.dim(2)};
}

void need_shape(const Args& args, int input, const SymDims& shape) {
  if (args.has(input) && args.in(input).shape != shape)
    args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(input)].name, " ",
                  str(shape), ", got ", args.in(input).str()));
}

void need_input(const Args& args, int input) {
  if (!args.has(input))
    args.fail(cat("needs ", args.op().parsed().tensors[static_cast<std::size_t>(input)].name));
}

struct Rule {
  Tensor q, k, v, beta, g, gk;  // f32; absent ones have no data
  float scale;
  std::int64_t nk, nv, dk, dv;
};

Rule rule_of(const EvalArgs& a, int beta, int g, int gk) {
  const auto f32 = [&](int i) {
    return i >= 0 && a.has(i) ? to_dtype(a.in(i), DType::f32) : Tensor();
  };
  Rule r{f32(0), f32(1), f32(2), f32(beta), f32(g), f32(gk), 1.0F, 0, 0, 0, 0};
  r.nk = r.q.shape[1];
  r.dk = r.q.shape[2];
  r.nv = r.v.shape[1];
  r.dv = r.v.shape[2];
  r.scale = a.has_attr("scale") ? static_cast<float>(a.f64("scale")) : 1.0F;
  return r;
}

// One token of head h; state is [Dv, Dk], out [Dv].
void step(const Rule& r, std::int64_t t, std::int64_t h, float* state, float* out) {
  const std::int64_t kh = h / (r.nv / r.nk);
  const float* q = r.q.as<float>() + (t * r.nk + kh) * r.dk;
  const float* k = r.k.as<float>() + (t * r.nk + kh) * r.dk;
  const float* v = r.v.as<float>() + (t * r.nv + h) * r.dv;
  const float beta = r.beta.data == nullptr ? 1.0F : r.beta.as<float>()[t * r.nv + h];
  const float alpha = r.g.data == nullptr ? 1.0F : std::exp(r.g.as<float>()[t * r.nv + h]);
  for (std::int64_t i = 0; i < r.dv; ++i) {
    float* s = state + i * r.dk;
    float seen = 0;
    for (std::int64_t j = 0; j < r.dk; ++j) {
      s[j] *= alpha;
      if (r.gk.data != nullptr) s[j] *= std::exp(r.gk.as<float>()[(t * r.nv + h) * r.dk + j]);
      seen += s[j] * k[j];
    }
    const float change = beta * (v[i] - seen);
    float o = 0;
    for (std::int64_t j = 0; j < r.dk; ++j) {
      s[j] += change * k[j];
      o += s[j] * q[j] * r.scale;
    }
    out[i] = o;
  }
}

std::vector<std::int64_t> lengths_of(const EvalArgs& a, int input, std::int64_t tokens) {
  const Tensor given = to_dtype(a.in(input), DType::i64);
  std::vector<std::int64_t> lengths(given.as<std::int64_t>(),
                                    given.as<std::int64_t>() + given.numel());
  std::int64_t sum = 0;
  for (const std::int64_t n : lengths) sum += n < 0 ? tokens + 1 : n;
  if (sum != tokens)
    throw UserError("TK0505", cat(a.op().name, ": actual_seq_lengths have ", sum,
                                  " tokens in all, query ", tokens));
  return lengths;
}

Cost rule_cost(const Args& args, const Load&) {
  Cost c = moved(args, 0);
  const Type& v = args.in(2);
  const double heads =
      static_cast<double>(v.dim(0).value()) * static_cast<double>(v.dim(1).value());
  c.vector = 8 * heads * static_cast<double>(v.dim(2).value()) *
             static_cast<double>(args.in(0).dim(2).value());
  return c;
}

// ---- recurrent: query, key, value, state, beta, lengths, indices, accepted, g, gk

std::vector<Type> recurrent_infer(const Args& args) {
  const Sizes s = sizes_of(args);
  const Type& state = args.in(3);
  need_rank(args, 3, 4, 4);
  need_float(args, 3);
  if (!(state.dim(1) == s.nv) || !(state.dim(2) == s.dv) || !(state.dim(3) == s.dk))
    args.fail(cat("needs a state [blocks, Nv, Dv, Dk], got ", state.str()));
  need_input(args, 5);
  need_input(args, 6);
  if (!args.has_attr("scale")) args.fail("needs scale");
  need_shape(args, 4, {s.tokens, s.nv});
  need_shape(args, 6, {s.tokens});
  need_rank(args, 5, 1, 1);
  need_shape(args, 7, args.in(5).shape);
  need_shape(args, 8, {s.tokens, s.nv});
  need_shape(args, 9, {s.tokens, s.nv, s.dk});
  for (const int i : {5, 6, 7})
    if (args.has(i)) need_integral(args, i);
  return {{DType::bf16, args.in(2).shape}, state};
}

// Each token leaves its state in its own block: a later step may go on from any of them.
void recurrent_eval(const EvalArgs& a) {
  const Rule r = rule_of(a, 4, 8, 9);
  const std::int64_t tokens = r.q.shape[0];
  if (a.out(1).data != a.in(3).data) copy_into(a.out(1), a.in(3));
  const Tensor index = to_dtype(a.in(6), DType::i64);
  const Tensor accepted = a.has(7) ? to_dtype(a.in(7), DType::i64) : Tensor();
  const std::int64_t blocks = a.out(1).shape[0];
  const auto block_at = [&](std::int64_t t) {
    return checked_index(a, index.as<std::int64_t>()[t], blocks, false);
  };
  const auto head_of = [&](std::int64_t block, std::int64_t h) {
    TensorView v = a.out(1);
    v.data = v.as<char>() + (block * v.strides[0] + h * v.strides[1]) *
                                static_cast<std::int64_t>(size_of(v.dtype));
    v.shape = {r.dv, r.dk};
    v.strides = {v.strides[2], v.strides[3]};
    return v;
  };
  std::vector<float> out(static_cast<std::size_t>(r.dv));
  std::int64_t begin = 0;
  const std::vector<std::int64_t> lengths = lengths_of(a, 5, tokens);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    if (lengths[b] == 0) continue;
    const std::int64_t from = accepted.data == nullptr ? 1 : accepted.as<std::int64_t>()[b];
    checked_index(a, from - 1, lengths[b], false);
    const std::int64_t start = block_at(begin + from - 1);
    // All heads' states first: the tokens' own blocks may be the one that is read.
    std::vector<Tensor> states;
    for (std::int64_t h = 0; h < r.nv; ++h)
      states.push_back(to_dtype(head_of(start, h), DType::f32));
    for (std::int64_t h = 0; h < r.nv; ++h)
      for (std::int64_t t = begin; t < begin + lengths[b]; ++t) {
        const Tensor& s = states[static_cast<std::size_t>(h)];
        step(r, t, h, s.as<float>(), out.data());
        write_row(a.out(0), (t * r.nv + h) * r.dv, 1, r.dv, out.data());
        copy_into(head_of(block_at(t), h), s);
      }
    begin += lengths[b];
  }
}

constexpr int state_in_place[] = {-1, 3};

constexpr Symbol recurrent_symbols[] = {
    {"Nk", "key.shape[1]", "heads of query and key"},
    {"Nv", "value.shape[1]", "heads of value"},
    {"Dk", "key.shape[2]", "size of key heads"},
    {"Dv", "value.shape[2]", "size of value heads"},
    {"L", "max(actual_seq_lengths)", "tokens of the longest sequence"},
};
constexpr Limit recurrent_limits[] = {
    {"recurrent_gated_delta_rule.L", "L <= 8"},
    {"recurrent_gated_delta_rule.N", "Nk <= 256 and Nv <= 256"},
    {"recurrent_gated_delta_rule.D", "Dk <= 256 and Dv <= 256"},
    {"recurrent_gated_delta_rule.dtype",
     "query.dtype == bf16 and key.dtype == bf16 and value.dtype == bf16 and state.dtype == bf16 "
     "and "
     "(beta is None or beta.dtype == bf16)"},
    {"recurrent_gated_delta_rule.gates",
     "(g is None or g.dtype == fp32) and (gk is None or gk.dtype == fp32)"},
    {"recurrent_gated_delta_rule.blocks", "state.shape[0] >= query.shape[0]"},
    {"recurrent_gated_delta_rule.ints",
     "(actual_seq_lengths is None or actual_seq_lengths.dtype == int32) and (ssm_state_indices is "
     "None or ssm_state_indices.dtype == int32) and (num_accepted_tokens is None or "
     "num_accepted_tokens.dtype == int32)"},
};
constexpr std::string_view recurrent_notes[] = {
    "op-plugin's document, which is newer, allows heads of up to 512",
    "scale, lengths and indices are optional in the schema; the library refuses to go without",
};
constexpr NpuFacts recurrent_facts{
    .group = "misc",
    .signature =
        "npu_recurrent_gated_delta_rule(Tensor query, Tensor key, Tensor value, Tensor(a!) state, "
        "*, Tensor? beta=None, float? scale=None, Tensor? actual_seq_lengths=None, Tensor? "
        "ssm_state_indices=None, Tensor? num_accepted_tokens=None, Tensor? g=None, Tensor? "
        "gk=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph; shape function; GE converter",
    .notes = recurrent_notes,
    .symbols = recurrent_symbols,
    .limits = recurrent_limits,
};

// ---- chunk: query, key, value, beta, initial_state, lengths, g

std::vector<Type> chunk_infer(const Args& args) {
  const Sizes s = sizes_of(args);
  for (const int i : {3, 4, 5}) need_input(args, i);
  need_rank(args, 5, 1, 1);
  need_integral(args, 5);
  need_float(args, 4);
  need_shape(args, 3, {s.tokens, s.nv});
  need_shape(args, 4, {args.in(5).dim(0), s.nv, s.dv, s.dk});
  need_shape(args, 6, {s.tokens, s.nv});
  return {{DType::bf16, args.in(2).shape}, args.in(4)};
}

void chunk_eval(const EvalArgs& a) {
  const Rule r = rule_of(a, 3, 6, -1);
  const Tensor states = to_dtype(a.in(4), DType::f32);
  std::vector<float> out(static_cast<std::size_t>(r.dv));
  std::int64_t begin = 0;
  const std::vector<std::int64_t> lengths = lengths_of(a, 5, r.q.shape[0]);
  for (std::size_t b = 0; b < lengths.size(); ++b) {
    for (std::int64_t h = 0; h < r.nv; ++h)
      for (std::int64_t t = begin; t < begin + lengths[b]; ++t) {
        float* s = states.as<float>() + (static_cast<std::int64_t>(b) * r.nv + h) * r.dv * r.dk;
        step(r, t, h, s, out.data());
        write_row(a.out(0), (t * r.nv + h) * r.dv, 1, r.dv, out.data());
      }
    begin += lengths[b];
  }
  copy_into(a.out(1), states);
}

constexpr Symbol chunk_symbols[] = {
    {"Nk", "key.shape[1]", "heads of query and key"},
    {"Nv", "value.shape[1]", "heads of value"},
    {"Dk", "key.shape[2]", "size of key heads"},
    {"Dv", "value.shape[2]", "size of value heads"},
};
constexpr Limit chunk_limits[] = {
    {"chunk_gated_delta_rule.N", "Nk <= 64 and Nv <= 64 and Nv % Nk == 0"},
    {"chunk_gated_delta_rule.D", "Dk == 128 and Dv == 128"},
    {"chunk_gated_delta_rule.dtype",
     "query.dtype == bf16 and key.dtype == bf16 and value.dtype == bf16 and (beta is None or "
     "beta.dtype == bf16) and (initial_state is None or initial_state.dtype == bf16) and (g is "
     "None "
     "or g.dtype == fp32)"},
    {"chunk_gated_delta_rule.empty", "value.numel > 0"},
};
constexpr std::string_view chunk_notes[] = {
    "the text limits sequences to 8 tokens, for a prefill operator: taken as an error of copying",
    "op-plugin's document, which is newer, allows heads of up to 128",
    "beta, initial_state and lengths are optional in the schema; the library refuses to go without",
};
constexpr NpuFacts chunk_facts{
    .group = "misc",
    .signature =
        "npu_chunk_gated_delta_rule(Tensor query, Tensor key, Tensor value, *, Tensor? beta=None, "
        "Tensor? initial_state=None, Tensor? actual_seq_lengths=None, float? scale=None, Tensor? "
        "g=None) -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "static graph; shape function; GE converter",
    .notes = chunk_notes,
    .symbols = chunk_symbols,
    .limits = chunk_limits,
};

}  // namespace

const OpDef npu_recurrent_gated_delta_rule{
    .name = "npu.npu_recurrent_gated_delta_rule",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor state, Tensor? beta=None, "
        "Tensor? actual_seq_lengths=None, Tensor? ssm_state_indices=None, "
        "Tensor? num_accepted_tokens=None, Tensor? g=None, Tensor? gk=None, float? scale=None) -> "
        "(Tensor out, Tensor state)",
    .doc =
        "For each token S = exp(g) * exp(gk) * S + beta * (v - S k) k', out = S q * scale. A "
        "sequence starts from the block of its num_accepted_tokens-th token (the first without "
        "it); each token's state goes to state[ssm_state_indices], in place.",
    .infer = recurrent_infer,
    .eval = recurrent_eval,
    .updates = state_in_place,
    .cost = rule_cost,
    .npu = &recurrent_facts,
};

const OpDef npu_chunk_gated_delta_rule{
    .name = "npu.npu_chunk_gated_delta_rule",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? beta=None, "
        "Tensor? initial_state=None, Tensor? actual_seq_lengths=None, Tensor? g=None, "
        "float? scale=None) -> (Tensor out, Tensor final_state)",
    .doc =
        "For each token S = exp(g) * S + beta * (v - S k) k', out = S q * scale; S starts as "
        "initial_state of its sequence, and the last is final_state.",
    .infer = chunk_infer,
    .eval = chunk_eval,
    .cost = rule_cost,
    .npu = &chunk_facts,
};

}  // namespace tk::ops
