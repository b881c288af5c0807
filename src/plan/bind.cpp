#include "plan/bind.h"

#include <algorithm>

#include "base/error.h"

namespace tk {
namespace {

// While views are resolved no arena exists: every storage starts at this address, so that a view's
// offset is its address minus this one. Nothing is read or written through it.
// NOLINTNEXTLINE(performance-no-int-to-ptr): an address that nothing has, on purpose
std::byte* const nowhere = reinterpret_cast<std::byte*>(std::uintptr_t{1} << 40);

std::size_t at(int i) { return static_cast<std::size_t>(i); }

class Binder {
 public:
  Binder(const Plan& plan, const SymEnv& env, std::span<const TensorView> states) : plan_(plan) {
    b_.plan = &plan;
    b_.env = env;
    b_.views.resize(plan.values.size());
    b_.storage_of.assign(plan.values.size(), no_storage);
    for (std::size_t id = 0; id < plan.values.size(); ++id)
      if (plan.constants[id].data != nullptr) b_.views[id] = plan.constants[id];
    for (int id : plan.inputs) {
      b_.views[at(id)] = typed(id);
      // Kept for the whole run, so that a run can be repeated without filling the inputs again.
      store(id, -1, static_cast<int>(plan.steps.size()));
    }
    TK_CHECK(states.size() == plan.states.size(), "one tensor per state");
    for (std::size_t i = 0; i < states.size(); ++i) {
      const int id = plan.states[i];
      const TensorView want = typed(id);
      if (states[i].dtype != want.dtype || !(states[i].shape == want.shape))
        throw UserError("TK0502", cat("state '", plan.values[at(id)]->name, "' is ",
                                      name_of(want.dtype), want.shape.str(), ", got ",
                                      name_of(states[i].dtype), states[i].shape.str()));
      b_.views[at(id)] = states[i];
    }
  }

  BoundPlan run() {
    for (int s = 0; s < static_cast<int>(plan_.steps.size()); ++s) step(s);
    b_.arena_bytes = lay_out(b_.storages);
    b_.arena_offset.assign(b_.views.size(), 0);
    for (std::size_t id = 0; id < b_.views.size(); ++id)
      if (const int s = b_.storage_of[id]; s != no_storage)
        b_.arena_offset[id] =
            b_.storages[at(s)].offset + (static_cast<std::byte*>(b_.views[id].data) - nowhere);
    return std::move(b_);
  }

 private:
  TensorView typed(int id) const {
    const Type& type = plan_.values[at(id)]->type;
    TensorView v;
    v.dtype = type.dtype;
    v.shape = concrete(type.shape, b_.env);
    for (std::int64_t d : v.shape)
      if (d < 0)
        throw UserError(
            "TK0502", cat("a value of type ", type.str(), " would have the shape ", v.shape.str()));
    v.strides = contiguous_strides(v.shape);
    return v;
  }

  void store(int id, int first, int last) {
    TensorView& v = b_.views[at(id)];
    v.data = nowhere;
    const std::int64_t bytes = std::max<std::int64_t>(v.bytes(), 1);
    b_.storage_of[at(id)] = static_cast<int>(b_.storages.size());
    b_.storages.push_back({(bytes + arena_alignment - 1) / arena_alignment * arena_alignment, 0,
                           first, std::max(first, last)});
  }

  // The storage of `of` now also serves `id`.
  void share(int id, int of) {
    const int s = b_.storage_of[at(of)];
    b_.storage_of[at(id)] = s;
    if (s != no_storage) {
      int& last = b_.storages[at(s)].last;
      last = std::max(last, plan_.last_use[at(id)]);
    }
  }

  bool resolve_view(const PlanStep& p) {
    const OpDef& op = *p.node->op;
    if (op.view == nullptr || p.inputs.empty() || p.inputs[0] < 0) return false;
    in_.clear();
    out_.clear();
    for (int id : p.inputs) in_.push_back(id < 0 ? TensorView() : b_.views[at(id)]);
    for (int id : p.outputs) out_.push_back(b_.views[at(id)]);
    wanted_ = out_;  // `view` may read what is wanted while it writes what it gives
    if (!op.view(EvalArgs(op, in_, wanted_, p.node->attrs, b_.env), out_)) return false;
    for (std::size_t i = 0; i < p.outputs.size(); ++i) {
      TK_CHECK(out_[i].shape == b_.views[at(p.outputs[i])].shape, print(*p.node), " viewed as ",
               out_[i].shape.str());
      b_.views[at(p.outputs[i])] = out_[i];
      share(p.outputs[i], p.inputs[0]);
    }
    return true;
  }

  // Output `i` becomes the input that it updates, changed in place. True: that has to be copied
  // first.
  bool update_in_place(int s, const PlanStep& p, std::size_t i) {
    const int from = p.inputs[at(p.node->op->updates[i])];
    const int to = p.outputs[i];
    const int storage = b_.storage_of[at(from)];
    const bool constant = plan_.constants[at(from)].data != nullptr;
    const bool dead = storage != no_storage && b_.storages[at(storage)].last <= s;
    // A state is written where it lies. That nothing reads the old contents later is up to who
    // made the graph: the memory has one content.
    if ((storage == no_storage && !constant) || (dead && b_.views[at(from)].contiguous())) {
      b_.views[at(to)] = b_.views[at(from)];
      share(to, from);
      return false;
    }
    store(to, s, plan_.last_use[at(to)]);
    return true;
  }

  void step(int s) {
    const PlanStep& p = plan_.steps[at(s)];
    for (int id : p.outputs) b_.views[at(id)] = typed(id);
    if (resolve_view(p)) return;
    BoundStep launch{s, 0};
    const std::span<const int> updates = p.node->op->updates;
    for (std::size_t i = 0; i < p.outputs.size(); ++i)
      if (i < updates.size() && updates[i] >= 0 && p.inputs[at(updates[i])] >= 0)
        launch.copies |= static_cast<std::uint32_t>(update_in_place(s, p, i)) << i;
      else
        store(p.outputs[i], s, plan_.last_use[at(p.outputs[i])]);
    b_.launches.push_back(launch);
  }

  const Plan& plan_;
  BoundPlan b_;
  std::vector<TensorView> in_, out_, wanted_;
};

}  // namespace

const TensorView& BoundPlan::input(int i) const { return views[at(plan->inputs[at(i)])]; }
const TensorView& BoundPlan::output(int i) const { return views[at(plan->outputs[at(i)])]; }

BoundPlan bind_plan(const Plan& plan, const SymEnv& env, std::span<const TensorView> states) {
  return Binder(plan, env, states).run();
}

void place(BoundPlan* bound, std::byte* arena) {
  for (std::size_t id = 0; id < bound->views.size(); ++id)
    if (bound->storage_of[id] != no_storage)
      bound->views[id].data = arena + bound->arena_offset[id];
}

std::int64_t lay_out(std::span<Storage> storages) {
  struct Hole {
    std::int64_t begin, end;
  };
  std::vector<Hole> holes;  // sorted, never adjacent
  std::int64_t top = 0;
  std::vector<int> by_first(storages.size()), by_last;
  for (std::size_t i = 0; i < storages.size(); ++i) by_first[i] = static_cast<int>(i);
  by_last = by_first;
  std::stable_sort(by_first.begin(), by_first.end(),
                   [&](int a, int b) { return storages[at(a)].first < storages[at(b)].first; });
  std::stable_sort(by_last.begin(), by_last.end(),
                   [&](int a, int b) { return storages[at(a)].last < storages[at(b)].last; });

  const auto release = [&](std::int64_t begin, std::int64_t end) {
    auto it = std::lower_bound(holes.begin(), holes.end(), begin,
                               [](const Hole& h, std::int64_t x) { return h.begin < x; });
    if (it != holes.end() && it->begin == end) {
      it->begin = begin;
    } else {
      it = holes.insert(it, {begin, end});
    }
    if (it != holes.begin() && std::prev(it)->end == it->begin) {
      std::prev(it)->end = it->end;
      holes.erase(it);
    }
  };
  std::size_t next_dead = 0;
  for (int i : by_first) {
    Storage& s = storages[at(i)];
    for (; next_dead < by_last.size() && storages[at(by_last[next_dead])].last < s.first;
         ++next_dead) {
      const Storage& dead = storages[at(by_last[next_dead])];
      release(dead.offset, dead.offset + dead.bytes);
    }
    auto best = holes.end();
    for (auto it = holes.begin(); it != holes.end(); ++it)
      if (it->end - it->begin >= s.bytes &&
          (best == holes.end() || it->end - it->begin < best->end - best->begin))
        best = it;
    if (best == holes.end() && !holes.empty() && holes.back().end == top) {
      best = std::prev(holes.end());  // the last hole grows
      top = best->begin + s.bytes;
      best->end = top;
    }
    if (best == holes.end()) {
      s.offset = top;
      top += s.bytes;
      continue;
    }
    s.offset = best->begin;
    best->begin += s.bytes;
    if (best->begin == best->end) holes.erase(best);
  }
  return top;
}

}  // namespace tk
