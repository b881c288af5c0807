#include "cpu/own_file.h"

#include <unistd.h>

#include <cerrno>
#include <cstddef>
#include <cstdio>

#include "base/error.h"

namespace tk {

std::string not_mine(const struct stat& info) {
  if (info.st_uid != ::geteuid())
    return cat("it belongs to user ", info.st_uid, ", and this is user ", ::geteuid());
  if ((info.st_mode & (S_IWGRP | S_IWOTH)) == 0) return "";
  char mode[16];  // the engine's library goes without {fmt}
  std::snprintf(mode, sizeof mode, "%o", info.st_mode & 07777U);
  return cat("others may write to it (mode ", mode, ")");
}

std::int64_t read_at(int fd, void* out, std::int64_t bytes, std::int64_t offset) {
  auto* const to = static_cast<std::byte*>(out);
  std::int64_t done = 0;
  while (done < bytes) {
    const ssize_t n = ::pread(fd, to + done, static_cast<std::size_t>(bytes - done), offset + done);
    if (n < 0 && errno == EINTR) continue;
    if (n <= 0) break;
    done += n;
  }
  return done;
}

}  // namespace tk
