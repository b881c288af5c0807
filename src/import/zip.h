// Reading zip archives (.pt2 files) out of memory, as a rule a mapped file.
//
// The central directory is checked whole when the archive is opened: every entry lies inside the
// file, none overlaps another, names are plain and occur once, and what the deflated entries claim
// to hold is in proportion to the file, so that memory is bounded before anything is inflated.
// We read the directory ourselves because libzip does not tell where a stored entry begins, and
// weights are to be used where they lie. Format: PKWARE's APPNOTE.TXT, sections 4.3 and 4.5.3.
#pragma once

#include <cstddef>
#include <cstdint>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

namespace tk {

struct ZipEntry {
  std::string name;
  bool is_stored = true;          // the bytes lie in the archive as they are
  int method = 0;                 // as in the archive: 0 stored, 8 deflated, others cannot be read
  bool encrypted = false;         // cannot be read
  std::uint64_t offset = 0;       // of the data, from the start of the archive
  std::uint64_t packed_size = 0;  // in the archive, in bytes
  std::uint64_t size = 0;         // when read, in bytes
  std::uint32_t crc = 0;          // of what is read
};

class Zip {
 public:
  Zip(Zip&&) = default;
  Zip& operator=(Zip&&) = default;
  Zip(const Zip&) = delete;  // names are looked up by views into entries_
  Zip& operator=(const Zip&) = delete;

  // Throws TK0130 (not a zip archive, or cut short), TK0131 (its directory contradicts itself),
  // TK0132 (in several parts), TK0133 (would inflate to far more than the file), and those of
  // MappedFile::open.
  static Zip open(const std::filesystem::path& path);
  // `file` is the name for messages; `owner` keeps the bytes alive, or the caller does.
  static Zip parse(std::span<const std::byte> bytes, std::string_view file,
                   std::shared_ptr<const void> owner = nullptr);

  const std::vector<ZipEntry>& entries() const { return entries_; }  // directories left out
  const ZipEntry* find(std::string_view name) const;                 // nullptr when absent

  // The data of a stored entry, in place. Not checked against its checksum: that would touch every
  // page of the weights.
  std::span<const std::byte> stored(const ZipEntry& entry) const;

  // The data of any entry, copied or inflated, and checked. Throws TK0132 (encrypted, or a method
  // other than stored and deflated) and TK0134 (damaged). `out` has entry.size bytes.
  void read_into(const ZipEntry& entry, std::span<std::byte> out) const;
  std::string read(const ZipEntry& entry) const;

  const std::string& file() const { return file_; }
  // What keeps stored() alive.
  const std::shared_ptr<const void>& owner() const { return owner_; }

 private:
  Zip() = default;
  std::span<const std::byte> bytes_;
  std::string file_;
  std::shared_ptr<const void> owner_;
  std::vector<ZipEntry> entries_;
  std::unordered_map<std::string_view, std::size_t> by_name_;  // index into entries_
};

}  // namespace tk
