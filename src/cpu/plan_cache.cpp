#include "cpu/plan_cache.h"

#include <elf.h>
#include <fcntl.h>
#include <link.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstdio>
#include <cstring>

#include "base/error.h"
#include "base/file.h"
#include "cpu/isa.h"
#include "cpu/own_file.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

// A number as printf has it; the engine's library goes without {fmt}.
template <typename T>
std::string printed(const char* format, T value) {
  char text[32];
  std::snprintf(text, sizeof text, format, value);
  return text;
}
std::string hex(std::uint64_t value) {
  return printed("%016llx", static_cast<unsigned long long>(value));
}

constexpr std::string_view magic = "tokamak plan 1\n";
constexpr std::string_view magic_of_any = "tokamak plan ";
constexpr std::int64_t largest_file = std::int64_t{1} << 30;

std::size_t padded(std::size_t bytes) { return (bytes + 3) / 4 * 4; }

// The linker's id of the program or library that this code is in: another build has another.
std::string build_id() {
  struct Search {
    std::uintptr_t here;
    std::string id;
  } search{reinterpret_cast<std::uintptr_t>(&fnv1a), ""};
  dl_iterate_phdr(
      [](dl_phdr_info* info, std::size_t, void* data) {
        auto& s = *static_cast<Search*>(data);
        bool mine = false;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& p = info->dlpi_phdr[i];
          const std::uintptr_t start = info->dlpi_addr + p.p_vaddr;
          mine |= p.p_type == PT_LOAD && s.here >= start && s.here < start + p.p_memsz;
        }
        if (!mine) return 0;
        for (int i = 0; i < info->dlpi_phnum; ++i) {
          const auto& p = info->dlpi_phdr[i];
          if (p.p_type != PT_NOTE) continue;
          // NOLINTNEXTLINE(performance-no-int-to-ptr): where the loader says that it is
          const auto* at = reinterpret_cast<const char*>(info->dlpi_addr + p.p_vaddr);
          const char* end = at + p.p_memsz;
          while (at + sizeof(ElfW(Nhdr)) <= end) {
            ElfW(Nhdr) note;
            std::memcpy(&note, at, sizeof note);
            const char* name = at + sizeof note;
            const char* desc = name + padded(note.n_namesz);
            if (note.n_type == NT_GNU_BUILD_ID && note.n_namesz == 4 &&
                std::memcmp(name, "GNU", 4) == 0)
              for (unsigned k = 0; k < note.n_descsz; ++k)
                s.id += printed("%02x", unsigned{static_cast<unsigned char>(desc[k])});
            at = desc + padded(note.n_descsz);
          }
        }
        return 1;
      },
      &search);
  return search.id;
}

struct OpenFile {
  int fd;
  ~OpenFile() {
    if (fd >= 0) ::close(fd);
  }
};

std::string head_of(std::string_view key, std::string_view rest) {
  return cat(key.size(), " ", rest.size(), " ", hex(fnv1a(rest, fnv1a(key))), "\n");
}

// The part of `bytes` with the graphs, or why there is none.
std::string_view checked_rest(std::string_view bytes, std::string_view key, std::string* why) {
  if (!bytes.starts_with(magic)) {
    *why = bytes.starts_with(magic_of_any) ? "it is of another version of the format"
                                           : "it is not a plan, or its beginning is damaged";
    return {};
  }
  bytes.remove_prefix(magic.size());
  const std::size_t line = std::min(bytes.find('\n'), bytes.size());
  const std::string_view head = bytes.substr(0, std::min(line + 1, bytes.size()));
  const std::string_view body = bytes.substr(head.size());
  unsigned long long key_bytes = 0;
  unsigned long long rest_bytes = 0;
  if (std::sscanf(std::string(head).c_str(), "%llu %llu ", &key_bytes, &rest_bytes) != 2 ||
      key_bytes > body.size() || rest_bytes != body.size() - key_bytes) {
    *why = "it is cut short or damaged";
    return {};
  }
  const std::string_view stored = body.substr(0, key_bytes);
  const std::string_view rest = body.substr(key_bytes);
  if (head != head_of(stored, rest)) {
    *why = "its checksum is wrong";
    return {};
  }
  if (stored != key) {
    *why = "it was made for another model, setting, build or machine";
    return {};
  }
  return rest;
}

std::string text_of(std::span<const Graph* const> graphs) {
  std::string rest;
  for (const Graph* g : graphs) {
    const std::string text = print(*g);
    rest += cat(text.size(), "\n", text);
  }
  return rest;
}

std::vector<Graph> graphs_of(std::string_view rest) {
  std::vector<Graph> graphs;
  while (!rest.empty()) {
    const std::size_t line = rest.find('\n');
    const auto size = static_cast<std::size_t>(std::stoull(std::string(rest.substr(0, line))));
    graphs.push_back(parse_graph(rest.substr(line + 1, size), "<plan cache>"));
    verify(graphs.back(), "the plan cache");
    rest.remove_prefix(line + 1 + size);
  }
  return graphs;
}

}  // namespace

std::uint64_t fnv1a(std::string_view bytes, std::uint64_t from) {
  for (const char c : bytes)
    from = (from ^ static_cast<unsigned char>(c)) * std::uint64_t{1099511628211ULL};
  return from;
}

PlanCache::PlanCache(fs::path folder) : folder_(std::move(folder)) {
  if (::mkdir(folder_.c_str(), 0700) != 0 && errno != EEXIST)
    throw UserError("TK0103", cat("cannot make ", folder_.string(), ": ", std::strerror(errno)))
        .help("the folder that it is to lie in must be there");
  struct stat info{};
  const bool found = ::stat(folder_.c_str(), &info) == 0;
  std::string why = found && S_ISDIR(info.st_mode) ? not_mine(info) : "it is not a folder";
  if (!why.empty())
    throw UserError("TK1505", cat("plans are not kept in ", folder_.string(), ": ", why))
        .help(
            "give a folder of your own that nobody else may write to: chmod go-w, or another name");
}

fs::path PlanCache::file_of(std::string_view key) const {
  return folder_ / (hex(fnv1a(key)) + ".plan");
}

std::optional<std::vector<Graph>> PlanCache::find(std::string_view key) {
  warning_.clear();
  refused_ = false;
  const fs::path path = file_of(key);
  const auto no = [&](std::string_view done, std::string_view why) {
    warning_ = cat(path.string(), ": ", done, ": ", why);
    return std::nullopt;
  };
  const OpenFile file{::open(path.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW | O_NONBLOCK)};
  if (file.fd < 0 && errno == ENOENT) return std::nullopt;
  refused_ = true;
  if (file.fd < 0) return no("the plan is refused", std::strerror(errno));
  struct stat info{};
  if (::fstat(file.fd, &info) != 0) return no("the plan is refused", std::strerror(errno));
  if (!S_ISREG(info.st_mode)) return no("the plan is refused", "it is not a regular file");
  if (const std::string why = not_mine(info); !why.empty()) return no("the plan is refused", why);
  if (info.st_size > largest_file) return no("the plan is refused", "it is too large for a plan");
  refused_ = false;
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  bytes.resize(static_cast<std::size_t>(read_at(file.fd, bytes.data(), info.st_size, 0)));
  std::string why;
  const std::string_view rest = checked_rest(bytes, key, &why);
  if (!why.empty()) return no("the plan is made anew", why);
  try {
    return graphs_of(rest);
  } catch (const std::exception& e) {  // whole, and yet nothing this program would have written
    return no("the plan is made anew", e.what());
  }
}

void PlanCache::store(std::string_view key, std::span<const Graph* const> graphs) {
  if (refused_) return;
  const std::string rest = text_of(graphs);
  try {
    write_file(file_of(key), cat(magic, head_of(key, rest), key, rest));
  } catch (const UserError& e) {
    warning_ = cat("the plan is not kept: ", e.message());
  }
}

std::string plan_key_of_this_machine() {
  static const std::string build = build_id();
  return cat("version ", TK_VERSION, "\nbuild ", build, "\nisa ", isa_name(), "\nuser ",
             ::geteuid(), "\n");
}

}  // namespace tk
