// Kernels and trace cut per component (BD §11).
#pragma once

#include <filesystem>
#include <string>

#include "timeline/structure.h"

namespace tk {

std::string split_folder(const Component& c);  // L017_main_moe

// Writes splits/<folder>/{kernels.csv,trace_view.json} and manifest.json under `run`. Every
// operator lies in exactly one folder. The trace is synthesized from the kernels. Throws TK0919 if
// the operators are no partition.
void write_splits(const std::filesystem::path& run, const Timeline& t, const StepOps& ops,
                  const Structure& s);

}  // namespace tk
