#include "cpu/kernels/targets.h"

#include <cpuid.h>

#include <atomic>
#include <cstring>

#include "cpu/kernels/common.h"
#include "hwy/highway.h"

namespace tk::kernels {
namespace {

// CPUID leaf 7, subleaf 1: EAX bit 5 is AVX512_BF16; leaf 7: EDX bit 24 AMX-TILE, bit 22 AMX-BF16.
// That the system saves the 512-bit state was checked by highway when it reports AVX3.
bool cpu_has_bf16_dot() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return (hwy::SupportedTargets() & HWY_AVX3) != 0 &&
         __get_cpuid_count(7, 1, &a, &b, &c, &d) != 0 && (a >> 5 & 1U) != 0;
}
// The tiles need a system that saves them: XCR0 bits 17 and 18, which XGETBV reads where CPUID leaf
// 1, ECX bit 27 (OSXSAVE) says that it may.
bool system_saves_tiles() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(1, &a, &b, &c, &d) == 0 || (c >> 27 & 1U) == 0) return false;
  __asm__ volatile("xgetbv" : "=a"(a), "=d"(d) : "c"(0));
  return (a >> 17 & 3U) == 3U;
}
bool cpu_has_amx_bf16() {
  unsigned a = 0, b = 0, c = 0, d = 0;
  return system_saves_tiles() && __get_cpuid_count(7, 0, &a, &b, &c, &d) != 0 &&
         (d >> 22 & 1U) != 0 && (d >> 24 & 1U) != 0;
}

struct Target {
  const char* name;
  std::int64_t hwy;
  bool bf16_dot;
};
constexpr Target all[] = {{"AVX3_BF16", HWY_AVX3, true},
                          {"AVX3", HWY_AVX3, false},
                          {"AVX2", HWY_AVX2, false},
                          {"SCALAR", HWY_SCALAR, false}};

bool available(const Target& t) {
  if (t.bf16_dot && !cpu_has_bf16_dot()) return false;
  // Highway names what the processor has, also where nothing was compiled for it.
  return t.hwy == HWY_SCALAR || (hwy::SupportedTargets() & HWY_TARGETS & t.hwy) != 0;
}

const bool bf16_dot_present = cpu_has_bf16_dot();
std::atomic<bool> bf16_dot_allowed{true};

}  // namespace

bool use_bf16_dot() { return bf16_dot_present && bf16_dot_allowed.load(std::memory_order_relaxed); }
bool has_amx_bf16() {
  static const bool present = cpu_has_amx_bf16();
  return present;
}

TargetList available_targets() {
  hwy::SetSupportedTargetsForTest(0);
  TargetList list{{}, 0};
  for (const Target& t : all)
    if (available(t)) list.names[list.size++] = t.name;
  return list;
}

bool force_target(const char* name) {
  hwy::SetSupportedTargetsForTest(0);
  bf16_dot_allowed = true;
  bool known = name == nullptr;
  for (const Target& t : all) {
    if (name == nullptr || std::strcmp(name, t.name) != 0 || !available(t)) continue;
    hwy::SetSupportedTargetsForTest(t.hwy);
    bf16_dot_allowed = t.bf16_dot;
    known = true;
  }
  hwy::GetChosenTarget().Update(hwy::SupportedTargets());
  return known;
}

const char* best_target() { return available_targets().names[0]; }

}  // namespace tk::kernels
