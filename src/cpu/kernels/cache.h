// Writing rows into a paged cache.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

// cache[slots[t], h, :] = x[t, h, :], the cache viewed as [n_slots, H, D]. A slot outside
// [0, n_slots) is padding: nothing is written. Two tokens with the same slot: undefined which wins.
struct CacheWriteArgs {
  const void* x = nullptr;
  void* cache = nullptr;
  const void* slots = nullptr;  // i32 or i64 [T]
  DType slots_dtype = DType::i64;
  DType dtype = DType::f32;        // x: f32, bf16, f16
  DType cache_dtype = DType::f32;  // f32, bf16, f16
  std::int64_t tokens = 0, heads = 0, d = 0, n_slots = 0;
  std::int64_t x_stride = 0, x_head_stride = 0;
  std::int64_t slot_stride = 0, cache_head_stride = 0;
};
void cache_write(const CacheWriteArgs& args, int thread, int n_threads);

}  // namespace tk::kernels
