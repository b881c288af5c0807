#include "base/file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <map>
#include <mutex>

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

// What MappedFile has mapped, by address.
struct Mapped {
  const std::byte* end;
  std::string stamp;
};
std::mutex mapped_mutex;
std::map<const std::byte*, Mapped>& mapped_files() {
  static auto* const files = new std::map<const std::byte*, Mapped>;  // outlives every mapping
  return *files;
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
    const std::lock_guard lock(mapped_mutex);
    mapped_files()[mapped->data_] = {
        mapped->data_ + mapped->size_,
        cat(info.st_dev, ".", info.st_ino, ".", info.st_size, ".", info.st_mtim.tv_sec, ".",
            info.st_mtim.tv_nsec, ".", info.st_ctim.tv_sec, ".", info.st_ctim.tv_nsec)};
  }
  return mapped;
}

MappedFile::~MappedFile() {
  if (data_ == nullptr) return;
  {
    const std::lock_guard lock(mapped_mutex);
    mapped_files().erase(data_);
  }
  ::munmap(const_cast<std::byte*>(data_), size_);
}

MappedPlace mapped_place(const void* p) {
  const auto* at = static_cast<const std::byte*>(p);
  const std::lock_guard lock(mapped_mutex);
  auto it = mapped_files().upper_bound(at);
  if (it == mapped_files().begin()) return {};
  --it;
  if (at >= it->second.end) return {};
  return {it->second.stamp, static_cast<std::size_t>(at - it->first)};
}

void release_pages(const void* p, std::size_t bytes) {
  constexpr std::uintptr_t page = 4096;
  if (mapped_place(p).stamp.empty()) return;
  // Whole pages only. Advice: where it isn't taken, more memory stays in use.
  const auto begin = (reinterpret_cast<std::uintptr_t>(p) + page - 1) / page * page;
  const auto end = (reinterpret_cast<std::uintptr_t>(p) + bytes) / page * page;
  if (end > begin)
    ::madvise(const_cast<std::byte*>(static_cast<const std::byte*>(p)) +
                  (begin - reinterpret_cast<std::uintptr_t>(p)),
              end - begin, MADV_DONTNEED);
}

std::string read_file(const std::filesystem::path& path) {
  return std::string(MappedFile::open(path)->text());
}

AtomicFile::AtomicFile(const std::filesystem::path& path)
    : path_(path), temporary_(path.string() + cat(".tmp.", ::getpid())) {
  fd_ = ::open(temporary_.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_CLOEXEC, 0644);
  if (fd_ < 0) failed("write");
}

AtomicFile::~AtomicFile() {
  if (fd_ < 0) return;  // committed
  ::close(fd_);
  ::unlink(temporary_.c_str());
}

void AtomicFile::failed(const char* what) const {
  const int error = errno;
  throw UserError("TK0103", cat("cannot ", what, " ", path_.string(), ": ", std::strerror(error)));
}

void AtomicFile::write(std::string_view bytes) {
  while (!bytes.empty()) {
    const ssize_t n = ::write(fd_, bytes.data(), bytes.size());
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) failed("write");
    bytes.remove_prefix(static_cast<std::size_t>(n));
  }
}

void AtomicFile::commit() {
  if (::fsync(fd_) != 0) failed("write");
  if (::rename(temporary_.c_str(), path_.c_str()) != 0) failed("replace");
  ::close(fd_);
  fd_ = -1;
}

void write_file(const std::filesystem::path& path, std::string_view text) {
  AtomicFile file(path);
  file.write(text);
  file.commit();
}

}  // namespace tk
