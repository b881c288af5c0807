// One profile from its files to its pages.
#pragma once

#include <filesystem>
#include <string>

#include "timeline/find.h"
#include "timeline/options.h"

namespace tk {

struct RunResult {
  int code = 0;                      // 1: a gate failed, no page
  std::string label, text, history;  // for the terminal; for HISTORY.md
  std::filesystem::path run_folder, page_folder;
};

// An empty folder: perf_breakdown/<label>. Throws UserError (TK0916: inside the profile).
RunResult run_profile(const ProfileFiles& files, const ProfileOptions& options,
                      const std::filesystem::path& folder);

// Nothing is ever written into a profile (BD-01): throws TK0916.
void refuse_inside(const std::filesystem::path& results, const ProfileFiles& files);

// The name of the folder of one of several profiles: rank0_decode.
std::string rank_folder(const ProfileFiles& files);

}  // namespace tk
