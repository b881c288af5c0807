// A Plan made ready to run: units of issue, the queue of each stream, who records what.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "npu/sim/collective.h"
#include "npu/sim/simulate.h"

namespace tk::sim {

// What a stream runs as one: a launch, or the parts of a SuperKernel segment.
struct Unit {
  std::int32_t first = 0, parts = 1;  // into Prepared::parts
  std::int32_t stream = 0;            // of the first part
  std::int32_t rank = 0;
  std::int32_t streams = 1;      // that wait in it for each other (a segment over two streams)
  std::int32_t last_launch = 0;  // the greatest index in it
  std::int32_t slots = 0;        // blocks that run at a time; 0: takes no cores
  std::int32_t cube = 0, vector = 0, ai_cpu = 0;  // cores of one slot
  bool gang = false, mix = false;
};

struct Prepared {
  const Plan* plan = nullptr;
  const DeviceParams* device = nullptr;
  std::vector<std::int32_t> parts;               // launches by unit
  std::vector<Unit> units;                       // by first launch
  std::vector<std::int32_t> unit_of;             // launch -> unit
  std::vector<std::vector<std::int32_t>> queue;  // stream -> units
  std::vector<std::vector<std::int32_t>> host;   // rank -> units in order of issue
  std::vector<std::int32_t> position;            // launch -> index in its stream's queue
  std::vector<std::int32_t> host_position;       // unit -> index in its rank's host order
  std::vector<std::int32_t> recorder;            // event -> launch
  std::vector<std::int32_t> instance;            // launch -> instance of its collective, none
  std::vector<std::int32_t> members;             // instance -> launches that take part
  std::int64_t span = 0;                         // no address is at or above it
};

// Throws TK1401 and TK1403.
Prepared prepare(const Plan& plan, const DeviceParams& device);

// "MatMulV2_12 (launch 7, stream 0, model.layers.0.mlp)"
std::string describe(const Plan& plan, std::int32_t launch);

// Cores that one block takes.
struct BlockCores {
  std::int32_t cube = 0, vector = 0, ai_cpu = 0;
};
BlockCores block_cores(const Plan& plan, const Launch& l);
inline bool is_mix(Engine e) { return e == Engine::mix_aic || e == Engine::mix_aiv; }
// Blocks of it that can run at a time: what the limits of launch, stream and device leave.
std::int32_t slots_of(const Plan& plan, const DeviceParams& device, const Launch& l);

}  // namespace tk::sim
