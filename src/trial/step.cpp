#include "trial/step.h"

#include "base/error.h"
#include "graph/extract.h"
#include "ops/interpret.h"

namespace tk {

std::vector<Tensor> step_inputs(const Graph& graph, const std::vector<std::int64_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  const auto i32 = [](std::int64_t v, const Dims& shape) {
    Tensor t = Tensor::empty(DType::i32, shape);
    set_element(t, 0, static_cast<double>(v));
    return t;
  };
  std::vector<Tensor> inputs;
  for (const auto& v : graph.inputs()) {
    if (v->name == "block_table") {
      inputs.push_back(i32(1, {1, 1}));
    } else if (v->name == "query_lens" || v->name == "kv_lens") {
      inputs.push_back(i32(n, {1}));
    } else {
      Tensor t = Tensor::empty(DType::i64, {n});
      for (std::int64_t i = 0; i < n; ++i) {
        std::int64_t x = i;  // position_ids, logit_rows
        if (v->name == "input_ids") x = ids[static_cast<std::size_t>(i)];
        if (v->name == "slot_mapping") {
          TK_CHECK(!graph.states().empty() && n <= graph.states()[0]->type.dim(1).value(),
                   "one block");
          x = graph.states()[0]->type.dim(1).value() + i;
        }
        t.as<std::int64_t>()[i] = x;
      }
      inputs.push_back(std::move(t));
    }
  }
  return inputs;
}

States step_states(const Graph& graph) {
  States states;
  for (const auto& v : graph.states())
    states[v->name] = Tensor::zeros(v->type.dtype, concrete(v->type.shape, {{"NB", 2}}));
  return states;
}

std::vector<Tensor> record(const Graph& graph, const std::vector<Value*>& values,
                           const Weights& weights, const std::vector<std::int64_t>& ids) {
  const Graph part = extract(graph, values);
  States states = step_states(part);
  return interpret(part, step_inputs(part, ids), weights, &states);
}

}  // namespace tk
