#include "trial/machine.h"

#include "base/file.h"
#include "cpu/kernels/targets.h"

namespace tk {

std::string cpu_name() {
  const std::string text = read_file("/proc/cpuinfo");
  const std::size_t at = text.find("model name");
  if (at == std::string::npos) return "unknown";
  const std::size_t colon = text.find(':', at);
  return text.substr(colon + 2, text.find('\n', colon) - colon - 2);
}

std::string isa_name() {
  std::string s;
  if (__builtin_cpu_supports("avx2")) s = "AVX2";
  if (__builtin_cpu_supports("avx512f")) s = "AVX-512";
  if (kernels::use_bf16_dot()) s += ", bf16 dot products";
  if (kernels::has_amx_bf16()) s += ", AMX bf16";
  return s.empty() ? "baseline x86-64" : s;
}

}  // namespace tk
