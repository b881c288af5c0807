#include "report/text.h"

#include <fmt/format.h>

#include <algorithm>
#include <map>

namespace tk::report {

std::string ms(double value) {
  if (value <= 0) return "–";
  return fmt::format("{:.{}f} ms", value, value < 1 ? 4 : value < 100 ? 2 : 1);
}

std::string times(double ratio) {
  if (ratio <= 0) return "–";
  return ratio <= 1 ? fmt::format("{:.2f}x faster", 1 / ratio)
                    : fmt::format("{:.2f}x slower", ratio);
}

namespace {
std::string scaled(double value, double step, std::initializer_list<const char*> units) {
  auto unit = units.begin();
  while (value >= step && unit + 1 != units.end()) {
    value /= step;
    ++unit;
  }
  std::string s = fmt::format("{:.{}f} {}", value, unit == units.begin() ? 0 : 1, *unit);
  while (s.ends_with(' ')) s.pop_back();
  return s;
}
}  // namespace

std::string count(double value) { return scaled(value, 1000, {"", "K", "M", "B", "T"}); }
std::string bytes(double value) { return scaled(value, 1024, {"B", "KiB", "MiB", "GiB", "TiB"}); }

std::string error_text(const NumericCheck& c) {
  if (!c.done) return c.detail.empty() ? "not done" : c.detail;
  return fmt::format("{}: {:.1e} of the largest value", c.passed ? "equal" : "differs",
                     c.error.relative());
}

std::string attention_text(const CacheLayer& l) {
  std::string s = fmt::format("{}, {} query and {} key heads of {}, {}", l.kind, l.query_heads,
                              l.kv_heads, l.head_dim, l.mask.kind);
  if (l.mask.window > 0) s += fmt::format(" of {}", l.mask.window);
  if (l.sinks) s += ", sinks";
  if (l.softcap > 0) s += fmt::format(", soft-cap {}", l.softcap);
  return s;
}

std::string decision_text(const LedgerRow& r) {
  if (r.decision != Decision::not_tried) return std::string(name_of(r.decision));
  if (r.sites == 0) return "no site";
  return r.verdict.ok() ? "not tried" : std::string(name_of(r.verdict.kind));
}

std::vector<LayerKind> layer_kinds(const CacheSpec& cache) {
  std::vector<LayerKind> kinds;
  for (const CacheLayer& l : cache.layers) {
    const std::string text = attention_text(l);
    auto it = std::find_if(kinds.begin(), kinds.end(),
                           [&](const LayerKind& k) { return attention_text(k.layer) == text; });
    if (it == kinds.end()) {
      kinds.push_back({l, 1});
    } else {
      ++it->n;
    }
  }
  return kinds;
}

std::vector<KernelShare> kernel_shares(const Ledger& ledger) {
  std::map<std::string, KernelShare> shares;
  for (const LaunchSpan& s : ledger.decode_step) {
    const std::string key = s.name + (s.kernel == "reference" ? " (reference)" : "");
    KernelShare& k = shares[key];
    k.kernel = key;
    ++k.launches;
    k.us += s.duration_us;
    k.bytes += static_cast<double>(s.bytes);
  }
  std::vector<KernelShare> out;
  for (auto& [key, share] : shares) out.push_back(share);
  std::sort(out.begin(), out.end(), [](const auto& a, const auto& b) { return a.us > b.us; });
  return out;
}

std::string how(const Ledger& l, const Comparison& c) {
  if (c.kind == "measured") return fmt::format("measured, median of {}", c.after.rounds);
  return fmt::format("predicted; 9 of 10 of {} published {}s were off by at most {:.0f} %",
                     l.band.cases, l.band.kind, 100 * l.band.p90);
}

std::string ratio_text(const Ledger& l) {
  return l.band.cases > 0
             ? "predicted, with the interval that the error of the kernels that changed "
               "leaves to it."
             : "the median of interleaved rounds with its 95 % interval.";
}

std::string bandwidth_text(const Ledger& l) {
  if (l.band.cases > 0)
    return fmt::format("of the {:.1f} GB/s of one {} device", l.machine.bandwidth / 1e9, l.target);
  return fmt::format("of the {:.1f} GB/s that {} threads read here", l.machine.bandwidth / 1e9,
                     l.machine.threads);
}

std::vector<std::string> capture_lines(const LedgerRow& row) {
  std::vector<std::string> lines;
  for (const AcceptanceItem& a : row.acceptance)
    lines.push_back(fmt::format("{}: {} ({})", a.passed ? "passed" : "FAILED", a.what, a.found));
  for (const Alternative& a : row.alternatives) {
    std::string line = fmt::format("{}: {}", a.name, ms(a.ms));
    if (&a != &row.alternatives.front()) line += fmt::format(", gain {:.1f} %", 100 * a.gain);
    if (!a.verdict.empty()) line += ", " + a.verdict;
    if (a.break_even_steps >= 0)
      line += fmt::format(", paid back after {} steps", a.break_even_steps);
    lines.push_back(std::move(line));
  }
  return lines;
}

std::string verdict_sentence(const Ledger& l) {
  int kept = 0;
  int back = 0;
  int pending = 0;
  for (const LedgerRow& r : l.rows) {
    kept += r.decision == Decision::kept ? 1 : 0;
    back += r.decision == Decision::rolled_back ? 1 : 0;
    pending += r.decision == Decision::pending ? 1 : 0;
  }
  if (!l.optimized.done) return "Analysis only: nothing was run.";
  std::string s = fmt::format("{} changes were kept and {} rolled back.", kept, back);
  if (pending > 0)
    s += fmt::format(" {} are pending: their difference is below the band of the prediction.",
                     pending);
  if (l.total_decode.measured)
    s += fmt::format(" A decode step takes {} instead of {} ({} than the unfused cached plan; {}).",
                     ms(l.total_decode.after.median_ms), ms(l.total_decode.before.median_ms),
                     times(l.total_decode.ratio), how(l, l.total_decode));
  if (l.captured_decode.measured)
    s += fmt::format(" The next token comes {} than from the captured graph run as it is.",
                     times(l.captured_decode.ratio));
  s += l.optimized.passed ? " The logits are those of the model within the tolerance."
                          : " THE LOGITS DIFFER.";
  return s;
}

}  // namespace tk::report
