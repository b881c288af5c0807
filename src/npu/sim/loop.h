// The event loop's state and steps. Everything that changes is in State, so a copy is a snapshot.
#pragma once

#include <array>
#include <cstdint>
#include <vector>

#include "npu/sim/l2.h"
#include "npu/sim/prepare.h"

namespace tk::sim {

// Work on a shared resource in 2^-22 bytes, times its cost in permille of the nominal rate; a rate
// is that per ps. Both are integers: a rate is rounded down, what is left stays exact (VN-80).
using Work = std::int64_t;
constexpr int work_bits = 22;

// One term of one batch on one resource.
struct Flow {
  std::int32_t stream = 0, batch = 0;
  Term term = Term::hbm_read;
  Work left = 0, cap = 0, rate = 0;
};

struct Resource {
  Work capacity = 0;
  Ps updated = 0;
  std::uint32_t version = 0;  // of the event in the heap; older ones are void
  std::vector<Flow> flows;
  Ps busy = 0;
  std::int64_t bytes = 0;  // asked for
  __int128 delivered = 0;  // Work
  __int128 demanded = 0;   // Work
};
// Per rank: these four, then the levels of links.
enum : std::size_t { res_hbm, res_l2, res_prefetch, res_pcie, res_links };

enum class Stage : std::uint8_t {
  done,   // no more units
  issue,  // the host has not issued it
  join,   // the other stream of its segment is not there yet
  event,  // an event is not recorded
  ready,  // a timer runs until it may start
  queue,  // the prefetch engine is full
  cores,  // no cores yet
  peers,  // other ranks are not there; it holds its cores
  inner,  // a flag in memory is not set; it holds its cores
  head,
  work,
  tail,
};

// Blocks that run together: in `waves` rounds, if nothing else wants the cores.
struct Batch {
  std::int32_t slots = 0, blocks = 0, waves = 1, round = 1;
  std::int32_t open = 0;  // terms not done
  bool live = false;
  std::uint32_t version = 0;             // of its timer
  Ps from = 0;                           // the compute terms' `left` is as of then
  std::array<Work, 3> left{};            // cube, vector: cycles * 10^6; fixed: ps
  std::array<Work, term_count> total{};  // to cut waves off
};

struct StreamState {
  std::int32_t next = 0;  // index into the stream's queue
  Stage stage = Stage::done;
  std::int32_t unit = none, part = 0;
  bool mix_before = false, ran = false;
  std::uint32_t version = 0;  // of its timer
  std::uint32_t timers = 0;   // of its batches, so far
  Ps since = 0;               // end of the unit before
  Ps free_at = 0;             // since, plus what recording took
  Ps issued = 0, last_event = 0, ready = 0;
  std::int32_t last_recorder = none, before = none;
  std::int32_t held = 0, spare = 0;    // slots of it; those without a batch
  std::int32_t blocks_left = 0;        // in no batch yet
  std::array<std::int64_t, 3> pool{};  // bytes in no batch yet: hbm_read, hbm_write, l2
  std::int64_t l2_written = 0;         // of the launch, for its rate
  std::array<std::int64_t, 2> cost{};  // of a byte read and written, permille
  bool first_batch = true;
  std::int32_t rounds_done = 0;
  std::int32_t phase = 0, link_flows = 0;  // of the collective, -1: in its latency
  std::int32_t access = 0;                 // prefetch: index of the range, and bytes of it done
  std::int64_t offset = 0, chunk = 0;
  std::int32_t owner = 0;  // of what it brings: index of L2::owners()
  Ps work_from = 0, part_from = 0;
  Span span;
  std::vector<Batch> batches;
};

struct Event {
  Ps time = 0;
  std::uint8_t kind = 0;  // EventKind
  std::int32_t rank = 0, stream = 0, issue = 0;
  std::uint32_t version = 0;
};
enum EventKind : std::uint8_t { ev_resource, ev_batch, ev_phase, ev_stream, ev_mhz };

struct RankState {
  std::int32_t cube = 0, vector = 0, ai_cpu = 0;  // free
  bool dirty = false;                             // cores or waiters changed
  std::int32_t merged = 0;                        // batches of several waves
  std::vector<std::int32_t> waiting;              // streams, in the order of VN-32
  std::int32_t prefetching = 0;
  std::vector<std::int32_t> prefetch_queue;
  std::int32_t last_release = none;  // launch
  __int128 cube_time = 0, vector_time = 0, ai_cpu_time = 0;
  // Host: the unit it issues next, when it is free, and the second thread.
  std::int32_t host_next = 0;
  Ps host_at = 0, dispatch_at = 0, host_busy = 0, graph_at = 0;
  Ps cores_from = 0;               // the core times are as of then
  std::int32_t host_needs = none;  // unit that must end before the host goes on
  L2 l2;
};

struct State {
  Ps now = 0;
  std::int32_t step = 0, mhz = 0;
  std::int32_t frontier = 0;  // no launch from here on was looked at
  std::uint64_t events = 0;
  std::vector<Event> heap;
  std::vector<StreamState> streams;
  std::vector<RankState> ranks;
  std::vector<Resource> resources;
  std::vector<Ps> issued, ended;                    // of units; -1: not yet
  std::vector<std::uint8_t> joined;                 // streams that wait at a unit
  std::vector<Ps> recorded;                         // of events; -1: not yet
  std::vector<std::int32_t> arrived, last_arrival;  // of collective instances
  std::int32_t open_units = 0;
  std::vector<std::int32_t> dirty;  // ranks whose cores are to be given out
  std::size_t mhz_next = 0;         // index into SimOptions::mhz_from
  std::vector<Span> spans;
  std::vector<PrefetchUse> prefetches;
  std::vector<std::pair<std::int32_t, std::int32_t>> prefetch_owner;  // rank, index of L2::owners()
  std::int64_t l2_hit = 0, l2_miss = 0, l2_dirty = 0;
};

// Runs steps. Public: what the pieces of the engine (cores.cpp, work.cpp, host.cpp) share.
class Loop {
 public:
  Loop(const Prepared& prepared, const DeviceParams& device, const SimOptions& options);
  // `launched`: when the host began with its launch of the graph; at the latest `at`.
  void begin_step(std::int32_t step, Ps at, Ps launched);
  Ps graph_entry() const;              // on the device, a replay
  void run();                          // to the end of the step; throws TK1402
  bool run_to(std::int32_t frontier);  // stops when launches from there on are next; false: the end

  State s;
  const Prepared& r;
  const Plan& p;
  const DeviceParams& d;
  const SimOptions& o;

  bool without(Effect e) const { return (o.without >> static_cast<unsigned>(e) & 1) != 0; }
  Resource& resource(std::int32_t rank, std::size_t which) {
    return s.resources[static_cast<std::size_t>(rank) * per_rank + which];
  }
  const Unit& unit_at(const StreamState& st) const {
    return r.units[static_cast<std::size_t>(st.unit)];
  }
  std::int32_t launch_index(const StreamState& st) const {
    return r.parts[static_cast<std::size_t>(unit_at(st).first + st.part)];
  }
  const Launch& launch_at(const StreamState& st) const {
    return p.launches[static_cast<std::size_t>(launch_index(st))];
  }

  // streams (engine.cpp)
  void next_unit(std::int32_t stream);
  void try_issue(std::int32_t stream);
  void try_events(std::int32_t stream);
  void become_ready(std::int32_t stream);
  void start(std::int32_t stream);
  void arrive(std::int32_t stream);
  void try_inner(std::int32_t stream);
  void begin_head(std::int32_t stream);
  void end_part(std::int32_t stream);
  void end_unit(std::int32_t stream);
  void record(const Launch& l, std::int32_t index, Ps at);
  void timer(std::int32_t stream, Ps at);
  Ps jittered(std::int32_t launch, Ps t, std::uint64_t what) const;

  // host (host.cpp): whether it issues launch by launch; when the unit is issued, -1: not known yet
  bool host_issues() const {
    return (p.mode == Mode::eager || p.host_tiles) && !without(Effect::host);
  }
  Ps issue_time(std::int32_t unit);
  void host_go_on(std::int32_t rank);

  // cores (cores.cpp)
  void wait_for_cores(std::int32_t stream);
  void assign(std::int32_t rank);
  void grant(std::int32_t rank);
  void release(std::int32_t stream, std::int32_t slots);
  void take(std::int32_t stream, std::int32_t slots);
  void touch(std::int32_t rank);
  bool wants_cores(const StreamState& st) const;
  bool before_in_order(std::int32_t a, std::int32_t b) const;

  // work (work.cpp)
  void begin_work(std::int32_t stream);
  void more_slots(std::int32_t stream);  // of a part that runs already
  void begin_batch(std::int32_t stream, std::int32_t slots);
  void term_done(std::int32_t stream, std::int32_t batch, Term term);
  void batch_done(std::int32_t stream, std::int32_t batch);
  void batch_timer(std::int32_t stream, std::int32_t batch);
  bool cut_waves(std::int32_t stream);
  void end_work(std::int32_t stream);
  Work cap_of(std::int32_t stream, const Batch& b, Term term) const;
  Work l2_cap(std::int64_t read, std::int64_t written, std::int64_t cores) const;
  void next_phase(std::int32_t stream, std::int32_t batch);
  void phase_flows(std::int32_t stream, std::int32_t batch);
  bool next_chunk(std::int32_t stream);
  void look_into_l2(std::int32_t stream);
  std::int32_t part_slots(const StreamState& st) const;       // that its blocks can use
  std::int64_t movers(const Unit& u, const Launch& l) const;  // cores of a slot that move data
  void set_mhz(std::int32_t mhz);

  // shares (share.cpp)
  void add_flow(std::int32_t rank, std::size_t which, const Flow& flow, std::int64_t bytes);
  void settle(Resource* res);
  void refill(std::size_t index);
  void resource_event(std::size_t index);

  void push(const Event& e);
  [[noreturn]] void note_deadlock() const;  // deadlock.cpp

  std::size_t per_rank = 0;
  std::vector<__int128> demanded_before;  // of the resources, when the step began
  std::vector<CommCost> comm;             // by collective and rank
  const CommCost& comm_of(const Launch& l, std::int32_t rank) const {
    return comm[static_cast<std::size_t>(l.collective) * p.devices.size() +
                static_cast<std::size_t>(rank)];
  }
  void handle(const Event& e);
};

Work rate_of(BytesPerSecond rate);  // Work per ps
// What one byte costs on the memory's bus, in permille of its nominal rate: read, write.
std::array<std::int64_t, 2> hbm_cost(const DeviceParams& d, std::int64_t read, std::int64_t write);
// The bytes or cycles of a part over what its cores and the device can do (bounds.cpp).
struct Alone {
  std::array<Ps, term_count>
      term{};     // with all the cores that it may have and nothing else running
  Ps rounds = 0;  // the time of its rounds, one after the other
};
Alone alone(const Loop& loop, const Span& span);
Bounds bounds_of(const Loop& loop, const std::vector<Span>& spans, Ps from);
std::string resource_name(const DeviceParams& d, std::size_t which);
Ps with_overlap(const Launch& l, const std::array<Ps, term_count>& term);

}  // namespace tk::sim
