#include "trial/blueprint.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/limits.h"
#include "moves/fuse/sites.h"
#include "npu/clock.h"
#include "trial/chains.h"
#include "trial/parallel_sites.h"
#include "trial/rows.h"

namespace tk {
namespace {

// A move builds what fits: another operator of the same component is another site of the tree.
std::string site_of(const std::string& id, std::string_view op) {
  const FusionSite* own = find_fusion_site(id);
  if (own == nullptr || has_word(own->operators, op)) return id;
  for (const FusionSite& t : fusion_sites())
    if (t.component == own->component && has_word(t.operators, op)) return std::string(t.id);
  return id;
}

class Analysis {
 public:
  Analysis(const CapturedModel& model, const OptimizeOptions& options, const Scenario& scenario)
      : options_(options) {
    out_.scenario = scenario;
    out_.model = display_name(model);
    options_.target = scenario.target;
    Prepared prepared = prepare(model, options.block_size);
    prefill_ = prepared.cached.graph.clone();
    decode_ = std::move(prepared.cached.graph);
  }

  Blueprint run() {
    decompose(decode_, "decode");
    decompose(prefill_, "prefill");
    const std::int64_t batch = out_.scenario.batch;
    out_.decode_ms_before = decode_ms();
    for (const MoveSites& found : apply_all_moves(&prefill_, &decode_, options_))
      for (const Group& g : grouped(found.sites)) add(found, g);
    out_.decode_ms_after = decode_ms();
    request(decode_, "decode", {batch, batch, options_.decode_context + 1, options_.block_size});
    request(prefill_, "prefill",
            {options_.prefill_tokens, 1, options_.prefill_tokens, options_.block_size});
    add_parallel(decode_, "decode");
    add_parallel(prefill_, "prefill");
    add_quantised();
    review();
    return std::move(out_);
  }

 private:
  double decode_ms() {
    const Scenario& s = out_.scenario;
    const Simulation step =
        NpuClock(name_of(s.target))
            .step(decode_, {s.batch, s.batch, options_.decode_context + 1, options_.block_size});
    out_.band = step.band.p90;
    return step.step_ms();
  }

  void decompose(const Graph& graph, const std::string& phase) {
    std::map<std::pair<std::string, std::string>, Chain> chains;
    std::map<std::pair<std::string, std::string>, std::set<std::string>> modules;
    for (const auto& [node, of] : chains_of(graph)) {
      const auto key = std::make_pair(of.component, of.role);
      Chain& c = chains[key];
      ++c.nodes;
      ++c.ops[std::string(node->op->name)];
      modules[key].insert(class_of_module(node->loc != nullptr ? node->loc->module : ""));
    }
    for (auto& [key, c] : chains) {
      c.component = key.first;
      c.role = key.second;
      c.phase = phase;
      for (const std::string& m : modules[key]) c.modules += cat(c.modules.empty() ? "" : ", ", m);
      out_.chains.push_back(std::move(c));
    }
  }

  // FU-03: what a site leaves to be looked at on its own.
  void uncovered(SiteVerdict* s) const {
    s->covers = roles_of_site(s->id);
    const FusionSite* tree = find_fusion_site(s->id);
    if (tree == nullptr) return;
    std::string component(tree->component.substr(0, tree->component.find('.')));
    if (component == "linear") component = "attention";
    for (const Chain& c : out_.chains)
      if (c.component == component && c.phase == s->phase &&
          std::find(s->covers.begin(), s->covers.end(), c.role) == s->covers.end())
        s->uncovered.push_back(c.role);
  }

  void add(const MoveSites& found, const Group& group) {
    if (found.move->site.empty()) return;
    SiteVerdict s;
    s.id = found.move->site;
    s.phase = found.phase;
    s.place = group.place;
    if (const std::size_t space = s.place.find(' '); space != std::string::npos)
      s.place = s.place.substr(space + 1);
    s.sites = static_cast<std::int64_t>(group.sites.size());
    s.verdict = group.sites[0].verdict;
    const std::string op = operator_of(*found.move, group.sites[0]);
    s.id = site_of(s.id, op.substr(op.find('.') + 1));
    facts(op, &s);
    uncovered(&s);
    out_.sites.push_back(std::move(s));
  }

  static void facts(const std::string& op_name, SiteVerdict* s) {
    s->operators = op_name.substr(op_name.find('.') + 1);
    if (const FusionSite* tree = find_fusion_site(s->id)) s->needs = tree->needs;
    const OpDef* op = find_op(op_name);
    if (op == nullptr || op->npu == nullptr) return;
    s->source = op->npu->source;
    for (const Limit& l : op->npu->limits) s->checks.emplace_back(l.id);
  }

  // With what was refused at the same place as evidence: no operator of the tree does it.
  void request(const Graph& graph, const std::string& phase, const StepShape& size) {
    for (OperatorRequest& r :
         operator_requests(graph, phase, NpuClock(name_of(out_.scenario.target)), size)) {
      for (const SiteVerdict& s : out_.sites)
        if (!s.verdict.ok() && s.phase == phase && s.place == r.module)
          r.refused.push_back(cat(s.id, " ", s.operators, ": ", s.verdict.reason));
      out_.requests.push_back(std::move(r));
    }
  }

  void add_parallel(const Graph& graph, const std::string& phase) {
    for (SiteVerdict& s : parallel_sites(graph, phase, out_.scenario)) {
      facts(s.operators, &s);
      uncovered(&s);
      out_.sites.push_back(std::move(s));
    }
  }

  // FU-04: without a scheme they are not proposed, and that is said.
  void add_quantised() {
    SiteVerdict s;
    for (const FusionSite& t : fusion_sites())
      if (has_word(t.needs, "P-QUANTISED")) s.id += cat(s.id.empty() ? "" : " ", t.id);
    s.phase = "both";
    s.place = "all";
    s.operators = "quantised operators";
    s.needs = "P-QUANTISED";
    s.verdict = {VerdictKind::not_adaptable,
                 "no quantisation scheme is chosen for this model",
                 "P-QUANTISED",
                 {}};
    out_.sites.push_back(std::move(s));
  }

  // FU-08: complete, or what is missing.
  void review() {
    for (const Chain& c : out_.chains)
      if (c.role == "unassigned")
        out_.gate.push_back(cat(c.nodes, " nodes of ", c.phase, " belong to no chain (",
                                c.ops.begin()->first, " ... in ", c.modules, ")"));
    for (const SiteVerdict& s : out_.sites)
      if (!s.verdict.ok() && s.verdict.constraint.empty())
        out_.gate.push_back(cat(s.id, " at ", s.place, " is refused without evidence"));
  }

  OptimizeOptions options_;
  Graph prefill_, decode_;
  Blueprint out_;
};

}  // namespace

Blueprint blueprint(const CapturedModel& model, const OptimizeOptions& options,
                    const Scenario& scenario) {
  return Analysis(model, options, scenario).run();
}

}  // namespace tk
