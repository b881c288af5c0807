// What the operators over chosen keys share: queries BSND or TND, keys BSND, TND or PA_BSND, and
// their lengths as tensors.
#pragma once

#include <string_view>
#include <vector>

#include "ops/npu/attend.h"

namespace tk::ops {

// The names of key's layout and lengths: layout_key and actual_seq_lengths_key, or ..._kv.
struct SparseNames {
  std::string_view layout, lens;
};

// Ranks, layouts and lengths of query (input 0) and key (input 1); sparse_mode 0 or 3 and both
// token limits at their defaults.
void need_sparse_requests(const Args& args, const SparseNames& names);

struct SparseRequests {
  std::vector<std::int64_t> q_lens, kv_lens;
  bool causal = false;

  // Of a tensor with the axes of query or key, further axes apart: "BSND" has them all.
  RowMap query_map(const TensorView& t) const;
  RowMap key_map(const TensorView& t) const;
  // Whether query i of request b may look at key j.
  bool sees(std::int64_t b, std::int64_t i, std::int64_t j) const {
    const auto at = static_cast<std::size_t>(b);
    return !causal || j <= i + kv_lens[at] - q_lens[at];
  }

  bool packed_queries = false, packed_keys = false;
  std::int64_t block = 0;
  TensorView table = {};
};
SparseRequests sparse_requests(const EvalArgs& args, const SparseNames& names);

}  // namespace tk::ops
