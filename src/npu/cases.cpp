#include <algorithm>
#include <cctype>
#include <cmath>
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
  double number(const Json& v, const char* what, double otherwise) const {
    if (v.is_null()) return otherwise;
    if (!v.is_number()) fail(cat(what, " is ", v.dump(), "; a number is expected"));
    return v.get<double>();
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
    std::size_t used = 0;
    sum += std::stod(text.substr(i), &used);
    i += used;
    ++n;
  }
  if (n == 0) return std::nullopt;
  return sum / n;
}

// Bits of weights and of what is multiplied: "W8A8 dynamic", "W4A16", "BF16".
std::pair<int, int> bits_of(const std::string& text) {
  if (has(text, "W4A8")) return {4, 8};
  if (has(text, "W4A16")) return {4, 16};
  if (has(text, "W8A16")) return {8, 16};
  if (has(text, "W8A8")) return {8, 8};
  return {16, 16};
}

struct Scenario {
  ConfigStep step;
  sim::Mode mode = sim::Mode::ge_graph;
  std::string device;
  bool kernels_only = false;
};

// What of a record's execution has no counterpart here.
std::string refusal(const Record& r) {
  const std::string mode = r.text(r.at("execution", "mode"), "mode");
  if (has(mode, "unfused"))
    return "its unfused operators are not described: no kernel list to time";
  if (r.flag("execution", "ngram_outside_graph"))
    return "an embedding outside the graph, which the config does not describe";
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
    return r.count(r.at("parallel", name), name, otherwise);
  };
  c.prefill = r.text(r.at("phase"), "phase") == "prefill";
  c.attn_tp = degree("attn_tp", 1);
  c.attn_dp = degree("attn_dp", 1);
  c.ep = degree("ep", 1);
  c.moe_tp = degree("moe_tp", 1);
  c.dense_tp = degree("dense_tp", 0);
  c.o_proj_tp = degree("o_proj_tp", 0);
  c.lm_head_tp = degree("lm_head_tp", 0);
  c.embed_tp = degree("embed_tp", 0);
  const std::int64_t global = r.count(r.at("global_batch"), "global_batch", 1);
  c.sequences = std::max<std::int64_t>(1, (global + c.attn_dp - 1) / c.attn_dp);
  c.query_len = r.count(r.at("query_len"), "query_len", 1);
  c.kv_len = r.count(r.at("kv_len"), "kv_len", 0);
  const std::string linear = r.text(r.at("quant", "linear"), "quant.linear");
  const auto [dense, dense_act] = bits_of(linear);
  c.dense_bits = dense;
  // "BF16 attention, W8A8 dense MLP": what comes first is the attention's.
  const bool attention_16 = linear.starts_with("BF16") || linear.starts_with("FP16");
  c.linear_bits = attention_16 ? 16 : dense;
  c.activation_bits = attention_16 ? 16 : dense_act;
  std::tie(c.expert_bits, c.expert_activation_bits) =
      bits_of(r.text(r.at("quant", "experts"), "quant.experts"));
  c.kv_bits = has(r.text(r.at("quant", "kv"), "quant.kv"), "INT8") ? 8 : 16;
  c.drafts = r.count(r.at("mtp", "draft"), "mtp.draft", 0);
  c.streams = r.flag("execution", "streams");
  c.micro_batches = r.count(r.at("execution", "micro_batches"), "micro_batches", 1);
  c.shared_elsewhere = r.flag("execution", "external_shared_experts");
  const std::string mode = r.text(r.at("execution", "mode"), "mode");
  s.kernels_only = has(mode, "kernel time only");
  s.mode = mode.starts_with("eager") && !s.kernels_only        ? sim::Mode::eager
           : has(mode, "npugraph_ex") || has(mode, "aclgraph") ? sim::Mode::npugraph_ex
                                                               : sim::Mode::ge_graph;
  if (r.flag("execution", "core_split"))
    out->notes.emplace_back("its split of cores between streams is left out");
  if (r.flag("execution", "superkernel"))
    out->notes.emplace_back("its SuperKernel scopes are left out");
  if (has(mode, "not stated") || has(mode, "assumed"))
    out->notes.emplace_back("the mode is an assumption");
  const std::string variant = r.text(r.at("device", "variant"), "variant");
  const std::string family = r.text(r.at("device", "family"), "family");
  s.device = family == "A3"          ? (has(variant, "560") ? "a3-560t" : "a3-752t")
             : has(variant, "376")   ? "910b2"
             : has(variant, "910B2") ? "910b2"
             : has(variant, "910B4") ? "910b4"
                                     : "910b3";
  if (has(variant, "910B1")) s.device = "910b1";
  return s;
}

class Runner {
 public:
  Runner(const std::string& folder, const CostFile& costs) : folder_(folder), costs_(costs) {}

  CaseResult run(const Record& r) {
    CaseResult out;
    out.id = r.id();
    out.run = r.text(r.at("run"), "run");
    out.model = r.text(r.at("model"), "model");
    out.phase = r.text(r.at("phase"), "phase");
    out.unit = r.text(r.at("published_unit"), "published_unit");
    const std::string metric = r.text(r.at("metric", "kind"), "metric.kind");
    const std::string formula = r.text(r.at("metric", "formula"), "metric.formula");
    const bool kernel = metric == "kernel_us" || metric == "component_us";
    const std::optional<double> value = value_of(r.at("value"));
    if (!value || *value <= 0) r.fail(cat("value is ", r.at("value").dump()));
    out.published = *value;
    out.refused = refusal(r);
    Scenario s = scenario_of(r, &out);
    const std::string klass = r.text(r.at("klass"), "klass");
    out.kind = kernel                       ? "kernel"
               : klass == "serving"         ? "served step"
               : klass == "peer_baseline"   ? "peer baseline"
               : s.mode == sim::Mode::eager ? "eager step"
                                            : "graph step";
    // The starts of kernels in cost.json are read off this source's kernel tables.
    out.informed = has(r.text(r.at("source"), "source"), "paddle_ocr_vl_npu") && kernel;
    if (!out.refused.empty()) return out;
    try {
      predict(r, metric, formula, s, &out);
    } catch (const UserError& e) {
      // A config that is not modelled is an answer; a wrong file is not.
      if (e.code() != "TK1416" && e.code() != "TK1414" && e.code() != "TK1413") throw;
      out.refused = cat(e.code(), ": ", e.message());
    }
    return out;
  }

 private:
  // A step that was run, and the work it was made of.
  struct Ran {
    Step step;
    Simulation simulation;
  };

  const Ran& ran(const Scenario& s, const std::string& model, const std::string& run) {
    const auto found = done_.find(run);
    if (found != done_.end()) return found->second;
    const std::string path = cat(folder_, "/", model, ".json");
    Ran out;
    out.step = lower_config(read_file(path), path, s.step);
    Scene scene;
    scene.model = model;
    scene.phase = s.step.prefill ? "prefill" : "decode";
    std::uint32_t without = 0;
    if (s.kernels_only) without = parse_effects("host");
    out.simulation = simulate_step(out.step, load_device_file(s.device), costs_, s.mode,
                                   std::move(scene), without);
    return done_[run] = std::move(out);
  }

  void predict(const Record& r, const std::string& metric, const std::string& formula,
               const Scenario& s, CaseResult* out) {
    const auto& [step, sim] = ran(s, out->model, out->run);
    if (metric == "component_us") {
      out->predicted = component(sim, step, r.text(r.at("metric", "component"), "component"), out);
      return;
    }
    if (metric == "kernel_us") {
      out->predicted =
          one_kernel(sim, step, r.text(r.at("metric", "component"), "component"), s, out);
      return;
    }
    FormulaNames names;
    names.S = static_cast<double>(sim.step) / 1e12;
    if (out->kind == "served step") names.S += costs_.numbers.at("server_step_us") / 1e6;
    names.global_batch = r.number(r.at("global_batch"), "global_batch", 1);
    names.query_len = r.number(r.at("query_len"), "query_len", 1);
    names.packages = r.number(r.at("device", "packages"), "packages", 1);
    names.accepted = r.number(r.at("mtp", "accepted"), "accepted", 0);
    out->step_s = names.S;
    out->predicted = eval_formula(formula, names);
    // The published step: a metric is S times or divided by something.
    const double ratio = out->published / out->predicted;
    const double twice = [&] {
      FormulaNames n = names;
      n.S *= 2;
      return eval_formula(formula, n);
    }();
    out->published_step_s = twice > out->predicted ? names.S * ratio : names.S / ratio;
  }

  static double component(const Simulation& sim, const Step& step, const std::string& name,
                          CaseResult* out) {
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
    if (sum == 0) out->refused = cat("no kernel of the step is called '", name, "'");
    return sum;
  }

  double one_kernel(const Simulation& sim, const Step& step, const std::string& name,
                    const Scenario& s, CaseResult* out) const {
    long long m = 0;
    long long k = 0;
    long long n = 0;
    if (std::sscanf(name.c_str(), "matmul %lldx%lldx%lld", &m, &k, &n) == 3) {
      Step one;
      EmitKernels e(&one);
      const int x = one.tensor(TensorKind::activation, m * k * 2);
      e.linear("matmul", x, m, k, n, 16, 16);
      // Weights come from memory: another reader of all of L2 goes before.
      Step cold = std::move(one);
      return alone_us(cold, s, out);
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
    out->refused = cat("no kernel of the step is called '", name, "'");
    return 0;
  }

  double alone_us(const Step& step, const Scenario& s, CaseResult*) const {
    const DeviceFile device = load_device_file(s.device);
    const sim::Plan plan = plan_of(step, device, costs_, s.mode);
    const sim::Result r = sim::simulate(plan, params_of(device, costs_, s.mode), {});
    return static_cast<double>(r.spans.back().end - r.spans.back().start) / 1e6;
  }

  const std::string& folder_;
  const CostFile& costs_;
  std::map<std::string, Ran> done_;  // by run
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
  for (const double e : errors) size.push_back(std::abs(e));
  b.median = quantile(size, 0.5);
  b.p90 = quantile(size, 0.9);
  return b;
}

// Once per step: records of one run are one forward.
void summarise(Validation* v) {
  std::map<std::string, const CaseResult*> runs;
  std::map<std::string, std::vector<double>> by_kind;
  std::map<std::string, std::vector<double>> by_model;
  for (const CaseResult& c : v->cases) {
    if (!c.refused.empty() || c.published <= 0) continue;
    if (c.kind == "kernel") {
      by_kind[c.informed ? "kernel, source of constants" : "kernel"].push_back(c.error());
      continue;
    }
    const auto [it, fresh] = runs.try_emplace(c.run, &c);
    if (!fresh) continue;
    const double error = c.step_s / c.published_step_s - 1;
    by_kind[c.kind].push_back(error);
    if (c.kind == "graph step") by_model[c.model + "/" + c.phase].push_back(std::abs(error));
  }
  for (const auto& [kind, errors] : by_kind) v->bands.push_back(band(kind, errors));
  std::vector<double> medians;
  for (const auto& [key, errors] : by_model) medians.push_back(quantile(errors, 0.5));
  v->bands.push_back(band("graph step, each model and phase once", medians));
  std::vector<double> ratios;
  for (auto a = runs.begin(); a != runs.end(); ++a)
    for (auto b = std::next(a); b != runs.end(); ++b) {
      const CaseResult& x = *a->second;
      const CaseResult& y = *b->second;
      if (x.model != y.model || x.phase != y.phase) continue;
      const double published = x.published_step_s / y.published_step_s;
      const double predicted = x.step_s / y.step_s;
      ratios.push_back(predicted / published - 1);
      ++v->pairs;
      v->pairs_right += (published < 1) == (predicted < 1) ? 1 : 0;
    }
  v->bands.push_back(band("ratio", ratios));
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
  summarise(&v);
  return v;
}

}  // namespace tk
