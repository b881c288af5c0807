// What needs no run: the cached form, all sites, their verdicts.
#include "base/error.h"
#include "cpu/isa.h"
#include "moves/canonical/canonical.h"
#include "trial/capture_trial.h"
#include "trial/machine.h"
#include "trial/rows.h"

namespace tk {

std::string display_name(const CapturedModel& model) {
  std::string stem = model.graph_path.stem().string();
  if (stem != "model" && !stem.empty()) return stem;
  const std::filesystem::path folder = std::filesystem::absolute(model.folder).lexically_normal();
  return folder.filename().empty() ? folder.parent_path().filename().string()
                                   : folder.filename().string();
}

Prepared prepare(const CapturedModel& model, std::int64_t block_size) {
  Prepared p;
  p.captured = model.graph.clone();
  canonicalize(p.captured);
  FlattenOptions options;
  options.block_size = block_size;
  p.cached = flatten(p.captured, model.has_weights ? &model.weights : nullptr, options);
  canonicalize(p.cached.graph);
  p.cached.graph.erase_unused_weights();
  if (model.config.max_positions > 0)
    p.cached.graph.ranges["positions"] = {0, model.config.max_positions - 1};
  verify(p.cached.graph, "flatten");
  return p;
}

std::vector<MoveSites> apply_all_moves(Graph* prefill, Graph* decode,
                                       const OptimizeOptions& options) {
  std::vector<MoveSites> all;
  for (const Move& move : candidates(options))
    for (Phase phase : phases) {
      if (!wanted(move, phase, options)) continue;
      Graph& g = phase == Phase::decode ? *decode : *prefill;
      MoveSites found{&move, name_of_phase(phase), sites_of(move, g, options)};
      for (int round = 0; round < 3; ++round) {
        const std::vector<Site> sites = round == 0 ? found.sites : sites_of(move, g, options);
        if (move.apply(g, sites) == 0) break;
        g.erase_dead();
      }
      verify(g, move.name);
      all.push_back(std::move(found));
    }
  return all;
}

Ledger analyse(const CapturedModel& model, const OptimizeOptions& options) {
  const auto start = Clock::now();
  Prepared prepared = prepare(model, options.block_size);
  Ledger ledger;
  ledger.version = TK_VERSION;
  ledger.target = name_of(options.target);
  ledger.machine.cpu = cpu_name();
  ledger.machine.isa = isa_name();
  ledger.model = facts_of(model, prepared);
  ledger.cache = prepared.cached.cache;
  Graph prefill = prepared.cached.graph.clone();
  Graph decode = std::move(prepared.cached.graph);
  for (const MoveSites& found : apply_all_moves(&prefill, &decode, options)) {
    const Phase phase = found.phase == "decode" ? Phase::decode : Phase::prefill;
    if (found.sites.empty()) {
      ledger.rows.push_back(
          empty_row(*found.move, phase, phase == Phase::decode ? decode : prefill));
      ledger.rows.back().id = static_cast<int>(ledger.rows.size());
    }
    for (const Group& g : grouped(found.sites)) {
      LedgerRow row = row_of(*found.move, phase, g);
      row.id = static_cast<int>(ledger.rows.size()) + 1;
      row.why = row.verdict.ok() ? "analysis only: not tried" : row.verdict.reason;
      ledger.rows.push_back(std::move(row));
    }
  }
  ledger.capture = {capture_factors(model.graph, CaptureBackend::npugraph_ex),
                    capture_region(decode)};
  for (const Phase phase : phases) {
    if (!capture_wanted(options) || (phase == Phase::decode ? !options.decode : !options.prefill))
      continue;
    LedgerRow row = capture_row(phase == Phase::decode ? decode : prefill, phase, options.target);
    row.id = static_cast<int>(ledger.rows.size()) + 1;
    row.why = row.verdict.ok() ? "analysis only: not tried" : row.verdict.reason;
    ledger.rows.push_back(std::move(row));
  }
  ledger.model.decode_nodes = static_cast<std::int64_t>(decode.n_nodes());
  ledger.model.prefill_nodes = static_cast<std::int64_t>(prefill.n_nodes());
  ledger.seconds = seconds_since(start);
  return ledger;
}

}  // namespace tk
