#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>

#include "base/error.h"

namespace tk {
namespace {

// Closes on every way out.
struct Fd {
  int fd;
  ~Fd() {
    if (fd >= 0) ::close(fd);
  }
};

[[noreturn]] void cannot_open(const std::filesystem::path& path) {
  const int error = errno;
  throw UserError("TK0101", cat("cannot open ", path.string(), ": ", std::strerror(error)));
}

}  // namespace

std::shared_ptr<const MappedFile> MappedFile::open(const std::filesystem::path& path) {
  Fd file{::open(path.c_str(), O_RDONLY | O_CLOEXEC)};
  if (file.fd < 0) cannot_open(path);
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) cannot_open(path);
  if (!S_ISREG(info.st_mode))
    throw UserError("TK0102", cat(path.string(), " is not a regular file"));
  std::shared_ptr<MappedFile> mapped(new MappedFile);
  mapped->path_ = path;
  mapped->size_ = static_cast<std::size_t>(info.st_size);
  if (mapped->size_ > 0) {
    void* p = ::mmap(nullptr, mapped->size_, PROT_READ, MAP_PRIVATE, file.fd, 0);
    if (p == MAP_FAILED) cannot_open(path);
    mapped->data_ = static_cast<const std::byte*>(p);
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ != nullptr) ::munmap(const_cast<std::byte*>(data_), size_);
}

std::string read_file(const std::filesystem::path& path) {
  return std::string(MappedFile::open(path)->text());
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  const std::filesystem::path temporary = path.string() + cat(".tmp.", ::getpid());
  auto failed = [&](const char* what) {
    const int error = errno;
    ::unlink(temporary.c_str());
    throw UserError("TK0103", cat("cannot ", what, " ", path.string(), ": ", std::strerror(error)));
  };
  Fd file{::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644)};
  if (file.fd < 0) failed("write");
  while (!text.empty()) {
    const ssize_t n = ::write(file.fd, text.data(), text.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) failed("write");
    text.remove_prefix(static_cast<std::size_t>(n));
  }
  if (::fsync(file.fd) != 0) failed("write");
  if (::rename(temporary.c_str(), path.c_str()) != 0) failed("replace");
}

}  // namespace tk
