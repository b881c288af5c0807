#include "trial/engine_model.h"

#include "base/error.h"
#include "trial/optimize.h"

namespace tk {

EngineModel engine_model(const CapturedModel& model, Graph prefill, Graph decode,
                         std::int64_t block_size) {
  prefill.erase_unused_weights();
  decode.erase_unused_weights();
  return {.prefill = std::move(prefill),
          .decode = std::move(decode),
          .weights = model.weights,
          .block_size = block_size,
          .max_positions = model.config.max_positions};
}

EngineModel engine_model(const CapturedModel& model, bool fuse, PlanCache* cache) {
  if (!model.has_weights)
    throw UserError("TK0810",
                    cat("the model in ", model.folder.string(), " has no weights: it can't be run"))
        .help("tokamak inspect shows its structure");
  const OptimizeOptions defaults;
  std::string key;
  if (cache != nullptr) {
    key = cat(plan_key_of_this_machine(), "fuse ", fuse, "\nblock size ", defaults.block_size,
              "\npositions ", model.config.max_positions, "\n", print(model.graph));
    if (auto found = cache->find(key))
      return engine_model(model, std::move(found->at(0)), std::move(found->at(1)),
                          defaults.block_size);
  }
  Graph decode = std::move(prepare(model, defaults.block_size).cached.graph);
  Graph prefill = decode.clone();
  if (fuse) apply_all_moves(&prefill, &decode, defaults);
  if (cache != nullptr) {
    const Graph* const plans[] = {&prefill, &decode};
    cache->store(key, plans);
  }
  return engine_model(model, std::move(prefill), std::move(decode), defaults.block_size);
}

}  // namespace tk
