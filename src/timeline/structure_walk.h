// The layers along one sequence of kernels: between attention kernels, cut by the residual stream's
// norms. Internal to the automatic structure.
#pragma once

#include "timeline/roles.h"
#include "timeline/step_ops.h"

namespace tk {

// Places in the sequence. Without attention begin == ffn, without an MLP ffn == end, without
// attention over an encoder's tokens cross == ffn.
struct WalkedLayer {
  std::size_t begin = 0, cross = 0, ffn = 0, end = 0;
  bool linear = false;
};
struct WalkedPass {
  std::vector<WalkedLayer> layers;
};
struct Walked {
  std::vector<WalkedPass> passes;  // in the order of the sequence
  std::int64_t hidden = 0;         // width of the longest pass's residual stream
};

// All passes, model by model: models of different widths that follow each other are told apart.
// `sequence`: ops by time.
Walked walk_layers(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                   const std::vector<std::uint32_t>& sequence);

// The kernels that receive from another stage of a pipeline; they are on no stream of their own.
std::vector<std::uint32_t> receptions(const Timeline& t, const StepOps& ops);

// Last dimension of the first operand of "16,7168;7168"; 0 if there is none.
std::int64_t shape_width(std::string_view shapes);

inline bool is_anchor(Role r) { return r == Role::attention || r == Role::linear_attention; }
inline bool is_ffn(Role r) {
  return r == Role::activation || r == Role::grouped_matmul || r == Role::gate ||
         r == Role::dispatch || r == Role::combine;
}

}  // namespace tk
