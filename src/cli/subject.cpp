#include "cli/subject.h"

#include <utility>

#include "trial/deployment.h"

namespace tk::cli {

SubjectGraph open_graph(const std::string& path, const SubjectOptions& options) {
  if (is_deployment(path)) {
    Deployment d = load_deployment(path);
    return {d.name, std::move(options.prefill ? d.engine.prefill : d.engine.decode)};
  }
  const CapturedModel model = load_model(path);
  OptimizeOptions o;
  o.target = options.target;
  o.take_pending = true;
  o.block_size = options.block_size;
  Graph decode = std::move(prepare(model, o.block_size).cached.graph);
  if (!options.fuse) return {display_name(model), std::move(decode)};
  Graph prefill = decode.clone();
  apply_all_moves(&prefill, &decode, o);
  return {display_name(model), std::move(options.prefill ? prefill : decode)};
}

}  // namespace tk::cli
