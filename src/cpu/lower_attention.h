// Launches of paged attention, for the operators that are made of it.
#pragma once

#include <array>

#include "cpu/prepare.h"

namespace tk {

// Shapes as in tk.paged_attention; q2 with k2, and sinks, may be null.
struct AttentionOperands {
  TensorView q;
  const TensorView* q2;
  TensorView k, v;
  const TensorView* k2;
  TensorView table, query_lens, kv_lens;
  const TensorView* sinks;
  TensorView out;
  std::array<int, 3> given_by;  // the node's inputs that are table and lengths
};

// Why the kernel does not apply, or nullptr. The memory of q and out is not looked at.
const char* attention_refuses(const AttentionOperands& o);

// The pointers of the launched args, for operands that lie in scratch memory.
struct AttentionLaunch {
  const void** q;
  void** out;
  const void** combined_q;
  void** combined_out;
};
// Checks of the tables, attention and its combination. mask, window, scale and softcap are
// attributes of the operator.
AttentionLaunch launch_attention(Prepare& p, const AttentionOperands& o);

}  // namespace tk
