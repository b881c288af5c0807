#include "timeline/structure_graph.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/structure.h"
#include "timeline/structure_modules.h"

namespace tk {

namespace {

constexpr double enough = 0.9;

// Elements of the second operand: the same in every layout of a weight. 0: not known.
std::uint64_t weight_size(std::string_view shapes) {
  const std::size_t first = shapes.find(';');
  if (first == shapes.npos) return 0;
  std::string_view rest = shapes.substr(first + 1);
  rest = rest.substr(0, rest.find(';'));
  std::uint64_t n = rest.empty() ? 0 : 1;
  while (!rest.empty()) {
    const std::size_t comma = rest.find(',');
    const auto dim = decimal_int(rest.substr(0, comma));
    if (!dim || *dim <= 0 || *dim > (1LL << 40) ||
        n > (1ULL << 62) / static_cast<std::uint64_t>(*dim))
      return 0;
    n *= static_cast<std::uint64_t>(*dim);
    rest = comma == rest.npos ? std::string_view() : rest.substr(comma + 1);
  }
  return n;
}

// What two kernels must have in common. A batched product is one of attention where that is not
// fused: its operands grow with the cache and say nothing of the model.
std::uint64_t key_of(Role role, std::string_view type, std::string_view shapes, bool sizes) {
  const bool weights = role == Role::matmul && type.find("BatchMatMul") == type.npos;
  const std::uint64_t size = sizes && weights ? weight_size(shapes) : 0;
  return size * static_cast<std::uint64_t>(Role::count) + static_cast<std::uint64_t>(role);
}

bool has_meaning(Role r) {
  return r != Role::move && r != Role::elementwise && r != Role::other && r != Role::communication;
}

using Keys = std::vector<std::uint64_t>;

// Pairs (place in a, place in b) of the longest common subsequence, early places of b first. Empty
// for more than 2^27 cells.
std::vector<std::pair<std::size_t, std::size_t>> common(const Keys& a, const Keys& b) {
  std::vector<std::pair<std::size_t, std::size_t>> out;
  const std::size_t n = a.size(), m = b.size();
  if (n == 0 || m == 0 || n > (std::size_t{1} << 27) / m) return out;
  enum : std::uint8_t { skip_a, skip_b, both };
  std::vector<std::uint8_t> way(n * m);
  std::vector<std::uint32_t> next(m + 1), row(m + 1);  // lengths of the rest, from the end
  for (std::size_t i = n; i-- > 0;) {
    for (std::size_t j = m; j-- > 0;) {
      if (a[i] == b[j]) {
        row[j] = next[j + 1] + 1;
        way[i * m + j] = both;
      } else if (next[j] >= row[j + 1]) {
        row[j] = next[j];
        way[i * m + j] = skip_a;
      } else {
        row[j] = row[j + 1];
        way[i * m + j] = skip_b;
      }
    }
    std::swap(row, next);
    row[m] = 0;
  }
  for (std::size_t i = 0, j = 0; i < n && j < m;) {
    switch (way[i * m + j]) {
      case both:
        out.emplace_back(i++, j++);
        break;
      case skip_a:
        ++i;
        break;
      default:
        ++j;
    }
  }
  return out;
}

}  // namespace

GraphAlignment align_graph(Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const std::vector<GraphKernel>& graph) {
  GraphAlignment best;
  std::vector<std::vector<std::uint32_t>> streams;
  for (const auto& [stream, sequence] : ops_by_stream(t, ops)) streams.push_back(sequence);
  std::stable_sort(streams.begin(), streams.end(),
                   [](const auto& a, const auto& b) { return a.size() > b.size(); });
  std::vector<Role> graph_roles;
  graph_roles.reserve(graph.size());
  for (const GraphKernel& k : graph) graph_roles.push_back(role_of(k.type, {}, Core::unknown));
  for (bool sizes : {true, false}) {
    GraphAlignment now;
    std::vector<bool> used(graph.size());
    std::vector<int> partner(ops.size(), -1);
    for (const auto& sequence : streams) {
      Keys a, b;
      std::vector<std::size_t> place_a, place_b;
      for (std::uint32_t op : sequence) {
        const Kernel& k = t.kernels[ops.ops[op]];
        if (!has_meaning(roles[k.type])) continue;
        ++now.compute;
        a.push_back(key_of(roles[k.type], t.text(k.type), t.text(k.in_shapes), sizes));
        place_a.push_back(op);
      }
      for (std::size_t g = 0; g < graph.size(); ++g)
        if (!used[g] && has_meaning(graph_roles[g])) {
          b.push_back(key_of(graph_roles[g], graph[g].type, graph[g].in_shapes, sizes));
          place_b.push_back(g);
        }
      for (const auto& [i, j] : common(a, b)) {
        partner[place_a[i]] = static_cast<int>(place_b[j]);
        used[place_b[j]] = true;
        ++now.aligned;
      }
    }
    std::set<std::string> all, ran;
    for (std::size_t g = 0; g < graph.size(); ++g) {
      const std::string layer = layer_of(graph[g].module);
      if (layer.empty()) continue;
      all.insert(layer);
      if (used[g]) ran.insert(layer);
    }
    now.graph_layers = all.size();
    now.layers = ran.size();
    if (best.compute == 0 || now.aligned > best.aligned) best = now;
    if (now.coverage() < enough) continue;
    for (const auto& sequence : streams) {
      StringId module = 0;
      std::vector<std::uint32_t> between;  // since the last aligned kernel
      for (std::uint32_t op : sequence) {
        Kernel& k = t.kernels[ops.ops[op]];
        k.module = module;
        if (partner[op] < 0) {
          between.push_back(op);
          continue;
        }
        const std::string& path = graph[static_cast<std::size_t>(partner[op])].module;
        k.module = module = t.strings.add(path);
        if (layer_of(path).empty())  // the head's rows are picked before its norm
          for (std::uint32_t b : between) t.kernels[ops.ops[b]].module = module;
        between.clear();
      }
    }
    return now;
  }
  return best;
}

}  // namespace tk
