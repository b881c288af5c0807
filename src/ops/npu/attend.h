// The one attention of all attention operators: a loop over requests, heads and keys whose operands
// say by index maps where their rows lie. Arithmetic is in f32; results are rounded once.
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// Where the row of D elements for (request, position, head) lies. Steps are in elements.
struct RowMap {
  TensorView data = {};  // data.data is null: there is no such operand
  std::int64_t request = 0, position = 0, head = 0, element = 1;
  // NZ: elements in groups of `lane`, the groups `lane_step` apart. 0: no groups.
  std::int64_t lane = 0, lane_step = 0;
  // Per request: what is added to its positions (packed tokens, where request is 0). May be empty.
  std::vector<std::int64_t> first = {};
  // Paged: position p of request b is in block table[b, p / block]; `request` is a block's step.
  TensorView table = {};
  std::int64_t block = 0;

  bool present() const { return data.data != nullptr; }
  std::int64_t offset(std::int64_t b, std::int64_t p, std::int64_t h) const;  // throws TK0506
  void read(std::int64_t offset, std::int64_t n, float* out) const;
  void write(std::int64_t offset, std::int64_t n, const float* in) const;
};

// The map of a tensor whose axes are named by letters: B request, S position, N head, D element, T
// packed tokens, H heads * D (of `heads` heads), G lane groups and L lanes of NZ, "1" an axis of 1.
RowMap row_map(const TensorView& t, std::string_view axes, std::int64_t heads = 1);

// A row as the arithmetic sees it: (x + offset) * scale.
struct AttentionOperand {
  RowMap x = {}, scale = {}, offset = {};
  std::int64_t dim = 0;
  void read(std::int64_t b, std::int64_t p, std::int64_t h, float* out) const;
};

struct Attention {
  std::int64_t heads = 0, kv_heads = 0;
  std::vector<std::int64_t> q_lens, kv_lens;  // of each request
  AttentionOperand query, query_rope, key, key_rope, value;
  float scale = 1;
  // Adds to the scores of query (request, head, i) what its keys are worth: -inf where it may not
  // look, a position's bias.
  std::function<void(std::int64_t b, std::int64_t h, std::int64_t i, std::vector<float>* scores)>
      bias;
  TensorView sinks;  // [heads]: a logit that takes part in the denominator alone
  // One row of value.dim for each query; may be absent as the rest.
  std::function<void(std::int64_t b, std::int64_t h, std::int64_t i, const float* row)> out;
  RowMap lse, max, sum;  // rows of one element, repeated over max.dim lanes
};

// A query that sees no key gives zeros, lse inf, max -inf and sum 0.
void attend(const Attention& a);

// Lengths from running totals, or as they are; `what` begins the message of TK0505 where they are
// negative, falling or beyond `limit`.
std::vector<std::int64_t> lengths(const EvalArgs& args, const TensorView& t, bool totals,
                                  std::int64_t limit, std::string_view what);
// Where each request begins in packed tokens.
std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lens);

}  // namespace tk::ops
