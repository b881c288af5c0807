#include "timeline/structure_aux.h"

#include <algorithm>

namespace tk {

namespace {

struct Window {
  Ns from = 0, to = 0, next = 0;  // own kernels; start of the following block
};

Ns overlap(Ns a0, Ns a1, Ns b0, Ns b1) {
  return std::max<Ns>(0, std::min(a1, b1) - std::max(a0, b0));
}
Ns distance(Ns a0, Ns a1, Ns b0, Ns b1) { return std::max<Ns>(0, std::max(b0 - a1, a0 - b1)); }

}  // namespace

void assign_auxiliary(const Timeline& t, const StepOps& ops, const std::set<std::int32_t>& own,
                      const std::vector<std::uint32_t>& own_sequence, Structure& s) {
  const std::size_t n = s.components.size();
  if (n == 0) return;
  auto kernel = [&](std::uint32_t op) -> const Kernel& { return t.kernels[ops.ops[op]]; };
  std::vector<Window> windows(n);
  for (std::size_t c = 0; c < n; ++c) {
    windows[c].from = INT64_MAX;
    for (const StreamSegment& g : s.components[c].segments)
      for (std::uint32_t op : g.ops) {
        windows[c].from = std::min(windows[c].from, kernel(op).start);
        windows[c].to = std::max(windows[c].to, kernel(op).end());
      }
  }
  // A block reaches to the next one, the last of a phase to the next kernel of the main stream: its
  // collective comes in between, and sampling after a pass is of no block.
  constexpr Ns reach = 50000;  // where there is no next kernel
  auto next_on_main = [&](Ns at) {
    const auto it = std::lower_bound(own_sequence.begin(), own_sequence.end(), at,
                                     [&](std::uint32_t op, Ns x) { return kernel(op).start < x; });
    return it == own_sequence.end() ? at + reach : kernel(*it).start;
  };
  for (std::size_t c = 0; c < n; ++c) {
    const bool last = c + 1 == n || s.components[c + 1].phase != s.components[c].phase;
    windows[c].next =
        last ? next_on_main(windows[c].to) : std::max(windows[c].to, windows[c + 1].from);
  }
  const Ns after_all = windows.back().next;
  // Classes of blocks: each type, all first parts, all second parts, all.
  std::vector<std::vector<std::size_t>> classes(3);
  std::map<std::string, std::vector<std::size_t>> by_type;
  for (std::size_t c = 0; c < n; ++c) {
    const bool second = c > 0 && s.components[c - 1].phase == s.components[c].phase &&
                        s.components[c - 1].layer == s.components[c].layer;
    classes[second ? 1 : 0].push_back(c);
    classes[2].push_back(c);
    by_type[s.components[c].type].push_back(c);
  }
  for (auto& [type, members] : by_type) classes.push_back(members);
  const Ns begin = windows.front().from, end = windows.back().to;
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    if (own.contains(stream)) continue;
    std::map<std::size_t, std::vector<std::uint32_t>> taken;  // component -> ops
    std::vector<std::uint32_t> left;
    std::map<std::pair<StringId, StringId>, std::vector<std::uint32_t>> kinds;
    for (std::uint32_t op : sequence) {
      const Kernel& k = kernel(op);
      const bool comm = k.core == Core::communication;
      if (k.end() <= begin || k.start >= (comm ? after_all : end)) {
        // Run-ahead of the first layer is still its own; what is far outside is not.
        if (comm || distance(k.start, k.end(), begin, end) > (end - begin) / 8) continue;
      }
      kinds[{k.type, k.in_shapes}].push_back(op);
    }
    for (const auto& [key, members] : kinds) {
      const bool comm = kernel(members.front()).core == Core::communication;
      const std::vector<std::size_t>* best = nullptr;
      Ns most = -1, nearest = INT64_MAX;
      for (const auto& members_of : classes) {
        if (members_of.size() < 2 || members.size() % members_of.size() != 0) continue;
        const std::size_t each = members.size() / members_of.size();
        if (each > 16) continue;
        Ns shared = 0, away = 0;
        for (std::size_t j = 0; j < members.size(); ++j) {
          const Kernel& k = kernel(members[j]);
          const Window& w = windows[members_of[j / each]];
          const Ns to = comm ? std::max(w.next, w.to) : w.to;
          shared += overlap(k.start, k.end(), w.from, to);
          away += distance(k.start, k.end(), w.from, to);
        }
        // Far away on the whole: a coincidence of numbers.
        Ns length = 0;
        for (std::uint32_t op : members) length += kernel(op).duration;
        if (shared == 0 && away > length + static_cast<Ns>(members.size()) * 50000) continue;
        if (shared > most || (shared == most && away < nearest)) {
          most = shared;
          nearest = away;
          best = &members_of;
        }
      }
      if (!best) {
        left.insert(left.end(), members.begin(), members.end());
        continue;
      }
      const std::size_t each = members.size() / best->size();
      for (std::size_t j = 0; j < members.size(); ++j)
        taken[(*best)[j / each]].push_back(members[j]);
    }
    for (std::uint32_t op : left) {
      const Kernel& k = kernel(op);
      std::size_t best = n;
      Ns most = 0;
      auto after = std::upper_bound(windows.begin(), windows.end(), k.end(),
                                    [](Ns at, const Window& w) { return at < w.from; });
      for (int look = 0; after != windows.begin() && look < 64; ++look) {
        --after;
        const Ns o = std::max<Ns>(
            overlap(k.start, k.end() + (k.duration == 0), after->from, after->next), 0);
        if (o > most) {
          most = o;
          best = static_cast<std::size_t>(after - windows.begin());
        }
      }
      if (best < n) taken[best].push_back(op);
    }
    for (auto& [c, members] : taken) {
      std::sort(members.begin(), members.end(), [&](std::uint32_t a, std::uint32_t b) {
        return kernel(a).start != kernel(b).start ? kernel(a).start < kernel(b).start : a < b;
      });
      s.components[c].segments.push_back({stream, false, members});
    }
  }
}

}  // namespace tk
