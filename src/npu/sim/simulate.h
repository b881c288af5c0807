// The event simulator: when does each launch of a Plan start and end, and why (VN-30 to VN-84).
// Integers only, so equal inputs give equal results on every machine (VN-80, VN-81).
#pragma once

#include <array>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "npu/sim/plan.h"

namespace tk::sim {

using BytesPerSecond = std::int64_t;

// How devices are linked, nearest first; a level joins `size` devices in all: die pair 2, node 16
// ...
struct LinkLevel {
  std::string name;
  std::int32_t size = 0;
  BytesPerSecond rate = 0;  // of one device, one direction, over all its links of this level
  Ps latency = 0;           // of one step
  std::int32_t links = 1;   // a full mesh has one to each peer, each with rate / links
};

// What the simulator needs of a device; filled from the device file (VN-10) and the cost file. The
// defaults are those of the specification for an A2 B3.
struct DeviceParams {
  std::int32_t cube_cores = 20, vector_cores = 40, ai_cpu_cores = 6;
  std::int32_t mhz = 1800;
  BytesPerSecond hbm_rate = 1'600'000'000'000;  // nominal
  std::int32_t hbm_read_permille = 900, hbm_write_permille = 500, hbm_mixed_permille = 420;
  std::int64_t l2_bytes = 192 << 20;
  std::int32_t l2_pages = 64;
  std::int32_t l2_keep_permille = 500;  // of l2_bytes: a larger operand passes by (VN-40)
  BytesPerSecond l2_rate = 3'000'000'000'000;
  // Per core and cycle, bytes: from memory, to memory; from L2 (VN-23, VN-24).
  std::int32_t core_hbm_read = 36, core_hbm_write = 36, core_l2_read = 110, core_l2_write = 86;

  Ps gap = 20'000, gap_mix = 1'100'000;                     // VN-30
  Ps record = 20'000, wait = 30'000, after_wait = 100'000;  // VN-31

  // Host and graphs (VN-50 to VN-54).
  Ps host_per_launch = 100'000'000, dispatch_per_launch = 0;
  std::int32_t queue_depth = 2048;  // tasks of a stream that are issued and not done
  Ps graph_launch = 700'000'000;    // host, a replay
  Ps graph_entry = 60'000'000;      // device, a replay
  Ps graph_update = 5'300'000;      // npugraph_ex: a launch whose parameters change
  Ps ai_cpu_launch = 30'000'000;

  // Prefetch and copies (VN-60, VN-61).
  BytesPerSecond prefetch_rate = 1'000'000'000'000;
  std::int32_t prefetch_depth = 8;
  BytesPerSecond pcie_rate = 64'000'000'000;
  Ps pcie_floor = 580'000;

  // SuperKernel (VN-62): between two parts, and their synchronisation: base + a step a core.
  Ps part_preloaded = 150'000, part_cold = 400'000;
  Ps sync_base = 100'000, sync_full = 500'000;  // one core .. all cores of the device

  // Collectives (VN-70).
  std::vector<LinkLevel> links = {{"HCCS", 8, 196'000'000'000, 500'000, 7},
                                  {"RoCE", 1 << 20, 25'000'000'000, 1'500'000, 1}};
  std::int32_t link_permille = 700;
  Ps per_peer = 700'000;  // a Write Value
  Ps collective_setup = 20'000'000;
  Ps collective_setup_ai_cpu = 40'000'000;
};

// Effects that can be switched off, to see whether a decision turns on them (section 1).
enum class Effect : std::uint8_t { host, sharing, cores, l2, gaps, heads, events, links, prefetch };
constexpr std::size_t effect_count = 9;
std::string_view effect_name(Effect e);

struct SimOptions {
  std::uint32_t without = 0;  // bits 1 << Effect
  int steps = 1;              // the Plan that often, one after the other; L2 stays filled
  std::uint64_t jitter_seed = 0;
  std::int32_t jitter_ppm = 0;  // cv of durations, in millionths; 0: none (VN-81)
  std::vector<std::pair<Ps, std::int32_t>> mhz_from;  // --freq-drop (VN-36), by time
  // The launch of the next replay is issued while one runs; else when it is done (VN-51).
  bool launch_ahead = false;
};

// Why a stream stood still before a launch, or a launch took longer than it would alone (VN-90).
enum class Cause : std::uint8_t {
  host,   // not issued yet
  event,  // an event was not recorded yet
  core,   // no free cores
  peers,  // other ranks were not there yet
  queue,  // the prefetch engine's queue was full
  gap,    // between two tasks, and what events cost
  empty,  // nothing was there to do: before the first and after the last
};
constexpr std::size_t cause_count = 7;
std::string_view cause_name(Cause c);

// What can bound a launch: its terms.
enum class Term : std::uint8_t { cube, vector, hbm_read, hbm_write, l2, link, fixed };
constexpr std::size_t term_count = 7;
std::string_view term_name(Term t);

// One launch as it ran.
struct Span {
  std::int32_t launch = 0;  // index into Plan::launches
  std::int32_t step = 0;
  Ps start = 0, end = 0;
  Ps head = 0, tail = 0;
  Ps peers = 0;  // of it: waiting for other ranks (communication.json keeps it apart from transfer)
  std::int32_t cubes = 0, vectors = 0;  // cores, the most at a time
  std::int32_t waves = 1;
  std::array<Ps, term_count> term{};  // when each term was done, from the end of the head
  std::int64_t hbm_read = 0, hbm_write = 0, l2_hit = 0, l2_bytes = 0;  // bytes moved
  std::array<Ps, cause_count> idle{};                                  // of its stream, before it
  std::int32_t blocker = none;      // launch whose end let it start; none: the host or nothing
  Cause blocked_by = Cause::empty;  // how; gap: order of the stream
  Algorithm algorithm = Algorithm::fastest;  // taken by a collective
};

// A resource of one rank over the whole run.
struct ResourceUse {
  std::string name;  // cube, vector, ai_cpu, HBM, L2, prefetch, PCIe, and the link levels
  std::int32_t rank = 0;
  Ps busy = 0;                // time with anything on it; of cores: core time / cores
  std::int64_t amount = 0;    // bytes moved, or core picoseconds
  std::int64_t capacity = 0;  // bytes per second, or cores
};

struct PrefetchUse {
  std::int32_t launch = 0;
  std::int64_t bytes = 0, used = 0, evicted_unused = 0, resident = 0;  // resident: at the end
};

// No schedule of these launches with these bytes is shorter than `critical_path` and `busiest`,
// none is as long as `serial` needs to be (VN-84).
struct Bounds {
  Ps critical_path = 0, busiest = 0, serial = 0;
  std::string busiest_name;
};

struct Result {
  Ps total = 0;              // from the start of the host's work to the last end
  std::vector<Ps> step_end;  // of each step
  std::vector<Span> spans;   // by end, then launch
  std::vector<std::array<Ps, cause_count>> idle;  // of each stream; with busy = total (VN-91)
  std::vector<Ps> stream_busy;
  std::vector<ResourceUse> resources;
  std::vector<PrefetchUse> prefetches;
  std::vector<std::int32_t> critical_path;  // indices into spans, first to last
  Bounds bounds;
  std::int64_t l2_hit = 0, l2_miss = 0, l2_evicted_dirty = 0;
  Ps host_busy = 0;
  std::int32_t steps_simulated = 0;  // the others are repetitions: L2 was as before (VN-82)
  std::uint64_t events = 0;          // handled; for the speed
  std::uint64_t hash() const;        // of all times (VN-133)
};

// Throws UserError TK1401 for a Plan that cannot be run (VN-05: limit beyond the device, event that
// is waited for and never recorded, a stream that is none ...), TK1402 for a deadlock with its
// cycle (VN-32), TK1403 for collectives whose order differs between ranks (VN-74).
Result simulate(const Plan& plan, const DeviceParams& device, const SimOptions& options = {});

// When each term of a launch of this Plan would be done if nothing else ran.
std::array<Ps, term_count> terms_alone(const Plan& plan, const DeviceParams& device,
                                       const SimOptions& options, const Span& span);

}  // namespace tk::sim
