// Attention over a paged cache without a fused operator of torch_npu: the kernels of aten that do
// it.
#pragma once

#include <cstdint>
#include <vector>

#include "npu/work.h"

namespace tk {

// Keys and values are gathered from their blocks into tensors, then scores, mask, softmax and the
// weighted sum, each through memory. `whole` is the attention as one kernel: its one product has
// the flop of scores and sums along n, its operands are queries, tables and caches, then the
// result. `scores`: elements of all heads together, on this rank.
std::vector<KernelWork> unfused_attention(Step* step, const KernelWork& whole, std::int64_t scores);

}  // namespace tk
