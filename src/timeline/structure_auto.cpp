#include "timeline/structure_auto.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "timeline/structure_aux.h"
#include "timeline/structure_periodic.h"
#include "timeline/structure_walk.h"

namespace tk {

namespace {

// The stream with the most attention kernels, else the busiest.
std::int32_t main_stream(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  std::map<std::int32_t, std::pair<std::size_t, Ns>> score;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    if (ops.streams[i] < 0 || k.core == Core::communication) continue;
    auto& [anchors, busy] = score[ops.streams[i]];
    anchors += is_anchor(roles[k.type]);
    busy += k.duration;
  }
  std::int32_t best = no_stream;
  std::pair<std::size_t, Ns> high{0, -1};
  for (const auto& [stream, s] : score)
    if (s > high) {
      high = s;
      best = stream;
    }
  return best;
}

std::string attention_kind(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const std::vector<std::uint32_t>& part, bool linear) {
  if (linear) return "linear_attn";
  for (std::uint32_t i : part) {
    const Kernel& k = t.kernels[ops.ops[i]];
    const std::string_view type = t.text(k.type);
    if (roles[k.type] == Role::prolog || type.find("KvRmsNormRope") != type.npos ||
        type.find("MLA") != type.npos || type.find("Mla") != type.npos ||
        type.find("MultiLatent") != type.npos)
      return "mla";
  }
  return "self_attn";
}

std::string ffn_kind(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                     const std::vector<std::uint32_t>& part) {
  for (std::uint32_t i : part) {
    const Role r = roles[t.kernels[ops.ops[i]].type];
    if (r == Role::grouped_matmul || r == Role::dispatch || r == Role::combine || r == Role::gate)
      return "moe";
  }
  return "dense_mlp";
}

// Of the places [from, to] on a stream the one before which it idles longest.
std::size_t widest_pause(const Timeline& t, const StepOps& ops,
                         const std::vector<std::uint32_t>& sequence, std::size_t from,
                         std::size_t to) {
  std::size_t best = to;
  Ns widest = -1;
  for (std::size_t i = std::max<std::size_t>(from, 1); i <= to && i < sequence.size(); ++i) {
    const Ns pause =
        t.kernels[ops.ops[sequence[i]]].start - t.kernels[ops.ops[sequence[i - 1]]].end();
    if (pause > widest) {
      widest = pause;
      best = i;
    }
  }
  return best;
}

// Kernels that make up the layers, by time, and what was found in them.
struct LayerOrder {
  std::vector<std::uint32_t> sequence;
  std::set<std::int32_t> streams;
  Walked walk;
  bool periodic = false;  // layers are told by repetition alone
};

// The main stream's kernels; where it does not hold whole layers (a graph's pieces run on streams
// of their own, attention beside them), those of all compute streams.
LayerOrder find_layers(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  LayerOrder one, all;
  const std::int32_t main = main_stream(t, ops, roles);
  if (main == no_stream) return one;
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) {
    const auto compute = std::count_if(sequence.begin(), sequence.end(), [&](std::uint32_t op) {
      return t.kernels[ops.ops[op]].core != Core::communication;
    });
    if (stream == main) {
      one.streams = {main};
      one.sequence = sequence;
    }
    if (stream < 0 || static_cast<std::size_t>(compute) * 2 < sequence.size()) continue;
    all.streams.insert(stream);
    all.sequence.insert(all.sequence.end(), sequence.begin(), sequence.end());
  }
  std::stable_sort(all.sequence.begin(), all.sequence.end(), [&](std::uint32_t a, std::uint32_t b) {
    return t.kernels[ops.ops[a]].start < t.kernels[ops.ops[b]].start;
  });
  one.walk = walk_layers(t, ops, roles, one.sequence);
  if (!one.walk.passes.empty()) return one;
  if (all.streams.size() > 1) {
    all.walk = walk_layers(t, ops, roles, all.sequence);
    if (!all.walk.passes.empty()) return all;
  }
  one.walk = periodic_layers(t, ops, roles, one.sequence);
  one.periodic = !one.walk.passes.empty();
  return one;
}

// Kernels by type. Norms are one, whether the addition before is fused into them or not.
using TypeBag = std::map<StringId, int>;
StringId bag_key(const Kernel& k, const std::vector<Role>& roles) {
  return roles[k.type] == Role::norm ? 0 : k.type;
}
TypeBag types_of(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                 const LayerOrder& order, const WalkedPass& pass) {
  TypeBag bag;
  for (std::size_t i = pass.layers.front().begin; i < pass.layers.back().end; ++i)
    ++bag[bag_key(t.kernels[ops.ops[order.sequence[i]]], roles)];
  return bag;
}
// Types in common over all, 0 to 1.
double alike(const TypeBag& a, const TypeBag& b) {
  int both = 0, either = 0;
  for (const auto& [id, n] : a) {
    const auto it = b.find(id);
    const int m = it == b.end() ? 0 : it->second;
    both += std::min(n, m);
    either += std::max(n, m);
  }
  for (const auto& [id, m] : b)
    if (!a.contains(id)) either += m;
  return either ? static_cast<double>(both) / either : 1;
}

// The longest pass is the main model; of equally long ones of different kinds (an encoder and its
// decoder) the last.
std::size_t main_pass(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                      const LayerOrder& order) {
  const auto& passes = order.walk.passes;
  std::size_t best = 0;
  for (std::size_t p = 1; p < passes.size(); ++p) {
    const std::size_t n = passes[p].layers.size(), most = passes[best].layers.size();
    if (n > most || (n == most && alike(types_of(t, ops, roles, order, passes[best]),
                                        types_of(t, ops, roles, order, passes[p])) < 0.75))
      best = p;
  }
  return best;
}

// The part of a sequence as segments of its streams; the one with most kernels, then the busiest,
// is the primary.
std::vector<StreamSegment> segments_of(const Timeline& t, const StepOps& ops,
                                       const std::vector<std::uint32_t>& part) {
  std::vector<StreamSegment> out;
  for (std::uint32_t op : part) {
    const std::int32_t stream = ops.streams[op];
    auto it = std::find_if(out.begin(), out.end(),
                           [&](const StreamSegment& s) { return s.stream == stream; });
    if (it == out.end()) it = out.insert(out.end(), {stream, false, {}});
    it->ops.push_back(op);
  }
  auto weight = [&](const StreamSegment& s) {
    Ns busy = 0;
    for (std::uint32_t op : s.ops) busy += t.kernels[ops.ops[op]].duration;
    return std::pair(s.ops.size(), busy);
  };
  const auto primary = std::max_element(
      out.begin(), out.end(),
      [&](const StreamSegment& a, const StreamSegment& b) { return weight(a) < weight(b); });
  primary->primary = true;
  std::iter_swap(out.begin(), primary);
  return out;
}

// Kinds whose kernels differ much between layers become types of their own: self_attn, self_attn_2.
void split_types(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                 Structure& s) {
  std::map<std::string, std::vector<std::size_t>> by_type;
  for (std::size_t c = 0; c < s.components.size(); ++c) by_type[s.components[c].type].push_back(c);
  for (auto& [type, members] : by_type) {
    std::vector<std::pair<TypeBag, std::vector<std::size_t>>> kinds;
    std::vector<std::set<StringId>> attention;  // per kind: a full and a sliding one stay apart
    for (std::size_t c : members) {
      TypeBag bag;
      std::set<StringId> anchors;
      for (const StreamSegment& g : s.components[c].segments)
        if (g.primary)
          for (std::uint32_t i : g.ops) {
            const Kernel& k = t.kernels[ops.ops[i]];
            ++bag[bag_key(k, roles)];
            if (is_anchor(roles[k.type])) anchors.insert(k.type);
          }
      std::size_t best = 0;
      while (best < kinds.size() &&
             (attention[best] != anchors || alike(kinds[best].first, bag) < 0.75))
        ++best;
      if (best == kinds.size()) {
        kinds.push_back({bag, {}});
        attention.push_back(anchors);
      }
      kinds[best].second.push_back(c);
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    int number = 2;
    for (std::size_t k = 1; k < kinds.size(); ++k) {
      if (kinds[k].second.size() < 2) continue;  // one odd layer stays, as an outlier
      for (std::size_t c : kinds[k].second) s.components[c].type = cat(type, "_", number);
      ++number;
    }
  }
}

// The passes that begin a step: every p-th, where kinds of passes repeat with period p (an encoder,
// then its decoder; a draft model thrice, then the large one; a model, then its MTP head). A
// profile that begins inside a step is cut where the device pauses longest. Without a period those
// of the main model's kind.
std::vector<std::size_t> step_starts(const Timeline& t, const StepOps& ops,
                                     const std::vector<Role>& roles, const LayerOrder& order) {
  const auto& passes = order.walk.passes;
  const std::size_t n = passes.size();
  std::vector<std::size_t> kinds, starts;
  std::vector<TypeBag> bags;
  for (std::size_t p = 0; p < n; ++p) {
    bags.push_back(types_of(t, ops, roles, order, passes[p]));
    std::size_t k = 0;
    while (k < p &&
           (passes[k].layers.size() != passes[p].layers.size() || alike(bags[k], bags[p]) < 0.75))
      ++k;
    kinds.push_back(k);
  }
  const std::size_t main = n ? main_pass(t, ops, roles, order) : 0;
  if (n < 2) return starts;
  for (std::size_t period = 1; period * 2 <= n; ++period) {
    bool repeats = true;
    for (std::size_t p = 0; p + period < n && repeats; ++p) repeats = kinds[p] == kinds[p + period];
    if (!repeats) continue;
    // Time between passes, summed over those at the same place of a period.
    auto at = [&](std::size_t i) -> const Kernel& { return t.kernels[ops.ops[order.sequence[i]]]; };
    std::vector<Ns> pause(period), count(period);
    for (std::size_t p = 1; p < n; ++p) {
      Ns widest = 0;
      for (std::size_t i = passes[p - 1].layers.back().end; i <= passes[p].layers.front().begin;
           ++i)
        widest = std::max(widest, at(i).start - at(i - 1).end());
      pause[p % period] += widest;
      ++count[p % period];
    }
    std::size_t first = 0;
    for (std::size_t o = 1; o < period; ++o)
      if (count[0] && count[o] && pause[o] / count[o] > 2 * (pause[first] / count[first]))
        first = o;
    for (std::size_t p = first; p < n; p += period) starts.push_back(p);
    return starts;
  }
  for (std::size_t p = 0; p < n; ++p)
    if (kinds[p] == kinds[main]) starts.push_back(p);
  return starts;
}

}  // namespace

Structure auto_structure(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  Structure s;
  s.origin = "auto:attention_and_residual_norms";
  if (!t.has_stream) {
    s.reason =
        "the profile has no Stream ID (collected at Level0): collect with Level1 and "
        "PipeUtilization";
    return s;
  }
  std::size_t backward = 0;
  for (std::uint32_t op : ops.ops) backward += is_backward(t.text(t.kernels[op].type));
  if (backward * 20 > ops.size()) {
    s.reason = cat("a training step: ", backward, " of ", ops.size(),
                   " kernels are gradients or the optimizer");
    return s;
  }
  const LayerOrder order = find_layers(t, ops, roles);
  if (order.sequence.empty()) {
    s.reason = "no compute kernels";
    return s;
  }
  const auto& passes = order.walk.passes;
  if (passes.empty()) {
    s.reason =
        "no repeated attention with norms around it on any stream, nor anything else with norms "
        "and "
        "matrix multiplications that repeats: not the inference of a transformer";
    return s;
  }
  if (order.periodic) {
    s.origin = "auto:repetition";
    s.warnings.push_back({"attention_unknown",
                          "no kernel is known as attention: layers are what repeats on the main "
                          "stream; name the blocks with --structure and --samples"});
  }
  // What comes before the main model is an encoder or a draft, after it the MTP head.
  const std::size_t longest = main_pass(t, ops, roles, order);
  const TypeBag main_types = types_of(t, ops, roles, order, passes[longest]);
  int before = 0, after = 0, global = 0;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    std::string name = "main";
    if (p < longest) name = cat("before", before++ ? cat("_", before) : "");
    if (p > longest)
      name = passes[p].layers.size() == passes[longest].layers.size() &&
                     alike(main_types, types_of(t, ops, roles, order, passes[p])) >= 0.75
                 ? cat("main_", ++after + 1)
                 : cat("mtp_head", after++ ? cat("_", after) : "");
    Phase phase;
    phase.name = name;
    phase.layers = static_cast<int>(passes[p].layers.size());
    int local = 0;
    for (const auto& l : passes[p].layers) {
      auto part = [&](std::size_t from, std::size_t to, auto type) {
        if (from >= to) return;
        const std::vector<std::uint32_t> members(
            order.sequence.begin() + static_cast<std::ptrdiff_t>(from),
            order.sequence.begin() + static_cast<std::ptrdiff_t>(to));
        Component c;
        c.type = type(members);
        c.phase = name;
        c.local_layer = local;
        c.layer = global;
        c.segments = segments_of(t, ops, members);
        s.components.push_back(std::move(c));
      };
      using Members = std::vector<std::uint32_t>;
      part(l.begin, l.cross, [&](const Members& m) {
        if (order.periodic) return std::string(l.ffn < l.end ? "mixer" : "layer");
        return attention_kind(t, ops, roles, m, l.linear);
      });
      part(l.cross, l.ffn, [](const Members&) { return std::string("cross_attn"); });
      part(l.ffn, l.end, [&](const Members& m) { return ffn_kind(t, ops, roles, m); });
      ++local;
      ++global;
    }
    s.phases.push_back(std::move(phase));
  }
  assign_auxiliary(t, ops, order.streams, order.sequence, s);
  // A kernel on another stream may decide the kind (experts beside the main stream, latent cache).
  for (Component& c : s.components) {
    std::vector<std::uint32_t> all;
    for (const StreamSegment& g : c.segments) all.insert(all.end(), g.ops.begin(), g.ops.end());
    if (c.type == "dense_mlp") c.type = ffn_kind(t, ops, roles, all);
    if (c.type == "self_attn") c.type = attention_kind(t, ops, roles, all, false);
  }
  split_types(t, ops, roles, s);
  for (Phase& phase : s.phases) {
    std::map<std::vector<std::string>, std::vector<int>> kinds;
    for (int l = 0; l < phase.layers; ++l) {
      std::vector<std::string> types;
      for (const Component& c : s.components)
        if (c.phase == phase.name && c.local_layer == l) types.push_back(c.type);
      kinds[types].push_back(l);
    }
    for (auto& [types, layers] : kinds) phase.compositions.push_back({layers, types});
    std::sort(phase.compositions.begin(), phase.compositions.end(),
              [](const Composition& a, const Composition& b) { return a.layers < b.layers; });
  }
  s.found = true;
  if (order.walk.hidden) s.hint = cat("hidden ", order.walk.hidden);
  finish_structure(t, ops, s);
  return s;
}

std::size_t cut_passes(Timeline& t, const std::vector<Role>& roles) {
  if (t.has_step_column || t.steps.size() != 1 || !t.has_stream) return 0;
  const auto by_step = kernels_by_step(t);
  const StepOps ops = step_ops(t, 0, by_step[0]);
  const LayerOrder order = find_layers(t, ops, roles);
  const auto& passes = order.walk.passes;
  const auto& sequence = order.sequence;
  const std::vector<std::size_t> starts = step_starts(t, ops, roles, order);
  if (starts.size() < 2) return 0;
  // Between two passes stand the end of one (final norm, head, sampling) and the beginning of the
  // next (inputs, embedding). Where the first pass shows its beginning whole, or the last one its
  // end, the same kernels tell the cut; else it is the widest pause of the device.
  auto type_at = [&](std::size_t i) { return t.kernels[ops.ops[sequence[i]]].type; };
  const bool from_start = starts.front() == 0,
             to_end = passes.size() - starts.back() == starts[1] - starts[0];
  const std::size_t head = from_start ? passes.front().layers.front().begin : 0;
  const std::size_t tail_from = passes.back().layers.back().end,
                    tail = to_end ? sequence.size() - tail_from : 0;
  const std::vector<std::uint32_t> received = receptions(t, ops);
  std::vector<Ns> cuts{INT64_MIN};
  for (std::size_t p : starts) {
    if (p == starts.front()) continue;
    const std::size_t from = passes[p - 1].layers.back().end, to = passes[p].layers.front().begin;
    auto equal = [&](std::size_t a, std::size_t b, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i)
        if (type_at(a + i) != type_at(b + i)) return false;
      return true;
    };
    std::size_t cut = to;
    if (to <= from) {
      // Nothing between them.
    } else if (head > 0 && head <= to - from && equal(to - head, 0, head)) {
      cut = to - head;
    } else if (tail > 0 && tail <= to - from && equal(from, tail_from, tail)) {
      cut = from + tail;
    } else {
      cut = widest_pause(t, ops, sequence, from, to);
    }
    Ns at = t.kernels[ops.ops[sequence[cut]]].start;
    if (cut > 0)  // what is received here is the next pass's
      for (std::uint32_t op : received) {
        const Kernel& k = t.kernels[op];
        if (k.end() <= at && k.start >= t.kernels[ops.ops[sequence[cut - 1]]].end())
          at = std::min(at, k.start);
      }
    cuts.push_back(at);
  }
  t.steps.clear();
  for (std::size_t i = 0; i < cuts.size(); ++i) t.steps.push_back(cat("pass", i));
  for (Kernel& k : t.kernels)
    k.step = static_cast<std::int32_t>(std::upper_bound(cuts.begin(), cuts.end(), k.start) -
                                       cuts.begin() - 1);
  t.notes.push_back(cat("no Step Id: the rows were cut into ", cuts.size(), " equal passes of ",
                        passes[main_pass(t, ops, roles, order)].layers.size(),
                        " layers, named pass0 to pass", cuts.size() - 1));
  return cuts.size();
}

}  // namespace tk
