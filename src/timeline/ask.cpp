#include "timeline/ask.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "base/error.h"

namespace tk {

namespace {

// Names that say little of a layer, without V2, D (BD-52).
bool is_auxiliary(std::string_view type) {
  static const std::set<std::string_view> names = {
      "Cast",       "Reshape",   "Transpose",       "DynamicQuant", "Dequant",
      "Squeeze",    "Unsqueeze", "Slice",           "Split",        "View",
      "Contiguous", "Identity",  "BroadcastTo",     "ExpandDims",   "Fill",
      "ZerosLike",  "Concat",    "ScatterNdUpdate", "RotaryMul",    "AivKernel"};
  std::string_view base = type;
  while (!base.empty() && base.back() >= '0' && base.back() <= '9') base.remove_suffix(1);
  if (base.size() < type.size() && base.ends_with('V'))
    return names.contains(base.substr(0, base.size() - 1));
  return names.contains(type) ||
         (type.ends_with('D') && names.contains(type.substr(0, type.size() - 1)));
}

// Mean over the phases i mod p of pstdev/mean of their distances.
double variation(const std::vector<std::size_t>& places, std::size_t p) {
  double sum = 0;
  for (std::size_t phase = 0; phase < p; ++phase) {
    double total = 0, squares = 0;
    std::size_t n = 0;
    for (std::size_t i = phase; i + 1 < places.size(); i += p) {
      const auto gap = static_cast<double>(places[i + 1] - places[i]);
      total += gap;
      squares += gap * gap;
      ++n;
    }
    const double mean = total / static_cast<double>(n);
    sum += std::sqrt(std::max(0.0, squares / static_cast<double>(n) - mean * mean)) / mean;
  }
  return sum / static_cast<double>(p);
}

std::string phase_text(const Phase& p) {
  std::string out = cat(p.name, ": ", p.layers, " layers");
  for (const Composition& c : p.compositions) {
    out += "; ";
    for (std::size_t i = 0; i < c.components.size(); ++i)
      out += cat(i ? " + " : "", c.components[i]);
    out += cat(" x ", c.layers.size());
    if (c.layers.size() < static_cast<std::size_t>(p.layers) && !c.layers.empty())
      out += cat(" (from layer ", c.layers.front(), ")");
  }
  return out;
}

}  // namespace

std::vector<LayerCandidate> layer_candidates(const Timeline& t, const StepOps& ops) {
  std::vector<LayerCandidate> out;
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    auto type = [&](std::size_t i) { return t.kernels[ops.ops[sequence[i]]].type; };
    std::map<StringId, std::vector<std::size_t>> places;
    for (std::size_t i = 0; i < sequence.size(); ++i) places[type(i)].push_back(i);
    for (const auto& [id, at] : places) {
      if (at.size() < 4) continue;
      LayerCandidate c;
      c.type = id;
      c.count = at.size();
      std::set<StringId> next;
      for (std::size_t i : at)
        if (i + 1 < sequence.size()) next.insert(type(i + 1));
      c.followers = next.size();
      c.gap_cv = INFINITY;
      for (std::size_t p = 1;
           p <= std::min<std::size_t>(64, std::max<std::size_t>(2, at.size() / 4)); ++p) {
        if (at.size() < 2 * p + 1) break;
        const double v = variation(at, p);
        if (v < c.gap_cv - 1e-9) {
          c.gap_cv = v;
          c.period = p;
        }
      }
      if (c.period) out.push_back(c);
    }
  }
  std::sort(out.begin(), out.end(), [&](const LayerCandidate& a, const LayerCandidate& b) {
    const bool x = is_auxiliary(t.text(a.type)), y = is_auxiliary(t.text(b.type));
    if (x != y) return y;
    if (a.followers != b.followers) return a.followers < b.followers;
    if (a.count != b.count) return a.count > b.count;
    return t.text(a.type) < t.text(b.type);
  });
  if (out.size() > 40) out.resize(40);
  return out;
}

std::string sample_line(const Timeline& t, const StepOps& ops, const Structure& s,
                        const std::string& type) {
  std::vector<const Component*> all;
  for (const Component& c : s.components)
    if (c.type == type) all.push_back(&c);
  if (all.empty()) return {};
  const Component& c = *all[all.size() / 2];
  auto kernel = [&](std::uint32_t op) -> const Kernel& { return t.kernels[ops.ops[op]]; };
  auto place = [&](std::uint32_t op) {
    return cat(t.text(kernel(op).type), "@", kernel(op).row + 2);
  };
  std::string out =
      cat(type, " : excel ", kernel(c.ops.front()).row + 2, "-", kernel(c.ops.back()).row + 2,
          " head=", place(c.ops.front()), " tail=", place(c.ops.back()));
  const auto& own = c.segments.front().ops;
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    if (stream != c.segments.front().stream) continue;
    const auto first = std::find(sequence.begin(), sequence.end(), own.front());
    const auto last = std::find(sequence.begin(), sequence.end(), own.back());
    std::string near;
    if (first != sequence.begin()) near += cat(" ", place(*(first - 1)));
    if (last != sequence.end() && last + 1 != sequence.end())
      near += cat(near.empty() ? " " : ", ", place(*(last + 1)));
    if (!near.empty()) out += cat(", neighbours", near);
  }
  return out;
}

std::string questions_text(const Timeline& t, const StepOps& ops, const Structure& s) {
  std::string main, draft, others;
  for (const Phase& p : s.phases) {
    std::string& where = p.name.starts_with("main")  ? main
                         : p.name.starts_with("mtp") ? draft
                                                     : others;
    where += cat("- found: ", phase_text(p), "\n");
  }
  std::string out =
      "# What this profile cannot say for sure\n\nWhat was found is filled in, here and in "
      "structure_spec.json and sample_ack.json. Correct those two files where they are wrong and "
      "run again with the same -o; delete a file to have it made anew.\n";
  const auto question = [&](const char* title, const std::string& found) {
    out += cat("\n## ", title, "\n\n", found.empty() ? "- found: none\n" : found);
  };
  question("1. Main model: how many layers ran, and what is each made of?", main);
  question("2. MTP head or draft model: how many layers, of what?", draft);
  question("3. Other models in the step (encoder, vision tower): names, layers, of what?", others);
  out += "\n## Samples\n\nRows as Excel counts them.\n\n";
  for (const std::string& type : s.expected)
    if (const std::string line = sample_line(t, ops, s, type); !line.empty())
      out += cat("- ", line, "\n");
  if (!s.found) out += cat("- none: ", s.reason, "\n");
  out +=
      "\n## Kernels that may mark a layer\n\n| kernel | occurs | followers | per layer | variation "
      "|\n"
      "|---|---|---|---|---|\n";
  for (const LayerCandidate& c : layer_candidates(t, ops))
    out += fmt::format("| {} | {} | {} | {} | {:.3f} |\n", t.text(c.type), c.count, c.followers,
                       c.period, c.gap_cv);
  return out;
}

}  // namespace tk
