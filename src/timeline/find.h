// Finds the profiles in a folder (BD-10): torch_npu's and msprof's layouts, older places, renamed
// files (told by their header), or a single file.
#pragma once

#include <filesystem>
#include <optional>
#include <string>
#include <vector>

namespace tk {

// The files of one rank or device; empty paths are absent.
struct ProfileFiles {
  std::filesystem::path root;    // what a person calls it: the *_ascend_pt or PROF_* folder
  std::filesystem::path folder;  // that holds the tables
  std::filesystem::path kernels, trace, step_trace, communication, communication_matrix;
  std::filesystem::path op_statistic, api_statistic, operator_details, info, metadata;
  std::string layout;  // torch_npu, msprof, file
  std::string stage;   // prefill, decode or empty: from the folder names
  std::optional<int> rank;
};

// Throws TK0910 if there is none, saying where and what was looked for.
std::vector<ProfileFiles> find_profiles(const std::filesystem::path& path);

std::string describe(const ProfileFiles& files);  // "rank 0, decode: DIR"

}  // namespace tk
