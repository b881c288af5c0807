#include "cpu/prepare.h"

#include <algorithm>
#include <cstring>
#include <unordered_map>

#include "base/error.h"
#include "cpu/pack.h"

namespace tk {
namespace {

// Below this, meeting at a barrier costs more than the second thread saves.
constexpr std::int64_t serial_bytes = 16 << 10;

struct ReferenceArgs {
  const Node* node;
  const TensorView* views;  // inputs, then outputs
  const SymEnv* env;
};

void reference(const ReferenceArgs& a, int thread, int /*n_threads*/) {
  if (thread != 0) return;
  const std::size_t n = a.node->inputs.size();
  const EvalArgs args(*a.node->op, {a.views, n}, {a.views + n, a.node->outputs.size()},
                      a.node->attrs, *a.env);
  a.node->op->eval(args);
}

struct CopyArgs {
  TensorView y, x;
};

void copy(const CopyArgs& a, int thread, int /*n_threads*/) {
  if (thread == 0) copy_into(a.y, a.x);
}

using Table = std::unordered_map<std::string_view, std::vector<const KernelEntry*>>;

const Table& by_op() {
  static const Table table = [] {
    Table t;
    for (const KernelEntry& e : kernel_table()) t[e.op].push_back(&e);
    return t;
  }();
  return table;
}

}  // namespace

Prepare::Prepare(const Node& n, const EvalArgs& a, std::span<const bool> constant,
                 std::span<const bool> packed, int threads, LaunchList* list)
    : node(n), args(a), n_threads(threads), constant_(constant), packed_(packed), list_(list) {}

void Prepare::add(Launch launch) {
  launch.serial = launch.bytes < serial_bytes;
  list_->launches.push_back(launch);
}

void Prepare::lend(void* pointer, std::size_t bytes) {
  if (bytes == 0) return;
  list_->scratch_slots.push_back({pointer, scratch_used_});
  scratch_used_ += static_cast<std::int64_t>((bytes + 63) / 64 * 64);
  list_->scratch_bytes = std::max(list_->scratch_bytes, scratch_used_);
}

void Prepare::share(void* pointer, const void* other) {
  const auto& slots = list_->scratch_slots;
  const auto it =
      std::find_if(slots.rbegin(), slots.rend(), [&](const auto& s) { return s.pointer == other; });
  if (it != slots.rend()) list_->scratch_slots.push_back({pointer, it->offset});
}

void Prepare::streams(const void** next, std::int64_t* bytes, const TensorView& constant) {
  auto& streams = list_->streams;
  if (!streams.empty()) {
    *streams.back().next = constant.data;
    *streams.back().bytes = constant.bytes();
  }
  streams.push_back({next, bytes});
}

std::int64_t Prepare::io_bytes() const {
  std::int64_t bytes = 0;
  for (int i = 0; i < args.n_inputs(); ++i)
    if (args.has(i)) bytes += args.in(i).bytes();
  for (int i = 0; i < args.n_outputs(); ++i) bytes += args.out(i).bytes();
  return bytes;
}

void prepare_reference(Prepare& p) {
  TK_CHECK(p.node.op->eval != nullptr, p.node.op->name, " has no reference");
  const int n_in = p.args.n_inputs();
  const int n_out = p.args.n_outputs();
  auto* views = p.keep<TensorView>(static_cast<std::size_t>(n_in + n_out));
  for (int i = 0; i < n_in; ++i) {
    views[i] = p.in(i);
    if (p.has(i) &&
        p.packed(i)) {  // no kernel took the other operands; rare, so memory is no matter
      views[i].data = p.keep<bf16>(static_cast<std::size_t>(p.in(i).numel()));
      unpack_weight(p.in(i), weight_is_n_k(p.node), views[i].data);
    }
  }
  for (int i = 0; i < n_out; ++i) views[n_in + i] = p.out(i);
  auto& a = p.launch<reference>("reference", p.io_bytes());
  a = {&p.node, views, &p.args.env()};
  p.last().serial = true;
}

void prepare_copy(Prepare& p, const TensorView& y, const TensorView& x) {
  auto& a = p.launch<copy>("copy", x.bytes() + y.bytes());
  a = {y, x};
  p.last().serial = true;
}

void prepare(const BoundPlan& bound, int n_threads, const PrepareOptions& options,
             LaunchList* list) {
  const Plan& plan = *bound.plan;
  std::vector<TensorView> in, out;
  std::unique_ptr<bool[]> constant, packed;
  std::size_t room = 0;
  list->launches.reserve(bound.launches.size() + bound.launches.size() / 4);
  for (const BoundStep& b : bound.launches) {
    const PlanStep& step = plan.steps[static_cast<std::size_t>(b.step)];
    in.clear();
    out.clear();
    if (step.inputs.size() > room) {
      room = step.inputs.size() * 2;
      constant = std::make_unique<bool[]>(room);
      packed = std::make_unique<bool[]>(room);
    }
    for (std::size_t i = 0; i < step.inputs.size(); ++i) {
      const int id = step.inputs[i];
      in.push_back(id < 0 ? TensorView() : bound.views[static_cast<std::size_t>(id)]);
      constant[i] = id >= 0 && plan.constants[static_cast<std::size_t>(id)].data != nullptr;
      packed[i] = id >= 0 && plan.packed[static_cast<std::size_t>(id)];
    }
    for (int id : step.outputs) out.push_back(bound.views[static_cast<std::size_t>(id)]);
    const EvalArgs original(*step.node->op, in, out, step.node->attrs, bound.env);
    const std::span<const int> updates = step.node->op->updates;
    for (std::size_t i = 0; i < updates.size(); ++i) {
      if ((b.copies >> i & 1U) == 0) continue;
      const auto from = static_cast<std::size_t>(updates[i]);
      Prepare p(*step.node, original, {constant.get(), in.size()}, {packed.get(), in.size()},
                n_threads, list);
      prepare_copy(p, out[i], in[from]);
      in[from] = out[i];
    }
    const EvalArgs args(*step.node->op, in, out, step.node->attrs, bound.env);
    Prepare p(*step.node, args, {constant.get(), in.size()}, {packed.get(), in.size()}, n_threads,
              list);
    bool done = false;
    std::string reasons;
    const auto it = options.reference_only ? by_op().end() : by_op().find(step.node->op->name);
    if (it != by_op().end())
      for (const KernelEntry* e : it->second) {
        const char* reason = e->prepare(p);
        if (reason == nullptr) {
          done = true;
          break;
        }
        if (options.passed_over != nullptr) reasons += cat("; ", e->name, ": ", reason);
      }
    if (done) continue;
    prepare_reference(p);
    if (options.passed_over != nullptr)
      options.passed_over->push_back(
          cat(step.node->op->name, reasons.empty() ? "; no kernel is listed" : reasons));
  }
  list->set_barriers();
}

}  // namespace tk
