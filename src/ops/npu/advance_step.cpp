// npu_advance_step_flashattn of torch_npu 2.14: tokens, positions, lengths and slots of the next
// decode step, from those of this one.
#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"

namespace tk::ops {
namespace {

enum Input { tokens, sampled, positions, lens, slots, tables, spec, accepted };
constexpr int updates[] = {tokens, positions, lens, slots};

std::vector<Type> infer(const Args& args) {
  const std::int64_t n = args.i64("num_seqs");
  const std::int64_t queries = args.i64("num_queries");
  if (n < 1 || queries < 1 || queries > n || args.i64("block_size") < 1)
    args.fail(cat("needs 1 <= num_queries <= num_seqs and a block_size, got ", queries, ", ", n,
                  " and ", args.i64("block_size")));
  for (int i = 0; i < args.n_inputs(); ++i)
    if (args.has(i) && args.in(i).dtype != DType::i64)
      args.fail(cat("needs i64 tensors, got ", args.in(i).str()));
  if (args.has(spec) != args.has(accepted))
    args.fail("needs both of spec_token and accepted_num or neither");
  Sym each = 1;
  if (args.has(spec)) {
    need_rank(args, spec, 2, 2);
    need_same(args, args.in(accepted).numel(), n, "accepted_num and num_seqs");
    each = args.in(spec).dim(1) + 1;
    if (queries != n) args.fail("needs num_queries to be num_seqs with spec_token");
  }
  for (const int i : updates) {
    need_rank(args, i, 1, 1);
    need_same(args, args.in(i).dim(0), each * n,
              "tokens, positions, lengths or slots and num_seqs");
  }
  need_rank(args, sampled, 2, 2);
  need_rank(args, tables, 2, 2);
  need_same(args, args.in(sampled).dim(0), queries, "sampled_token_ids and num_queries");
  need_same(args, args.in(sampled).dim(1), each, "sampled_token_ids and tokens of a request");
  need_same(args, args.in(tables).dim(0), n, "block_tables and num_seqs");
  return {args.in(tokens), args.in(positions), args.in(lens), args.in(slots)};
}

void eval(const EvalArgs& a) {
  for (int i = 0; i < 4; ++i)
    if (a.out(i).data != a.in(updates[i]).data) copy_into(a.out(i), a.in(updates[i]));
  const auto at = [](const TensorView& t, std::int64_t i) -> std::int64_t& {
    return t.as<std::int64_t>()[i * t.strides[0]];
  };
  const auto at2 = [](const TensorView& t, std::int64_t i, std::int64_t j) {
    return t.as<std::int64_t>()[i * t.strides[0] + j * t.strides[1]];
  };
  const TensorView& table = a.in(tables);
  const std::int64_t size = a.i64("block_size");
  const auto slot_of = [&](std::int64_t request, std::int64_t position) {
    if (position < 0 || position / size >= table.shape[1])
      throw UserError("TK0506", cat("position ", position, " of request ", request,
                                    " is beyond its block table of ", table.shape[1], " blocks"));
    return at2(table, request, position / size) * size + position % size;
  };
  const std::int64_t n = a.i64("num_seqs");
  if (!a.has(spec)) {
    for (std::int64_t i = 0; i < n; ++i) {
      const bool live = i < a.i64("num_queries");
      at(a.out(0), i) = live ? at2(a.in(sampled), i, 0) : 0;
      const std::int64_t position = at(a.out(2), i);
      at(a.out(1), i) = live ? position : 0;
      if (live) at(a.out(2), i) = position + 1;
      at(a.out(3), i) = live ? slot_of(i, position) : -1;
    }
    return;
  }
  const std::int64_t each = a.in(spec).shape[1] + 1;
  for (std::int64_t i = 0; i < n; ++i) {
    std::int64_t last = -1;  // of the tokens before the first that was rejected (-1)
    while (last + 1 < each && at2(a.in(sampled), i, last + 1) != -1) ++last;
    if (last < 0)
      throw UserError("TK0505", cat(a.op().name, ": request ", i, " has no valid sampled token"));
    for (std::int64_t k = 0; k < each; ++k) {
      const std::int64_t r = i * each + k;
      at(a.out(0), r) = k == 0 ? at2(a.in(sampled), i, last) : at2(a.in(spec), i, k - 1);
      at(a.out(1), r) += 1 + at(a.in(accepted), i);
      at(a.out(2), r) = at(a.out(1), r) + 1;
      at(a.out(3), r) = slot_of(i, at(a.out(1), r));
    }
  }
}

constexpr Limit limits[] = {
    {"advance_step_flashattn.table",
     "spec_token is not None or block_tables.shape[1] > max(seq_lens) // block_size"},
    {"advance_step_flashattn.n", "num_seqs > num_queries or spec_token is not None"},
};
constexpr std::string_view notes[] = {
    "all tensors: int64",
    "without spec_token, rows past num_queries get token and position 0 and slot -1",
    "with it, sampled_token_ids has -1 after the last accepted token of each request",
};
constexpr NpuFacts facts{
    .group = "cache",
    .signature =
        "npu_advance_step_flashattn(Tensor(a!) input_tokens, Tensor sampled_token_ids, Tensor(b!) "
        "input_positions, Tensor(c!) seq_lens, Tensor(d!) slot_mapping, Tensor block_tables, int "
        "num_seqs, int num_queries, int block_size, *, Tensor? spec_token=None, Tensor? "
        "accepted_num=None) -> ()",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; no shape function; no GE converter",
    .notes = notes,
    .limits = limits,
};

}  // namespace

const OpDef npu_advance_step_flashattn{
    .name = "npu.npu_advance_step_flashattn",
    .schema =
        "(Tensor input_tokens, Tensor sampled_token_ids, Tensor input_positions, Tensor seq_lens, "
        "Tensor slot_mapping, Tensor block_tables, Tensor? spec_token=None, Tensor? "
        "accepted_num=None, int num_seqs, int num_queries, int block_size) -> (Tensor "
        "input_tokens, Tensor input_positions, Tensor seq_lens, Tensor slot_mapping)",
    .doc =
        "The next step of decoding, in place: token = the sampled one, position = length, length + "
        "1, slot by the block table. With speculative tokens, positions go on by the accepted ones "
        "and one more.",
    .infer = infer,
    .eval = eval,
    .updates = updates,
    .npu = &facts,
};

}  // namespace tk::ops
