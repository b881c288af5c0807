#include "cpu/kernels/targets.h"

#include <fstream>
#include <iterator>
#include <set>
#include <sstream>

#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

// What the system lets programs use of the processor: Linux leaves out what it does not save.
std::set<std::string> system_flags() {
  std::ifstream file("/proc/cpuinfo");
  std::string line;
  while (std::getline(file, line)) {
    if (!line.starts_with("flags")) continue;
    std::istringstream words(line.substr(line.find(':') + 1));
    return {std::istream_iterator<std::string>(words), {}};
  }
  return {};
}

TEST(targets, are_what_the_system_says) {
  const std::set<std::string> flags = system_flags();
  if (flags.empty()) GTEST_SKIP() << "no flags in /proc/cpuinfo";
  const bool bf16 = flags.contains("avx512_bf16") && flags.contains("avx512bw");
  EXPECT_EQ(has_amx_bf16(), flags.contains("amx_bf16") && flags.contains("amx_tile"));
  EXPECT_EQ(use_bf16_dot(), bf16);
  // A build may leave targets out; none may be offered that the system lacks.
  const TargetList list = available_targets();
  for (int i = 0; i < list.size; ++i) {
    const std::string name = list.names[i];
    const char* flag = name == "AVX3_BF16" ? "avx512_bf16"
                       : name == "AVX3"    ? "avx512f"
                       : name == "AVX2"    ? "avx2"
                                           : "fpu";
    EXPECT_TRUE(flags.contains(flag)) << name;
  }
}

}  // namespace
}  // namespace tk::kernels::test
