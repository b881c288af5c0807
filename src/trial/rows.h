// Rows of the Ledger and what belongs in them: which moves are considered, sites grouped by place.
#pragma once

#include <chrono>
#include <span>
#include <string>
#include <vector>

#include "trial/optimize.h"

namespace tk {

using Clock = std::chrono::steady_clock;
double seconds_since(Clock::time_point start);

constexpr Phase phases[] = {Phase::decode, Phase::prefill};
std::string name_of_phase(Phase p);

std::span<const Move> candidates(const OptimizeOptions& o);
bool wanted(const Move& move, Phase phase, const OptimizeOptions& o);

// The sites of a move for the options' target. With take_pending those are adaptable that only a
// document's silence about the device left pending.
std::vector<Site> sites_of(const Move& move, const Graph& graph, const OptimizeOptions& o);

// One row a group of sites: the same place in all layers with the same verdict.
struct Group {
  std::string place;
  std::vector<Site> sites;
};
std::vector<Group> grouped(std::vector<Site> sites);

// The operator that a move builds at a site: that of the rewrite that found it.
std::string operator_of(const Move& move, const Site& site);

Ledger::ModelFacts facts_of(const CapturedModel& model, const Prepared& prepared);
LedgerRow row_of(const Move& move, Phase phase, const Group& group);
// A move that has nothing to do here says why.
LedgerRow empty_row(const Move& move, Phase phase, const Graph& graph);

}  // namespace tk
