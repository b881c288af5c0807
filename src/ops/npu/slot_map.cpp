#include "ops/npu/slot_map.h"

#include "base/error.h"
#include "ops/compute.h"

namespace tk::ops {

SlotMap slot_map(const TensorView& cache) {
  return {row_map(cache, "BSND"), cache.shape[1], cache.shape[0] * cache.shape[1]};
}

SlotMap slot_map_nz(const EvalArgs& args, const TensorView& cache, std::string_view what) {
  const std::int64_t lanes = cache.dtype == DType::i8 ? 32 : 16;
  const std::int64_t size = cache.shape[1];
  TensorView inner = cache;
  inner.shape[0] = 1;
  if (!inner.contiguous() || cache.shape[2] != 1 || cache.shape[3] % lanes != 0)
    throw UserError("TK0505", cat(args.op().name, " needs ", what, " [blocks, block, 1, D] of ",
                                  lanes, " lanes with contiguous blocks, got ", cache.shape.str()));
  RowMap rows{.data = cache,
              .request = cache.strides[0],
              .position = lanes,
              .lane = lanes,
              .lane_step = size * lanes};
  return {rows, size, cache.shape[0] * size};
}

std::int64_t slot_at(const EvalArgs& args, const TensorView& slots, std::int64_t i,
                     std::int64_t n_slots) {
  std::int64_t at = 0;
  for (int axis = slots.rank() - 1; axis >= 0; --axis) {
    at += i % slots.shape[axis] * slots.strides[axis];
    i /= slots.shape[axis];
  }
  const std::int64_t slot =
      slots.dtype == DType::i32 ? slots.as<std::int32_t>()[at] : slots.as<std::int64_t>()[at];
  return slot < 0 ? -1 : checked_index(args, slot, n_slots, false);
}

}  // namespace tk::ops
