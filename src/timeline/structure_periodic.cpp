#include "timeline/structure_periodic.h"

#include <algorithm>

namespace tk {

namespace {

struct Run {
  std::size_t from = 0, length = 0;  // places i with key[i] == key[i + period]
};

// The longest stretch in which the sequence equals itself moved by `period`, up to one place in
// eight apart (a layer with another kernel or two).
Run longest_run(const std::vector<StringId>& keys, std::size_t period) {
  Run best, now;
  std::size_t off = 0, good_end = 0;
  for (std::size_t i = 0; i + period < keys.size(); ++i) {
    const bool equal = keys[i] == keys[i + period];
    if (now.length == 0) {
      if (!equal) continue;
      now = {i, 0};
      off = 0;
    }
    now.length = i - now.from + 1;
    off += !equal;
    if (equal) good_end = i;
    if (off * 8 > now.length + period) {
      i = std::max(i, good_end);
      now.length = 0;
      continue;
    }
    const std::size_t length = good_end - now.from + 1;
    if (length > best.length) best = {now.from, length};
  }
  return best;
}

}  // namespace

Walked periodic_layers(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                       const std::vector<std::uint32_t>& sequence) {
  std::vector<StringId> keys;
  keys.reserve(sequence.size());
  for (std::uint32_t op : sequence) keys.push_back(t.kernels[ops.ops[op]].type);
  auto role = [&](std::size_t i) { return roles[keys[i]]; };
  constexpr std::size_t longest_period = 400;
  Run best;
  std::size_t period = 0;
  for (std::size_t p = 4; p <= std::min(longest_period, keys.size() / 3); ++p) {
    const Run run = longest_run(keys, p);
    if (run.length < 2 * p || (run.length + p) * 2 < keys.size()) continue;
    std::size_t norms = 0, products = 0;
    for (std::size_t i = run.from; i < run.from + p; ++i) {
      norms += role(i) == Role::norm;
      products += role(i) == Role::matmul || role(i) == Role::grouped_matmul;
    }
    if (norms == 0 || products < 2) continue;
    // A multiple of the period is no better than the period.
    if (period && run.length + p < (best.length + period) * 11 / 10) continue;
    best = run;
    period = p;
  }
  Walked out;
  if (period == 0) return out;
  // The widest norms of a period are the residual stream's.
  std::vector<std::size_t> norms;
  for (std::size_t i = best.from; i < best.from + period; ++i) {
    if (role(i) != Role::norm) continue;
    const std::int64_t w = shape_width(t.text(t.kernels[ops.ops[sequence[i]]].in_shapes));
    if (w > out.hidden) {
      out.hidden = w;
      norms.clear();
    }
    if (w == out.hidden) norms.push_back(i);
  }
  auto has_ffn = [&](std::size_t from, std::size_t to) {
    for (std::size_t i = from; i < to; ++i)
      if (is_ffn(role(best.from + (i - best.from) % period))) return true;
    return false;
  };
  // A layer begins at the norm behind the part that holds the activation.
  std::size_t begin = norms.front(), ffn = 0;
  for (std::size_t n = 0; n < norms.size() && norms.size() > 1; ++n) {
    const std::size_t next = n + 1 < norms.size() ? norms[n + 1] : norms[0] + period;
    if (!has_ffn(norms[n], next)) continue;
    begin = best.from + (next - best.from) % period;
    ffn = (norms[n] + period - begin) % period;
    break;
  }
  // The first and the last layer may differ in a kernel or two, where the run is not yet one.
  auto like = [&](std::size_t at) {
    std::size_t equal = 0;
    for (std::size_t i = 0; i < period; ++i) equal += keys[at + i] == keys[begin + i];
    return equal * 4 >= period * 3;
  };
  WalkedPass pass;
  auto close = [&] {
    if (pass.layers.size() >= 3) out.passes.push_back(std::move(pass));
    pass = {};
  };
  for (std::size_t at = 0; at + period <= keys.size();) {
    if (!like(at)) {
      close();
      ++at;
      continue;
    }
    WalkedLayer l;
    l.begin = at;
    l.end = at + period;
    l.cross = l.ffn = ffn ? at + ffn : l.end;
    pass.layers.push_back(l);
    at += period;
  }
  close();
  return out;
}

}  // namespace tk
