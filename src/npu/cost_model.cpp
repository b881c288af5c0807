// The terms of a kernel (VN-20 to VN-28): matrix tiles and waves, vector passes, heads.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "npu/work.h"

namespace tk {
namespace {

std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }
std::int64_t padded(std::int64_t v, std::int64_t to) { return ceil_div(v, to) * to; }

std::string_view head_of(const KernelWork& k, std::int64_t blocks) {
  switch (k.family) {
    case Family::matmul:
    case Family::grouped_matmul:
      return k.gathered_mix ? "head_mix_us" : "head_cube_us";
    case Family::attention:
      return "head_attention_us";
    case Family::norm:
      return "head_norm_us";
    case Family::routing:
      return "head_sort_us";
    case Family::rope:
      return "head_rope_us";
    case Family::gather:
      return "head_gather_us";
    case Family::collective:
    case Family::pointwise:
    case Family::cache:
    case Family::quant:
      break;
  }
  return blocks > 24 ? "head_vector_many_us" : "head_vector_us";
}

// What the host does for an operator: element-wise and indexing ones need little tiling (VN-53).
bool small_for_the_host(Family f) {
  return f == Family::pointwise || f == Family::gather || f == Family::cache;
}

// Bytes that a vector core must have for a block of its own to be worth it.
constexpr double block_bytes = 16384;

}  // namespace

Tiling tiling_of(const Product& p, int bits, std::int64_t cores) {
  Tiling t;
  if (p.m <= 0 || p.n <= 0 || p.k <= 0 || p.groups <= 0) return t;
  // L0C holds 128 x 256 sums of f32. Narrower tiles when there are cores left over, down to what
  // one row of a cache line is worth.
  t.tile_m = std::min<std::int64_t>(128, padded(p.m, 16));
  t.tile_n = 256;
  const auto tiles = [&] { return p.groups * ceil_div(p.m, t.tile_m) * ceil_div(p.n, t.tile_n); };
  while (t.tile_n > 64 && tiles() < cores) t.tile_n /= 2;
  t.tile_n = std::min(t.tile_n, padded(p.n, 16));
  t.tiles = tiles();
  // Few tiles: the inner axis is split over the cores, down to 256 a piece.
  std::int64_t splits = 1;
  if (t.tiles < cores)
    splits = std::clamp<std::int64_t>(cores / t.tiles, 1, std::max<std::int64_t>(1, p.k / 256));
  const std::int64_t k_step = bits == 8 ? 32 : 16;
  const std::int64_t slow = bits == 32 ? 4 : 1;
  const std::int64_t tile_cycles =
      (t.tile_m / 16) * (t.tile_n / 16) * ceil_div(ceil_div(p.k, splits), k_step) * slow;
  const std::int64_t pieces = t.tiles * splits;
  t.blocks = std::min(pieces, cores);
  t.cycles = ceil_div(pieces, cores) * tile_cycles;
  return t;
}

sim::Launch launch_of(const KernelWork& k, const DeviceFile& device, const CostFile& costs) {
  const Facts& c = costs.numbers;
  const auto cubes = static_cast<std::int64_t>(device.numbers.at("cube_cores"));
  const auto vectors = static_cast<std::int64_t>(device.numbers.at("vector_cores"));
  const double vector_rate = device.numbers.at("vector_bytes_cycle") * c.at("vector_efficiency");
  const auto us = [&](std::string_view name) { return std::llround(c.at(name) * 1e6); };
  sim::Launch l;
  if (small_for_the_host(k.family))
    l.host = std::llround(host_us(device, costs, "host_small_us") * 1e6);
  l.overlap_ppm = static_cast<std::int32_t>(std::lround(c.at("overlap") * 1e6));
  if (k.collective) {
    l.engine = sim::Engine::communication;
    l.blocks = 1;
    return l;
  }
  double moved = 0;
  for (const Operand& o : k.operands) moved += static_cast<double>(o.bytes);
  if (k.products.empty()) {
    const double work = std::max(moved, k.vector_bytes);
    std::int64_t blocks =
        std::clamp<std::int64_t>(static_cast<std::int64_t>(work / block_bytes), 1, vectors);
    if (k.parts > 0) blocks = std::min(blocks, k.parts);
    l.engine = sim::Engine::ai_vector;
    l.blocks = static_cast<std::int32_t>(blocks);
    l.vector_cycles = static_cast<std::int64_t>(
        std::ceil(k.vector_bytes / (vector_rate * static_cast<double>(blocks))));
    l.head = us(head_of(k, blocks));
    return l;
  }
  const double efficiency =
      c.at(k.family == Family::attention ? "cube_attention_efficiency" : "cube_efficiency");
  std::int64_t cycles = 0;
  std::int64_t blocks = 1;
  for (const Product& p : k.products) {
    const Tiling t = tiling_of(p, k.bits, cubes);
    cycles += t.cycles;
    blocks = std::max(blocks, t.blocks);
  }
  // A block reads what it multiplies: few tiles of a large weight still take all cores.
  const bool mix = k.family == Family::attention || k.gathered_mix;
  l.engine = mix ? sim::Engine::mix_aic : sim::Engine::ai_core;
  l.blocks = static_cast<std::int32_t>(blocks);
  l.cube_cycles = std::llround(static_cast<double>(cycles) / efficiency);
  if (mix)
    l.vector_cycles = static_cast<std::int64_t>(
        std::ceil(k.vector_bytes / (vector_rate * 2 * static_cast<double>(blocks))));
  l.head = us(head_of(k, blocks));
  if (k.family == Family::grouped_matmul) {
    double read = 0;
    for (const Operand& o : k.operands)
      if (!o.write) read += static_cast<double>(o.bytes);
    const double rate =
        device.numbers.at("hbm_tb_s") * c.at("hbm_read_share") * c.at("grouped_read_share");
    l.fixed = std::llround(read / rate);  // bytes / (TB/s) is picoseconds
  }
  return l;
}

}  // namespace tk
