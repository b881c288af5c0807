// Routed experts: gate, sort, (grouped_linear of linear.h), finalize.
#pragma once

#include "cpu/kernels/common.h"

namespace tk::kernels {

enum class GateScore : std::uint8_t {
  softmax,  // over all experts, before the choice
  sigmoid,
  softmax_of_top_k  // over the chosen logits
};
enum class GroupScore : std::uint8_t { max, top2_sum };

// Per token: score = f(logits); choice = score + bias; with groups > 1 only the top_groups groups
// of experts with the best group score stay; the top_k best choices win (lower index first among
// equals); weight = score (without bias), divided by its sum (+ 1e-20) when renormalize, times
// scale.
struct MoeGateArgs {
  const void* logits = nullptr;  // [T, E]
  DType dtype = DType::f32;
  std::int64_t tokens = 0, n_experts = 0, logits_stride = 0;
  GateScore score = GateScore::softmax;
  const float* bias = nullptr;  // optional [E]
  std::int64_t groups = 1, top_groups = 1;
  GroupScore group_score = GroupScore::top2_sum;
  std::int64_t top_k = 1;
  bool renormalize = false;
  float scale = 1.0F;
  float* weights = nullptr;     // [T, top_k], best choice first
  std::int32_t* ids = nullptr;  // [T, top_k]
  void* scratch = nullptr;
};
void moe_gate(const MoeGateArgs& args, int thread, int n_threads);
std::size_t moe_gate_scratch_bytes(const MoeGateArgs& args, int n_threads);

// Sorts the pairs (t, j), numbered t * top_k + j, by expert, stable. An id outside [0, n_experts)
// has no expert (it lives on another shard): its pair is left out, place_of_pair is -1.
struct MoeSortArgs {
  const std::int32_t* ids = nullptr;  // [T, top_k]
  std::int64_t tokens = 0, top_k = 1, n_experts = 0;
  std::int32_t* pair_at = nullptr;        // [T * top_k]: sorted place -> pair
  std::int32_t* place_of_pair = nullptr;  // [T * top_k]: pair -> sorted place
  std::int32_t* offsets = nullptr;        // [n_experts + 1]
};
void moe_sort(const MoeSortArgs& args, int thread, int n_threads);  // thread 0 works

// y[t] = sum_j weights[t, j] * x[place_of_pair[t, j]] (+ residual[t]), j ascending.
struct MoeFinalizeArgs {
  const void* x = nullptr;  // [pairs, d]
  const float* weights = nullptr;
  const std::int32_t* place_of_pair = nullptr;
  const void* residual = nullptr;  // optional [T, d], y's dtype; may be y
  void* y = nullptr;
  DType x_dtype = DType::f32, y_dtype = DType::f32;
  std::int64_t tokens = 0, top_k = 1, d = 0;
  std::int64_t x_stride = 0, residual_stride = 0, y_stride = 0;
};
void moe_finalize(const MoeFinalizeArgs& args, int thread, int n_threads);

}  // namespace tk::kernels
