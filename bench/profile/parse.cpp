// Reading speed of the profile readers, from the file to the Timeline.
//   profile_parse_bench kernel_details.csv trace_view.json [runs]
// One line of JSON per reader: GB/s of wall time and of CPU time (all threads), medians.
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <vector>

#include "base/error.h"
#include "timeline/kernel_csv.h"
#include "timeline/trace_json.h"

namespace {

double cpu_seconds() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  auto s = [](const timeval& t) {
    return static_cast<double>(t.tv_sec) + 1e-6 * static_cast<double>(t.tv_usec);
  };
  return s(u.ru_utime) + s(u.ru_stime);
}

void timed(const char* what, const char* path, int runs, const std::function<std::size_t()>& f) {
  std::vector<double> wall, cpu;
  std::size_t check = 0;
  for (int r = 0; r < runs; ++r) {
    const auto t0 = std::chrono::steady_clock::now();
    const double c0 = cpu_seconds();
    check = f();
    cpu.push_back(cpu_seconds() - c0);
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
  std::sort(wall.begin(), wall.end());
  std::sort(cpu.begin(), cpu.end());
  const double gb = static_cast<double>(std::filesystem::file_size(path)) / 1e9;
  std::printf(
      "{\"what\": \"%s\", \"gb\": %.3f, \"gbps_wall_median\": %.3f, \"gbps_wall_best\": %.3f, "
      "\"gbps_cpu_median\": %.3f, \"items\": %zu}\n",
      what, gb, gb / wall[wall.size() / 2], gb / wall[0], gb / cpu[cpu.size() / 2], check);
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s kernel_details.csv trace_view.json [runs]\n", argv[0]);
    return 2;
  }
  const int runs = std::max(1, argc > 3 ? std::atoi(argv[3]) : 5);
  try {
    timed("kernel table, one thread", argv[1], runs, [&] {
      tk::Timeline t;
      tk::read_kernel_csv(argv[1], {}, t);
      return t.kernels.size();
    });
    for (int threads : {1, 2})
      timed(threads == 1 ? "trace, one thread" : "trace, two threads", argv[2], runs,
            [&] { return tk::read_trace(argv[2], {false, 0, threads}).trace.events; });
  } catch (const tk::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  return 0;
}
