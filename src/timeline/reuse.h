// A person's structure, samples and rules in a results' folder, taken over by the next profile as
// far as it is alike (BD-20..23, BD-62). What was made automatically is made anew.
#pragma once

#include <filesystem>
#include <map>
#include <string>

#include "timeline/step_ops.h"

namespace tk {

struct Reuse {
  std::string tier;  // small, medium, large, same profile; empty: nothing of a person's is there
  std::string text;  // the tier and its signals, for stdout and HISTORY.md
  std::filesystem::path structure, samples, rules;  // to take; empty: anew
};

// What a run wrote itself, by file name: a file with another hash was changed by a person.
using WrittenFiles = std::map<std::string, std::string>;
std::string file_hash(std::string_view text);
WrittenFiles written_files(const std::filesystem::path& run);  // of the folder's last run
bool edited(const std::filesystem::path& run, const WrittenFiles& written, const std::string& name);

// The tier of the profile against the folder's last one (raw_ops.json): same names, counts of the
// samples' anchors, places of the samples, shapes of the anchors. `mode`: auto, all, spec, none.
// In the small tier the samples' indices are moved to this profile's and the file is rewritten.
Reuse find_reuse(const std::filesystem::path& run, const std::string& mode, const Timeline& t,
                 const StepOps& ops);

}  // namespace tk
