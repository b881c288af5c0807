#include "cpu/bench.h"

#include <sys/resource.h>

#include <algorithm>
#include <chrono>
#include <ctime>
#include <map>
#include <tuple>
#include <utility>

#include "base/error.h"
#include "cpu/sampling.h"

namespace tk {
namespace {

struct Clock {
  double wall = 0, cpu = 0;
  static Clock now() {
    timespec t{};
    clock_gettime(CLOCK_PROCESS_CPUTIME_ID, &t);
    return {
        std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count(),
        static_cast<double>(t.tv_sec) + static_cast<double>(t.tv_nsec) * 1e-9};
  }
};

void add(Rates* rates, std::int64_t tokens, const Clock& a, const Clock& b) {
  rates->wall.push_back(static_cast<double>(tokens) / (b.wall - a.wall));
  rates->cpu.push_back(static_cast<double>(tokens) / std::max(b.cpu - a.cpu, 1e-9));
}

class Bench {
 public:
  Bench(Runner* runner, const BenchOptions& o) : runner_(runner), o_(o) {}

  BenchResult run() {
    BenchResult r;
    const Clock start = Clock::now();
    prefill(o_.context, 1);
    r.first_token_s = Clock::now().wall - start.wall;
    close();
    // Once of everything, so that sizes are bound and pages are there.
    prefill(o_.prompt, 1);
    close();
    prefill(o_.context, o_.batch);
    decode(std::min<std::int64_t>(4, o_.gen));
    close();
    for (int i = 0; i < o_.reps; ++i) {
      const Clock a = Clock::now();
      prefill(o_.prompt, 1);
      add(&r.prefill, o_.prompt, a, Clock::now());
      close();
      prefill(o_.context, o_.batch);
      const Clock b = Clock::now();
      decode(o_.gen);
      add(&r.decode, o_.batch * o_.gen, b, Clock::now());
      if (i + 1 == o_.reps) r.decode_bytes = moved_bytes(*runner_->last_bound());
      close();
    }
    rusage usage{};
    getrusage(RUSAGE_SELF, &usage);
    r.peak_rss_bytes = usage.ru_maxrss * 1024;
    r.batch = o_.batch;
    r.threads = runner_->n_threads();
    r.prompt = o_.prompt;
    r.context = o_.context;
    r.gen = o_.gen;
    return r;
  }

  // Seconds of a step, after one that binds.
  double steps(std::int64_t batch, std::int64_t n, double* first = nullptr) {
    prefill(o_.context, batch);
    const Clock a = Clock::now();
    decode(1);
    const Clock b = Clock::now();
    decode(n);
    const Clock c = Clock::now();
    close();
    if (first != nullptr) *first = b.wall - a.wall;
    return (c.wall - b.wall) / static_cast<double>(n);
  }

  // Beside the launches, by the clocks of each.
  double host_seconds(std::int64_t batch, int n) {
    LaunchTimes times;
    prefill(o_.context, batch);
    decode(1);
    runner_->set_times(&times);
    std::vector<double> host;
    for (int i = 0; i < n; ++i) {
      decode(1);
      std::int64_t inside = 0;
      for (std::size_t k = 0; k < times.end.size(); ++k) inside += times.end[k] - times.start[k];
      host.push_back(runner_->stats().seconds - static_cast<double>(inside) * 1e-9);
    }
    runner_->set_times(nullptr);
    close();
    return median(std::move(host));
  }

 private:
  // In runs of at most max_tokens; leaves the next token of each sequence.
  void prefill(std::int64_t n, std::int64_t batch) {
    for (std::int64_t row = 0; row < batch; ++row) {
      const std::vector<std::int64_t> ids = bench_prompt(n, runner_->vocab(), row);
      const SeqId seq = runner_->open();
      seqs_.push_back(seq);
      std::int64_t next = 0;
      for (std::int64_t done = 0; done < n;) {
        const std::int64_t m = std::min(n - done, runner_->options().max_tokens);
        const Piece piece{seq, {ids.data() + done, static_cast<std::size_t>(m)}};
        next = sampler_.sample(runner_->run({&piece, 1}, Phase::prefill).row(0), {}, 0);
        done += m;
      }
      next_.push_back(next);
    }
  }

  void decode(std::int64_t steps) {
    std::vector<Piece> pieces(seqs_.size());
    for (std::int64_t s = 0; s < steps; ++s) {
      for (std::size_t i = 0; i < seqs_.size(); ++i) pieces[i] = {seqs_[i], {&next_[i], 1}};
      const Logits& logits = runner_->run(pieces, Phase::decode);
      for (std::size_t i = 0; i < seqs_.size(); ++i)
        next_[i] = sampler_.sample(logits.row(static_cast<std::int64_t>(i)), {}, 0);
    }
  }

  void close() {
    for (const SeqId s : seqs_) runner_->close(s);
    seqs_.clear();
    next_.clear();
  }

  Runner* runner_;
  BenchOptions o_;
  Sampler sampler_;
  std::vector<SeqId> seqs_;
  std::vector<std::int64_t> next_;
};

std::string list(const std::vector<double>& values) {
  std::string s = "[";
  for (const double v : values) s += cat(s.size() > 1 ? ", " : "", v);
  return s + "]";
}

}  // namespace

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  const std::size_t n = v.size();
  return n % 2 == 1 ? v[n / 2] : (v[n / 2 - 1] + v[n / 2]) / 2;
}

std::string BenchResult::json() const {
  return cat(
      "{\"engine\": \"tokamak\", \"load_s\": ", load_s, ", \"first_token_s\": ", first_token_s,
      ", \"prefill_tok_s\": ", list(prefill.wall), ", \"prefill_tok_cpu_s\": ", list(prefill.cpu),
      ", \"prefill_median\": ", median(prefill.wall),
      ", \"prefill_cpu_median\": ", median(prefill.cpu), ", \"decode_tok_s\": ", list(decode.wall),
      ", \"decode_tok_cpu_s\": ", list(decode.cpu), ", \"decode_median\": ", median(decode.wall),
      ", \"decode_cpu_median\": ", median(decode.cpu), ", \"batch\": ", batch,
      ", \"threads\": ", threads, ", \"prompt\": ", prompt, ", \"context\": ", context,
      ", \"gen\": ", gen, ", \"peak_rss_bytes\": ", peak_rss_bytes,
      ", \"decode_bytes\": ", decode_bytes,
      ", \"decode_bandwidth_share\": ", decode_bandwidth_share, "}");
}

std::vector<std::int64_t> bench_prompt(std::int64_t n, std::int64_t vocab, std::int64_t row) {
  // As the peers' prompt_ids; a vocabulary too small for the offset starts at 0.
  const std::int64_t v = std::min<std::int64_t>(vocab, 32000);
  const std::int64_t first = v > 400 ? 100 : 0;
  const std::int64_t span = v > 400 ? v - 200 : v;
  std::vector<std::int64_t> ids;
  ids.reserve(static_cast<std::size_t>(n));
  for (std::int64_t i = 0; i < n; ++i) ids.push_back(first + (i * 7919 + row * 104729) % span);
  return ids;
}

BenchResult bench(Runner* runner, const BenchOptions& o) {
  for (const std::int64_t v : {o.prompt, o.context, o.gen, o.batch, std::int64_t{o.reps}})
    if (v < 1)
      throw UserError("TK0518",
                      cat("prompt, context, gen, batch and reps must be 1 or more, got ", v));
  if (o.batch > runner->options().max_batch)
    throw UserError("TK0518", cat("a batch of ", o.batch, " is larger than the runner's limit of ",
                                  runner->options().max_batch));
  return Bench(runner, o).run();
}

std::vector<StepCost> compare_steps(std::span<Runner* const> runners,
                                    std::span<const std::string> names, const BenchOptions& o) {
  std::vector<StepCost> out;
  for (std::size_t i = 0; i < runners.size(); ++i) {
    StepCost cost;
    cost.name = names[i];
    cost.host_seconds =
        Bench(runners[i], o)
            .host_seconds(o.batch, static_cast<int>(std::min<std::int64_t>(o.gen, 9)));
    cost.launches = static_cast<std::int64_t>(runners[i]->last_bound()->list.launches.size());
    out.push_back(std::move(cost));
  }
  for (int rep = 0; rep < o.reps; ++rep)
    for (std::size_t i = 0; i < runners.size(); ++i)
      out[i].seconds.push_back(Bench(runners[i], o).steps(o.batch, o.gen));
  return out;
}

BucketCosts measure_bucket_costs(Runner* runner, const BenchOptions& o) {
  std::map<std::int64_t, double> seconds;
  std::vector<double> plans;
  const std::int64_t most = runner->options().max_batch;
  for (std::int64_t batch = 1;; batch = std::min(batch * 2, most)) {
    Bench b(runner, o);
    double first = 0;
    b.steps(batch, 1, &first);  // this one makes the plan
    const double step = b.steps(batch, o.gen);
    seconds[batch] = step;
    plans.push_back(std::max(first - step, 0.0));
    if (batch == most) break;
  }
  return {.seconds = linear_between(std::move(seconds)), .plan_seconds = median(std::move(plans))};
}

void relate_to_bandwidth(BenchResult* r, double bytes_per_s) {
  const double steps_per_s = median(r->decode.wall) / static_cast<double>(r->batch);
  r->decode_bandwidth_share = static_cast<double>(r->decode_bytes) * steps_per_s / bytes_per_s;
}

std::vector<LaunchRow> decode_launches(Runner* runner, const BenchOptions& options) {
  std::map<std::pair<std::string, std::string>, LaunchRow> rows;
  std::map<std::pair<std::string, std::string>, std::vector<double>> seconds;
  const auto before = std::exchange(runner->on_run, [&](const Bound& b, const LaunchTimes& t) {
    if (runner->stats().phase != Phase::decode) return;
    rows.clear();  // the last step's
    for (std::size_t i = 0; i < b.list.launches.size(); ++i) {
      const Launch& l = b.list.launches[i];
      LaunchRow& r = rows[{std::string(l.node->op->name), l.kernel}];
      ++r.launches;
      r.bytes += l.bytes + (l.live_bytes != nullptr ? l.live_bytes(l.args) : 0);
      r.seconds += static_cast<double>(t.end[i] - t.start[i]) * 1e-9;
    }
    for (const auto& [key, r] : rows) seconds[key].push_back(r.seconds);
  });
  BenchOptions once = options;
  once.reps = 1;
  bench(runner, once);
  runner->on_run = before;
  std::vector<LaunchRow> out;
  for (auto& [key, r] : rows) {
    std::tie(r.op, r.kernel) = key;
    r.seconds = median(seconds[key]);
    out.push_back(std::move(r));
  }
  std::stable_sort(out.begin(), out.end(),
                   [](const LaunchRow& a, const LaunchRow& b) { return a.seconds > b.seconds; });
  return out;
}

std::int64_t moved_bytes(const Bound& bound) {
  std::int64_t bytes = 0;
  for (const Launch& l : bound.list.launches)
    bytes += l.bytes + (l.live_bytes != nullptr ? l.live_bytes(l.args) : 0);
  return bytes;
}

}  // namespace tk
