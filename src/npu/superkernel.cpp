#include "npu/superkernel.h"

#include <algorithm>
#include <filesystem>
#include <map>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "npu/sim/prepare.h"

namespace tk {
namespace {

constexpr std::size_t longest_run = 128;  // kernels of one segment: more take too long to compile

bool lies_in(std::string_view module, std::string_view scope) {
  return module.starts_with(scope) &&
         (module.size() == scope.size() || module[scope.size()] == '.');
}

std::string common(std::string_view a, std::string_view b) {
  std::size_t end = 0;
  for (std::size_t i = 0; i <= std::min(a.size(), b.size()); ++i) {
    const bool a_ends = i == a.size() || a[i] == '.';
    const bool b_ends = i == b.size() || b[i] == '.';
    if (a_ends && b_ends) end = i;
    if (i == a.size() || i == b.size() || a[i] != b[i]) break;
  }
  return std::string(a.substr(0, end));
}

// "model.layers.3" of "model.layers.3.mlp.up": as far as the first number; "" without one.
std::string layer_of(std::string_view module) {
  for (std::size_t begin = 0; begin < module.size();) {
    const std::size_t end = std::min(module.find('.', begin), module.size());
    const std::string_view part = module.substr(begin, end - begin);
    if (part.find_first_not_of("0123456789") == std::string_view::npos)
      return std::string(module.substr(0, end));
    begin = end + 1;
  }
  return "";
}

// The smallest module that has all kernels of a family in a layer.
std::set<std::string> blocks_of(const Step& step, Family family) {
  std::map<std::string, std::string> by_layer;
  for (const KernelWork& k : step.kernels()) {
    if (k.family != family) continue;
    const auto [it, fresh] = by_layer.emplace(layer_of(k.module), k.module);
    if (!fresh) it->second = common(it->second, k.module);
  }
  std::set<std::string> out;
  for (const auto& [layer, module] : by_layer)
    if (!module.empty()) out.insert(module);
  return out;
}

std::set<std::string> modules_of_file(std::string_view name) {
  std::set<std::string> out;
  const std::string text = read_file(std::filesystem::path(name));
  for (std::size_t begin = 0; begin < text.size();) {
    const std::size_t end = std::min(text.find('\n', begin), text.size());
    const std::string line = text.substr(begin, end - begin);
    if (!line.empty() && line[0] != '#') out.insert(line);
    begin = end + 1;
  }
  return out;
}

bool can_be_part(const sim::Launch& l) {
  switch (l.engine) {
    case sim::Engine::ai_core:
    case sim::Engine::ai_vector:
    case sim::Engine::mix_aic:
    case sim::Engine::mix_aiv:
      return l.collective == sim::none;
    default:
      return false;
  }
}

struct Cores {
  std::int32_t cube = 0, vector = 0;
};

Cores cores_of(const sim::Plan& p, const sim::DeviceParams& d, const sim::Launch& l) {
  const sim::BlockCores b = sim::block_cores(p, l);
  const std::int32_t slots = sim::slots_of(p, d, l);
  return {b.cube * slots, b.vector * slots};
}

// What a segment of this run gains over plain launches: heads, tails and gaps that go, less the
// switches that come, as the simulator counts them (SK-30 to SK-33).
class Gain {
 public:
  Gain(const sim::Plan& p, const sim::DeviceParams& d, const std::vector<int>& run)
      : p_(p), d_(d), run_(run) {
    for (const int i : run)
      cores_.push_back(cores_of(p, d, p.launches[static_cast<std::size_t>(i)]));
  }

  // Launches run[first] .. run[last].
  sim::Ps of(std::size_t first, std::size_t last, Cores most) const {
    sim::Ps sum = 0;
    for (std::size_t k = first + 1; k <= last; ++k) {
      const sim::Launch& a = p_.launches[static_cast<std::size_t>(run_[k - 1])];
      const sim::Launch& b = p_.launches[static_cast<std::size_t>(run_[k])];
      const bool mix = sim::is_mix(a.engine) || sim::is_mix(b.engine);
      std::int32_t set = most.cube + most.vector;
      if (cores_[k - 1].cube == 0 && cores_[k].cube == 0) set = most.vector;
      if (cores_[k - 1].vector == 0 && cores_[k].vector == 0) set = most.cube;
      sim::Ps cost = d_.part_preloaded;
      if (set > 1)
        cost +=
            d_.sync_base + (d_.sync_full - d_.sync_base) * set / (d_.cube_cores + d_.vector_cores);
      sum += b.head + a.tail + (mix ? d_.gap_mix : d_.gap) - cost;
    }
    return sum;
  }
  const Cores& cores(std::size_t k) const { return cores_[k]; }

 private:
  const sim::Plan& p_;
  const sim::DeviceParams& d_;
  const std::vector<int>& run_;
  std::vector<Cores> cores_;
};

// Lengths of the pieces of a run that gain most together; 1: a launch of its own.
std::vector<std::size_t> best_cuts(const sim::Plan& p, const sim::DeviceParams& d,
                                   const std::vector<int>& run) {
  const Gain gain(p, d, run);
  const std::size_t n = run.size();
  std::vector<sim::Ps> best(n + 1, 0);
  std::vector<std::size_t> take(n + 1, 1);
  for (std::size_t end = 1; end <= n; ++end) {
    best[end] = best[end - 1];
    take[end] = 1;
    Cores most = gain.cores(end - 1);
    for (std::size_t length = 2; length <= std::min(end, longest_run); ++length) {
      const std::size_t first = end - length;
      most.cube = std::max(most.cube, gain.cores(first).cube);
      most.vector = std::max(most.vector, gain.cores(first).vector);
      const sim::Ps sum = best[first] + gain.of(first, end - 1, most);
      if (sum > best[end]) best[end] = sum, take[end] = length;
    }
  }
  std::vector<std::size_t> out;
  for (std::size_t end = n; end > 0; end -= take[end]) out.push_back(take[end]);
  std::reverse(out.begin(), out.end());
  return out;
}

}  // namespace

std::vector<std::string> scopes_of(const Step& step, std::string_view scope) {
  std::vector<std::string> out;
  std::set<std::string> modules;
  const bool all = scope == "all" || scope == "auto";
  if (scope == "attention") {
    modules = blocks_of(step, Family::attention);
  } else if (scope == "moe") {
    modules = blocks_of(step, Family::grouped_matmul);
  } else if (scope == "layer") {
    for (const KernelWork& k : step.kernels())
      if (const std::string layer = layer_of(k.module); !layer.empty()) modules.insert(layer);
  } else if (!all) {
    if (!std::filesystem::is_regular_file(std::filesystem::path(scope)))
      throw UserError("TK1452",
                      cat("there is no SuperKernel scope '", scope, "', and no such file"))
          .help("the scopes are attention, moe, layer, all, auto, or a file with a module a line");
    modules = modules_of_file(scope);
  }
  bool found = all;
  for (const KernelWork& k : step.kernels()) {
    std::string name = all ? "all" : "";
    for (const std::string& m : modules)
      if (lies_in(k.module, m) && m.size() > name.size()) name = m;
    found = found || !name.empty();
    out.push_back(std::move(name));
  }
  if (!found)
    throw UserError("TK1452", cat("no kernel of this step lies in SuperKernel scope '", scope, "'"))
        .help("moe needs experts; a file has module paths as kernels print them (--explain)");
  return out;
}

Segments with_segments(sim::Plan plan, const std::vector<std::string>& scopes,
                       const sim::DeviceParams& device, bool choose) {
  TK_CHECK(scopes.size() == plan.launches.size(), "a scope for each launch");
  Segments out;
  std::map<std::string, int> numbers;
  const auto close = [&](std::vector<int>* run) {
    if (run->size() > 1) {
      std::vector<std::size_t> lengths{run->size()};
      if (choose) lengths = best_cuts(plan, device, *run);
      std::size_t at = 0;
      for (const std::size_t length : lengths) {
        const std::size_t begin = at;
        at += length;
        if (length == 1) continue;
        const auto segment = static_cast<std::int32_t>(plan.segments.size());
        const std::string& scope = scopes[static_cast<std::size_t>((*run)[begin])];
        plan.segments.push_back(
            {cat("te_superkernel_", scope, "_", numbers[scope]++), true, false});
        for (std::size_t k = begin; k < at; ++k)
          plan.launches[static_cast<std::size_t>((*run)[k])].segment = segment;
        ++out.segments;
        out.launches += static_cast<int>(length);
      }
    }
    run->clear();
  };
  std::vector<std::vector<int>> open(plan.streams.size());
  for (std::size_t i = 0; i < plan.launches.size(); ++i) {
    const sim::Launch& l = plan.launches[i];
    std::vector<int>& run = open[static_cast<std::size_t>(l.stream)];
    const bool fusible = can_be_part(l) && !scopes[i].empty();
    if (!run.empty()) {
      const auto before = static_cast<std::size_t>(run.back());
      const sim::Launch& b = plan.launches[before];
      if (!fusible || scopes[before] != scopes[i] || l.waits.count > 0 ||
          b.cube_limit != l.cube_limit || b.vector_limit != l.vector_limit)
        close(&run);
    }
    if (fusible) run.push_back(static_cast<int>(i));
  }
  for (std::vector<int>& run : open) close(&run);
  out.plan = std::move(plan);
  return out;
}

}  // namespace tk
