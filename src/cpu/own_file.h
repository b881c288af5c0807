// Files of a cache on disk: trusted only when nobody else could have written them.
#pragma once

#include <sys/stat.h>

#include <cstdint>
#include <string>

namespace tk {

// Why what `info` describes is not to be trusted ("it belongs to user 7, ..."), or "".
std::string not_mine(const struct stat& info);

// Reads up to `bytes` from `offset` on; returns how many there were before the end or an error.
std::int64_t read_at(int fd, void* out, std::int64_t bytes, std::int64_t offset);

}  // namespace tk
