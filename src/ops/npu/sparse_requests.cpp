#include "ops/npu/sparse_requests.h"

#include <limits>

#include "base/error.h"
#include "ops/infer.h"
#include "ops/npu/fused_attention.h"

namespace tk::ops {
namespace {

constexpr std::string_view q_lens_name = "actual_seq_lengths_query";
constexpr std::int64_t no_limit = std::numeric_limits<std::int64_t>::max();

void need_lens(const Args& args, std::string_view name, bool needed) {
  if (!given(args, name)) {
    if (needed) args.fail(cat("needs ", name, " in this layout"));
    return;
  }
  const Type& t = args.in(input_of(args.op(), name));
  if (t.rank() != 1 || t.dtype != DType::i32)
    args.fail(cat("needs ", name, " i32[B], got ", t.str()));
}

}  // namespace

void need_sparse_requests(const Args& args, const SparseNames& names) {
  const std::string& q = args.text("layout_query");
  const std::string& k = args.text(names.layout);
  if (q != "BSND" && q != "TND") args.fail(cat("has layout_query BSND and TND, got \"", q, "\""));
  if (k != "PA_BSND" && k != q)
    args.fail(cat("has ", names.layout, " PA_BSND or that of query, got \"", k, "\""));
  const bool paged = k == "PA_BSND";
  if (args.in(0).rank() != static_cast<int>(q.size()))
    args.fail(cat("needs query ", q, ", got ", args.in(0).str()));
  if (args.in(1).rank() != (k == "TND" ? 3 : 4))
    args.fail(cat("needs key ", k, ", got ", args.in(1).str()));
  if (!args.in(1).dim(-2).is(1)) args.fail(cat("needs one head of keys, got ", args.in(1).str()));
  need_lens(args, q_lens_name, q == "TND");
  need_lens(args, names.lens, paged || k == "TND");
  if (given(args, "block_table") != paged)
    args.fail(cat("needs a block_table with ", names.layout, " PA_BSND, and with that alone"));
  if (paged) {
    const Type& t = args.in(input_of(args.op(), "block_table"));
    if (t.rank() != 2 || t.dtype != DType::i32)
      args.fail(cat("needs block_table i32[B, blocks], got ", t.str()));
  }
  const std::int64_t mode = args.i64("sparse_mode");
  if (mode != 0 && mode != 3) args.fail(cat("has sparse_mode 0 and 3, got ", mode));
  for (const char* name : {"pre_tokens", "next_tokens"})
    if (args.i64(name) != no_limit) args.fail(cat("takes no ", name));
}

RowMap SparseRequests::query_map(const TensorView& t) const {
  RowMap m;
  if (packed_queries) {
    m = row_map(t, t.rank() == 2 ? "TN" : "TND");
    m.first = starts_of(q_lens);
  } else {
    m = row_map(t, t.rank() == 3 ? "BSN" : "BSND");
  }
  return m;
}

RowMap SparseRequests::key_map(const TensorView& t) const {
  RowMap m;
  if (packed_keys) {
    m = row_map(t, t.rank() == 2 ? "TN" : "TND");
    m.first = starts_of(kv_lens);
  } else {
    m = row_map(t, t.rank() == 3 ? "BSN" : "BSND");
  }
  m.table = table;
  m.block = block;
  return m;
}

SparseRequests sparse_requests(const EvalArgs& a, const SparseNames& names) {
  SparseRequests r;
  r.causal = a.i64("sparse_mode") == 3;
  r.packed_queries = a.text("layout_query") == "TND";
  r.packed_keys = a.text(names.layout) == "TND";
  const TensorView& q = a.in(0);
  const TensorView& k = a.in(1);
  if (given(a, "block_table")) {
    r.table = a.in(input_of(a.op(), "block_table"));
    r.block = k.shape[1];
  }
  const auto of = [&](std::string_view name, bool packed, std::int64_t size, std::int64_t batch) {
    if (!given(a, name)) return std::vector<std::int64_t>(static_cast<std::size_t>(batch), size);
    return lengths(a, a.in(input_of(a.op(), name)), packed, size, name);
  };
  r.q_lens = of(q_lens_name, r.packed_queries, q.shape[r.packed_queries ? 0 : 1], q.shape[0]);
  r.kv_lens = of(names.lens, r.packed_keys,
                 r.block > 0     ? no_limit
                 : r.packed_keys ? k.shape[0]
                                 : k.shape[1],
                 k.shape[0]);
  const std::size_t n = r.q_lens.size();
  if (r.kv_lens.size() != n || (!r.packed_queries && static_cast<std::int64_t>(n) != q.shape[0]) ||
      (r.block > 0 && r.table.shape[0] < static_cast<std::int64_t>(n)))
    throw UserError("TK0505", cat(a.op().name, " needs lengths and block table of the same ", n,
                                  " requests, got ", r.kv_lens.size(), " of ", names.lens));
  return r;
}

}  // namespace tk::ops
