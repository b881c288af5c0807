#include "timeline/input.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <cerrno>
#include <cstring>
#include <new>
#include <vector>

#include "base/error.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

UserError cannot_read(const fs::path& path, const std::string& why) {
  return UserError("TK0901", cat("cannot read ", path.string(), ": ", why))
      .help("check the path and the permissions of the file");
}

class PlainStream : public ByteStream {
 public:
  PlainStream(fs::path path, int fd) : path_(std::move(path)), fd_(fd) {}
  ~PlainStream() override { ::close(fd_); }
  std::size_t read(char* to, std::size_t n) override {
    std::size_t got = 0;
    while (got < n) {
      const ssize_t r = ::read(fd_, to + got, std::min<std::size_t>(n - got, 1u << 30));
      if (r == 0) break;
      if (r < 0) {
        if (errno == EINTR) continue;
        throw cannot_read(path_, std::strerror(errno));
      }
      got += static_cast<std::size_t>(r);
    }
    return got;
  }
  void skip(std::uint64_t n) override {
    if (::lseek(fd_, static_cast<off_t>(n), SEEK_CUR) < 0)
      throw cannot_read(path_, std::strerror(errno));
  }

 private:
  fs::path path_;
  int fd_;
};

class GzipStream : public ByteStream {
 public:
  GzipStream(fs::path path, int fd) : path_(std::move(path)), file_(gzdopen(fd, "rb")) {
    if (!file_) {
      ::close(fd);
      throw cannot_read(path_, "not enough memory for zlib");
    }
    gzbuffer(file_, 256 << 10);
  }
  ~GzipStream() override { gzclose_r(file_); }
  std::size_t read(char* to, std::size_t n) override {
    std::size_t got = 0;
    while (got < n) {
      const int r =
          gzread(file_, to + got, static_cast<unsigned>(std::min<std::size_t>(n - got, 64 << 20)));
      int code = Z_OK;
      const char* what = gzerror(file_, &code);
      if (r < 0 || (code != Z_OK && code != Z_STREAM_END))
        throw UserError("TK0902", cat(path_.string(), " is damaged gzip data: ",
                                      code == Z_BUF_ERROR ? "it ends early" : what))
            .help("copy the file again, or unpack it with `gzip -t` to see where it breaks");
      if (r == 0) break;
      got += static_cast<std::size_t>(r);
    }
    return got;
  }
  void skip(std::uint64_t n) override {
    std::vector<char> passed(std::min<std::uint64_t>(n, 1 << 20));
    while (n > 0) {
      const std::size_t got = read(passed.data(), std::min<std::uint64_t>(n, passed.size()));
      if (got == 0) return;
      n -= got;
    }
  }

 private:
  fs::path path_;
  gzFile file_;
};

int open_regular(const fs::path& path, std::uint64_t* size) {
  const int fd = ::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NONBLOCK);
  if (fd < 0) throw cannot_read(path, std::strerror(errno));
  struct stat st;
  if (::fstat(fd, &st) != 0 || !S_ISREG(st.st_mode)) {
    ::close(fd);
    throw cannot_read(path, "it is not a regular file");
  }
  *size = static_cast<std::uint64_t>(st.st_size);
  return fd;
}

bool starts_with_gzip_magic(int fd) {
  unsigned char head[2] = {0, 0};
  const ssize_t n = ::pread(fd, head, 2, 0);
  return n == 2 && head[0] == 0x1F && head[1] == 0x8B;
}

}  // namespace

void FreeBytes::operator()(char* p) const {
  if (mapped)
    ::munmap(p, mapped);
  else
    delete[] p;
}

Bytes allocate_bytes(std::size_t n) {
  constexpr std::size_t large = 8 << 20, page = 2 << 20;
  if (n >= large) {
    const std::size_t size = (n + page - 1) / page * page;
    void* p = ::mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    if (p == MAP_FAILED) throw std::bad_alloc();
    ::madvise(p, size, MADV_HUGEPAGE);  // a hint: refused where there are none
    return Bytes(static_cast<char*>(p), FreeBytes{size});
  }
  return Bytes(new char[n], FreeBytes{0});
}

void prefer_large_pages(void* begin, std::size_t bytes) {
  constexpr std::uintptr_t page = 2 << 20;
  const auto at = reinterpret_cast<std::uintptr_t>(begin);
  const std::uintptr_t from = (at + page - 1) / page * page, to = (at + bytes) / page * page;
  if (from < to) ::madvise(reinterpret_cast<void*>(from), to - from, MADV_HUGEPAGE);
}

std::unique_ptr<ByteStream> ByteStream::open(const fs::path& path) {
  std::uint64_t size = 0;
  const int fd = open_regular(path, &size);
  if (starts_with_gzip_magic(fd)) return std::make_unique<GzipStream>(path, fd);
  return std::make_unique<PlainStream>(path, fd);
}

Buffer read_whole(const fs::path& path, std::uint64_t limit) {
  std::uint64_t size = 0;
  int fd = open_regular(path, &size);
  const bool packed = starts_with_gzip_magic(fd);
  ::close(fd);
  auto stream = ByteStream::open(path);
  std::size_t room = std::min<std::uint64_t>(limit, packed ? size * 4 + 4096 : size + 1) + 1;
  Buffer buffer{allocate_bytes(room + buffer_padding), 0};
  for (;;) {
    const std::size_t got = stream->read(buffer.data.get() + buffer.size, room - buffer.size);
    buffer.size += got;
    if (buffer.size < room) break;
    if (buffer.size > limit)
      throw UserError("TK0903", cat(path.string(), " holds more than ", limit >> 20, " MiB"))
          .help("collect fewer steps, or split the file");
    const std::size_t more = std::min<std::uint64_t>(limit + 1, room * 2);
    auto larger = allocate_bytes(more + buffer_padding);
    std::memcpy(larger.get(), buffer.data.get(), buffer.size);
    buffer.data = std::move(larger);
    room = more;
  }
  std::memset(buffer.data.get() + buffer.size, 0, buffer_padding);
  return buffer;
}

Buffer map_whole(const fs::path& path) {
  std::uint64_t size = 0;
  const int fd = open_regular(path, &size);
  constexpr std::uint64_t page = 4096, limit = std::uint64_t{4} << 30;
  if (starts_with_gzip_magic(fd) || size == 0 || size > limit) {
    ::close(fd);
    return read_whole(path, limit);
  }
  // Zeros behind the file's last page, so that a vector load may run past the end.
  const std::size_t room = (size + buffer_padding + page - 1) / page * page;
  void* p = ::mmap(nullptr, room, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  void* file =
      p == MAP_FAILED ? p : ::mmap(p, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_FIXED, fd, 0);
  ::close(fd);
  if (file == MAP_FAILED) {
    if (p != MAP_FAILED) ::munmap(p, room);
    return read_whole(path, limit);  // a file system that can't map
  }
  ::madvise(p, size, MADV_SEQUENTIAL);
  return {Bytes(static_cast<char*>(p), FreeBytes{room}), size};
}

fs::path file_or_gz(const fs::path& path) {
  std::error_code ignored;
  if (fs::is_regular_file(path, ignored)) return path;
  fs::path gz = path;
  gz += ".gz";
  if (fs::is_regular_file(gz, ignored)) return gz;
  return {};
}

}  // namespace tk
