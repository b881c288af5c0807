// The file that keeps packed weights from one process to the next: one for each set of weights, in
// $TOKAMAK_CACHE, else $XDG_CACHE_HOME/tokamak or ~/.cache/tokamak. TOKAMAK_CACHE=off: none.
//
// Nothing is trusted: a file of another user, one that others may write, of another version or of
// other weights, cut short, or whose contents have not the checksums of its table, is as good as
// none, and is replaced at the next `write`.
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
  // Fills out[0 .. bytes) with what was written under the key. False: not there, or damaged; then
  // `out` holds anything.
  bool read(const std::string& key, std::byte* out, std::int64_t bytes, Team* team) const;
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
  std::map<std::string, Entry, std::less<>> entries_;
};

}  // namespace tk
