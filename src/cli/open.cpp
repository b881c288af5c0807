#include "cli/open.h"

#include <fmt/format.h>

#include <optional>

#include "trial/deployment.h"
#include "trial/engine_model.h"

namespace tk::cli {

Opened open_model(const std::string& path, bool fuse, const std::string& plan_cache) {
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
  std::optional<PlanCache> cache;
  if (!plan_cache.empty()) cache.emplace(plan_cache);
  out.engine = engine_model(model, fuse, cache ? &*cache : nullptr);
  if (cache && !cache->warning().empty()) fmt::print(stderr, "warning: {}\n", cache->warning());
  out.config = model.config;
  out.folder = model.folder;
  out.tokenizer_path = model.tokenizer_path;
  return out;
}

}  // namespace tk::cli
