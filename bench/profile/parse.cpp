// Reading speed of the profile readers, from the file to the Timeline, beside two yardsticks on the
// same bytes: a loop over a CSV's bytes, and a walk of simdjson's on-demand parser.
//   profile_parse_bench kernel_details.csv trace_view.json [rounds] [only rows with this text]
// The rows take turns in each round. One line of JSON per row: GB/s of wall time and of CPU time
// (all threads), medians. The yardsticks' bytes are in memory before their time starts.
#include <simdjson.h>
#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <filesystem>
#include <functional>
#include <string>
#include <vector>

#include "base/error.h"
#include "timeline/input.h"
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

struct Row {
  std::string what;
  std::string path;
  std::function<std::size_t()> run;
  std::vector<double> wall, cpu;
  std::size_t items = 0;

  void round() {
    const auto t0 = std::chrono::steady_clock::now();
    const double c0 = cpu_seconds();
    items = run();
    cpu.push_back(cpu_seconds() - c0);
    wall.push_back(std::chrono::duration<double>(std::chrono::steady_clock::now() - t0).count());
  }
  void print() {
    std::sort(wall.begin(), wall.end());
    std::sort(cpu.begin(), cpu.end());
    const double gb = static_cast<double>(std::filesystem::file_size(path)) / 1e9;
    std::printf(
        "{\"what\": \"%s\", \"gb\": %.3f, \"gbps_wall_median\": %.3f, \"gbps_wall_best\": %.3f, "
        "\"gbps_cpu_median\": %.3f, \"gbps_cpu_best\": %.3f, \"items\": %zu}\n",
        what.c_str(), gb, gb / wall[wall.size() / 2], gb / wall[0], gb / cpu[cpu.size() / 2],
        gb / cpu[0], items);
  }
};

std::size_t cells_byte_by_byte(const tk::Buffer& file) {
  std::size_t cells = 0;
  bool inside = false;
  for (std::size_t i = 0; i < file.size; ++i) {
    const char c = file.data[i];
    if (c == '"')
      inside = !inside;
    else if (!inside && (c == ',' || c == '\n'))
      ++cells;
  }
  return cells;
}

std::size_t events_on_demand(simdjson::ondemand::parser& parser, const simdjson::padded_string& s) {
  std::size_t spans = 0;
  auto document = parser.iterate(s);
  for (auto event : document.get_array()) {
    std::string_view phase, name;
    double duration = 0;
    for (auto field : event.get_object()) {
      const simdjson::ondemand::raw_json_string key = field.key();
      if (key == "ph")
        phase = field.value().get_string();
      else if (key == "name")
        name = field.value().get_string();
      else if (key == "dur")
        duration = field.value().get_double();
    }
    spans += phase == "X" && duration >= 0 && !name.empty();
  }
  return spans;
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 3) {
    std::fprintf(stderr, "usage: %s kernel_details.csv trace_view.json [rounds]\n", argv[0]);
    return 2;
  }
  const std::string table = argv[1], trace = argv[2];
  const int rounds = std::max(1, argc > 3 ? std::atoi(argv[3]) : 5);
  const std::string only = argc > 4 ? argv[4] : "";
  try {
    const tk::Buffer bytes = tk::read_whole(table);
    const simdjson::padded_string text = simdjson::padded_string::load(trace);
    simdjson::ondemand::parser parser;
    std::vector<Row> rows;
    rows.push_back({"yardstick: bytes of the table, one by one",
                    table,
                    [&] { return cells_byte_by_byte(bytes); },
                    {},
                    {}});
    rows.push_back({"kernel table, one thread",
                    table,
                    [&] {
                      tk::Timeline t;
                      tk::read_kernel_csv(table, {}, t);
                      return t.kernels.size();
                    },
                    {},
                    {}});
    rows.push_back({"yardstick: trace, simdjson on demand, one thread",
                    trace,
                    [&] { return events_on_demand(parser, text); },
                    {},
                    {}});
    for (int threads : {1, 2})
      rows.push_back(
          {threads == 1 ? "trace, one thread" : "trace, two threads",
           trace,
           [&, threads] { return tk::read_trace(trace, {false, 0, threads, false}).trace.events; },
           {},
           {}});
    std::erase_if(rows, [&](const Row& row) { return row.what.find(only) == std::string::npos; });
    for (int r = 0; r < rounds; ++r)
      for (Row& row : rows) row.round();
    for (Row& row : rows) row.print();
  } catch (const tk::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return 2;
  }
  return 0;
}
