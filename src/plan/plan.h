// A Graph prepared to run: what depends on weights only is evaluated once, the rest are steps.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/tensor.h"
#include "graph/graph.h"
#include "graph/weights.h"

namespace tk {

// One node that runs on every replay. Values are numbered densely: see Plan::values.
struct PlanStep {
  const Node* node = nullptr;
  std::vector<int> inputs;  // value ids; -1 where an optional one is absent
  std::vector<int> outputs;
};

struct Plan {
  Graph graph;
  std::vector<const Value*> values;  // by id: inputs, weights, states, results of nodes
  std::vector<PlanStep> steps;       // in the graph's order
  std::vector<Tensor> constants;     // by id: weights and values computed once; data null otherwise
  std::vector<bool> packed;          // by id: a constant in a layout that only its kernel knows
  std::vector<int> inputs, states, outputs;  // ids, in the graph's order
  std::vector<int> last_use;    // by id: index of the last step that reads it; steps.size() for an
                                // output of the graph, -1 when nothing does
  std::size_t n_once = 0;       // nodes evaluated once, not part of the steps
  std::int64_t once_bytes = 0;  // memory that they added to the weights

  int input_id(std::string_view name) const;  // -1 when there is none
};

// What was computed once, by what it was computed from, so that the plans of prefill and decode
// share one copy. For one set of weights; lives as long as plans are to be added; not thread-safe.
class ConstantPool {
 public:
  const std::vector<Tensor>* find(const std::string& key) const;
  void add(std::string key, std::vector<Tensor> results);

 private:
  std::map<std::string, std::vector<Tensor>, std::less<>> results_;
};

// An input of a step that is a weight or computed from weights, offered to whom runs the plan, so
// that it can be kept in the layout of a kernel instead. `key` names its contents: equal for equal
// contents in all plans of the same weights, and from one process to the next. `value` computes it,
// anew at each call.
struct ConstantInput {
  const Node& node;
  int input;
  const std::string& key;
  std::function<Tensor()> value;
};
// The tensor that takes its place, of the same type but for the order of its elements, or one
// without data: it stays as it is.
using PackConstant = std::function<Tensor(const ConstantInput&)>;

// Takes the graph over and evaluates what the steps need of its once part with OpDef.eval. Throws
// TK0503 when a weight is missing, TK0504 when one has another type than the graph says, and what
// eval throws.
Plan make_plan(Graph graph, const Weights& weights, ConstantPool* pool = nullptr,
               const PackConstant& pack = nullptr);

}  // namespace tk
