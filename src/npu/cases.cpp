#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <map>
#include <nlohmann/json.hpp>
#include <optional>

#include "base/error.h"
#include "base/file.h"
#include "npu/emit_kernels.h"
#include "npu/lower_config.h"
#include "npu/validation.h"

namespace tk {
namespace {

using Json = nlohmann::json;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

// A record of the file, with the fields it must have.
class Record {
 public:
  Record(const Json& j, const std::string& file) : j_(j), file_(file) {}

  [[noreturn]] void fail(const std::string& what) const {
    throw UserError("TK1421", what)
        .at(file_)
        .in_module(id())
        .help("records look as in published_cases.json");
  }
  std::string id() const {
    return j_.contains("id") && j_["id"].is_string() ? j_["id"].get<std::string>() : "a record";
  }
  const Json& at(const char* name) const {
    if (!j_.contains(name)) fail(cat("'", name, "' is missing"));
    return j_[name];
  }
  const Json& at(const char* group, const char* name) const {
    static const Json null;
    const Json& g = at(group);
    if (g.is_null()) return null;
    if (!g.is_object()) fail(cat("'", group, "' is no object"));
    return g.contains(name) ? g[name] : null;
  }
  std::string text(const Json& v, const char* what) const {
    if (v.is_null()) return "";
    if (!v.is_string()) fail(cat(what, " is ", v.dump(), "; a text is expected"));
    return v.get<std::string>();
  }
  std::int64_t count(const Json& v, const char* what, std::int64_t otherwise) const {
    if (v.is_null()) return otherwise;
    if (!v.is_number_integer() || v.get<std::int64_t>() < 0)
      fail(cat(what, " is ", v.dump(), "; a whole number is expected"));
    return v.get<std::int64_t>();
  }
  // A size that nothing can stand in for.
  std::int64_t stated(const char* name, std::int64_t least) const {
    const Json& v = at(name);
    if (v.is_null()) fail(cat("'", name, "' is null; a whole number is expected"));
    const std::int64_t n = count(v, name, least);
    if (n < least) fail(cat(name, " is ", n, "; ", least, " or more is expected"));
    return n;
  }
  double number(const Json& v, const char* what, double otherwise) const {
    if (v.is_null()) return otherwise;
    if (!v.is_number()) fail(cat(what, " is ", v.dump(), "; a number is expected"));
    return v.get<double>();
  }
  // Prose beside the record; not every record has it.
  std::string prose(const char* group, const char* name) const {
    if (!j_.contains(group) || !j_[group].is_object() || !j_[group].contains(name)) return "";
    return j_[group][name].is_string() ? j_[group][name].get<std::string>() : "";
  }
  bool flag(const char* group, const char* name) const {
    const Json& v = at(group, name);
    return v.is_boolean() ? v.get<bool>() : !v.is_null();
  }

 private:
  const Json& j_;
  const std::string& file_;
};

// "9.16 / 7.68" and "2.84-3.74" are several measurements of one thing: their mean.
std::optional<double> value_of(const Json& v) {
  if (v.is_number()) return v.get<double>();
  if (!v.is_string()) return std::nullopt;
  const std::string text = v.get<std::string>();
  double sum = 0;
  int n = 0;
  for (std::size_t i = 0; i < text.size();) {
    if (std::isdigit(static_cast<unsigned char>(text[i])) == 0) {
      ++i;
      continue;
    }
    char* end = nullptr;
    sum += std::strtod(text.c_str() + i, &end);
    i = static_cast<std::size_t>(end - text.c_str());
    ++n;
  }
  if (n == 0 || !std::isfinite(sum)) return std::nullopt;
  return sum / n;
}

// What a record says and the simulator has no counterpart for: an answer of its own, not a guess.
[[noreturn]] void not_modelled(const std::string& what) { throw UserError("TK1423", what); }

// Bits of weights and of what is multiplied: "W8A8 dynamic", "W4A16", "BF16".
std::pair<int, int> bits_of(const std::string& text) {
  if (has(text, "MX") || has(text, "FP8") || has(text, "FP4"))
    not_modelled(cat("products in '", text, "' are not of A2 and A3"));
  if (has(text, "W4A8")) return {4, 8};
  if (has(text, "W4A16")) return {4, 16};
  if (has(text, "W8A16")) return {8, 16};
  if (has(text, "W8A8") || text.starts_with("INT8")) return {8, 8};
  if (text.empty() || has(text, "BF16") || has(text, "FP16") || has(text, "W16A16"))
    return {16, 16};
  not_modelled(cat("the quantisation '", text, "' is not known"));
}

int cache_bits_of(const std::string& text) {
  if (has(text, "INT8") || has(text, "C8")) return 8;
  if (text.empty() || has(text, "BF16") || has(text, "FP16") || has(text, "C16")) return 16;
  not_modelled(cat("a cache in '", text, "' is not modelled"));
}

std::string device_of(const std::string& family, const std::string& variant) {
  if (family == "A3") return has(variant, "560") ? "a3-560t" : "a3-752t";
  if (family != "A2") not_modelled(cat("there is no device file for '", family, "'"));
  for (const char* name : {"910B1", "910B2", "910B3", "910B4"})
    if (has(variant, name)) return cat("910b", name[4]);
  // By the peak that its maker gives the card.
  if (has(variant, "376")) return "910b2";
  if (has(variant, "280")) return "910b4";
  return "910b3";
}

struct Scenario {
  ConfigStep step;
  sim::Mode mode = sim::Mode::ge_graph;
  std::string device;
  bool kernels_only = false;
  std::int64_t eager_before = 0;  // operators that the host launches before the graph
  bool served = false;            // a server in front
  bool in_pieces = false;         // the server's graph is cut at each attention
  bool peer = false;              // a figure that a peer keeps
};

// What a server adds to a step: it plans and samples each, and works on every sequence. A graph
// that is cut at attention is launched piece by piece by the host, which may take longer than the
// device.
double served_step(double device_s, const Scenario& s, const Step& step, const Facts& costs) {
  double host_us = 0;
  if (s.in_pieces) {
    std::int64_t pieces = 0;
    for (const KernelWork& k : step.kernels()) pieces += k.family == Family::attention ? 1 : 0;
    host_us = static_cast<double>(pieces) * costs.at("server_piece_us");
  }
  const double host_s = host_us / 1e6;
  // The host waits for what it samples from: a part of the shorter of the two is not hidden.
  return std::max(device_s, host_s) + costs.at("overlap") * std::min(device_s, host_s) +
         (costs.at("server_step_us") +
          costs.at("server_sequence_us") * static_cast<double>(s.step.sequences * s.step.attn_dp)) /
             1e6;
}

// An n-gram embedding is in no config; records tell its sizes: "12 lookups, 12 projections 256 to
// 3072, about 200 small operators".
std::optional<NgramSizes> ngrams_of(const Record& r) {
  const std::string text = r.prose("how_sure", "ngram");
  const std::size_t at = text.find_first_of("0123456789");
  long long lookups = 0, projections = 0, width = 0, hidden = 0, small = 0;
  if (at == std::string::npos ||
      std::sscanf(text.c_str() + at,
                  "%lld lookups, %lld projections %lld to %lld, about %lld small operators",
                  &lookups, &projections, &width, &hidden, &small) != 5 ||
      lookups != projections || lookups < 1 || lookups > 4096 || width < 1 || width > 1 << 20 ||
      small < 0 || small > 100000)
    return std::nullopt;
  return NgramSizes{lookups, width, std::max(small, 3 * lookups)};
}

// What of a record's execution has no counterpart here.
std::string refusal(const Record& r) {
  const std::string mode = r.text(r.at("execution", "mode"), "mode");
  if (has(mode, "unfused"))
    return "its unfused operators are not described: no kernel list to time";
  if (r.flag("execution", "ngram_outside_graph") && !ngrams_of(r))
    return "an embedding outside the graph, which the record does not describe";
  if (r.flag("execution", "kv_offload"))
    return "offload of the KV cache to the host is not lowered";
  if (r.flag("execution", "attention_ffn_disaggregation"))
    return "attention and experts on different devices are not lowered";
  if (r.count(r.at("parallel", "pp"), "pp", 1) > 1) return "pipeline stages are not lowered";
  return "";
}

Scenario scenario_of(const Record& r, CaseResult* out) {
  Scenario s;
  ConfigStep& c = s.step;
  const auto degree = [&](const char* name, std::int64_t otherwise) {
    const std::int64_t n = r.count(r.at("parallel", name), name, otherwise);
    if (n == 0 && otherwise != 0) r.fail(cat(name, " is 0; 1 or more is expected"));
    return n;
  };
  const std::string phase = r.text(r.at("phase"), "phase");
  if (phase != "decode" && phase != "prefill")
    r.fail(cat("phase is '", phase, "'; decode or prefill is expected"));
  c.prefill = phase == "prefill";
  if (r.at("parallel").is_null()) r.fail("'parallel' is null; degrees are expected");
  c.attn_tp = degree("attn_tp", 1);
  c.attn_dp = degree("attn_dp", 1);
  c.ep = degree("ep", 1);
  c.moe_tp = degree("moe_tp", 1);
  c.dense_tp = degree("dense_tp", 0);
  c.o_proj_tp = degree("o_proj_tp", 0);
  c.lm_head_tp = degree("lm_head_tp", 0);
  c.embed_tp = degree("embed_tp", 0);
  const std::int64_t global = r.stated("global_batch", 1);
  c.sequences = std::max<std::int64_t>(1, (global + c.attn_dp - 1) / c.attn_dp);
  c.query_len = r.stated("query_len", 1);
  // A prefill starts with an empty cache where nothing else is said.
  c.kv_len = c.prefill ? r.count(r.at("kv_len"), "kv_len", 0) : r.stated("kv_len", 0);
  const std::string linear = r.text(r.at("quant", "linear"), "quant.linear");
  const auto [dense, dense_act] = bits_of(linear);
  c.dense_bits = dense;
  // "BF16 attention, W8A8 dense MLP": what comes first is the attention's.
  const bool attention_16 = linear.starts_with("BF16") || linear.starts_with("FP16");
  c.linear_bits = attention_16 ? 16 : dense;
  c.activation_bits = attention_16 ? 16 : dense_act;
  std::tie(c.expert_bits, c.expert_activation_bits) =
      bits_of(r.text(r.at("quant", "experts"), "quant.experts"));
  c.kv_bits = cache_bits_of(r.text(r.at("quant", "kv"), "quant.kv"));
  c.drafts = r.count(r.at("mtp", "draft"), "mtp.draft", 0);
  c.streams = r.flag("execution", "streams");
  c.micro_batches = r.count(r.at("execution", "micro_batches"), "micro_batches", 1);
  c.shared_elsewhere = r.flag("execution", "external_shared_experts");
  const std::string mode = r.text(r.at("execution", "mode"), "mode");
  if (!has(mode, "eager") && !has(mode, "graph"))
    not_modelled(cat("the mode '", mode, "' is not known"));
  s.kernels_only = has(mode, "kernel time only");
  s.mode = mode.starts_with("eager") && !s.kernels_only        ? sim::Mode::eager
           : has(mode, "npugraph_ex") || has(mode, "aclgraph") ? sim::Mode::npugraph_ex
                                                               : sim::Mode::ge_graph;
  const std::string klass = r.text(r.at("klass"), "klass");
  s.served = klass == "serving";
  s.peer = klass == "peer_baseline";
  s.in_pieces =
      s.served && s.mode != sim::Mode::eager && (has(mode, "not stated") || has(mode, "assumed"));
  // Even only where a source says so: without a balancer tokens choose as they like.
  c.even_experts = has(r.prose("how_sure", "experts"), "balanced");
  // Recipes and servers bring fused operators; a bare model in PyTorch does not.
  c.fused = !s.kernels_only || has(mode, "fused");
  if (const auto ngrams = ngrams_of(r)) {
    if (r.flag("execution", "ngram_outside_graph")) {
      s.eager_before = ngrams->small_operators;
    } else {
      c.ngrams = *ngrams;
    }
  }
  if (r.flag("execution", "core_split"))
    out->notes.emplace_back("its split of cores between streams is left out");
  if (r.flag("execution", "superkernel"))
    out->notes.emplace_back("its SuperKernel scopes are left out");
  if (has(mode, "not stated") || has(mode, "assumed"))
    out->notes.emplace_back("the mode is an assumption");
  s.device = device_of(r.text(r.at("device", "family"), "family"),
                       r.text(r.at("device", "variant"), "variant"));
  return s;
}

class Runner {
 public:
  Runner(const std::string& folder, const CostFile& costs) : folder_(folder), all_(costs) {}

  // A record that cannot be predicted says why; the others are.
  CaseResult run(const Record& r) {
    CaseResult out;
    out.id = r.id();
    try {
      fill(r, &out);
    } catch (const UserError& e) {
      if (e.code() == "TK1411" || e.code() == "TK1412") throw;  // a device or a cost file
      out.refused = cat(e.code(), ": ", e.message());
    }
    return out;
  }

 private:
  void fill(const Record& r, CaseResult* out) {
    out->run = r.text(r.at("run"), "run");
    out->source = r.text(r.at("source"), "source");
    out->model = r.text(r.at("model"), "model");
    out->phase = r.text(r.at("phase"), "phase");
    out->unit = r.text(r.at("published_unit"), "published_unit");
    const std::string metric = r.text(r.at("metric", "kind"), "metric.kind");
    const bool kernel = metric == "kernel_us" || metric == "component_us";
    const std::optional<double> value = value_of(r.at("value"));
    if (!value || *value <= 0) r.fail(cat("value is ", r.at("value").dump()));
    out->published = *value;
    out->refused = refusal(r);
    if (!out->refused.empty()) return;
    const Scenario s = scenario_of(r, out);
    out->kind = kernel                       ? "kernel"
                : s.served                   ? "served step"
                : s.peer                     ? "peer baseline"
                : s.mode == sim::Mode::eager ? "eager step"
                                             : "graph step";
    // The starts of kernels in cost.json are read off this source's kernel tables.
    out->informed = has(out->source, "paddle_ocr_vl_npu") && kernel;
    // VN-113: what a record is compared with has not seen its model.
    const auto [costs, fresh] = held_out_.try_emplace(out->model);
    if (fresh) costs->second = costs_without(all_, out->model);
    const Prediction p = predict(r, metric, s, costs->second, out->model);
    out->predicted = p.value;
    out->step_s = p.step_s;
    out->published_step_s = p.published_step_s(out->published);
    out->fitted = all_.without.count(out->model) != 0;
    const Prediction seen = out->fitted ? predict(r, metric, s, all_, out->model) : p;
    out->in_sample = seen.value;
    out->in_sample_step_s = seen.step_s;
  }

  // All that decides a step. Records may call different steps one run, so a name is no key.
  struct Key {
    std::string model, device;
    bool seen = false;  // by costs that have seen the model
    bool kernels_only = false;
    sim::Mode mode = sim::Mode::ge_graph;
    ConfigStep step;
    auto operator<=>(const Key&) const = default;
  };

  // A step that was run, and the work it was made of.
  struct Ran {
    Step step;
    Simulation simulation;
  };

  struct Prediction {
    double value = 0;
    double step_s = 0;  // of one forward; 0: the metric is a kernel's
    bool slower_is_more = true;
    // The published step: a metric is the step's time, or something divided by it, times a number.
    double published_step_s(double published) const {
      if (step_s == 0) return 0;
      return slower_is_more ? step_s * published / value : step_s * value / published;
    }
  };

  const Ran& ran(const Scenario& s, const std::string& model, const CostFile& costs) {
    const Key key{model, s.device, &costs == &all_, s.kernels_only, s.mode, s.step};
    const auto found = done_.find(key);
    if (found != done_.end()) return found->second;
    const std::string path = cat(folder_, "/", model, ".json");
    if (!std::filesystem::exists(path))
      not_modelled(cat("there is no config of '", model, "' at ", path));
    Ran out;
    out.step = lower_config(read_file(path), path, s.step);
    Scene scene;
    scene.model = model;
    scene.phase = s.step.prefill ? "prefill" : "decode";
    std::uint32_t without = 0;
    if (s.kernels_only) without = parse_effects("host");
    out.simulation = simulate_step(out.step, load_device_file(s.device), costs, s.mode,
                                   std::move(scene), without);
    return done_[key] = std::move(out);
  }

  Prediction predict(const Record& r, const std::string& metric, const Scenario& s,
                     const CostFile& costs, const std::string& model) {
    const auto& [step, sim] = ran(s, model, costs);
    Prediction p;
    const std::string name = r.text(r.at("metric", "component"), "component");
    if (metric == "component_us") {
      p.value = component(sim, step, name);
      return p;
    }
    if (metric == "kernel_us") {
      p.value = one_kernel(sim, step, name, s, costs);
      return p;
    }
    FormulaNames names;
    names.S = static_cast<double>(sim.step) / 1e12;
    names.S += static_cast<double>(s.eager_before) *
               host_us(load_device_file(s.device), costs, "host_small_us") / 1e6;
    if (s.served) names.S = served_step(names.S, s, step, costs.numbers);
    names.global_batch = r.number(r.at("global_batch"), "global_batch", 1);
    names.query_len = r.number(r.at("query_len"), "query_len", 1);
    names.packages = r.number(r.at("device", "packages"), "packages", 1);
    names.accepted = r.number(r.at("mtp", "accepted"), "accepted", 0);
    const std::string formula = r.text(r.at("metric", "formula"), "metric.formula");
    p.step_s = names.S;
    p.value = eval_formula(formula, names);
    if (!std::isfinite(p.value) || p.value <= 0)
      r.fail(cat("the formula '", formula, "' gives ", p.value));
    names.S *= 2;
    p.slower_is_more = eval_formula(formula, names) > p.value;
    return p;
  }

  [[noreturn]] static void no_kernel(const std::string& name) {
    not_modelled(cat("no kernel of the step is called '", name, "'"));
  }

  static double component(const Simulation& sim, const Step& step, const std::string& name) {
    double sum = 0;
    for (const sim::Span& span : sim.spans) {
      const KernelWork& k = step.kernels()[static_cast<std::size_t>(span.launch)];
      const bool in_mlp = has(k.module, ".mlp");
      const bool is = name == "mlp_matmul" ? k.family == Family::matmul && in_mlp
                      : name == "attn_proj_matmul"
                          ? k.family == Family::matmul && has(k.module, "self_attn")
                      : name == "norms"      ? k.family == Family::norm
                      : name == "kv_scatter" ? k.family == Family::cache
                      : name == "attention"  ? k.family == Family::attention
                      : name == "rope"       ? k.family == Family::rope
                      : name == "lm_head" ? k.family == Family::matmul && has(k.module, "lm_head")
                                          : false;
      if (is) sum += static_cast<double>(span.end - span.start) / 1e6;
    }
    if (sum == 0) no_kernel(name);
    return sum;
  }

  static double one_kernel(const Simulation& sim, const Step& step, const std::string& name,
                           const Scenario& s, const CostFile& costs) {
    long long m = 0;
    long long k = 0;
    long long n = 0;
    if (std::sscanf(name.c_str(), "matmul %lldx%lldx%lld", &m, &k, &n) == 3) {
      Step one;
      EmitKernels e(&one);
      const int x = one.tensor(TensorKind::activation, m * k * 2);
      e.linear("matmul", x, m, k, n, 16, 16);
      // Weights come from memory: another reader of all of L2 goes before.
      return alone_us(one, s, costs);
    }
    for (const sim::Span& span : sim.spans) {
      const KernelWork& kernel = step.kernels()[static_cast<std::size_t>(span.launch)];
      const bool is = has(name, "rope")        ? kernel.family == Family::rope
                      : has(name, "swish")     ? kernel.type == "SwiGlu"
                      : has(name, "embedding") ? has(kernel.module, "embed_tokens")
                      : has(name, "lm_head")
                          ? kernel.family == Family::matmul && has(kernel.module, "lm_head")
                      : has(name, "attention") ? kernel.family == Family::attention
                      : has(name, "norm")      ? kernel.family == Family::norm
                      : has(name, "scatter")   ? kernel.family == Family::cache
                                               : false;
      if (is) return static_cast<double>(span.end - span.start) / 1e6;
    }
    no_kernel(name);
  }

  static double alone_us(const Step& step, const Scenario& s, const CostFile& costs) {
    const DeviceFile device = load_device_file(s.device);
    const sim::Plan plan = plan_of(step, device, costs, s.mode);
    const sim::Result r = sim::simulate(plan, params_of(device, costs, s.mode), {});
    return static_cast<double>(r.spans.back().end - r.spans.back().start) / 1e6;
  }

  const std::string& folder_;
  const CostFile& all_;
  std::map<std::string, CostFile> held_out_;  // by model
  std::map<Key, Ran> done_;
};

double quantile(std::vector<double> v, double q) {
  std::sort(v.begin(), v.end());
  const double at = q * static_cast<double>(v.size() - 1);
  const auto i = static_cast<std::size_t>(at);
  return i + 1 < v.size() ? v[i] + (at - static_cast<double>(i)) * (v[i + 1] - v[i]) : v.back();
}

Band band(const std::string& kind, const std::vector<double>& errors) {
  Band b;
  b.kind = kind;
  b.cases = static_cast<int>(errors.size());
  if (errors.empty()) return b;
  std::vector<double> size;
  size.reserve(errors.size());
  for (const double e : errors) size.push_back(std::abs(e));
  b.median = quantile(size, 0.5);
  b.p90 = quantile(size, 0.9);
  return b;
}

// Once per step: records of one run and of one step are one forward. `in_sample`: by the costs that
// have seen the record's model.
void summarise(Validation* v, bool in_sample) {
  const auto step = [&](const CaseResult& c) { return in_sample ? c.in_sample_step_s : c.step_s; };
  std::map<std::pair<std::string, double>, const CaseResult*> runs;  // by run and step
  std::map<std::string, std::vector<double>> by_kind;
  std::map<std::string, std::vector<double>> by_model;
  for (const CaseResult& c : v->cases) {
    if (!c.refused.empty()) continue;
    if (c.kind == "kernel") {
      const double predicted = in_sample ? c.in_sample : c.predicted;
      by_kind[c.informed ? "kernel, source of constants" : "kernel"].push_back(
          predicted / c.published - 1);
      continue;
    }
    const auto [it, fresh] = runs.try_emplace({c.run, c.step_s}, &c);
    if (!fresh) continue;
    const double error = step(c) / c.published_step_s - 1;
    by_kind[c.kind].push_back(error);
    if (c.kind == "graph step")
      by_model[cat(c.source, "/", c.model, "/", c.phase)].push_back(std::abs(error));
  }
  std::vector<Band>& bands = in_sample ? v->in_sample : v->bands;
  for (const auto& [kind, errors] : by_kind) bands.push_back(band(kind, errors));
  std::vector<double> medians;
  medians.reserve(by_model.size());
  for (const auto& [key, errors] : by_model) medians.push_back(quantile(errors, 0.5));
  bands.push_back(band("graph step, each source, model and phase once", medians));
  std::vector<double> ratios;
  for (auto a = runs.begin(); a != runs.end(); ++a)
    for (auto b = std::next(a); b != runs.end(); ++b) {
      const CaseResult& x = *a->second;
      const CaseResult& y = *b->second;
      if (x.model != y.model || x.phase != y.phase) continue;
      const double published = x.published_step_s / y.published_step_s;
      const double predicted = step(x) / step(y);
      ratios.push_back(predicted / published - 1);
      if (in_sample) continue;
      ++v->pairs;
      v->pairs_right += (published < 1) == (predicted < 1) ? 1 : 0;
    }
  bands.push_back(band("ratio", ratios));
}

}  // namespace

Validation run_cases(const std::string& cases, const std::string& file, const std::string& folder,
                     const CostFile& costs) {
  const Json j = Json::parse(cases, nullptr, false);
  if (j.is_discarded() || !j.is_object() || !j.contains("cases") || !j["cases"].is_array())
    throw UserError("TK1421", "there is no list 'cases' in it")
        .at(file)
        .help("give a file like published_cases.json");
  Validation v;
  v.cost_id = costs.id;
  Runner runner(folder, costs);
  for (const Json& c : j["cases"]) v.cases.push_back(runner.run(Record(c, file)));
  summarise(&v, false);
  summarise(&v, true);
  return v;
}

}  // namespace tk
