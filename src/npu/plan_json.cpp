#include "npu/plan_json.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <nlohmann/json.hpp>
#include <span>
#include <string_view>

#include "base/error.h"
#include "npu/simulation.h"

namespace tk {
namespace {

using Json = nlohmann::ordered_json;

constexpr std::string_view engines[] = {"ai_core", "ai_vector",     "mix_aic", "mix_aiv",
                                        "ai_cpu",  "communication", "dma",     "prefetch"};
constexpr std::string_view kinds[] = {"all_reduce", "reduce_scatter", "all_gather", "all_to_all",
                                      "broadcast",  "send_recv",      "dispatch",   "combine"};
constexpr std::string_view algorithms[] = {"fastest", "ring", "mesh", "halving_doubling",
                                           "hierarchical"};
constexpr std::string_view collective_engines[] = {"sdma", "aiv", "ai_cpu"};

template <typename E>
std::string_view name_of(E e, std::span<const std::string_view> names) {
  return names[static_cast<std::size_t>(e)];
}

double us(sim::Ps ps) { return static_cast<double>(ps) / 1e6; }

// An object of the file, with what it is called in errors; fields that nobody asked for are errors.
class Object {
 public:
  Object(const Json& j, std::string where, const std::string& file)
      : j_(j), where_(std::move(where)), file_(file) {
    if (!j.is_object()) fail(cat("is ", j.type_name(), "; an object is expected"));
  }

  template <typename Int>
  void number(const char* name, Int* to, std::int64_t least, std::int64_t most) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_number_integer() || v->get<std::int64_t>() < least || v->get<std::int64_t>() > most)
      fail(cat("'", name, "' is ", v->dump(), "; a whole number from ", least, " to ", most,
               " is expected"));
    *to = static_cast<Int>(v->get<std::int64_t>());
  }
  void time(const char* name, sim::Ps* to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_number() || !(v->get<double>() >= 0) || v->get<double>() > 1e12)
      fail(cat("'", name, "' is ", v->dump(), "; microseconds are expected"));
    *to = std::llround(v->get<double>() * 1e6);
  }
  void text(const char* name, std::string* to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_string()) fail(cat("'", name, "' is ", v->type_name(), "; a text is expected"));
    *to = v->get<std::string>();
  }
  void flag(const char* name, bool* to) {
    const Json* v = find(name);
    if (v == nullptr) return;
    if (!v->is_boolean()) fail(cat("'", name, "' is ", v->type_name(), "; true or false"));
    *to = v->get<bool>();
  }
  template <typename E>
  void choice(const char* name, std::span<const std::string_view> names, E* to) {
    std::string said;
    text(name, &said);
    if (said.empty()) return;
    const auto it = std::find(names.begin(), names.end(), said);
    if (it == names.end()) {
      std::string all;
      for (const std::string_view n : names) all += cat(all.empty() ? "" : ", ", n);
      fail(cat("'", name, "' is '", said, "'; one of ", all, " is expected"));
    }
    *to = static_cast<E>(it - names.begin());
  }
  template <typename Int>
  std::vector<Int> numbers(const char* name) {
    std::vector<Int> out;
    for (const Json& v : list(name)) {
      if (!v.is_number_integer()) fail(cat("'", name, "' has ", v.dump(), ", no whole number"));
      out.push_back(static_cast<Int>(v.get<std::int64_t>()));
    }
    return out;
  }
  const Json& list(const char* name) {
    static const Json empty = Json::array();
    const Json* v = find(name);
    if (v == nullptr) return empty;
    if (!v->is_array()) fail(cat("'", name, "' is ", v->type_name(), "; a list is expected"));
    return *v;
  }
  void end() const {
    for (const auto& [name, v] : j_.items())
      if (std::find(seen_.begin(), seen_.end(), name) == seen_.end())
        fail(cat("there is no field '", name, "'"));
  }
  [[noreturn]] void fail(const std::string& what) const {
    throw UserError("TK1454", cat(file_, ": ", where_, ": ", what))
        .help(
            "simulate --write-plan makes such a file; its fields are in docs/commands/simulate.md");
  }

 private:
  const Json* find(const char* name) {
    seen_.emplace_back(name);
    const auto it = j_.find(name);
    return it == j_.end() ? nullptr : &*it;
  }
  const Json& j_;
  std::string where_;
  const std::string& file_;
  std::vector<std::string> seen_;
};

constexpr std::int64_t most_index = 1 << 28;
constexpr std::int64_t most_amount = std::int64_t{1} << 48;

sim::Launch launch_from(const Json& j, std::size_t i, const std::string& file, sim::Plan* plan) {
  Object o(j, cat("launch ", i), file);
  sim::Launch l;
  sim::LaunchText t;
  o.number("stream", &l.stream, 0, most_index);
  o.choice("engine", engines, &l.engine);
  o.number("blocks", &l.blocks, 0, most_index);
  o.number("vectors_per_cube", &l.vectors_per_cube, 1, 2);
  o.flag("gang", &l.gang);
  o.flag("host_sync", &l.host_sync);
  o.number("cube_limit", &l.cube_limit, 0, most_index);
  o.number("vector_limit", &l.vector_limit, 0, most_index);
  for (const auto& [name, to] : std::initializer_list<std::pair<const char*, std::int64_t*>>{
           {"cube_cycles", &l.cube_cycles},
           {"vector_cycles", &l.vector_cycles},
           {"hbm_read", &l.hbm_read},
           {"hbm_write", &l.hbm_write},
           {"l2_bytes", &l.l2_bytes},
           {"link_bytes", &l.link_bytes}})
    o.number(name, to, 0, most_amount);
  o.time("head_us", &l.head);
  o.time("tail_us", &l.tail);
  o.time("fixed_us", &l.fixed);
  o.time("host_us", &l.host);
  o.time("dispatch_us", &l.dispatch);
  o.number("overlap_ppm", &l.overlap_ppm, 0, 1'000'000);
  o.number("collective", &l.collective, 0, most_index);
  o.number("segment", &l.segment, 0, most_index);
  l.waits = sim::append(plan->events, o.numbers<std::int32_t>("waits"));
  l.records = sim::append(plan->events, o.numbers<std::int32_t>("records"));
  l.inner_waits = sim::append(plan->events, o.numbers<std::int32_t>("inner_waits"));
  std::vector<sim::Access> accesses;
  for (const Json& a : o.list("accesses")) {
    const bool good = a.is_array() && a.size() == 3 && a[0].is_number_integer() &&
                      a[1].is_number_integer() && (a[2] == "r" || a[2] == "w");
    if (!good) o.fail(cat("an access is ", a.dump(), "; [address, bytes, \"r\" or \"w\"]"));
    accesses.push_back({a[0].get<std::int64_t>(), a[1].get<std::int64_t>(), a[2] == "w"});
  }
  l.accesses = sim::append(plan->accesses, accesses);
  o.text("name", &t.name);
  o.text("type", &t.type);
  o.text("module", &t.module);
  o.text("place", &t.place);
  o.end();
  if (t.name.empty()) t.name = cat("launch_", i);
  if (t.type.empty()) t.type = std::string(name_of(l.engine, engines));
  l.text = static_cast<std::int32_t>(plan->texts.size());
  plan->texts.push_back(std::move(t));
  return l;
}

Json launch_json(const sim::Plan& p, const sim::Launch& l) {
  const sim::Launch plain;
  Json j;
  if (l.text != sim::none) {
    const sim::LaunchText& t = p.texts[static_cast<std::size_t>(l.text)];
    j["name"] = t.name;
    j["type"] = t.type;
    if (!t.module.empty()) j["module"] = t.module;
    if (!t.place.empty()) j["place"] = t.place;
  }
  j["stream"] = l.stream;
  j["engine"] = name_of(l.engine, engines);
  j["blocks"] = l.blocks;
  const auto put = [&](const char* name, std::int64_t v, std::int64_t otherwise) {
    if (v != otherwise) j[name] = v;
  };
  const auto put_time = [&](const char* name, sim::Ps v, sim::Ps otherwise) {
    if (v != otherwise) j[name] = us(v);
  };
  const auto put_events = [&](const char* name, const sim::Slice& s) {
    for (std::int32_t k = 0; k < s.count; ++k)
      j[name].push_back(p.events[static_cast<std::size_t>(s.begin) + static_cast<std::size_t>(k)]);
  };
  put("vectors_per_cube", l.vectors_per_cube, plain.vectors_per_cube);
  if (l.gang) j["gang"] = true;
  if (l.host_sync) j["host_sync"] = true;
  put("cube_limit", l.cube_limit, 0);
  put("vector_limit", l.vector_limit, 0);
  put("cube_cycles", l.cube_cycles, 0);
  put("vector_cycles", l.vector_cycles, 0);
  put("hbm_read", l.hbm_read, 0);
  put("hbm_write", l.hbm_write, 0);
  put("l2_bytes", l.l2_bytes, 0);
  put("link_bytes", l.link_bytes, 0);
  put_time("head_us", l.head, 0);
  put_time("tail_us", l.tail, 0);
  put_time("fixed_us", l.fixed, 0);
  put_time("host_us", l.host, plain.host);
  put_time("dispatch_us", l.dispatch, plain.dispatch);
  put("overlap_ppm", l.overlap_ppm, 0);
  put("collective", l.collective, sim::none);
  put("segment", l.segment, sim::none);
  put_events("waits", l.waits);
  put_events("records", l.records);
  put_events("inner_waits", l.inner_waits);
  for (std::int32_t k = 0; k < l.accesses.count; ++k) {
    const sim::Access& a =
        p.accesses[static_cast<std::size_t>(l.accesses.begin) + static_cast<std::size_t>(k)];
    j["accesses"].push_back(Json::array({a.address, a.bytes, a.write ? "w" : "r"}));
  }
  return j;
}

}  // namespace

std::string plan_to_json(const sim::Plan& p) {
  Json j;
  j["mode"] = mode_name(p.mode);
  j["devices"] = p.devices;
  if (p.host_tiles) j["host_tiles"] = true;
  j["input_bytes"] = p.input_bytes;
  j["updates"] = p.updates;
  for (const sim::Stream& s : p.streams)
    j["streams"].push_back({{"rank", s.rank},
                            {"priority", s.priority},
                            {"cube_limit", s.cube_limit},
                            {"vector_limit", s.vector_limit}});
  j["groups"] = Json::array();
  for (const sim::Group& g : p.groups) j["groups"].push_back(g.devices);
  j["traffic"] = Json::array();
  for (const sim::Traffic& t : p.traffic) j["traffic"].push_back(t.bytes);
  j["segments"] = Json::array();
  for (const sim::Segment& s : p.segments)
    j["segments"].push_back(
        {{"name", s.name}, {"preload", s.preload}, {"stream_fusion", s.stream_fusion}});
  j["collectives"] = Json::array();
  for (const sim::Collective& c : p.collectives) {
    Json one = {{"kind", name_of(c.kind, kinds)}, {"group", c.group}, {"bytes", c.bytes}};
    if (c.algorithm != sim::Algorithm::fastest) one["algorithm"] = name_of(c.algorithm, algorithms);
    if (c.engine != sim::CollectiveEngine::sdma)
      one["engine"] = name_of(c.engine, collective_engines);
    if (c.traffic != sim::none) one["traffic"] = c.traffic;
    j["collectives"].push_back(std::move(one));
  }
  j["launches"] = Json::array();
  for (const sim::Launch& l : p.launches) j["launches"].push_back(launch_json(p, l));
  return j.dump(1) + "\n";
}

sim::Plan plan_from_json(const std::string& text, const std::string& file) {
  const Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded())
    throw UserError("TK1454", cat(file, " is no JSON")).help("simulate --write-plan makes a Plan");
  Object o(j, "the Plan", file);
  sim::Plan p;
  std::string mode = "ge_graph";
  o.text("mode", &mode);
  p.mode = parse_mode(mode);
  if (j.contains("devices")) p.devices = o.numbers<std::int32_t>("devices");
  o.flag("host_tiles", &p.host_tiles);
  o.number("input_bytes", &p.input_bytes, 0, most_amount);
  o.number("updates", &p.updates, 0, most_index);
  for (const Json& v : o.list("streams")) {
    Object s(v, cat("stream ", p.streams.size()), file);
    sim::Stream& to = p.streams.emplace_back();
    s.number("rank", &to.rank, 0, most_index);
    s.number("priority", &to.priority, -most_index, most_index);
    s.number("cube_limit", &to.cube_limit, 0, most_index);
    s.number("vector_limit", &to.vector_limit, 0, most_index);
    s.end();
  }
  const auto numbers = [&](const Json& v, auto* to, const std::string& what) {
    const Json wrapped = {{"list", v}};
    Object w(wrapped, what, file);
    *to = w.numbers<typename std::decay_t<decltype(*to)>::value_type>("list");
  };
  for (const Json& v : o.list("groups")) {
    p.groups.emplace_back();
    numbers(v, &p.groups.back().devices, cat("group ", p.groups.size() - 1));
  }
  for (const Json& v : o.list("traffic")) {
    p.traffic.emplace_back();
    numbers(v, &p.traffic.back().bytes, cat("traffic ", p.traffic.size() - 1));
  }
  for (const Json& v : o.list("segments")) {
    Object s(v, cat("segment ", p.segments.size()), file);
    sim::Segment& to = p.segments.emplace_back();
    s.text("name", &to.name);
    s.flag("preload", &to.preload);
    s.flag("stream_fusion", &to.stream_fusion);
    s.end();
  }
  for (const Json& v : o.list("collectives")) {
    Object c(v, cat("collective ", p.collectives.size()), file);
    sim::Collective& to = p.collectives.emplace_back();
    c.choice("kind", kinds, &to.kind);
    c.choice("algorithm", algorithms, &to.algorithm);
    c.choice("engine", collective_engines, &to.engine);
    c.number("group", &to.group, 0, most_index);
    c.number("bytes", &to.bytes, 0, most_amount);
    c.number("traffic", &to.traffic, 0, most_index);
    c.end();
  }
  for (const Json& v : o.list("launches"))
    p.launches.push_back(launch_from(v, p.launches.size(), file, &p));
  o.end();
  if (p.launches.empty()) o.fail("there are no launches");
  return p;
}

std::string plan_run_text(const sim::Plan& p, const sim::Result& r) {
  constexpr std::size_t most_shown = 40;
  std::string out = fmt::format("simulated       {:.3f} us, {} launches on {} ranks\n", us(r.total),
                                p.launches.size(), p.devices.size());
  out += fmt::format("bounds          critical path {:.3f} us, {} {:.3f} us, serial {:.3f} us\n",
                     us(r.bounds.critical_path), r.bounds.busiest_name, us(r.bounds.busiest),
                     us(r.bounds.serial));
  for (std::size_t k = 0; k < p.streams.size(); ++k) {
    out += fmt::format("stream {:<8} rank {}, busy {:.3f} us; idle", k, p.streams[k].rank,
                       us(r.stream_busy[k]));
    for (std::size_t c = 0; c < sim::cause_count; ++c)
      if (r.idle[k][c] > 0)
        out += fmt::format(" {} {:.3f}", sim::cause_name(static_cast<sim::Cause>(c)),
                           us(r.idle[k][c]));
    out += '\n';
  }
  std::vector<const sim::Span*> spans;
  spans.reserve(r.spans.size());
  for (const sim::Span& s : r.spans) spans.push_back(&s);
  std::stable_sort(spans.begin(), spans.end(),
                   [](const sim::Span* a, const sim::Span* b) { return a->start < b->start; });
  out += fmt::format("{:>12} {:>12} {:>6}  launch\n", "start us", "us", "stream");
  for (std::size_t i = 0; i < std::min(most_shown, spans.size()); ++i) {
    const sim::Launch& l = p.launches[static_cast<std::size_t>(spans[i]->launch)];
    out += fmt::format("{:>12.3f} {:>12.3f} {:>6}  {}\n", us(spans[i]->start),
                       us(spans[i]->end - spans[i]->start), l.stream,
                       p.texts[static_cast<std::size_t>(l.text)].name);
  }
  if (spans.size() > most_shown) out += fmt::format("and {} more\n", spans.size() - most_shown);
  return out;
}

std::string plan_run_json(const sim::Plan& p, const sim::Result& r) {
  Json j;
  j["kind"] = "simulated";
  j["total_us"] = us(r.total);
  j["bounds_us"] = {{"critical_path", us(r.bounds.critical_path)},
                    {"busiest", us(r.bounds.busiest)},
                    {"busiest_resource", r.bounds.busiest_name},
                    {"serial", us(r.bounds.serial)}};
  for (const sim::Span& s : r.spans) {
    const sim::Launch& l = p.launches[static_cast<std::size_t>(s.launch)];
    j["launches"].push_back({{"launch", s.launch},
                             {"name", p.texts[static_cast<std::size_t>(l.text)].name},
                             {"stream", l.stream},
                             {"rank", p.streams[static_cast<std::size_t>(l.stream)].rank},
                             {"start_us", us(s.start)},
                             {"us", us(s.end - s.start)},
                             {"waiting_us", us(s.peers)}});
  }
  return j.dump(1) + "\n";
}

}  // namespace tk
