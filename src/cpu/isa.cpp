#include "cpu/isa.h"

#include "cpu/kernels/targets.h"

namespace tk {

std::string isa_name() {
  std::string s;
  if (__builtin_cpu_supports("avx2")) s = "AVX2";
  if (__builtin_cpu_supports("avx512f")) s = "AVX-512";
  if (kernels::use_bf16_dot()) s += ", bf16 dot products";
  if (kernels::has_amx_bf16()) s += ", AMX bf16";
  return s.empty() ? "baseline x86-64" : s;
}

}  // namespace tk
