// `tokamak profile --check DIR`: is a collection usable, and what to set if not (profiling.md §4).
#pragma once

#include <nlohmann/json_fwd.hpp>
#include <string>
#include <vector>

#include "timeline/options.h"

namespace tk {

enum class CheckStatus { ok, warn, fail };

struct CheckItem {
  std::string id;  // PF-30 ...
  std::string what;
  CheckStatus status = CheckStatus::ok;
  std::string found, expected, advice;
};

struct CheckReport {
  std::vector<CheckItem> items;
  std::string level, metrics, origin;
  std::vector<std::string> steps, ranks;
  bool usable() const;  // nothing failed
};

// Throws UserError only for a path that does not exist or is no folder or profile file.
CheckReport check_profile(const ProfileOptions& options);
nlohmann::json check_json(const CheckReport& report);
std::string check_text(const CheckReport& report);

}  // namespace tk
