#include "cli/calibrate.h"

#include <fmt/format.h>

#include <cmath>
#include <filesystem>

#include "base/error.h"
#include "base/file.h"
#include "npu/calibrate/fit.h"
#include "npu/calibrate/microbench.h"
#include "npu/calibrate/replay.h"
#include "timeline/load.h"

namespace tk::cli {

int calibrate_from(const std::vector<std::string>& folders, const std::string& out,
                   DeviceFile device, const CostFile& costs) {
  if (out.empty())
    throw UserError("TK1434", "there is no file to write the costs to")
        .help("add -o cost.json, and give it to simulate with --costs");
  std::vector<ProfileSamples> all;
  std::vector<std::string> where;
  CostFile start = costs;
  for (const std::string& folder : folders) {
    if (folder.ends_with(".json")) {
      Microbench m = read_microbench(read_file(folder), folder, device.numbers.at("l2_bytes"));
      for (Fact& f : start.numbers.all) {
        // cost.json has an A2 server's host, devices their share of it.
        const double measured = f.name == "host_eager_us"
                                    ? m.host_eager_us / device.numbers.find("host_share", 1)
                                : f.name == "graph_launch_us" ? m.graph_launch_us
                                                              : 0;
        if (!std::isfinite(measured) || measured <= 0) continue;
        f.others = {fmt::format("{:.6g} before the calibration", f.value)};
        f.value = measured;
        f.source = cat("micro-benchmarks: ", std::filesystem::path(folder).filename().string());
        f.certainty = "measured";
      }
      where.push_back(folder);
      all.push_back(std::move(m.samples));
      continue;
    }
    for (const ProfileFiles& files : find_profiles(folder)) {
      where.push_back(describe(files));
      all.push_back(
          samples_of(load_profile(files, {}), where.back(), device.numbers.at("l2_bytes")));
    }
  }
  const ProfileSamples samples = joined_samples(std::move(all), where);
  const double cubes = device.numbers.at("cube_cores");
  if (samples.cubes > cubes)
    throw UserError("TK1431", cat("a kernel of the profile uses ", samples.cubes,
                                  " cube cores, and ", device.name, " has ", cubes))
        .help("choose the variant that was profiled with --device");
  // VN-104: cycles are of the profile's clock.
  if (samples.mhz > 0)
    for (Fact& f : device.numbers.all)
      if (f.name == "mhz") f.value = samples.mhz;
  const Calibration c = calibrate(samples.samples, device, start);
  std::string source;
  for (const std::string& folder : folders)
    source += cat(source.empty() ? "" : ", ",
                  std::filesystem::path(folder).lexically_normal().filename().string());
  write_file(out, cost_json(c, cat(source, " on ", device.name)));
  fmt::print("{}costs     {}\n", calibration_text(c, samples), out);
  return 0;
}

int replay_of(const std::string& folder, const DeviceFile& device, const CostFile& costs) {
  for (const ProfileFiles& files : find_profiles(folder))
    fmt::print("{}\n{}", describe(files),
               replay_text(replay(load_profile(files, {}), "", device, costs)));
  return 0;
}

}  // namespace tk::cli
