#include "trial/ledger.h"

#include <nlohmann/json.hpp>

#include "trial/capture_json.h"

namespace tk {
namespace {

using Json = nlohmann::ordered_json;

Json json_of(const Timing& t) {
  return {
      {"median_ms", t.median_ms}, {"min_ms", t.min_ms}, {"max_ms", t.max_ms}, {"rounds", t.rounds}};
}

Json json_of(const Comparison& c) {
  if (!c.measured) return nullptr;
  return {{"metric", c.metric},        {"kind", c.kind},   {"before", json_of(c.before)},
          {"after", json_of(c.after)}, {"ratio", c.ratio}, {"ratio_low", c.ratio_low},
          {"ratio_high", c.ratio_high}};
}

Json json_of(const ErrorStats& e) {
  return {{"compared", e.compared},
          {"max_abs", e.max_abs},
          {"max_reference", e.max_reference},
          {"relative", e.relative()},
          {"rms", e.rms()},
          {"not_finite", e.not_finite},
          {"top1_agreement", e.top1_agreement()}};
}

Json json_of(const NumericCheck& c) {
  if (!c.done) return Json{{"done", false}, {"detail", c.detail}};
  return {{"done", true},         {"passed", c.passed},
          {"what", c.what},       {"error", json_of(c.error)},
          {"allowed", c.allowed}, {"detail", c.detail}};
}

Json json_of(const Verdict& v) {
  return {{"kind", name_of(v.kind)},
          {"reason", v.reason},
          {"constraint", v.constraint},
          {"notes", v.notes}};
}

Json json_of(const LedgerRow& r) {
  Json out = {{"id", r.id},
              {"stage", r.stage},
              {"move", r.move},
              {"doc", r.doc},
              {"target_op", r.target_op},
              {"phase", r.phase},
              {"place", r.place},
              {"source", r.source},
              {"sites", r.sites},
              {"verdict", json_of(r.verdict)},
              {"decision", name_of(r.decision)},
              {"why", r.why},
              {"numerics", {{"local", json_of(r.local)}, {"model", json_of(r.model)}}},
              {"time", {{"decode", json_of(r.decode)}, {"prefill", json_of(r.prefill)}}},
              {"nodes_before", r.nodes_before},
              {"nodes_after", r.nodes_after},
              {"seconds", r.seconds}};
  for (const AcceptanceItem& a : r.acceptance)
    out["acceptance"].push_back({{"what", a.what}, {"found", a.found}, {"passed", a.passed}});
  for (const Alternative& a : r.alternatives) {
    out["alternatives"].push_back(
        {{"name", a.name}, {"ms", a.ms}, {"gain", a.gain}, {"verdict", a.verdict}});
    if (a.break_even_steps >= 0)
      out["alternatives"].back()["break_even_steps"] = a.break_even_steps;
  }
  return out;
}

// Null when times were measured.
Json prediction_of(const Ledger& l) {
  if (l.band.cases == 0) return nullptr;
  return {{"kind", l.band.kind},
          {"cases", l.band.cases},
          {"median_error", l.band.median},
          {"p90_error", l.band.p90},
          {"cost_id", l.model_id}};
}

}  // namespace

std::string_view name_of(Decision decision) {
  switch (decision) {
    case Decision::kept:
      return "kept";
    case Decision::rolled_back:
      return "rolled back";
    case Decision::pending:
      return "pending";
    case Decision::not_tried:
      return "not tried";
  }
  return "not tried";
}

std::string to_json(const Ledger& l) {
  Json rows = Json::array();
  for (const LedgerRow& r : l.rows) rows.push_back(json_of(r));
  Json waterfall = Json::array();
  for (const Waypoint& w : l.waterfall)
    waterfall.push_back(
        {{"name", w.name}, {"decode_ms", w.decode_ms}, {"prefill_ms", w.prefill_ms}});
  Json step = Json::array();
  for (const LaunchSpan& s : l.decode_step)
    step.push_back({{"name", s.name},
                    {"kernel", s.kernel},
                    {"module", s.module},
                    {"start_us", s.start_us},
                    {"duration_us", s.duration_us},
                    {"bytes", s.bytes}});
  Json layers = Json::array();
  for (const CacheLayer& c : l.cache.layers)
    layers.push_back({{"module", c.module},
                      {"kind", c.kind},
                      {"mask", c.mask.kind},
                      {"window", c.mask.window},
                      {"query_heads", c.query_heads},
                      {"kv_heads", c.kv_heads},
                      {"head_dim", c.head_dim},
                      {"sinks", c.sinks},
                      {"softcap", c.softcap}});
  const Json out{{"schema", "tokamak-ledger-1"},
                 {"version", l.version},
                 {"target", l.target},
                 {"model",
                  {{"name", l.model.name},
                   {"type", l.model.type},
                   {"dtype", l.model.dtype},
                   {"parameters", l.model.parameters},
                   {"weight_bytes", l.model.weight_bytes},
                   {"vocab", l.model.vocab},
                   {"captured_nodes", l.model.captured_nodes},
                   {"cached_nodes", l.model.cached_nodes},
                   {"decode_nodes", l.model.decode_nodes},
                   {"prefill_nodes", l.model.prefill_nodes},
                   {"cache_bytes_per_token", l.cache.bytes_per_token()},
                   {"block_size", l.cache.block_size},
                   {"layers", layers}}},
                 {"machine",
                  {{"cpu", l.machine.cpu},
                   {"isa", l.machine.isa},
                   {"threads", l.machine.threads},
                   {"read_bandwidth_gb_s", l.machine.bandwidth / 1e9}}},
                 {"workload",
                  {{"prefill_tokens", l.prefill_tokens},
                   {"decode_context", l.decode_context},
                   {"decode_batch", l.decode_batch}}},
                 {"numerics",
                  {{"captured", json_of(l.captured)},
                   {"cached", json_of(l.cached)},
                   {"optimized", json_of(l.optimized)}}},
                 {"total",
                  {{"captured_decode", json_of(l.captured_decode)},
                   {"decode", json_of(l.total_decode)},
                   {"prefill", json_of(l.total_prefill)}}},
                 {"prediction", prediction_of(l)},
                 {"waterfall", waterfall},
                 {"rows", rows},
                 {"capture_plan",
                  {{"factors", json_of(l.capture.factors)}, {"region", json_of(l.capture.region)}}},
                 {"prefill_buckets", l.prefill_buckets},
                 {"decode_step", step},
                 {"decode_bytes", l.decode_bytes},
                 {"decode_bandwidth_share", l.decode_bandwidth_share},
                 {"seconds", l.seconds}};
  // A name that is not UTF-8 must not stop the report.
  return out.dump(1, ' ', false, Json::error_handler_t::replace) + "\n";
}

}  // namespace tk
