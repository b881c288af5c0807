#include "cli/simulate_subject.h"

#include <algorithm>
#include <charconv>
#include <filesystem>
#include <map>
#include <utility>

#include "base/error.h"
#include "base/file.h"
#include "cli/subject.h"
#include "npu/kv_lengths.h"
#include "npu/lower_config.h"
#include "npu/lower_graph.h"

namespace tk::cli {
namespace {

// The smallest bucket that a batch fits into; 0: none does.
std::int64_t bucket_of(const std::string& text, std::int64_t batch) {
  std::int64_t best = 0;
  const char* p = text.data();
  const char* end = p + text.size();
  while (true) {
    std::int64_t v = 0;
    const auto [next, error] = std::from_chars(p, end, v);
    if (error != std::errc() || v < 1 || v > (1 << 24) || (next != end && *next != ','))
      throw UserError("TK1457", cat("'", text, "' is no list of buckets"))
          .help("write batches that were captured, as 1,4,8,16");
    if (v >= batch && (best == 0 || v < best)) best = v;
    p = next;
    if (p == end) return best;
    ++p;
  }
}

void stall(Step* step) {
  constexpr double stall_us = 5000;
  std::vector<KernelWork> kernels = step->kernels();
  const std::size_t middle = kernels.size() / 2;
  KernelWork k;
  k.type = "AicpuStall";
  k.module = kernels[middle].module;
  k.ai_cpu_us = stall_us;
  kernels.insert(kernels.begin() + static_cast<std::ptrdiff_t>(middle), std::move(k));
  step->set_kernels(std::move(kernels));
}

// Those of one group, where only one is asked for.
RankShape shape_of(const SimulateFlags& f, std::int64_t batch) {
  RankShape shape;
  shape.batch = batch;
  shape.kv = f.kv;
  if (f.lengths.empty()) return shape;
  const auto groups = parse_lengths(f.lengths);
  if (groups.size() > 1)
    throw UserError("TK1450",
                    cat("lengths of ", groups.size(), " groups, and one rank is simulated"))
        .help("--ranks all simulates every rank");
  shape.lengths = groups[0];
  shape.batch = static_cast<std::int64_t>(groups[0].size());
  shape.kv = mean_length(groups[0]);
  return shape;
}

}  // namespace

SimulateSubject open_subject(const SimulateFlags& f, Target target) {
  SimulateSubject s;
  if (f.model.empty())
    throw UserError("TK1410", "there is no model to simulate")
        .help("give a .pt2, a folder that optimize made, or a config.json");
  if (f.model.ends_with(".json")) {
    s.name = std::filesystem::path(f.model).stem().string();
    s.file = f.model;
    s.config = read_file(f.model);
    return s;
  }
  SubjectOptions o;
  o.target = target;
  o.prefill = f.phase == "prefill";
  o.fuse = !f.no_fuse;
  o.block_size = f.block_size;
  SubjectGraph opened = open_graph(f.model, o);
  s.name = std::move(opened.name);
  s.graph = std::move(opened.graph);
  return s;
}

std::int64_t new_tokens(const SimulateFlags& f) {
  return f.tokens.value_or(f.phase == "prefill" ? 1024 : 1);
}

// kv counts the tokens before this step's.
Step lower(const SimulateSubject& s, const SimulateFlags& f, const RankShape& shape) {
  const bool prefill = f.phase == "prefill";
  const std::int64_t query = new_tokens(f);
  const std::int64_t past = prefill ? 0 : shape.kv;
  const std::int64_t batch = shape.batch;
  for (const auto& [name, size] :
       {std::pair<const char*, std::int64_t>{"new tokens", query}, {"tp", f.tp}, {"ep", f.ep}})
    if (size < 1)
      throw UserError("TK1413", cat("the number of ", name, " is ", size))
          .help("it must be 1 or more");
  if (batch > (1 << 24) || query > (1 << 24) || shape.kv > (1 << 28))
    throw UserError("TK1413", cat("a step of ", batch, " sequences with ", query,
                                  " new tokens and ", shape.kv, " before them is too large"))
        .help("at most 2^24 sequences, 2^24 new tokens and 2^28 in the cache of each");
  Step step;
  if (s.graph) {
    StepShape size;
    size.tokens = batch * query;
    size.sequences = batch;
    size.kv_len = past + query;
    size.block_size = f.block_size;
    step =
        lower_graph(*s.graph, size, {f.tp, f.ep, f.zipf, f.streams, shape.rank, shape.all_tokens});
  } else {
    ConfigStep c;
    c.prefill = prefill;
    c.sequences = batch;
    c.query_len = query;
    c.kv_len = past;
    c.attn_tp = f.tp;
    c.ep = f.ep;
    c.attn_dp = std::max<std::int64_t>(1, f.ep / f.tp);
    c.moe_tp = f.ep == 1 ? f.tp : 1;
    c.streams = f.streams;
    c.zipf = f.zipf;
    step = lower_config(s.config, s.file, c);
  }
  if (!shape.lengths.empty() && !prefill) set_lengths(&step, shape.lengths);
  return step;
}

Scene scene_of(const SimulateSubject& s, const SimulateFlags& f, std::int64_t batch) {
  Scene scene;
  scene.model = s.name;
  scene.phase = f.phase;
  scene.batch = batch;
  scene.tokens = batch * new_tokens(f);
  scene.kv = f.phase == "prefill" ? 0 : f.kv;
  scene.tp = f.tp;
  scene.ep = f.ep;
  scene.without = f.without;
  return scene;
}

StepMoves moves_of(const SimulateFlags& f, sim::Mode mode) {
  StepMoves m;
  for (const std::string& text : f.core_limits) m.plan.limits.push_back(parse_core_limit(text));
  m.plan.dynamic = f.dynamic;
  m.superkernel = f.superkernel;
  m.prefetch = !f.prefetch.empty();
  m.prefetch_stays = f.prefetch == "on";
  // Where eager is asked for beside graph modes, or is what a miss falls back to.
  if (mode == sim::Mode::eager && f.mode != "eager") {
    m.superkernel.clear();
    m.plan.dynamic = false;
  }
  return m;
}

Simulation simulate_batch(const SimulateSubject& s, const SimulateFlags& f, const Npu& d,
                          std::int64_t batch, const Disturbance& disturbance) {
  RankShape shape = shape_of(f, batch);
  Scene scene = scene_of(s, f, shape.batch);
  scene.kv = f.phase == "prefill" ? 0 : shape.kv;
  sim::Mode mode = d.mode;
  if (!f.buckets.empty() && mode != sim::Mode::eager) {
    scene.bucket = bucket_of(f.buckets, shape.batch);
    scene.miss = scene.bucket > 0 ? "" : f.on_miss;
    if (scene.bucket > 0) {
      // Rows that pad it have no cache: the mean of all is what is there over the bucket.
      shape.kv = (shape.kv * shape.batch + scene.bucket - 1) / scene.bucket;
      shape.batch = scene.bucket;
    } else if (f.on_miss == "eager") {
      mode = sim::Mode::eager;
    } else {
      scene.once_s = f.warm_up_s;
    }
  }
  Step step = lower(s, f, shape);
  if (disturbance.stalled) stall(&step);
  StepMoves moves = moves_of(f, mode);
  moves.mhz_from = disturbance.mhz_from;
  return simulate_step(step, d.file, d.costs, mode, std::move(scene), parse_effects(f.without),
                       moves);
}

RanksSimulation simulate_all_ranks(const SimulateSubject& s, const SimulateFlags& f, const Npu& d,
                                   const Disturbance& disturbance) {
  const std::int64_t ranks = std::max(f.tp, f.ep);
  if (f.tp < 1 || f.ep < 1 || ranks % f.tp != 0 || ranks % f.ep != 0)
    throw UserError("TK1450", cat("tp ", f.tp, " and ep ", f.ep, " do not divide one another"))
        .help("ranks are the larger of both; the smaller one must divide it");
  const std::int64_t groups = ranks / f.tp;  // data-parallel ones
  std::vector<std::vector<std::int64_t>> lengths;
  if (!f.lengths.empty()) {
    lengths = parse_lengths(f.lengths);
    if (static_cast<std::int64_t>(lengths.size()) != groups)
      throw UserError("TK1450", cat("lengths of ", lengths.size(), " groups; tp ", f.tp, " and ep ",
                                    f.ep, " make ", groups))
          .help("write as many lists apart by /");
  }
  if (!f.superkernel.empty() || !f.prefetch.empty() || !f.buckets.empty())
    throw UserError("TK1456", "SuperKernel, prefetches and buckets are chosen for one rank")
        .help("leave --ranks out; all ranks run the same graph");
  std::int64_t all_tokens = 0;
  bool even = true;
  for (const auto& l : lengths) {
    all_tokens += static_cast<std::int64_t>(l.size()) * new_tokens(f);
    even = even && l.size() == lengths[0].size();
  }
  if (!s.graph && f.ep > 1 && (f.zipf > 0 || !even))
    throw UserError("TK1456", "a config's step is that of the busiest rank's experts")
        .help(
            "without --zipf and with as many sequences on all ranks it is every rank's; a captured "
            "model has the experts of each");
  const StepMoves moves = moves_of(f, d.mode);
  std::map<std::vector<std::int64_t>, int> known;  // what tells ranks apart -> its Plan
  std::vector<sim::Plan> plans;
  std::vector<int> of_rank;
  for (std::int64_t r = 0; r < ranks; ++r) {
    RankShape shape;
    shape.batch = f.batch;
    shape.kv = f.kv;
    // By this rank's batch others are taken to have as much, exactly as one rank is simulated.
    if (!even) shape.all_tokens = all_tokens;
    if (f.zipf > 0) shape.rank = r % f.ep;
    if (!lengths.empty()) {
      shape.lengths = lengths[static_cast<std::size_t>(r / f.tp)];
      shape.batch = static_cast<std::int64_t>(shape.lengths.size());
      shape.kv = mean_length(shape.lengths);
    }
    std::vector<std::int64_t> key = shape.lengths;
    key.push_back(shape.rank);
    const auto [it, fresh] = known.try_emplace(key, static_cast<int>(plans.size()));
    if (fresh) {
      Step step = lower(s, f, shape);
      if (disturbance.stalled) stall(&step);
      plans.push_back(plan_of(step, d.file, d.costs, d.mode, moves.plan));
    }
    of_rank.push_back(it->second);
  }
  sim::SimOptions options = step_options(d.mode, parse_effects(f.without));
  if (f.dynamic) options.launch_ahead = false;
  options.mhz_from = disturbance.mhz_from;
  return simulate_ranks(join_ranks(plans, of_rank), d.file, d.costs, scene_of(s, f, f.batch),
                        options);
}

}  // namespace tk::cli
