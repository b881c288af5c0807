#include "cli/open.h"

#include "trial/deployment.h"
#include "trial/engine_model.h"

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
  const CapturedModel model = load_model(path);
  out.engine = engine_model(model, fuse);
  out.config = model.config;
  out.folder = model.folder;
  out.tokenizer_path = model.tokenizer_path;
  return out;
}

}  // namespace tk::cli
