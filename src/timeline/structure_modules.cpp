#include "timeline/structure_modules.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "timeline/decimal.h"

namespace tk {

namespace {

struct Place {
  std::string prefix;  // "model.layers"
  int layer = -1;      // -1: in no layer
  std::string block;   // "self_attn"; empty: the layer itself
};

Place place_of(std::string_view path) {
  Place p;
  std::size_t at = 0;
  while (at < path.size()) {
    const std::size_t end = std::min(path.find('.', at), path.size());
    const std::string_view part = path.substr(at, end - at);
    if (!part.empty() && part.size() < 6 && part.find_first_not_of("0123456789") == part.npos) {
      p.prefix = at ? std::string(path.substr(0, at - 1)) : std::string();
      p.layer = static_cast<int>(decimal_int(part).value_or(0));
      if (end < path.size()) {
        const std::size_t from = end + 1;
        p.block =
            std::string(path.substr(from, std::min(path.find('.', from), path.size()) - from));
      }
      return p;
    }
    at = end + 1;
  }
  return p;
}

bool is_norm(const std::string& block) {
  return block.find("norm") != block.npos || block.find("ln_") != block.npos;
}

}  // namespace

std::string layer_of(std::string_view path) {
  const Place p = place_of(path);
  return p.layer < 0 ? std::string() : cat(p.prefix, '.', p.layer);
}

bool has_modules(const Timeline& t, const StepOps& ops) {
  std::size_t with = 0, compute = 0;
  for (std::uint32_t i : ops.ops) {
    const Kernel& k = t.kernels[i];
    if (k.core == Core::communication) continue;
    ++compute;
    with += k.module && place_of(t.text(k.module)).layer >= 0;
  }
  return compute > 0 && with * 10 >= compute * 6;
}

Structure module_structure(const Timeline& t, const StepOps& ops) {
  Structure s;
  s.origin = "graph:module_paths";
  std::map<StringId, Place> places;
  std::vector<std::uint32_t> order;
  for (std::uint32_t i = 0; i < ops.size(); ++i) order.push_back(i);
  auto kernel = [&](std::uint32_t op) -> const Kernel& { return t.kernels[ops.ops[op]]; };
  std::stable_sort(order.begin(), order.end(), [&](std::uint32_t a, std::uint32_t b) {
    return kernel(a).start < kernel(b).start;
  });
  std::map<std::pair<std::string, int>, std::vector<std::uint32_t>> layers;
  std::map<std::string, int> count;
  for (std::uint32_t op : order) {
    const StringId id = kernel(op).module;
    const auto [it, fresh] = places.try_emplace(id);
    if (fresh) it->second = place_of(t.text(id));
    const Place& p = it->second;
    if (p.layer < 0) continue;
    layers[{p.prefix, p.layer}].push_back(op);
    int& n = count[p.prefix];
    n = std::max(n, p.layer + 1);
  }
  if (layers.empty()) {
    s.reason = "no module path has a layer's number";
    return s;
  }
  std::string main = count.begin()->first;
  for (const auto& [prefix, n] : count)
    if (n > count[main]) main = prefix;
  // Phases in the order of their first kernel; numbers are the model's own.
  std::vector<std::string> prefixes;
  std::map<std::string, Ns> first;
  for (const auto& [key, v] : layers) {
    const Ns start = kernel(v.front()).start;
    const auto [it, fresh] = first.try_emplace(key.first, start);
    if (fresh)
      prefixes.push_back(key.first);
    else
      it->second = std::min(it->second, start);
  }
  std::sort(prefixes.begin(), prefixes.end(),
            [&](const std::string& a, const std::string& b) { return first[a] < first[b]; });
  int base = 0;
  for (const std::string& prefix : prefixes) {
    Phase phase;
    phase.name = prefix == main ? "main" : prefix;
    phase.layers = count[prefix];
    std::map<std::vector<std::string>, std::vector<int>> kinds;
    for (int l = 0; l < phase.layers; ++l) {
      const auto it = layers.find({prefix, l});
      if (it == layers.end()) continue;
      std::vector<std::pair<std::string, std::vector<std::uint32_t>>> blocks;
      std::vector<std::uint32_t> waiting;  // norms before their block
      for (std::uint32_t op : it->second) {
        const std::string& block = places[kernel(op).module].block;
        if (is_norm(block) || (block.empty() && blocks.empty())) {
          waiting.push_back(op);
          continue;
        }
        if (block.empty()) {
          if (waiting.empty())
            blocks.back().second.push_back(op);
          else
            waiting.push_back(op);
          continue;
        }
        auto known = std::find_if(blocks.begin(), blocks.end(),
                                  [&](const auto& b) { return b.first == block; });
        if (known == blocks.end()) known = blocks.insert(blocks.end(), {block, {}});
        known->second.insert(known->second.end(), waiting.begin(), waiting.end());
        waiting.clear();
        known->second.push_back(op);
      }
      if (blocks.empty()) blocks.push_back({"layer", {}});
      blocks.back().second.insert(blocks.back().second.end(), waiting.begin(), waiting.end());
      std::vector<std::string> types;
      for (auto& [type, members] : blocks) {
        Component c;
        c.type = type;
        c.phase = phase.name;
        c.local_layer = l;
        c.layer = base + l;
        std::map<std::int32_t, std::vector<std::uint32_t>> by_stream;
        std::map<std::int32_t, Ns> busy;
        for (std::uint32_t op : members) {
          by_stream[ops.streams[op]].push_back(op);
          busy[ops.streams[op]] += kernel(op).duration;
        }
        std::int32_t primary = by_stream.begin()->first;
        for (const auto& [stream, v] : by_stream)
          if (v.size() > by_stream[primary].size() ||
              (v.size() == by_stream[primary].size() && busy[stream] > busy[primary]))
            primary = stream;
        for (auto& [stream, v] : by_stream) c.segments.push_back({stream, stream == primary, v});
        std::stable_sort(
            c.segments.begin(), c.segments.end(),
            [](const StreamSegment& a, const StreamSegment& b) { return a.primary > b.primary; });
        s.components.push_back(std::move(c));
        types.push_back(type);
      }
      kinds[types].push_back(l);
    }
    for (auto& [types, list] : kinds) phase.compositions.push_back({list, types});
    s.phases.push_back(std::move(phase));
    base += count[prefix];
  }
  s.found = true;
  finish_structure(t, ops, s);
  return s;
}

}  // namespace tk
