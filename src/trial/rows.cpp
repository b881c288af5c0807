#include "trial/rows.h"

#include <algorithm>

#include "base/error.h"
#include "graph/rewrite.h"

namespace tk {
namespace {

// Class keys start with the move's name, which the row has already.
std::string without(const std::string& prefix, std::string text) {
  for (std::size_t at; (at = text.find(prefix)) != std::string::npos;)
    text.erase(at, prefix.size());
  return text;
}

}  // namespace

double seconds_since(Clock::time_point start) {
  return std::chrono::duration<double>(Clock::now() - start).count();
}

std::string name_of_phase(Phase p) { return p == Phase::decode ? "decode" : "prefill"; }

std::span<const Move> candidates(const OptimizeOptions& o) {
  return o.candidates.empty() ? all_moves() : o.candidates;
}

bool wanted(const Move& move, Phase phase, const OptimizeOptions& o) {
  if (move.where != Where::any && (move.where == Where::cpu) != (o.target == Target::cpu))
    return false;
  if (move.phases == Phases::decode && phase != Phase::decode) return false;
  if (move.phases == Phases::prefill && phase != Phase::prefill) return false;
  if (phase == Phase::decode ? !o.decode : !o.prefill) return false;
  const auto in = [&](const std::vector<std::string>& list) {
    return std::find(list.begin(), list.end(), move.name) != list.end();
  };
  return (o.moves.empty() || in(o.moves)) && !in(o.disabled);
}

std::vector<Site> sites_of(const Move& move, const Graph& graph, const OptimizeOptions& o) {
  std::vector<Site> sites = move.find(graph, o.target);
  if (!o.take_pending) return sites;
  for (Site& s : sites) {
    if (s.verdict.kind != VerdictKind::pending) continue;
    s.verdict.kind = VerdictKind::adaptable;
    s.verdict.notes.push_back(cat("taken although pending: ", s.verdict.reason));
    s.verdict.constraint.clear();
    s.verdict.reason.clear();
  }
  return sites;
}

std::vector<Group> grouped(std::vector<Site> sites) {
  std::vector<Group> groups;
  for (Site& s : sites) {
    auto it = std::find_if(groups.begin(), groups.end(), [&](const Group& g) {
      return g.place == s.class_key && g.sites[0].verdict.kind == s.verdict.kind;
    });
    if (it == groups.end()) {
      groups.push_back({s.class_key, {}});
      it = groups.end() - 1;
    }
    it->sites.push_back(std::move(s));
  }
  return groups;
}

Ledger::ModelFacts facts_of(const CapturedModel& model, const Prepared& prepared) {
  Ledger::ModelFacts f;
  f.name = display_name(model);
  f.type = model.config.model_type;
  f.dtype = name_of(model.graph.outputs().at(0)->type.dtype);
  for (const auto& w : prepared.cached.graph.weights()) {
    const Sym n = w->type.numel();
    if (!n.is_const()) continue;
    f.parameters += n.value();
    f.weight_bytes += n.value() * static_cast<std::int64_t>(size_of(w->type.dtype));
  }
  const Sym& vocab = model.graph.outputs().at(0)->type.shape.back();
  f.vocab = vocab.is_const() ? vocab.value() : 0;
  f.captured_nodes = static_cast<std::int64_t>(model.graph.n_nodes());
  f.cached_nodes = static_cast<std::int64_t>(prepared.cached.graph.n_nodes());
  return f;
}

std::string operator_of(const Move& move, const Site& site) {
  const auto variant = static_cast<std::size_t>(site.variant);
  if (variant < move.rewrites.size() && !move.rewrites[variant].target.empty())
    return move.rewrites[variant].target;
  return move.target_op;
}

LedgerRow row_of(const Move& move, Phase phase, const Group& group) {
  LedgerRow row;
  row.stage = "fuse";
  row.move = move.name;
  row.doc = move.doc;
  row.target_op = move.target_op;
  row.phase = name_of_phase(phase);
  row.place = without(move.name + " ", group.place);
  row.sites = static_cast<int>(group.sites.size());
  if (!group.sites.empty()) {
    row.source = group.sites[0].place;
    row.target_op = operator_of(move, group.sites[0]);
    row.verdict = group.sites[0].verdict;
  }
  return row;
}

LedgerRow empty_row(const Move& move, Phase phase, const Graph& graph) {
  LedgerRow row = row_of(move, phase, {});
  row.verdict.kind = VerdictKind::not_adaptable;
  row.verdict.constraint = "no-site";
  for (const Rewrite& rewrite : move.rewrites) {
    row.verdict.reason = why_not(rewrite, graph);
    if (!row.verdict.reason.empty()) break;
  }
  if (row.verdict.reason.empty()) row.verdict.reason = "the chain does not occur in this graph";
  row.why = cat("no site: ", row.verdict.reason);
  return row;
}

}  // namespace tk
