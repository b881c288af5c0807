// What the simulator times: one step on the devices, launch by launch, in the order of issue
// (VN-01). Values are not in it. The lowering fills it from a Graph; tests write it by hand.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <string>
#include <vector>

namespace tk::sim {

using Ps = std::int64_t;  // picoseconds

enum class Mode : std::uint8_t { eager, npugraph_ex, ge_graph };

// Which cores one block of a launch takes (VN-26). Names as in Core of the Timeline.
enum class Engine : std::uint8_t {
  ai_core,        // a cube core a block
  ai_vector,      // a vector core a block
  mix_aic,        // a cube core and `vectors_per_cube` vector cores a block
  mix_aiv,        // the same; led by the vector side, which only the profile shows
  ai_cpu,         // an AI CPU core a block
  communication,  // a collective: see Collective; `blocks` vector cores where it is driven by them
  dma,            // copy between host and device: link_bytes over PCIe
  prefetch,       // CMO: its reads are brought into L2, without cores (VN-60)
};

// Bytes at an address of the device's memory: what makes a hit in L2 (VN-40).
struct Access {
  std::int64_t address = 0, bytes = 0;
  bool write = false;
};

// Indices [begin, begin + count) of one of the Plan's vectors.
struct Slice {
  std::int32_t begin = 0, count = 0;
};

constexpr std::int32_t none = -1;

struct Launch {
  std::int32_t stream = 0;  // index into Plan::streams
  Engine engine = Engine::ai_vector;
  std::uint8_t vectors_per_cube = 2;  // of a mix: 1 or 2
  bool gang = false;                  // needs the cores of all its blocks at once (VN-32)
  bool host_sync = false;             // the host waits until it is done: item, nonzero (VN-50)
  std::int32_t blocks = 1;            // more than there are cores: they run in waves (VN-21)
  std::int32_t cube_limit = 0, vector_limit = 0;  // cores at most; 0: no limit (VN-33)

  // Work. Terms run at the same time; the launch is done when the last one is (VN-20, VN-34).
  std::int64_t cube_cycles = 0,
               vector_cycles = 0;            // of one block: of the slowest where they differ
  std::int64_t hbm_read = 0, hbm_write = 0;  // bytes of the launch that never are in L2 (streamed)
  std::int64_t l2_bytes = 0;                 // bytes that are in L2 for sure, beyond `accesses`
  std::int64_t link_bytes = 0;               // of dma
  Slice accesses;                            // into Plan::accesses: hit or miss is found out
  Ps head = 0, tail = 0;                     // before and after the terms
  Ps fixed = 0;                              // a term of its own: time that nothing shortens
  std::int32_t overlap_ppm = 0;              // lambda of VN-20, in millionths

  Slice waits, records;  // events, into Plan::events: waited for before, recorded after
  Slice inner_waits;     // events waited for with the cores already taken (flags in memory)
  std::int32_t collective = none;  // index into Plan::collectives, with Engine::communication;
                                   // with another engine: MC2, cores and links at once (VN-71)
  std::int32_t segment = none;     // index into Plan::segments
  Ps host = -1;      // first host thread: Python and the operator's own; -1: the device's default
  Ps dispatch = -1;  // second host thread (task queue); -1: the default
  std::int32_t text = none;  // index into Plan::texts
};

// What a person and the profiler files want to know of a launch. Layers may share texts.
struct LaunchText {
  std::string name, type;  // as kernel_details.csv: "MatMulV2_12", "MatMulV2"
  std::string module;      // path in the model
  std::string in_shapes, out_shapes, in_types, out_types, in_formats, out_formats;
  std::string place;  // node and file:line, for errors
};

struct Stream {
  std::int32_t rank = 0;                          // 0 .. Plan::devices.size() - 1
  std::int32_t priority = 0;                      // smaller is served first
  std::int32_t cube_limit = 0, vector_limit = 0;  // npugraph_ex (VN-33)
};

// A run of launches that are one launch of a SuperKernel (VN-62); its launches say so by `segment`.
// Launches of two streams: one after the other, or side by side with `stream_fusion` (SK-22).
struct Segment {
  std::string name;
  bool preload = true;  // code of the next part is fetched while one runs
  bool stream_fusion = false;
};

enum class CollectiveKind : std::uint8_t {
  all_reduce,
  reduce_scatter,
  all_gather,
  all_to_all,
  broadcast,
  send_recv,
  dispatch,  // MoE: all_to_all with the bytes of `traffic`
  combine,
};
enum class Algorithm : std::uint8_t { fastest, ring, mesh, halving_doubling, hierarchical };
enum class CollectiveEngine : std::uint8_t { sdma, aiv, ai_cpu };  // VN-71

struct Collective {
  CollectiveKind kind = CollectiveKind::all_reduce;
  Algorithm algorithm = Algorithm::fastest;
  CollectiveEngine engine = CollectiveEngine::sdma;
  std::int32_t group = 0;       // index into Plan::groups
  std::int64_t bytes = 0;       // S: the whole of the reduced, gathered or sent tensor of one rank
  std::int32_t traffic = none;  // index into Plan::traffic, of all_to_all, dispatch and combine
};

// Devices that communicate, by number in the deployment (which says what links them). Those of them
// that the Plan has no launches of are taken to arrive with the others (VN-72).
struct Group {
  std::vector<std::int32_t> devices;
};

// Bytes from member i to member j of a group: bytes[i * n + j] (VN-73).
struct Traffic {
  std::vector<std::int64_t> bytes;
};

struct Plan {
  Mode mode = Mode::ge_graph;
  std::vector<std::int32_t> devices = {0};  // simulated ranks: number of each in the deployment
  std::vector<Stream> streams;
  std::vector<Launch> launches;  // in order of issue; a stream runs its own in this order
  std::vector<Access> accesses;
  std::vector<std::int32_t> events;  // names of events, 0 ..: for the Slices of launches
  std::vector<Segment> segments;
  std::vector<Collective> collectives;
  std::vector<Group> groups;
  std::vector<Traffic> traffic;
  std::vector<LaunchText> texts;
  bool host_tiles = false;       // of a graph: the host issues each launch, after tiling it (VN-53)
  std::int64_t input_bytes = 0;  // copied into the graph's own buffers by each replay (VN-51)
  std::int32_t updates = 0;      // launches whose parameters a replay of npugraph_ex updates
};

// Appends to a vector of the Plan and says where: launch.waits = append(plan.events, {3, 5}).
template <typename T>
Slice append(std::vector<T>& to, std::initializer_list<T> items) {
  const Slice s{static_cast<std::int32_t>(to.size()), static_cast<std::int32_t>(items.size())};
  to.insert(to.end(), items);
  return s;
}
template <typename T>
Slice append(std::vector<T>& to, const std::vector<T>& items) {
  const Slice s{static_cast<std::int32_t>(to.size()), static_cast<std::int32_t>(items.size())};
  to.insert(to.end(), items.begin(), items.end());
  return s;
}

}  // namespace tk::sim
