#include "cli/open.h"

#include "base/error.h"
#include "trial/deployment.h"
#include "trial/optimize.h"

namespace tk::cli {

Opened open_model(const std::string& path, bool fuse) {
  Opened out;
  if (is_deployment(path)) {
    Deployment d = load_deployment(path);
    out.engine = std::move(d.engine);
    out.config = std::move(d.config);
    out.folder = d.folder;
    out.tokenizer_path = d.tokenizer_path;
    return out;
  }
  CapturedModel model = load_model(path);
  if (!model.has_weights)
    throw UserError("TK0810",
                    cat("the model in ", model.folder.string(), " has no weights: it can't be run"))
        .help("tokamak inspect shows its structure");
  constexpr std::int64_t block_size = 128;
  Prepared p = prepare(model, block_size);
  out.engine.prefill = p.cached.graph.clone();
  out.engine.decode = std::move(p.cached.graph);
  if (fuse) apply_all_moves(&out.engine.prefill, &out.engine.decode, {});
  out.engine.prefill.erase_unused_weights();
  out.engine.decode.erase_unused_weights();
  out.engine.weights = std::move(model.weights);
  out.engine.block_size = block_size;
  out.engine.max_positions = model.config.max_positions;
  out.config = model.config;
  out.folder = model.folder;
  out.tokenizer_path = model.tokenizer_path;
  return out;
}

}  // namespace tk::cli
