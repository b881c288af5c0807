// Paged caches by slots: slot = block * block size + place in the block.
#pragma once

#include <string_view>

#include "ops/npu/attend.h"

namespace tk::ops {

struct SlotMap {
  RowMap rows;
  std::int64_t block = 1, slots = 0;

  std::int64_t offset(std::int64_t slot, std::int64_t head = 0) const {
    return slot / block * rows.request + slot % block * rows.position + head * rows.head;
  }
};

// A cache [blocks, block, heads, D].
SlotMap slot_map(const TensorView& cache);
// The same shape whose blocks are stored as [D / lanes, block, lanes]: what PA_NZ modes write.
// 16 lanes, 32 of int8. TK0505 where a block is no contiguous memory.
SlotMap slot_map_nz(const EvalArgs& args, const TensorView& cache, std::string_view what);

// Slot i of an integer tensor; -1 for any negative one (padding), TK0501 beyond the cache.
std::int64_t slot_at(const EvalArgs& args, const TensorView& slots, std::int64_t i,
                     std::int64_t n_slots);

}  // namespace tk::ops
