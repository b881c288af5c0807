// A Plan for concrete sizes: every value has a place, views need no work.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "plan/plan.h"

namespace tk {

// A piece of the arena that one or several values (views of each other) live in.
struct Storage {
  std::int64_t bytes = 0;   // a multiple of arena_alignment
  std::int64_t offset = 0;  // from the start of the arena
  int first = 0;            // step that writes it first; -1: filled before the run (graph inputs)
  int last = 0;             // last step that reads it; steps.size(): it outlives the run
};

constexpr std::int64_t arena_alignment = 64;
constexpr int no_storage = -1;  // a constant or a state: memory of its own

// A step that computes something. Where bit i of `copies` is set, the input that output i updates
// is first copied to it: an operator that works in place, on a value that is needed afterwards too.
struct BoundStep {
  int step = 0;
  std::uint32_t copies = 0;
};

struct BoundPlan {
  const Plan* plan = nullptr;  // must outlive this
  SymEnv env;
  std::vector<TensorView> views;           // by value id; data is set by `place`
  std::vector<int> storage_of;             // by value id, or no_storage
  std::vector<std::int64_t> arena_offset;  // by value id, in bytes; of those with a storage
  std::vector<Storage> storages;
  std::vector<BoundStep> launches;  // without the steps that are views
  std::int64_t arena_bytes = 0;

  const TensorView& input(int i) const;   // i-th of the graph's inputs
  const TensorView& output(int i) const;  // i-th of the graph's outputs
};

// Sizes are evaluated, views resolved with OpDef.view, in-place results share their input's
// memory, and results are laid out in an arena so that values that are alive together never
// overlap. `states` has the memory of the graph's states, in order. Takes about 1 us a node.
// Throws TK0303 when a symbol has no value, TK0502 when a state has not its type.
BoundPlan bind_plan(const Plan& plan, const SymEnv& env, std::span<const TensorView> states);

// Points all views into an arena of at least bound->arena_bytes, aligned to arena_alignment. May be
// called again with another arena.
void place(BoundPlan* bound, std::byte* arena);

// Offsets for storages, best fit in order of `first`; returns the size of the arena.
std::int64_t lay_out(std::span<Storage> storages);

}  // namespace tk
