// Launches a second of the simulator on one core (VN-82): sim_bench [launches]
#include <sys/resource.h>

#include <cstdio>
#include <cstdlib>
#include <ctime>

#include "npu/sim/search.h"

namespace {

using namespace tk::sim;

// Decode-like: small kernels between matrix products that read their weights, on `streams` streams
// that wait for each other now and then.
Plan decode_like(int launches, int streams, bool memory) {
  Plan p;
  p.streams.resize(static_cast<std::size_t>(streams));
  std::int64_t address = 0;
  std::int32_t event = 0;
  for (int i = 0; i < launches; ++i) {
    Launch l;
    l.stream = i % streams;
    const bool cube = i % 3 == 0;
    l.engine = cube ? Engine::ai_core : Engine::ai_vector;
    l.blocks = cube ? 20 : (i % 3 == 1 ? 40 : 8);
    (cube ? l.cube_cycles : l.vector_cycles) = 2000 + i % 7 * 300;
    l.head = 1'000'000;
    if (memory) {
      const std::int64_t act = std::int64_t{i % 16} << 16;
      if (cube) {
        l.accesses = append(
            p.accesses, {Access{act, 1 << 16, false}, Access{(1 << 20) + address, 8 << 20, false},
                         Access{act + (1 << 16), 1 << 16, true}});
        address = (address + (8 << 20)) % (std::int64_t{40} << 30);
      } else {
        l.accesses = append(p.accesses,
                            {Access{act, 1 << 16, false}, Access{act + (1 << 16), 1 << 16, true}});
      }
    }
    if (streams > 1 && i % 8 == 0) l.records = append(p.events, {event});
    if (streams > 1 && i % 8 == 5) l.waits = append(p.events, {event++});
    p.launches.push_back(l);
  }
  return p;
}

void time_it(const char* what, const Plan& p) {
  double best = 1e9;
  Result r;
  for (int k = 0; k < 5; ++k) {
    const std::clock_t t0 = std::clock();  // of this process: others on the machine do not count
    r = simulate(p, {});
    const double s = static_cast<double>(std::clock() - t0) / CLOCKS_PER_SEC;
    best = s < best ? s : best;
  }
  const auto n = static_cast<double>(p.launches.size());
  std::printf("%-44s %8.0f launches/s  %9.0f events/s  %7.3f ms  simulated %.1f us\n", what,
              n / best, static_cast<double>(r.events) / best, best * 1e3,
              static_cast<double>(r.total) / 1e6);
}

// A thousand candidates that differ in one launch, anywhere (VN-83).
void time_search() {
  const Plan base = decode_like(5000, 2, true);
  const std::clock_t t0 = std::clock();
  Search search(base, {});
  std::int64_t reused = 0;
  for (int k = 0; k < 1000; ++k) {
    Plan c = base;
    c.launches[static_cast<std::size_t>(k) * 5].vector_limit = 16;
    search.simulate(c);
    reused += search.reused();
  }
  std::printf(
      "1000 candidates of that step                 %8.3f s, %lld launches of each reused\n",
      static_cast<double>(std::clock() - t0) / CLOCKS_PER_SEC,
      static_cast<long long>(reused / 1000));
}

long peak_kib() {
  rusage u{};
  getrusage(RUSAGE_SELF, &u);
  return u.ru_maxrss;
}

// What a simulation takes beside its Plan, at its peak.
void weigh(int n) {
  const Plan p = decode_like(n, 1, true);
  const long before = peak_kib();
  const Result r = simulate(p, {});
  std::printf("memory %ld B a launch (a span is %zu)\n", (peak_kib() - before) * 1024 / n,
              sizeof(Span));
}

}  // namespace

int main(int argc, char** argv) {
  const int n = argc > 1 ? std::atoi(argv[1]) : 200'000;
  weigh(n);
  time_it("one stream, compute only", decode_like(n, 1, false));
  time_it("one stream, with memory and L2", decode_like(n, 1, true));
  time_it("four streams, compute only", decode_like(n, 4, false));
  time_it("four streams, with memory and L2", decode_like(n, 4, true));
  time_it("a step: 5000 launches, two streams", decode_like(5000, 2, true));
  time_search();
  return 0;
}
