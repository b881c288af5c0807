// simulation.json and the texts made of it.
#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <set>

#include "base/error.h"
#include "npu/simulation.h"

namespace tk {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::size_t most_of_path = 200;  // launches of the critical path that are written

double us(sim::Ps ps) { return static_cast<double>(ps) / 1e6; }

Json read(const std::string& text, const std::string& name) {
  Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("step_ms") || !j["step_ms"].is_number() ||
      !j.contains("kernels") || !j["kernels"].is_array() || !j.contains("idle_us"))
    throw UserError("TK1420", cat(name, " is no simulation"))
        .help("give the folder that tokamak simulate -o wrote, or its simulation.json");
  return j;
}

std::map<std::string, double> times_of(const Json& j, const std::string& name) {
  std::map<std::string, double> out;
  for (const Json& k : j["kernels"]) {
    if (!k.is_object() || !k.contains("type") || !k["type"].is_string() || !k.contains("us") ||
        !k["us"].is_number())
      throw UserError("TK1420", cat(name, " has a kernel without type and us"));
    out[k["type"].get<std::string>()] += k["us"].get<double>();
  }
  for (const auto& [cause, time] : j["idle_us"].items())
    if (time.is_number()) out["idle: " + cause] += time.get<double>();
  return out;
}

}  // namespace

std::string to_json(const Simulation& s) {
  Json j;
  j["kind"] = "simulated";
  j["model_version"] = 1;
  j["device"] = s.device;
  j["cost_id"] = s.cost_id;
  j["scene"] = {{"model", s.scene.model}, {"phase", s.scene.phase},   {"mode", s.scene.mode},
                {"batch", s.scene.batch}, {"tokens", s.scene.tokens}, {"kv", s.scene.kv},
                {"tp", s.scene.tp},       {"ep", s.scene.ep},         {"without", s.scene.without}};
  if (s.scene.bucket > 0) j["scene"]["bucket"] = s.scene.bucket;
  if (!s.scene.miss.empty())
    j["scene"]["bucket_miss"] = {{"then", s.scene.miss}, {"once_s", s.scene.once_s}};
  j["step_ms"] = s.step_ms();
  j["band"] = {{"kind", s.band.kind},
               {"cases", s.band.cases},
               {"in_sample", true},  // the costs were fitted to the same cases
               {"median_error", s.band.median},
               {"p90_error", s.band.p90},
               {"low_ms", s.step_ms() / (1 + s.band.p90)},
               {"high_ms", s.step_ms() * (1 + s.band.p90)}};
  const sim::Bounds& b = s.result.bounds;
  j["bounds_of_two_steps_ms"] = {{"critical_path", us(b.critical_path) / 1e3},
                                 {"busiest", us(b.busiest) / 1e3},
                                 {"busiest_resource", b.busiest_name},
                                 {"serial", us(b.serial) / 1e3},
                                 {"total", us(s.result.total) / 1e3}};
  j["kernels"] = Json::array();
  for (const KernelSum& k : s.kernels)
    j["kernels"].push_back({{"type", k.type},
                            {"family", k.family},
                            {"launches", k.launches},
                            {"us", k.us},
                            {"bound", k.bound}});
  j["idle_us"] = Json::object();
  for (const auto& [cause, time] : s.idle_us) j["idle_us"][cause] = time;
  j["streams_of_two_steps"] = Json::array();
  for (std::size_t i = 0; i < s.result.stream_busy.size(); ++i) {
    Json stream = {{"stream", i}, {"busy_us", us(s.result.stream_busy[i])}};
    Json idle = Json::object();
    for (std::size_t c = 0; c < sim::cause_count; ++c)
      if (s.result.idle[i][c] > 0)
        idle[std::string(sim::cause_name(static_cast<sim::Cause>(c)))] = us(s.result.idle[i][c]);
    stream["idle_us"] = idle;
    j["streams_of_two_steps"].push_back(stream);
  }
  j["resources_of_two_steps"] = Json::array();
  for (const sim::ResourceUse& r : s.result.resources)
    j["resources_of_two_steps"].push_back({{"name", r.name},
                                           {"rank", r.rank},
                                           {"busy_us", us(r.busy)},
                                           {"amount", r.amount},
                                           {"capacity", r.capacity}});
  j["l2"] = {{"hit_bytes", s.result.l2_hit},
             {"miss_bytes", s.result.l2_miss},
             {"evicted_dirty_bytes", s.result.l2_evicted_dirty}};
  j["memory"] = {{"weight_bytes", s.weight_bytes},
                 {"cache_bytes", s.state_bytes},
                 {"hbm_bytes", s.hbm_bytes},
                 {"device_bytes", s.memory_bytes}};
  j["prefetches"] = Json::array();
  for (const sim::PrefetchUse& p : s.result.prefetches)
    j["prefetches"].push_back({{"launch", p.launch},
                               {"bytes", p.bytes},
                               {"used", p.used},
                               {"evicted_unused", p.evicted_unused},
                               {"resident", p.resident}});
  j["gains"] = Json::array();
  for (const StepGain& g : s.gains)
    j["gains"].push_back({{"what", g.what},
                          {"detail", g.detail},
                          {"before_ms", g.before_ms},
                          {"after_ms", g.after_ms},
                          {"gain", g.gain()},
                          {"low", g.low},
                          {"high", g.high},
                          {"verdict", g.verdict}});
  j["default_rule_launches"] = s.default_rules;
  Json path = Json::array();
  const std::size_t n = s.result.critical_path.size();
  for (std::size_t i = n > most_of_path ? n - most_of_path : 0; i < n; ++i) {
    const sim::Span& span = s.result.spans[static_cast<std::size_t>(s.result.critical_path[i])];
    const sim::LaunchText& text = s.plan.texts[static_cast<std::size_t>(
        s.plan.launches[static_cast<std::size_t>(span.launch)].text)];
    path.push_back({{"kernel", text.name},
                    {"module", text.module},
                    {"start_us", us(span.start)},
                    {"us", us(span.end - span.start)},
                    {"after", sim::cause_name(span.blocked_by)}});
  }
  j["critical_path_launches"] = n;
  j["critical_path_end"] = path;
  return j.dump(1) + "\n";
}

std::string explain_text(const Simulation& s, const DeviceFile& device, const CostFile& costs,
                         std::string_view kernel) {
  std::string out;
  std::set<std::string> types;
  std::size_t shown = 0;
  for (const sim::Span& span : s.spans) {
    const sim::Launch& l = s.plan.launches[static_cast<std::size_t>(span.launch)];
    const sim::LaunchText& t = s.plan.texts[static_cast<std::size_t>(l.text)];
    types.insert(t.type);
    if (t.name != kernel && t.type != kernel) continue;
    if (++shown > 3) continue;
    out += fmt::format(
        "{}  {}\n  {}  {}\n  start {:.3f} us in the step, {:.3f} us long, {} cube "
        "and {} vector cores, {} wave(s)\n",
        t.name, t.module, t.place, t.in_shapes, us(span.start - s.begin), us(span.end - span.start),
        span.cubes, span.vectors, span.waves);
    out += fmt::format("  {:<12} {:>10.3f} us\n", "head", us(span.head));
    const auto alone = sim::terms_alone(s.plan, s.params, s.options, span);
    for (std::size_t i = 0; i < sim::term_count; ++i)
      if (span.term[i] > 0 || alone[i] > 0)
        out += fmt::format("  {:<12} {:>10.3f} us{}\n", sim::term_name(static_cast<sim::Term>(i)),
                           us(span.term[i]),
                           alone[i] > 0 && alone[i] < span.term[i]
                               ? fmt::format("  ({:.3f} us alone)", us(alone[i]))
                               : "");
    out += fmt::format(
        "  bytes        HBM {} read, {} written; L2 {} moved, {} of them found there\n"
        "  cycles       cube {} and vector {} a block, {} blocks\n",
        span.hbm_read, span.hbm_write, span.l2_bytes, span.l2_hit, l.cube_cycles, l.vector_cycles,
        l.blocks);
    for (std::size_t i = 0; i < sim::cause_count; ++i)
      if (span.idle[i] > 0)
        out += fmt::format("  waited       {:.3f} us: {}\n", us(span.idle[i]),
                           sim::cause_name(static_cast<sim::Cause>(i)));
  }
  if (shown == 0) {
    std::string all;
    for (const std::string& t : types) all += cat(all.empty() ? "" : ", ", t);
    throw UserError("TK1419", cat("there is no kernel '", kernel, "' in this step"))
        .help(cat("its types are ", all));
  }
  if (shown > 3) out += fmt::format("and {} more\n", shown - 3);
  out += "where the numbers come from\n";
  const auto cite = [&](const Facts& facts, std::initializer_list<std::string_view> names) {
    for (const Fact& f : facts.all)
      if (std::find(names.begin(), names.end(), f.name) != names.end())
        out += fmt::format("  {:<26} {:>10g} {}: {} [{}]\n", f.name, f.value, f.unit, f.source,
                           f.certainty);
  };
  cite(device.numbers, {"cube_cores", "vector_cores", "mhz", "cube_flop_cycle", "hbm_tb_s",
                        "l2_tb_s", "core_hbm_read", "vector_bytes_cycle"});
  cite(costs.numbers,
       {"hbm_read_share", "hbm_write_share", "hbm_mixed_share", "cube_efficiency",
        "cube_attention_efficiency", "vector_efficiency", "grouped_read_share", "head_cube_us",
        "head_mix_us", "head_attention_us", "head_norm_us", "head_vector_us", "head_vector_many_us",
        "head_sort_us", "link_share", "collective_setup_us"});
  return out;
}

std::string compare_text(const std::string& a_json, const std::string& a_name,
                         const std::string& b_json, const std::string& b_name) {
  const Json a = read(a_json, a_name);
  const Json b = read(b_json, b_name);
  const double ta = a["step_ms"].get<double>();
  const double tb = b["step_ms"].get<double>();
  std::string out = fmt::format("A {:.3f} ms  {}\nB {:.3f} ms  {}\n", ta, a_name, tb, b_name);
  const double ratio = ta > 0 ? tb / ta : 0;
  const Band band = band_of("ratio");
  const bool pending = band.cases == 0 || std::abs(std::log(ratio)) < std::log1p(band.p90);
  out += fmt::format("B / A {:.3f}: {}\n", ratio,
                     !pending ? (ratio < 1 ? "B is faster" : "A is faster")
                     : band.cases == 0
                         ? "pending, the error of such a ratio is not known"
                         : fmt::format("pending, the difference is below the band: 9 of 10 of {} "
                                       "published ratios were off by at most {:.0f} %",
                                       band.cases, 100 * band.p90));
  std::map<std::string, double> sum;
  for (const auto& [name, time] : times_of(a, a_name)) sum[name] -= time;
  for (const auto& [name, time] : times_of(b, b_name)) sum[name] += time;
  std::vector<std::pair<std::string, double>> rows(sum.begin(), sum.end());
  std::stable_sort(rows.begin(), rows.end(), [](const auto& x, const auto& y) {
    return std::abs(x.second) > std::abs(y.second);
  });
  out += "where the difference is (B - A)\n";
  int shown = 0;
  for (const auto& [name, time] : rows) {
    if (std::abs(time) < 0.05 || ++shown > 12) break;
    out += fmt::format("  {:<32} {:>+12.1f} us\n", name, time);
  }
  if (shown == 0) out += "  nowhere\n";
  return out;
}

}  // namespace tk
