// From a captured model to what a Runner takes, without trials.
#pragma once

#include "cpu/plan_cache.h"
#include "cpu/runner.h"
#include "import/model.h"

namespace tk {

// Cached graphs that were derived from `model`, with its weights.
EngineModel engine_model(const CapturedModel& model, Graph prefill, Graph decode,
                         std::int64_t block_size);

// The cached form of the model; with `fuse`, after every adaptable move; found in `cache` and kept
// there, when one is given. Throws TK0810 when the
// model has no weights, and what `prepare` throws.
EngineModel engine_model(const CapturedModel& model, bool fuse, PlanCache* cache = nullptr);

}  // namespace tk
