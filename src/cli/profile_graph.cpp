#include "cli/profile_graph.h"

#include "npu/lower_graph.h"
#include "trial/deployment.h"
#include "trial/optimize.h"

namespace tk::cli {
namespace {

Graph graph_of(const std::string& path, bool prefill) {
  if (is_deployment(path)) {
    Deployment d = load_deployment(path);
    return std::move(prefill ? d.engine.prefill : d.engine.decode);
  }
  const CapturedModel model = load_model(path);
  OptimizeOptions o;
  o.target = Target::a3;
  o.take_pending = true;
  Graph decode = std::move(prepare(model, o.block_size).cached.graph);
  Graph fused = decode.clone();
  apply_all_moves(&fused, &decode, o);
  return std::move(prefill ? fused : decode);
}

}  // namespace

std::vector<GraphKernel> model_kernels(const std::string& path, bool prefill) {
  const Graph graph = graph_of(path, prefill);
  // Sizes decide nothing: kernels are compared by what they are for and by their weights.
  StepShape shape;
  shape.tokens = prefill ? 128 : 1;
  shape.kv_len = 128;
  std::vector<GraphKernel> out;
  const Step step = lower_graph(graph, shape, {});
  for (const KernelWork& k : step.kernels()) out.push_back({k.type, k.in_shapes, k.module});
  return out;
}

}  // namespace tk::cli
