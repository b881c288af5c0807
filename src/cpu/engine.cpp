#include "cpu/engine.h"

#include <algorithm>

#include "base/error.h"
#include "ops/interpret.h"

namespace tk {

Engine::Engine(Plan plan, std::vector<Tensor> states, Team* team,
               std::shared_ptr<EngineMemory> memory, EngineOptions options)
    : plan_(std::move(plan)),
      states_(states.begin(), states.end()),
      kept_states_(std::move(states)),
      team_(team),
      memory_(std::move(memory)),
      options_(options),
      replay_(team) {}

void Engine::run(const Bound& bound, LaunchTimes* times) {
  if (!options_.one_by_one) return replay_.run(bound.list.launches, times);
  LaunchTimes one{{0}, {0}};
  for (std::size_t i = 0; i < bound.list.launches.size(); ++i) {
    replay_.run({&bound.list.launches[i], 1}, times != nullptr ? &one : nullptr);
    if (times != nullptr) times->start[i] = one.start[0], times->end[i] = one.end[0];
  }
}

Bound& Engine::bound(const SymEnv& env) {
  if (options_.rebind) bound_.clear();
  const auto it =
      std::find_if(bound_.begin(), bound_.end(), [&](const Bound& b) { return b.plan.env == env; });
  if (it != bound_.end()) {
    bound_.splice(bound_.begin(), bound_, it);
  } else {
    Bound b;
    b.plan = bind_plan(plan_, env, states_);
    bound_.push_front(std::move(b));
    if (bound_.size() > options_.max_bound) bound_.pop_back();
  }
  make_ready(&bound_.front());
  return bound_.front();
}

void Engine::make_ready(Bound* b) {
  std::byte* arena = memory_->arena.reserve(b->plan.arena_bytes);
  if (b->arena_generation != memory_->arena.generation()) {
    place(&b->plan, arena);
    b->list = {};
    prepare(b->plan, team_->size(), options_.prepare, &b->list);
    ++n_made_;
    b->arena_generation = memory_->arena.generation();
    b->scratch_generation = 0;
  }
  std::byte* scratch = memory_->scratch.reserve(b->list.scratch_bytes);
  if (b->scratch_generation != memory_->scratch.generation()) {
    b->list.set_scratch(scratch);
    b->scratch_generation = memory_->scratch.generation();
  }
}

std::vector<Tensor> Engine::run(const std::vector<Tensor>& inputs) {
  States states;
  for (std::size_t i = 0; i < kept_states_.size(); ++i)
    states[plan_.graph.states()[i]->name] = kept_states_[i];
  const SymEnv env = bind_symbols(plan_.graph, inputs, &states);
  Bound& b = bound(env);
  for (std::size_t i = 0; i < inputs.size(); ++i)
    copy_into(b.plan.input(static_cast<int>(i)), inputs[i]);
  run(b);
  std::vector<Tensor> outputs;
  outputs.reserve(plan_.outputs.size());
  for (std::size_t i = 0; i < plan_.outputs.size(); ++i)
    outputs.push_back(contiguous(b.plan.output(static_cast<int>(i))));
  return outputs;
}

std::vector<KernelUse> kernel_use(const Bound& bound) {
  std::map<std::pair<std::string, std::string>, KernelUse> rows;
  for (const Launch& l : bound.list.launches) {
    KernelUse& u = rows[{std::string(l.node->op->name), l.kernel}];
    u.op = l.node->op->name;
    u.kernel = l.kernel;
    ++u.launches;
    u.bytes += l.bytes;
  }
  std::vector<KernelUse> out;
  out.reserve(rows.size());
  for (auto& [key, row] : rows) out.push_back(std::move(row));
  std::stable_sort(out.begin(), out.end(),
                   [](const KernelUse& a, const KernelUse& b) { return a.bytes > b.bytes; });
  return out;
}

}  // namespace tk
