#include "cpu/packed_file.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cstdlib>
#include <cstring>
#include <vector>

#include "base/error.h"
#include "base/file.h"
#include "cpu/own_file.h"

namespace tk {
namespace {

// The last part is the version of the file and of the layout of panels.
constexpr std::string_view magic = "tokamak packed weights 2\n";
constexpr std::int64_t block = 1 << 20;  // what one thread sums up at a time
constexpr std::int64_t page = 4096;

std::uint64_t mix(std::uint64_t h, std::uint64_t v) {
  h = (h ^ v) * 0x9e3779b97f4a7c15ULL;
  return h ^ h >> 29;
}

// Eight chains, so that a core keeps up with memory.
std::uint64_t sum_of(const std::byte* p, std::int64_t n) {
  constexpr std::int64_t chains = 8;
  std::uint64_t h[chains] = {1, 2, 3, 4, 5, 6, 7, 8};
  std::int64_t i = 0;
  for (; i + 8 * chains <= n; i += 8 * chains) {
    std::uint64_t v[chains];
    std::memcpy(v, p + i, sizeof v);
    for (std::int64_t j = 0; j < chains; ++j) h[j] = mix(h[j], v[j]);
  }
  for (; i < n; ++i) h[0] = mix(h[0], static_cast<std::uint64_t>(p[i]));
  std::uint64_t all = static_cast<std::uint64_t>(n);
  for (const std::uint64_t one : h) all = mix(all, one);
  return all;
}

std::uint64_t sum_of_blocks(const std::byte* p, std::int64_t n) {
  std::uint64_t h = 0;
  for (std::int64_t i = 0; i < n; i += block) h = mix(h, sum_of(p + i, std::min(block, n - i)));
  return h;
}

std::filesystem::path folder() {
  const auto variable = [](const char* name) {
    const char* v = std::getenv(name);
    return std::string(v == nullptr ? "" : v);
  };
  if (const std::string own = variable("TOKAMAK_CACHE"); !own.empty())
    return own == "off" ? "" : own;
  if (const std::string xdg = variable("XDG_CACHE_HOME"); xdg.starts_with('/'))
    return std::filesystem::path(xdg) / "tokamak";
  if (const std::string home = variable("HOME"); home.starts_with('/'))
    return std::filesystem::path(home) / ".cache" / "tokamak";
  return {};
}

// The header: magic, its own length, identity and table; every number 8 bytes, strings after their
// length; then a checksum of all that.
class Writer {
 public:
  void number(std::uint64_t v) { text_.append(reinterpret_cast<const char*>(&v), sizeof v); }
  void string(std::string_view s) {
    number(s.size());
    text_ += s;
  }
  std::string& text() { return text_; }

 private:
  std::string text_;
};

class Reader {
 public:
  explicit Reader(std::string_view text) : text_(text) {}
  std::uint64_t number() {
    std::uint64_t v = 0;
    const std::string_view s = take(sizeof v);
    if (ok_) std::memcpy(&v, s.data(), sizeof v);
    return v;
  }
  std::string_view string() { return take(number()); }
  bool ok() const { return ok_; }

 private:
  std::string_view take(std::uint64_t n) {
    if (!ok_ || n > text_.size()) {
      ok_ = false;
      return {};
    }
    const std::string_view s = text_.substr(0, n);
    text_.remove_prefix(n);
    return s;
  }
  std::string_view text_;
  bool ok_ = true;
};

constexpr std::int64_t lead = static_cast<std::int64_t>(magic.size()) + 16;  // with two numbers

}  // namespace

std::unique_ptr<PackedFile> PackedFile::find(const std::string& identity) {
  const std::filesystem::path dir = folder();
  if (dir.empty()) return nullptr;
  std::unique_ptr<PackedFile> f(new PackedFile);
  f->identity_ = identity;
  const auto* bytes = reinterpret_cast<const std::byte*>(identity.data());
  char name[40];
  std::snprintf(
      name, sizeof name, "packed-%016llx",
      static_cast<unsigned long long>(sum_of(bytes, static_cast<std::int64_t>(identity.size()))));
  f->path_ = dir / name;
  f->open();
  return f;
}

PackedFile::~PackedFile() {
  if (fd_ >= 0) ::close(fd_);
}

void PackedFile::open() {
  fd_ = ::open(path_.c_str(), O_RDONLY | O_CLOEXEC | O_NOFOLLOW);
  struct stat info{};
  if (fd_ < 0 || ::fstat(fd_, &info) != 0) return;
  if (!S_ISREG(info.st_mode) || !not_mine(info).empty()) return;
  char start[lead];
  std::uint64_t length = 0, checksum = 0;
  if (read_at(fd_, start, lead, 0) != lead || std::string_view(start, magic.size()) != magic)
    return;
  std::memcpy(&length, start + magic.size(), 8);
  std::memcpy(&checksum, start + magic.size() + 8, 8);
  if (length > static_cast<std::uint64_t>(info.st_size - lead)) return;
  std::string text(length, '\0');
  const auto text_bytes = static_cast<std::int64_t>(length);
  if (read_at(fd_, text.data(), text_bytes, lead) != text_bytes ||
      sum_of(reinterpret_cast<const std::byte*>(text.data()), text_bytes) != checksum)
    return;
  Reader r(text);
  if (r.string() != identity_) return;
  std::map<std::string, Entry, std::less<>> entries;
  for (std::uint64_t n = r.number(); n > 0 && r.ok(); --n) {
    const std::string key(r.string());
    Entry e;
    e.offset = static_cast<std::int64_t>(r.number());
    e.bytes = static_cast<std::int64_t>(r.number());
    e.checksum = r.number();
    if (e.offset < 0 || e.bytes < 0 || e.bytes > info.st_size ||
        e.offset > info.st_size - e.bytes || e.offset % page != 0)
      return;
    entries[key] = e;
  }
  if (!r.ok()) return;
  const auto size = static_cast<std::size_t>(info.st_size);
  void* const p = ::mmap(nullptr, size, PROT_READ, MAP_PRIVATE, fd_, 0);
  if (p == MAP_FAILED) return;
  ::madvise(p, size, MADV_HUGEPAGE);  // advice: read from disk in huge pages, and mapped as such
  mapped_ = std::shared_ptr<void>(p, [size](void* q) { ::munmap(q, size); });
  entries_ = std::move(entries);
}

bool PackedFile::has(const std::string& key, std::int64_t bytes) const {
  const auto it = entries_.find(key);
  return it != entries_.end() && it->second.bytes == bytes;
}

Tensor PackedFile::map(const std::string& key, std::int64_t bytes, Team* team) const {
  if (!has(key, bytes)) return {};
  const Entry& e = entries_.find(key)->second;
  auto* const data = static_cast<std::byte*>(mapped_.get()) + e.offset;
  const std::int64_t n = (bytes + block - 1) / block;
  std::vector<std::uint64_t> sums(static_cast<std::size_t>(n));
  team->run([&](int thread) {
    for (std::int64_t i = thread; i < n; i += team->size())
      sums[static_cast<std::size_t>(i)] =
          sum_of(data + i * block, std::min(block, bytes - i * block));
  });
  std::uint64_t h = 0;
  for (const std::uint64_t s : sums) h = mix(h, s);
  if (h != e.checksum) return {};
  Tensor t;
  t.data = data;
  t.dtype = DType::u8;
  t.shape = {bytes};
  t.strides = {1};
  t.owner = mapped_;
  return t;
}

bool PackedFile::write(const std::map<std::string, Tensor, std::less<>>& tensors) const {
  const auto table = [&](std::int64_t first) {
    Writer w;
    w.string(identity_);
    w.number(tensors.size());
    std::int64_t offset = first;
    for (const auto& [key, t] : tensors) {
      w.string(key);
      w.number(static_cast<std::uint64_t>(offset));
      w.number(static_cast<std::uint64_t>(t.bytes()));
      w.number(sum_of_blocks(t.as<std::byte>(), t.bytes()));
      offset += (t.bytes() + page - 1) / page * page;
    }
    return std::pair(std::move(w.text()), offset);
  };
  std::size_t header = static_cast<std::size_t>(lead) + identity_.size() + 16;
  for (const auto& [key, t] : tensors) header += key.size() + 32;
  const std::int64_t first = (static_cast<std::int64_t>(header) + page - 1) / page * page;
  std::error_code ec;
  std::filesystem::create_directories(path_.parent_path(), ec);
  const std::filesystem::space_info room = std::filesystem::space(path_.parent_path(), ec);
  const auto [text, end] = table(first);
  if (ec || room.available < 2 * static_cast<std::uintmax_t>(end)) return false;
  try {
    AtomicFile file(path_);
    Writer start;
    start.text() = magic;
    start.number(text.size());
    start.number(sum_of(reinterpret_cast<const std::byte*>(text.data()),
                        static_cast<std::int64_t>(text.size())));
    std::string head = start.text() + text;
    head.resize(static_cast<std::size_t>(first), '\0');
    file.write(head);
    for (const auto& [key, t] : tensors) {
      const auto bytes = static_cast<std::size_t>(t.bytes());
      file.write({t.as<char>(), bytes});
      file.write(std::string((static_cast<std::size_t>(page) - bytes % page) % page, '\0'));
    }
    file.commit();
    ::chmod(path_.c_str(), 0600);
  } catch (const UserError&) {
    return false;  // nothing was left; the next process packs again
  }
  return true;
}

}  // namespace tk
