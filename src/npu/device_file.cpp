#include "npu/device_file.h"

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

using Json = nlohmann::json;

constexpr std::string_view default_a2 = "910b3";
constexpr std::string_view default_a3 = "a3-752t";

[[noreturn]] void bad(const std::string& file, const std::string& what) {
  throw UserError("TK1412", what)
      .at(file)
      .help("src/npu/devices/910b3.json has every number that is needed");
}

Json parse(std::string_view text, const std::string& file) {
  Json j = Json::parse(text, nullptr, false);
  if (j.is_discarded() || !j.is_object()) bad(file, "the device file is no JSON object");
  return j;
}

Fact fact_of(const std::string& name, const Json& j, const std::string& file) {
  if (!j.is_object() || !j.contains("value") || !j["value"].is_number())
    bad(file, cat("'", name, "' has no number as its value"));
  Fact f;
  f.name = name;
  f.value = j["value"].get<double>();
  if (!std::isfinite(f.value) || f.value < 0)
    bad(file, cat("'", name, "' is ", f.value, "; a number of 0 or more is expected"));
  for (auto [key, to] :
       {std::pair{"unit", &f.unit}, {"source", &f.source}, {"certainty", &f.certainty}}) {
    if (!j.contains(key) || !j[key].is_string()) bad(file, cat("'", name, "' has no ", key));
    *to = j[key].get<std::string>();
  }
  if (j.contains("others")) {
    if (!j["others"].is_array()) bad(file, cat("'others' of '", name, "' is no list"));
    for (const Json& o : j["others"]) {
      if (!o.is_string()) bad(file, cat("'others' of '", name, "' has something that is no text"));
      f.others.push_back(o.get<std::string>());
    }
  }
  return f;
}

Facts facts_of(const Json& j, const std::string& file) {
  if (!j.contains("numbers") || !j["numbers"].is_object()) bad(file, "there is no 'numbers'");
  Facts out;
  out.file = file;
  for (const auto& [name, value] : j["numbers"].items())
    out.all.push_back(fact_of(name, value, file));
  return out;
}

std::string text_of(const Json& j, const char* key, const std::string& file) {
  if (!j.contains(key) || !j[key].is_string()) bad(file, cat("there is no text '", key, "'"));
  return j[key].get<std::string>();
}

std::int32_t whole_number(const Facts& facts, std::string_view name) {
  const double v = facts.at(name);
  if (v < 1 || v > 1e9) bad(facts.file, cat("'", name, "' is ", v, "; 1 to 1e9 is expected"));
  return static_cast<std::int32_t>(std::lround(v));
}

// What is divided by, and what a share is of.
void check_costs(const Facts& facts) {
  for (const Fact& f : facts.all) {
    const bool share = f.name.ends_with("_share") || f.name.ends_with("_efficiency");
    if (share && (f.value <= 0 || f.value > 1))
      bad(facts.file,
          cat("'", f.name, "' is ", f.value, "; more than 0 and at most 1 is expected"));
    if (f.value > 1e9) bad(facts.file, cat("'", f.name, "' is ", f.value, "; at most 1e9"));
  }
}

std::int64_t ps(double us) { return std::llround(us * 1e6); }

DeviceFile device_of(std::string_view text, const std::string& file) {
  const Json j = parse(text, file);
  DeviceFile d;
  d.name = text_of(j, "name", file);
  d.target = text_of(j, "target", file);
  d.doc = text_of(j, "doc", file);
  d.numbers = facts_of(j, file);
  for (const Fact& f : d.numbers.all)
    if (f.value <= 0 || f.value > 1e12)
      bad(file, cat("'", f.name, "' is ", f.value, "; more than 0 and at most 1e12 is expected"));
  if (!j.contains("links") || !j["links"].is_array()) bad(file, "there is no list 'links'");
  for (const Json& l : j["links"]) {
    sim::LinkLevel level;
    level.name = text_of(l, "name", file);
    for (const char* key : {"size", "links"})
      if (!l.contains(key) || !l[key].is_number_integer() || l[key].get<std::int64_t>() < 1)
        bad(file, cat("'", key, "' of link '", level.name, "' is no number of 1 or more"));
    level.size = l["size"].get<std::int32_t>();
    level.links = l["links"].get<std::int32_t>();
    for (const char* key : {"rate_gb_s", "latency_us"}) {
      if (!l.contains(key)) bad(file, cat("link '", level.name, "' has no ", key));
      d.link_facts.push_back(fact_of(cat(level.name, ".", key), l[key], file));
    }
    level.rate = std::llround(d.link_facts[d.link_facts.size() - 2].value * 1e9);
    level.latency = ps(d.link_facts.back().value);
    d.links.push_back(level);
  }
  return d;
}

const npu_data::Embedded* embedded(std::string_view name) {
  for (std::size_t i = 0; i < npu_data::file_count; ++i)
    if (npu_data::files[i].name == name) return &npu_data::files[i];
  return nullptr;
}

// The folder has two files beside those of devices.
bool is_device(std::string_view name) { return name != "cost" && name != "validation"; }

NearKernel near_of(const Json& j, const std::string& file) {
  const auto wrong = [&]() { bad(file, cat("a measured kernel is ", j.dump())); };
  if (!j.is_object()) wrong();
  const auto number = [&](const Json& v) {
    if (!v.is_number() || !std::isfinite(v.get<double>()) || v.get<double>() < 0) wrong();
    return v.get<double>();
  };
  const auto at = [&](const char* key) { return j.contains(key) ? j[key] : Json(); };
  NearKernel k;
  for (auto [key, to] : {std::pair{"type", &k.type},
                         {"family", &k.family},
                         {"dtype", &k.dtype},
                         {"layout", &k.layout}}) {
    if (!at(key).is_string()) wrong();
    *to = at(key).get<std::string>();
  }
  if (!at("cube").is_boolean() || !at("mnk").is_array() || j["mnk"].size() != k.mnk.size()) wrong();
  k.cube = j["cube"].get<bool>();
  for (std::size_t i = 0; i < k.mnk.size(); ++i) k.mnk[i] = number(j["mnk"][i]);
  for (auto [key, to] : {std::pair{"alone_us", &k.alone_us},
                         {"read", &k.read},
                         {"write", &k.write},
                         {"factor", &k.factor},
                         {"count", &k.count}})
    *to = number(at(key));
  if (k.alone_us <= 0 || k.factor <= 0 || k.count <= 0) wrong();
  return k;
}

CostFile costs_of(std::string_view text, const std::string& file) {
  CostFile c;
  const Json j = parse(text, file);
  c.numbers = facts_of(j, file);
  check_costs(c.numbers);
  if (j.contains("measured")) {
    if (!j["measured"].is_array()) bad(file, "'measured' is no list");
    for (const Json& k : j["measured"]) c.measured.push_back(near_of(k, file));
  }
  if (j.contains("without")) {
    if (!j["without"].is_object()) bad(file, "'without' is no object");
    for (const auto& [model, values] : j["without"].items()) {
      if (!values.is_object()) bad(file, cat("'without' of ", model, " is no object"));
      for (const auto& [name, value] : values.items()) {
        if (!value.is_number() || !std::isfinite(value.get<double>()) || value.get<double>() < 0)
          bad(file, cat("'", name, "' without ", model, " is ", value.dump(),
                        "; a number of 0 or more is expected"));
        c.without[model][name] = value.get<double>();
      }
      costs_without(c, model);  // its names and values are checked
    }
  }
  std::uint64_t h = 0xcbf29ce484222325;  // FNV-1a
  for (const char ch : text) h = (h ^ static_cast<unsigned char>(ch)) * 0x100000001b3;
  char id[17];
  std::snprintf(id, sizeof id, "%016llx", static_cast<unsigned long long>(h));
  c.id = id;
  return c;
}

void print(const Fact& f, std::string* out) {
  char line[512];
  std::snprintf(line, sizeof line, "  %-28s %12.6g  %-34s %s  [%s]\n", f.name.c_str(), f.value,
                f.unit.c_str(), f.source.c_str(), f.certainty.c_str());
  *out += line;
  for (const std::string& o : f.others) *out += cat("    also: ", o, "\n");
}

}  // namespace

double Facts::at(std::string_view name) const {
  for (const Fact& f : all)
    if (f.name == name) return f.value;
  bad(file, cat("the number '", name, "' is missing"));
}

double Facts::find(std::string_view name, double otherwise) const {
  for (const Fact& f : all)
    if (f.name == name) return f.value;
  return otherwise;
}

std::vector<std::string> device_names() {
  std::vector<std::string> names;
  for (std::size_t i = 0; i < npu_data::file_count; ++i)
    if (is_device(npu_data::files[i].name)) names.emplace_back(npu_data::files[i].name);
  return names;
}

DeviceFile load_device_file(std::string_view name) {
  if (name == "a2") name = default_a2;
  if (name == "a3") name = default_a3;
  if (name.ends_with(".json")) return device_of(read_file(std::string(name)), std::string(name));
  const npu_data::Embedded* e = is_device(name) ? embedded(name) : nullptr;
  if (e != nullptr) return device_of(e->json, cat("src/npu/devices/", name, ".json"));
  std::string all = "a2, a3";
  for (const std::string& n : device_names()) all += ", " + n;
  throw UserError("TK1411", cat("there is no device '", name, "'"))
      .help(cat("the devices are ", all, "; or give the path of a .json file"));
}

const CostFile& default_costs() {
  static const CostFile costs = [] {
    const npu_data::Embedded* e = embedded("cost");
    TK_CHECK(e != nullptr, "cost.json is compiled in");
    return costs_of(e->json, "src/npu/devices/cost.json");
  }();
  return costs;
}

CostFile load_costs(const std::string& path) { return costs_of(read_file(path), path); }

CostFile costs_without(const CostFile& costs, const std::string& model) {
  CostFile out = costs;
  const auto found = costs.without.find(model);
  if (found == costs.without.end()) return out;
  for (const auto& [name, value] : found->second) {
    const auto fact = std::find_if(out.numbers.all.begin(), out.numbers.all.end(),
                                   [&](const Fact& f) { return f.name == name; });
    if (fact == out.numbers.all.end())
      bad(costs.numbers.file,
          cat("'without' ", model, " has '", name, "', which is no number of it"));
    fact->value = value;
  }
  check_costs(out.numbers);
  return out;
}

double host_us(const DeviceFile& device, const CostFile& costs, std::string_view name) {
  return costs.numbers.at(name) * device.numbers.find("host_share", 1);
}

sim::DeviceParams params_of(const DeviceFile& device, const CostFile& costs, sim::Mode mode) {
  const auto whole = [&](std::string_view name) { return whole_number(device.numbers, name); };
  const auto tera = [](double v) { return std::llround(v * 1e12); };
  const auto permille = [&](std::string_view name) {
    return static_cast<std::int32_t>(std::lround(costs.numbers.at(name) * 1000));
  };
  const auto time = [&](std::string_view name) { return ps(costs.numbers.at(name)); };
  sim::DeviceParams p;
  p.cube_cores = whole("cube_cores");
  p.vector_cores = whole("vector_cores");
  p.ai_cpu_cores = whole("ai_cpu_cores");
  p.mhz = whole("mhz");
  p.hbm_rate = tera(device.numbers.at("hbm_tb_s"));
  p.hbm_read_permille = permille("hbm_read_share");
  p.hbm_write_permille = permille("hbm_write_share");
  p.hbm_mixed_permille = permille("hbm_mixed_share");
  p.l2_bytes = std::llround(device.numbers.at("l2_bytes"));
  p.l2_pages = whole("l2_pages");
  p.l2_keep_permille = permille("l2_keep_share");
  p.l2_rate = tera(device.numbers.at("l2_tb_s"));
  p.core_hbm_read = whole("core_hbm_read");
  p.core_hbm_write = whole("core_hbm_write");
  p.core_l2_read = whole("core_l2_read");
  p.core_l2_write = whole("core_l2_write");
  p.gap = time(mode == sim::Mode::npugraph_ex ? "gap_npugraph_us" : "gap_us");
  p.gap_mix = time(mode == sim::Mode::eager         ? "gap_mix_us"
                   : mode == sim::Mode::npugraph_ex ? "gap_npugraph_us"
                                                    : "gap_mix_graph_us");
  p.record = time("record_us");
  p.wait = time("wait_us");
  p.after_wait = time("after_wait_us");
  p.host_per_launch = ps(host_us(device, costs, "host_eager_us"));
  p.queue_depth = whole("queue_depth");
  p.graph_launch = time("graph_launch_us");
  p.graph_entry = time("graph_entry_us");
  p.graph_update = time("graph_update_us");
  p.ai_cpu_launch = time("ai_cpu_launch_us");
  p.prefetch_rate = tera(costs.numbers.at("prefetch_tb_s"));
  p.prefetch_depth = whole("prefetch_depth");
  p.pcie_rate = std::llround(device.numbers.at("pcie_gb_s") * 1e9);
  p.pcie_floor = time("pcie_floor_us");
  p.part_preloaded = time("part_preloaded_us");
  p.part_cold = time("part_cold_us");
  p.sync_base = time("sync_base_us");
  p.sync_full = time("sync_full_us");
  p.links = device.links;
  p.link_permille = permille("link_share");
  p.per_peer = ps(device.numbers.find("per_peer_us", costs.numbers.at("per_peer_us")));
  p.collective_setup = time("collective_setup_us");
  p.collective_setup_ai_cpu = time("collective_setup_ai_cpu_us");
  return p;
}

std::string device_info(const DeviceFile& device, const CostFile& costs) {
  std::string out = cat(device.name, " (target ", device.target, "): ", device.doc, "\n");
  for (const Fact& f : device.numbers.all) print(f, &out);
  for (const Fact& f : device.link_facts) print(f, &out);
  out += cat("costs ", costs.id, " (", costs.numbers.file, ")\n");
  for (const Fact& f : costs.numbers.all) print(f, &out);
  return out;
}

}  // namespace tk
