// Rewritten graphs on disk, so that a process that starts again need not rewrite them (GM-38). Only
// graphs are kept: what is computed from weights is a copy of memory, and is as fast to make anew.
#pragma once

#include <cstdint>
#include <filesystem>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tk {

// One file for each key, "<hash of the key>.plan", readable and writable by its owner alone:
//   "tokamak plan 1\n"  "<bytes of the key> <bytes of the rest> <checksum>\n"  key  graphs
// A file is used when all of it is as it was written and its key is equal to the one asked for,
// byte for byte; the hash only finds it.
class PlanCache {
 public:
  // Makes the folder (mode 700) when it is not there. Throws TK1505 when it is not a folder, is
  // another user's or can be written by others, and TK0103 when it cannot be made.
  explicit PlanCache(std::filesystem::path folder);

  // The graphs that were stored under `key`. Without them: `warning()` says why a file that is
  // there is not used, or is empty when there is none.
  std::optional<std::vector<Graph>> find(std::string_view key);
  // Replaces what is there, unless `find` refused it as another's. A disk that is full is a
  // `warning()`, nothing more.
  void store(std::string_view key, std::span<const Graph* const> graphs);

  const std::string& warning() const { return warning_; }
  std::filesystem::path file_of(std::string_view key) const;

 private:
  std::filesystem::path folder_;
  std::string warning_;
  bool refused_ = false;
};

// What every key begins with: version and build of this program, the processor's instructions, the
// user.
std::string plan_key_of_this_machine();

// FNV-1a, 64 bits: to find a file and to see an accident, not an attack; against that the file is
// its owner's alone.
std::uint64_t fnv1a(std::string_view bytes, std::uint64_t from = 14695981039346656037ULL);

}  // namespace tk
