#include "npu/work.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <utility>

#include "base/error.h"
#include "npu/kv_lengths.h"

namespace tk {
namespace {

constexpr std::int64_t alignment = 512;  // of tensors in device memory
std::int64_t aligned(std::int64_t bytes) { return (bytes + alignment - 1) / alignment * alignment; }

// Free places of the arena by address; first fit, neighbours are merged again.
class Arena {
 public:
  std::int64_t take(std::int64_t bytes) {
    for (auto it = free_.begin(); it != free_.end(); ++it) {
      if (it->second < bytes) continue;
      const std::int64_t at = it->first;
      const std::int64_t left = it->second - bytes;
      free_.erase(it);
      if (left > 0) free_[at + bytes] = left;
      return at;
    }
    const std::int64_t at = end_;
    end_ += bytes;
    return at;
  }
  void give(std::int64_t at, std::int64_t bytes) {
    auto it = free_.emplace(at, bytes).first;
    if (const auto next = std::next(it); next != free_.end() && at + bytes == next->first) {
      it->second += next->second;
      free_.erase(next);
    }
    if (it != free_.begin())
      if (const auto before = std::prev(it); before->first + before->second == at) {
        before->second += it->second;
        free_.erase(it);
      }
  }

 private:
  std::map<std::int64_t, std::int64_t> free_;
  std::int64_t end_ = 0;
};

// Weights and states come from HBM, activations are in L2 where they fit.
Moved moved_by(const KernelWork& k, const Step& step, const DeviceFile& device) {
  Moved m;
  for (const Operand& o : k.operands)
    (o.write || step.is_activation(o.tensor) ? m.warm : m.cold) += static_cast<double>(o.bytes);
  if (m.warm > device.numbers.at("l2_bytes") / 2) {
    m.cold += m.warm;
    m.warm = 0;
  }
  return m;
}

}  // namespace

std::string_view family_name(Family f) {
  constexpr std::string_view names[] = {"matmul",    "grouped matmul", "attention", "norm",
                                        "pointwise", "rope",           "cache",     "gather",
                                        "routing",   "quant",          "collective"};
  return names[static_cast<std::size_t>(f)];
}

int Step::tensor(TensorKind storage, std::int64_t bytes) {
  storage_.push_back(storage);
  sizes_.push_back(std::max<std::int64_t>(bytes, 1));
  return static_cast<int>(sizes_.size()) - 1;
}

int Step::group(std::int32_t first, std::int32_t size, std::int32_t stride) {
  sim::Group g;
  for (std::int32_t i = 0; i < size; ++i) g.devices.push_back(first + i * stride);
  for (std::size_t i = 0; i < groups_.size(); ++i)
    if (groups_[i].devices == g.devices) return static_cast<int>(i);
  groups_.push_back(std::move(g));
  return static_cast<int>(groups_.size()) - 1;
}

int Step::traffic(std::vector<std::int64_t> bytes) {
  for (std::size_t i = 0; i < traffic_.size(); ++i)
    if (traffic_[i].bytes == bytes) return static_cast<int>(i);
  traffic_.push_back({std::move(bytes)});
  return static_cast<int>(traffic_.size()) - 1;
}

std::int64_t Step::total(TensorKind s) const {
  std::int64_t sum = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i)
    if (storage_[i] == s) sum += sizes_[i];
  return sum;
}

std::vector<std::int64_t> Step::addresses() const {
  std::vector<std::int64_t> at(sizes_.size(), -1);
  std::int64_t fixed = 0;
  for (std::size_t i = 0; i < sizes_.size(); ++i) {
    if (storage_[i] == TensorKind::activation) continue;
    at[i] = fixed;
    fixed += aligned(sizes_[i]);
  }
  std::vector<std::size_t> last(sizes_.size(), 0);
  for (std::size_t k = 0; k < kernels_.size(); ++k)
    for (const Operand& o : kernels_[k].operands) last[static_cast<std::size_t>(o.tensor)] = k;
  Arena arena;
  for (std::size_t k = 0; k < kernels_.size(); ++k) {
    for (const Operand& o : kernels_[k].operands) {
      const auto t = static_cast<std::size_t>(o.tensor);
      if (at[t] < 0) at[t] = fixed + arena.take(aligned(sizes_[t]));
    }
    for (const Operand& o : kernels_[k].operands) {
      const auto t = static_cast<std::size_t>(o.tensor);
      if (storage_[t] != TensorKind::activation || last[t] != k) continue;
      arena.give(at[t] - fixed, aligned(sizes_[t]));
      last[t] = kernels_.size();  // given once
    }
  }
  return at;
}

double alone_us(sim::Launch l, const Moved& moved, const DeviceFile& device,
                const CostFile& costs) {
  sim::Plan plan;
  plan.streams.resize(1);
  l.hbm_read = std::llround(moved.cold);
  l.hbm_write = std::llround(moved.cold_writes);
  l.l2_bytes = std::llround(moved.warm);
  plan.launches.push_back(l);
  const sim::Result r = sim::simulate(plan, params_of(device, costs, sim::Mode::ge_graph));
  return std::max(1e-3, static_cast<double>(r.spans[0].end - r.spans[0].start) / 1e6);
}

NearKernel point_of(const KernelWork& k, double alone_us) {
  NearKernel p;
  p.type = k.type;
  p.family = family_name(k.family);
  p.dtype = k.in_types.substr(0, k.in_types.find(';'));
  p.layout = k.layout;
  p.cube = !k.products.empty();
  p.alone_us = alone_us;
  for (const Operand& o : k.operands) (o.write ? p.write : p.read) += static_cast<double>(o.bytes);
  if (p.cube) {
    const Product& one = k.products.front();
    p.mnk = {static_cast<double>(one.m), static_cast<double>(one.n), static_cast<double>(one.k)};
  }
  return p;
}

sim::Launch calibrated_launch(const KernelWork& k, const Moved& moved, const DeviceFile& device,
                              const CostFile& costs) {
  sim::Launch l = launch_of(k, device, costs);
  if (costs.measured.empty() || k.collective) return l;
  const double alone = alone_us(l, moved, device, costs);
  const double factor = near_factor(point_of(k, alone), costs.measured);
  const auto times = [&](std::int64_t v) { return std::llround(static_cast<double>(v) * factor); };
  l.head = times(l.head);
  l.fixed = times(l.fixed);
  l.cube_cycles = times(l.cube_cycles);
  l.vector_cycles = times(l.vector_cycles);
  const double missing = factor * alone - alone_us(l, moved, device, costs);
  if (missing > 0) l.head += std::llround(missing * 1e6);
  return l;
}

namespace {

void check_options(const PlanOptions& options, sim::Mode mode) {
  if (mode != sim::Mode::eager) return;
  for (const CoreLimit& limit : options.limits)
    if (limit.stream >= 0)
      throw UserError("TK1451", cat("a core limit of stream ", limit.stream, " in eager mode"))
          .help("an eager device has one limit: write CUBE:VECTOR, or choose a graph mode");
  if (options.dynamic)
    throw UserError("TK1455", "an eager step is no graph of dynamic shapes")
        .help("choose --mode ge_graph or npugraph_ex; an eager host tiles each operator anyway");
}

// What the host takes to tile an operator of a dynamic graph (VN-53): element-wise operators and
// indexing have little to choose. No source has a figure; a cost file may have better ones.
sim::Ps tiling_time(Family family, const CostFile& costs) {
  const bool small =
      family == Family::pointwise || family == Family::gather || family == Family::cache;
  const double us =
      small ? costs.numbers.find("tiling_small_us", 5) : costs.numbers.find("tiling_us", 15);
  return std::llround(us * 1e6);
}

// The device as a kernel that may take so many cores is tiled for.
DeviceFile limited(DeviceFile device, const CoreLimit& limit) {
  for (Fact& f : device.numbers.all) {
    if (f.name == "cube_cores") f.value = std::min(f.value, static_cast<double>(limit.cube));
    if (f.name == "vector_cores") f.value = std::min(f.value, static_cast<double>(limit.vector));
  }
  return device;
}

// A plain product becomes a mix when its rows are re-laid by the vector cores on the way (VN-26):
// inner axis above 1000 and not in whole lines of 512 bytes, and more than 50 us of multiplying.
bool is_relaid(const KernelWork& k, const sim::Launch& l, double mhz) {
  constexpr double enough_us = 50;
  if (l.engine != sim::Engine::ai_core || k.products.empty()) return false;
  const std::int64_t inner = k.products.front().k;
  return inner > 1000 && inner * k.bits / 8 % 512 != 0 &&
         static_cast<double>(l.cube_cycles) > enough_us * mhz;
}

sim::Launch prefetch_launch() {
  sim::Launch l;
  l.engine = sim::Engine::prefetch;
  return l;
}

// `typed(k, device)`: the launch by its type's costs.
template <class Typed>
sim::Launch kernel_launch(const KernelWork& k, const DeviceFile& device, const Typed& typed) {
  if (k.prefetch) return prefetch_launch();
  if (k.ai_cpu_us > 0) {
    sim::Launch l;
    l.engine = sim::Engine::ai_cpu;
    l.fixed = std::llround(k.ai_cpu_us * 1e6);
    return l;
  }
  if (k.kv_lengths.empty()) return typed(k, device);
  const auto n = static_cast<std::int64_t>(k.kv_lengths.size());
  const std::int64_t heads = std::max<std::int64_t>(1, k.products.front().groups / n);
  const auto cores = static_cast<std::int64_t>(device.numbers.at("cube_cores"));
  const double factor = imbalance(k.kv_lengths, heads, cores);
  KernelWork busiest = k;
  for (Product& p : busiest.products) p.n = std::llround(static_cast<double>(p.n) * factor);
  busiest.vector_bytes *= factor;
  sim::Launch l = typed(busiest, device);
  // The core with most keys reads them alone, over its own port.
  double read = 0;
  for (const Operand& o : k.operands)
    if (!o.write) read += static_cast<double>(o.bytes);
  const double bytes_a_us = device.numbers.at("core_hbm_read") * device.numbers.at("mhz");
  l.fixed = std::max<sim::Ps>(
      l.fixed, std::llround(read * busiest_share(k.kv_lengths, heads, cores) / bytes_a_us * 1e6));
  return l;
}

}  // namespace

sim::Plan plan_of(const Step& step, const DeviceFile& device, const CostFile& costs, sim::Mode mode,
                  const PlanOptions& options) {
  check_options(options, mode);
  const std::vector<CoreLimit>& limits = options.limits;
  sim::Plan plan;
  plan.host_tiles = options.dynamic;
  plan.mode = mode;
  plan.groups = step.groups_;
  plan.traffic = step.traffic_;
  plan.input_bytes = step.input_bytes;
  plan.updates = step.updates;
  int streams = 1;
  for (const KernelWork& k : step.kernels_) streams = std::max(streams, k.stream + 1);
  plan.streams.resize(static_cast<std::size_t>(streams));
  const auto n_streams = static_cast<std::size_t>(streams);

  const std::vector<std::int64_t> address = step.addresses();
  const std::size_t n = step.kernels_.size();
  // Who waits for whom: the latest launch of each other stream that wrote an operand.
  std::vector<int> writer(step.sizes_.size(), -1);
  std::vector<std::vector<int>> waits(n);
  std::vector<char> recorded(n, 0);
  // seen[s][t]: the launch of stream t up to which stream s is known to be behind.
  std::vector<std::vector<int>> seen(n_streams, std::vector<int>(n_streams, -1));
  std::vector<int> tip(n_streams, -1);
  for (std::size_t i = 0; i < n; ++i) {
    const auto s = static_cast<std::size_t>(step.kernels_[i].stream);
    std::vector<int> need(n_streams, -1);
    for (const Operand& o : step.kernels_[i].operands) {
      const int w = writer[static_cast<std::size_t>(o.tensor)];
      if (w < 0) continue;
      int& latest =
          need[static_cast<std::size_t>(step.kernels_[static_cast<std::size_t>(w)].stream)];
      latest = std::max(latest, w);
    }
    if (s == 0 && i + 1 == n)  // the end of the step is the end of every stream
      for (std::size_t t = 0; t < n_streams; ++t) need[t] = std::max(need[t], tip[t]);
    for (std::size_t t = 0; t < n_streams; ++t) {
      if (t == s || need[t] <= seen[s][t]) continue;
      waits[i].push_back(need[t]);
      recorded[static_cast<std::size_t>(need[t])] = 1;
      seen[s][t] = need[t];
    }
    for (const Operand& o : step.kernels_[i].operands)
      if (o.write) writer[static_cast<std::size_t>(o.tensor)] = static_cast<int>(i);
    tip[s] = static_cast<int>(i);
  }
  TK_CHECK(n == 0 || step.kernels_.back().stream == 0, "a step ends on its main stream");

  // Layers repeat: kernels alike are looked up once.
  std::map<std::string, sim::Launch> alike;
  const auto typed = [&](const KernelWork& k, const DeviceFile& on) {
    if (costs.measured.empty() || k.collective) return launch_of(k, on, costs);
    const Moved moved = moved_by(k, step, on);
    std::string key = cat(on.numbers.at("cube_cores"), " ", on.numbers.at("vector_cores"), " ",
                          k.type, " ", k.in_types, " ", k.vector_bytes, " ", moved.cold, " ",
                          moved.warm, " ", k.parts, " ", k.bits);
    for (const Product& p : k.products) key += cat(" ", p.m, "x", p.n, "x", p.k, "x", p.groups);
    const auto [it, fresh] = alike.try_emplace(std::move(key));
    if (fresh) it->second = calibrated_launch(k, moved, on, costs);
    return it->second;
  };
  std::vector<const CoreLimit*> limit_of(n_streams, nullptr);
  std::vector<DeviceFile> narrow(n_streams);
  for (std::size_t s = 0; s < n_streams; ++s) {
    for (const CoreLimit& limit : limits)
      if (limit.stream < 0 || static_cast<std::size_t>(limit.stream) == s) limit_of[s] = &limit;
    if (limit_of[s] == nullptr) continue;
    narrow[s] = limited(device, *limit_of[s]);
    if (mode != sim::Mode::npugraph_ex) continue;
    plan.streams[s].cube_limit = limit_of[s]->cube;
    plan.streams[s].vector_limit = limit_of[s]->vector;
  }
  for (const CoreLimit& limit : limits) {
    if (limit.stream >= streams)
      throw UserError("TK1451", cat("a core limit of stream ", limit.stream, "; the step has ",
                                    streams, " streams"))
          .help(
              "stream 0 is the main one, 1 that of collectives, 2 of what runs beside (--streams)");
  }

  std::map<std::string, int> numbers;  // "MatMulV2" -> how many so far
  for (std::size_t i = 0; i < n; ++i) {
    const KernelWork& k = step.kernels_[i];
    const auto of_stream = static_cast<std::size_t>(k.stream);
    const CoreLimit* limit = limit_of[of_stream];
    sim::Launch l = kernel_launch(k, limit != nullptr ? narrow[of_stream] : device, typed);
    if (is_relaid(k, l, device.numbers.at("mhz"))) l.engine = sim::Engine::mix_aic;
    l.stream = k.stream;
    if (options.dynamic) l.host = tiling_time(k.family, costs);
    if (limit != nullptr && mode != sim::Mode::npugraph_ex) {
      l.cube_limit = limit->cube;
      l.vector_limit = limit->vector;
    }
    l.host_sync = k.host_reads && mode == sim::Mode::eager;
    std::vector<sim::Access> accesses;
    for (const Operand& o : k.operands) {
      if (o.bytes <= 0) continue;
      accesses.push_back({address[static_cast<std::size_t>(o.tensor)], o.bytes, o.write});
    }
    l.accesses = sim::append(plan.accesses, accesses);
    l.waits = sim::append(plan.events, waits[i]);
    if (recorded[i] != 0) l.records = sim::append(plan.events, {static_cast<std::int32_t>(i)});
    if (k.collective) {
      l.collective = static_cast<std::int32_t>(plan.collectives.size());
      plan.collectives.push_back(*k.collective);
    }
    l.text = static_cast<std::int32_t>(plan.texts.size());
    sim::LaunchText text;
    text.type = k.type;
    text.name = cat(k.type, "_", numbers[k.type]++);
    text.module = k.module;
    text.in_shapes = k.in_shapes;
    text.out_shapes = k.out_shapes;
    text.in_types = k.in_types;
    text.place = k.place;
    plan.texts.push_back(std::move(text));
    plan.launches.push_back(l);
  }
  return plan;
}

}  // namespace tk
