// A kernel's least time on Atlas A2 and A3 from its shapes and types.
#include <fmt/format.h>

#include <algorithm>
#include <unordered_map>

#include "base/error.h"
#include "timeline/operands.h"
#include "timeline/theory.h"

namespace tk {

namespace {

// Atlas A2 and A3 dies. Rates from the platform files of hicann/runtime; heads are the shortest
// Duration less busy time that real profiles show, by kind of kernel.
constexpr double operations_per_cycle = 8192;  // of a cube core, 16-bit; twice with 8-bit integers
constexpr double default_mhz = 1800;
constexpr int most_cubes = 24;
constexpr double memory_bytes_per_us = 1.6e6;
constexpr double head_of_few_us = 0.4, head_of_vector_us = 1.0, head_of_cube_us = 1.45;

bool reads_each_operand_once(Role role, std::string_view type) {
  switch (role) {
    case Role::norm:
    case Role::activation:
    case Role::quant:
    case Role::elementwise:
    case Role::rope:
      return true;
    case Role::move:
      // Copies of a part, and writes into a large operand, touch fewer bytes than their shapes say.
      for (std::string_view whole : {"Cast", "Transpose", "TransData", "TensorMove", "Concat"})
        if (type.starts_with(whole)) return true;
      return false;
    default:
      return false;
  }
}

}  // namespace

Theory compute_theory(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  Theory out;
  if (t.origin.kind == "cpu" || !t.has_shapes || !t.table) return out;
  const int type_column = t.table->column("Output Data Types");
  if (type_column < 0) return out;
  double mhz = default_mhz;
  if (!t.trace.frequency.empty()) mhz = t.trace.frequency.front().second;
  std::uint32_t cubes = 0;
  for (std::uint32_t i : ops.ops) {
    const Kernel& k = t.kernels[i];
    if (k.core == Core::ai_core || k.core == Core::mix_aic) cubes = std::max(cubes, k.blocks);
  }
  cubes = std::min<std::uint32_t>(cubes ? cubes : most_cubes, most_cubes);
  const double cube_per_us = operations_per_cycle * cubes * mhz;
  out.ops.resize(ops.size());
  std::vector<ShapeOperand> in, result;
  for (std::size_t op = 0; op < ops.size(); ++op) {
    const Kernel& k = t.kernels[ops.ops[op]];
    const Role role = roles[k.type];
    const bool product = role == Role::matmul;
    if (!product && !reads_each_operand_once(role, t.text(k.type))) continue;
    const std::string types = t.table->cell(k.row, type_column);
    if (!operands_of(t.text(k.in_shapes), t.text(k.in_types), in) ||
        !operands_of(t.text(k.out_shapes), types, result))
      continue;
    KernelTheory x;
    x.compute_us = 0;
    if (product) {
      const double operations = operations_of(in, result[0]);
      if (operations == 0) continue;
      const bool narrow = in[0].bytes == in[0].elements;
      x.compute_us = operations / (cube_per_us * (narrow ? 2 : 1));
    }
    x.memory_us = (sum_bytes(in) + sum_bytes(result)) / memory_bytes_per_us;
    x.overhead_us = product                                              ? head_of_cube_us
                    : k.core == Core::ai_core || k.core == Core::mix_aic ? head_of_cube_us
                    : k.blocks > static_cast<std::uint32_t>(most_cubes)  ? head_of_vector_us
                                                                         : head_of_few_us;
    x.bound = x.compute_us > x.memory_us ? "compute" : "memory";
    x.us = x.overhead_us + std::max(x.compute_us, x.memory_us);
    out.ops[op] = x;
    ++out.supported;
  }
  if (out.supported == 0) return {};
  out.kind = "computed";
  out.matched = ops.size();
  out.source = fmt::format("least time at {} cube cores, {:.0f} MHz, 1.6 TB/s", cubes, mhz);
  return out;
}

}  // namespace tk
