// Profile files as bytes: plain or gzip (told by content, not by name), read as a stream or whole.
#pragma once

#include <cstdint>
#include <filesystem>
#include <memory>
#include <string>

namespace tk {

// Reads on from where it was. Throws TK0901 (cannot be read) and TK0902 (damaged gzip data).
class ByteStream {
 public:
  static std::unique_ptr<ByteStream> open(const std::filesystem::path& path);
  virtual ~ByteStream() = default;
  // Fills up to n bytes; fewer only at the end, 0 after it.
  virtual std::size_t read(char* to, std::size_t n) = 0;
  // Passes over n bytes.
  virtual void skip(std::uint64_t n) = 0;
};

// Frees what allocate_bytes gave.
struct FreeBytes {
  std::size_t mapped = 0;  // 0: from new[]
  void operator()(char* p) const;
};
using Bytes = std::unique_ptr<char[], FreeBytes>;
// Not initialised; large ones on huge pages, as touching 200 MB in small ones costs as much as
// reading them.
Bytes allocate_bytes(std::size_t n);
// A hint that this memory, not touched yet, will be written from end to end: fewer page faults.
void prefer_large_pages(void* begin, std::size_t bytes);

// Bytes with room behind them, so that a vector load may run past the end.
struct Buffer {
  Bytes data;
  std::size_t size = 0;
  std::string_view text() const { return {data.get(), size}; }
};
constexpr std::size_t buffer_padding = 64;

// Throws as ByteStream, and TK0903 above `limit` bytes (a gzip bomb, or not what the file says).
Buffer read_whole(const std::filesystem::path& path, std::uint64_t limit = std::uint64_t{4} << 30);

// As read_whole; a plain file is mapped, as fresh memory for its bytes costs more than parsing
// them. The profile must not be written to meanwhile.
Buffer map_whole(const std::filesystem::path& path);

// The file itself, or the same name with .gz behind; empty if neither is there.
std::filesystem::path file_or_gz(const std::filesystem::path& path);

}  // namespace tk
