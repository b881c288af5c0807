#include "npu/prefetch.h"

#include <algorithm>
#include <map>

#include "base/error.h"

namespace tk {
namespace {

// Thresholds of prefetch.md.
constexpr double free_share = 0.5;              // PRE-21: of the memory's rate that a window uses
constexpr std::int64_t least_weight = 1 << 20;  // PRE-02
constexpr double least_of_target = 0.5;         // PRE-02: of the target's bytes
constexpr double least_window_us = 2;           // PRE-24
constexpr double least_hidden = 0.1;            // PRE-24: of the weight
constexpr double l2_share = 0.8;                // PRE-25
constexpr std::int64_t line = 512;              // PRE-32: bytes are rounded down to it

// A stretch of the main stream in which the memory is not busy.
struct Window {
  int trigger = 0;
  sim::Ps begin = 0, end = 0;
  std::int64_t left = 0;  // bytes that can still be brought in it
};

std::size_t term(sim::Term t) { return static_cast<std::size_t>(t); }

// The weight that a memory-bound product waits for; null: it is no target.
const Operand* weight_of(const Step& step, const KernelWork& k, const sim::Span& s) {
  if (k.products.empty() || k.stream != 0) return nullptr;
  if (s.term[term(sim::Term::hbm_read)] <=
      std::max(s.term[term(sim::Term::cube)], s.term[term(sim::Term::vector)]))
    return nullptr;
  std::int64_t all = 0;
  const Operand* weight = nullptr;
  for (const Operand& o : k.operands) {
    all += o.bytes;
    if (o.write || step.kind_of(o.tensor) != TensorKind::weight) continue;
    if (weight == nullptr || o.bytes > weight->bytes) weight = &o;
  }
  if (weight == nullptr || weight->bytes < least_weight ||
      static_cast<double>(weight->bytes) < least_of_target * static_cast<double>(all) ||
      weight->bytes < step.bytes_of(weight->tensor))  // of experts: not known which (PRE-13)
    return nullptr;
  return weight;
}

// Bytes that have passed through memory and L2 up to a time, from all spans as if even in each.
class Traffic {
 public:
  explicit Traffic(const std::vector<sim::Span>& spans) : spans_(spans) {}
  struct Bytes {
    double hbm = 0, l2 = 0;
  };
  Bytes between(sim::Ps from, sim::Ps to) const {
    Bytes b;
    for (const sim::Span& s : spans_) {
      if (s.end <= from) continue;
      if (s.start >= to) break;  // by start
      const double length = std::max(1.0, static_cast<double>(s.end - s.start));
      const double part =
          static_cast<double>(std::min(to, s.end) - std::max(from, s.start)) / length;
      b.hbm += part * static_cast<double>(s.hbm_read + s.hbm_write);
      b.l2 += part * static_cast<double>(std::max(s.hbm_read + s.hbm_write, s.l2_bytes));
    }
    return b;
  }

 private:
  const std::vector<sim::Span>& spans_;
};

}  // namespace

std::vector<PrefetchSite> prefetch_sites(const Step& step, const Simulation& base, double share) {
  const sim::DeviceParams& d = base.params;
  const double rate = std::min(static_cast<double>(d.prefetch_rate),
                               static_cast<double>(d.hbm_rate) * d.hbm_read_permille / 1000);
  std::vector<const sim::Span*> of(step.kernels().size(), nullptr);
  for (const sim::Span& s : base.spans) of[static_cast<std::size_t>(s.launch)] = &s;
  std::vector<int> order;  // of the main stream
  for (std::size_t i = 0; i < of.size(); ++i)
    if (step.kernels()[i].stream == 0 && of[i] != nullptr) order.push_back(static_cast<int>(i));
  const Traffic traffic(base.spans);

  std::vector<Window> windows;
  std::vector<PrefetchSite> sites;
  bool open = false;
  for (std::size_t k = 0; k < order.size(); ++k) {
    const auto i = static_cast<std::size_t>(order[k]);
    const sim::Span& s = *of[i];
    const Operand* weight = weight_of(step, step.kernels()[i], s);
    const double seconds = std::max(1.0, static_cast<double>(s.end - s.start)) * 1e-12;
    const bool busy = weight != nullptr ||
                      static_cast<double>(s.hbm_read + s.hbm_write) > free_share * seconds * rate;
    if (!busy && !open && k > 0) {
      windows.push_back({order[k - 1], of[static_cast<std::size_t>(order[k - 1])]->end, 0, 0});
      open = true;
    }
    if (!busy) continue;
    // A gap alone (a collective on another stream) is a window too.
    if (!open && k > 0)
      windows.push_back({order[k - 1], of[static_cast<std::size_t>(order[k - 1])]->end, 0, 0});
    open = false;
    if (!windows.empty() && windows.back().end == 0) {
      Window& w = windows.back();
      w.end = s.start;
      const double us = static_cast<double>(w.end - w.begin) * 1e-6;
      const double spare = rate * us * 1e-6 - traffic.between(w.begin, w.end).hbm;
      w.left = us < least_window_us ? 0 : static_cast<std::int64_t>(std::max(0.0, spare));
      if (w.left == 0) windows.pop_back();
    }
    if (weight == nullptr) continue;
    const auto wanted = static_cast<std::int64_t>(share * static_cast<double>(weight->bytes));
    for (std::size_t back = windows.size(); back > 0; --back) {
      Window& w = windows[back - 1];
      const double passing = traffic.between(w.begin, s.start).l2;
      const auto fits =
          static_cast<std::int64_t>(l2_share * static_cast<double>(d.l2_bytes) - passing);
      if (fits <= 0) break;  // earlier ones have more behind them
      const std::int64_t bytes = std::min({wanted, w.left, fits}) / line * line;
      if (static_cast<double>(bytes) < least_hidden * static_cast<double>(weight->bytes)) continue;
      w.left -= bytes;
      sites.push_back({w.trigger, order[k], weight->tensor, bytes, weight->bytes,
                       static_cast<double>(w.end - w.begin) * 1e-6});
      break;
    }
  }
  return sites;
}

Step with_prefetches(const Step& step, const std::vector<PrefetchSite>& sites) {
  int stream = 0;
  for (const KernelWork& k : step.kernels()) stream = std::max(stream, k.stream);
  ++stream;
  std::map<int, std::vector<const PrefetchSite*>> behind;
  for (const PrefetchSite& s : sites) behind[s.trigger].push_back(&s);
  std::vector<KernelWork> kernels;
  for (std::size_t i = 0; i < step.kernels().size(); ++i) {
    kernels.push_back(step.kernels()[i]);
    const auto found = behind.find(static_cast<int>(i));
    if (found == behind.end()) continue;
    const auto& operands = step.kernels()[i].operands;
    const auto result =
        std::find_if(operands.rbegin(), operands.rend(), [](const Operand& o) { return o.write; });
    TK_CHECK(result != operands.rend(), "a trigger has a result");
    for (const PrefetchSite* s : found->second) {
      KernelWork k;
      k.type = "npu_prefetch";
      k.module = step.kernels()[static_cast<std::size_t>(s->target)].module;
      k.stream = stream;
      k.prefetch = true;
      // As npu_prefetch(weight, dependency, bytes): of the dependency nothing is read.
      k.operands = {{result->tensor, 0, false}, {s->weight, s->bytes, false}};
      kernels.push_back(std::move(k));
    }
  }
  Step out = step;
  out.set_kernels(std::move(kernels));
  return out;
}

}  // namespace tk
