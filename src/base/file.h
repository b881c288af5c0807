// Files: mapped for reading, written atomically.
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>

namespace tk {

// A read-only mapping of a whole file; pages are loaded when touched.
class MappedFile {
 public:
  // Throws TK0101 (cannot be opened) or TK0102 (not a regular file).
  static std::shared_ptr<const MappedFile> open(const std::filesystem::path& path);
  ~MappedFile();
  MappedFile(const MappedFile&) = delete;
  MappedFile& operator=(const MappedFile&) = delete;

  std::span<const std::byte> bytes() const { return {data_, size_}; }
  std::string_view text() const { return {reinterpret_cast<const char*>(data_), size_}; }
  const std::filesystem::path& path() const { return path_; }

 private:
  MappedFile() = default;
  std::filesystem::path path_;
  const std::byte* data_ = nullptr;
  std::size_t size_ = 0;
};

// Which file lies at an address, and where in it; empty when none is mapped there. The stamp names
// a file and its state: device, inode, size and time of change.
struct MappedPlace {
  std::string stamp;
  std::size_t offset = 0;
};
MappedPlace mapped_place(const void* p);
// Gives back the pages of a mapped file in [p, p + bytes): they are read again when touched. Memory
// that is no mapped file stays as it is.
void release_pages(const void* p, std::size_t bytes);

std::string read_file(const std::filesystem::path& path);  // throws TK0101

// A file that appears under its name only when it is whole: written beside the target, then
// renamed, so that readers see the old file or the new one, never a part. Without commit() nothing
// is left. Throws TK0103.
class AtomicFile {
 public:
  explicit AtomicFile(const std::filesystem::path& path);
  ~AtomicFile();
  AtomicFile(const AtomicFile&) = delete;
  AtomicFile& operator=(const AtomicFile&) = delete;

  void write(std::string_view bytes);
  void commit();

 private:
  [[noreturn]] void failed(const char* what) const;
  std::filesystem::path path_, temporary_;
  int fd_ = -1;
};

void write_file(const std::filesystem::path& path, std::string_view text);  // an AtomicFile at once

}  // namespace tk
