// A device as a file of numbers, each with its source and how sure it is (VN-10). The files of
// src/npu/devices are compiled in; another can be given by path.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "npu/near.h"
#include "npu/sim/simulate.h"

namespace tk {

namespace npu_data {
struct Embedded {
  std::string_view name, json;
};
extern const Embedded files[];
extern const std::size_t file_count;
}  // namespace npu_data

struct Fact {
  std::string name, unit, source, certainty;
  double value = 0;
  std::vector<std::string> others;  // what other sources say; the value is the default
};

struct Facts {
  std::string file;  // for errors
  std::vector<Fact> all;
  double at(std::string_view name) const;  // TK1412 when it is missing
  double find(std::string_view name, double otherwise) const;
};

struct DeviceFile {
  std::string name, target, doc;
  Facts numbers;
  std::vector<sim::LinkLevel> links;
  std::vector<Fact> link_facts;  // rates and latencies as they are in the file
};

// The default variant of a target ("a2", "a3"), a variant by name ("910b2"), or the path of a JSON
// file. Throws TK1411 (no such device), TK1412 (a number is missing or none).
DeviceFile load_device_file(std::string_view name);
std::vector<std::string> device_names();

// What kernels, the host and collectives cost (cost.json), and its id: a hash of the text.
struct CostFile {
  Facts numbers;
  std::string id;
  std::vector<NearKernel> measured;  // by a calibration; empty in the built-in file
  // Model to the numbers that the fit gives without this model's records (VN-113).
  std::map<std::string, std::map<std::string, double>> without;
};
const CostFile& default_costs();
CostFile load_costs(const std::string& path);
// For a prediction of a record of `model`: costs that have not seen it. A model that the fit does
// not know has no values of its own, and the file's are those.
CostFile costs_without(const CostFile& costs, const std::string& model);

// The host's time for an operator under one of cost.json's names, on this device's server.
double host_us(const DeviceFile& device, const CostFile& costs, std::string_view name);

// In a graph kernels follow each other without the gaps of eager execution.
sim::DeviceParams params_of(const DeviceFile& device, const CostFile& costs, sim::Mode mode);

// Every number with source and certainty, as text for --device-info.
std::string device_info(const DeviceFile& device, const CostFile& costs);

}  // namespace tk
