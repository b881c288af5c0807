// The findings of capturability.h as JSON, for inspect --graph-mode and for the ledger.
#pragma once

#include <nlohmann/json.hpp>

#include "trial/capturability.h"

namespace tk {

nlohmann::ordered_json json_of(const std::vector<CaptureFactor>& factors);
nlohmann::ordered_json json_of(const CaptureRegion& region);

}  // namespace tk
