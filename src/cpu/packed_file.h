// The file that keeps packed weights from one process to the next: one for each set of weights, in
// $TOKAMAK_CACHE, else $XDG_CACHE_HOME/tokamak or ~/.cache/tokamak. TOKAMAK_CACHE=off: none.
//
// Nothing is trusted: a file of another user, one that others may write, of another version or of
// other weights, cut short, or whose contents have not the checksums of its table, is as good as
// none, and is replaced at the next `write`. What was found good is mapped, not copied: processes
// share the memory, and a start costs one pass over it for the checksums.
#pragma once

#include <cstddef>
#include <filesystem>
#include <map>
#include <memory>
#include <string>

#include "base/tensor.h"
#include "base/threads.h"

namespace tk {

class PackedFile {
 public:
  // For the weights that `identity` describes in full. Null when there is no folder for it.
  static std::unique_ptr<PackedFile> find(const std::string& identity);
  ~PackedFile();
  PackedFile(const PackedFile&) = delete;
  PackedFile& operator=(const PackedFile&) = delete;

  bool has(const std::string& key, std::int64_t bytes) const;
  // What was written under the key, u8 [bytes], to be read only; without data when it is not there
  // or damaged.
  Tensor map(const std::string& key, std::int64_t bytes, Team* team) const;
  // Replaces the file as a whole, by renaming. False when the disk has no room or the folder can't
  // be written: the cache is only a help.
  bool write(const std::map<std::string, Tensor, std::less<>>& tensors) const;
  const std::filesystem::path& path() const { return path_; }

 private:
  struct Entry {
    std::int64_t offset = 0, bytes = 0;
    std::uint64_t checksum = 0;
  };
  PackedFile() = default;
  void open();
  std::filesystem::path path_;
  std::string identity_;
  int fd_ = -1;
  std::shared_ptr<void> mapped_;  // the whole file, once its table is good
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tk
