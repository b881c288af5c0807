#include "cli/profile_graph.h"

#include <utility>

#include "cli/subject.h"
#include "npu/lower_graph.h"

namespace tk::cli {
std::vector<GraphKernel> model_kernels(const std::string& path, bool prefill) {
  SubjectOptions options;
  options.prefill = prefill;
  const Graph graph = std::move(open_graph(path, options).graph);
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
