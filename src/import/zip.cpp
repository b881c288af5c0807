#include "import/zip.h"

#include <zlib.h>

#include <algorithm>
#include <bit>
#include <cstring>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

static_assert(std::endian::native == std::endian::little, "zip and safetensors are little-endian");

constexpr std::uint32_t end_signature = 0x06054b50;
constexpr std::uint32_t end64_signature = 0x06064b50;
constexpr std::uint32_t locator64_signature = 0x07064b50;
constexpr std::uint32_t central_signature = 0x02014b50;
constexpr std::uint32_t local_signature = 0x04034b50;
constexpr std::size_t end_size = 22, end64_size = 56, locator64_size = 20;
constexpr std::size_t central_size = 46, local_size = 30;

// What all deflated entries together may inflate to: this many times the archive, and a slack for
// small archives. A graph in JSON deflates some 30 times, a bomb 1000 times.
constexpr std::uint64_t most_expansion = 256;
constexpr std::uint64_t expansion_slack = 64ULL << 20;
// Deflate cannot do better than this (zlib's technical notes).
constexpr std::uint64_t most_deflate_ratio = 1032;

// Reads at an offset that the caller has checked.
template <typename T>
T load(std::span<const std::byte> bytes, std::size_t at) {
  T value;
  TK_CHECK(at <= bytes.size() && sizeof(T) <= bytes.size() - at);
  std::memcpy(&value, bytes.data() + at, sizeof(T));
  return value;
}
std::uint16_t u16(std::span<const std::byte> b, std::size_t at) {
  return load<std::uint16_t>(b, at);
}
std::uint32_t u32(std::span<const std::byte> b, std::size_t at) {
  return load<std::uint32_t>(b, at);
}
std::uint64_t u64(std::span<const std::byte> b, std::size_t at) {
  return load<std::uint64_t>(b, at);
}

// Is [at, at + n) inside `size` bytes? Without overflow.
bool inside(std::uint64_t at, std::uint64_t n, std::uint64_t size) {
  return at <= size && n <= size - at;
}

UserError damaged(std::string_view file, std::string_view wrong) {
  return UserError("TK0131", cat(file, " is a damaged zip archive: ", wrong))
      .at(file)
      .help("fetch or export the file again; `unzip -t` checks an archive");
}

struct Directory {
  std::uint64_t offset, size, n_entries;
};

// The end record is last in the file, before a comment of at most 64 KiB.
std::size_t find_end(std::span<const std::byte> bytes, std::string_view file) {
  if (bytes.size() >= end_size) {
    const std::size_t last = bytes.size() - end_size;
    const std::size_t first = last > 0xffff ? last - 0xffff : 0;
    for (std::size_t at = last + 1; at-- > first;)
      if (u32(bytes, at) == end_signature && u16(bytes, at + 20) == last - at) return at;
  }
  UserError error("TK0130", cat(file, " is not a zip archive, or it is cut short: of its ",
                                bytes.size(), " bytes, the last are no end record"));
  throw std::move(error).at(file).help(
      "a .pt2 file is a zip archive; fetch or export it again, and check that it is not a Git LFS "
      "pointer");
}

Directory find_directory(std::span<const std::byte> bytes, std::string_view file) {
  const std::size_t end = find_end(bytes, file);
  auto in_parts = [&] {
    return UserError("TK0132", cat(file, " is one part of a zip archive in several parts"))
        .at(file);
  };
  Directory directory{u32(bytes, end + 16), u32(bytes, end + 12), u16(bytes, end + 10)};
  std::uint64_t limit = end;  // the directory ends before this
  const bool is_64 =
      end >= locator64_size + end64_size && u32(bytes, end - locator64_size) == locator64_signature;
  if (is_64) {
    const std::size_t locator = end - locator64_size;
    const std::uint64_t at = u64(bytes, locator + 8);
    if (u32(bytes, locator + 16) > 1) throw in_parts();
    if (!inside(at, end64_size, locator) || u32(bytes, at) != end64_signature)
      throw damaged(file, "no zip64 end record where its locator points");
    if (u32(bytes, at + 16) != 0 || u32(bytes, at + 20) != 0) throw in_parts();
    directory = {u64(bytes, at + 48), u64(bytes, at + 40), u64(bytes, at + 32)};
    limit = at;
  } else if (u16(bytes, end + 4) != 0 || u16(bytes, end + 6) != 0) {
    throw in_parts();
  }
  if (!inside(directory.offset, directory.size, limit))
    throw damaged(file, cat("its directory of ", directory.size, " bytes at ", directory.offset,
                            " is not inside the ", bytes.size(), " bytes of the file"));
  if (directory.n_entries > directory.size / central_size)
    throw damaged(file, cat("a directory of ", directory.size, " bytes cannot list ",
                            directory.n_entries, " entries"));
  return directory;
}

// Names are looked up and shown; nothing is ever extracted to them. Still, no honest writer of a
// model makes such names.
bool plain_name(std::string_view name) {
  if (name.empty() || name.front() == '/') return false;
  for (char c : name)
    if (static_cast<unsigned char>(c) < 0x20 || c == 0x7f || c == '\\') return false;
  for (std::size_t at = 0; at <= name.size();) {
    const std::size_t slash = std::min(name.find('/', at), name.size());
    if (name.substr(at, slash - at) == "..") return false;
    at = slash + 1;
  }
  return true;
}

// Sizes and offset that do not fit into 32 bits are in the extra field, in this order.
void read_zip64_extra(std::span<const std::byte> extra, ZipEntry& entry, std::uint64_t& local,
                      std::string_view file) {
  constexpr std::uint32_t elsewhere = 0xffffffff;
  if (entry.size != elsewhere && entry.packed_size != elsewhere && local != elsewhere) return;
  for (std::size_t at = 0; inside(at, 4, extra.size());) {
    const std::size_t n = u16(extra, at + 2);
    if (!inside(at + 4, n, extra.size())) break;
    if (u16(extra, at) == 1) {
      const std::span<const std::byte> field = extra.subspan(at + 4, n);
      std::size_t next = 0;
      for (std::uint64_t* value : {&entry.size, &entry.packed_size, &local}) {
        if (*value != elsewhere) continue;
        if (!inside(next, 8, field.size()))
          throw damaged(file, cat("the zip64 field of '", entry.name, "' is too short"));
        *value = u64(field, next);
        next += 8;
      }
      return;
    }
    at += 4 + n;
  }
  // None: 4294967295 is then the plain value, and is checked like any other.
}

// Where the data of an entry begins: its local header repeats the name, with extras of its own.
std::uint64_t data_offset(std::span<const std::byte> bytes, std::uint64_t local,
                          const ZipEntry& entry, std::uint64_t limit, std::string_view file) {
  auto wrong = [&](std::string_view what) {
    return damaged(file, cat("entry '", entry.name, "' ", what));
  };
  if (!inside(local, local_size, limit) || u32(bytes, local) != local_signature)
    throw wrong(cat("has no header at offset ", local));
  const std::size_t name_size = u16(bytes, local + 26), extra_size = u16(bytes, local + 28);
  if (!inside(local + local_size, name_size + extra_size, limit)) throw wrong("is cut short");
  const std::string_view name(reinterpret_cast<const char*>(bytes.data()) + local + local_size,
                              name_size);
  if (name != entry.name) throw wrong("has another name in its own header");
  const std::uint64_t offset = local + local_size + name_size + extra_size;
  if (!inside(offset, entry.packed_size, limit))
    throw wrong(cat("of ", entry.packed_size, " bytes reaches past the end of the data"));
  return offset;
}

void check_sizes(const std::vector<ZipEntry>& entries, std::uint64_t archive_size,
                 std::string_view file) {
  const std::uint64_t most = archive_size * most_expansion + expansion_slack;
  std::uint64_t total = 0;
  for (const ZipEntry& entry : entries) {
    if (entry.method != 8 || entry.encrypted) continue;
    const bool possible = entry.size / most_deflate_ratio <= entry.packed_size + 1;
    if (entry.size > most || total > most - entry.size || !possible)
      throw UserError("TK0133", cat("'", entry.name, "' in ", file, " says that its ",
                                    entry.packed_size, " bytes inflate to ", entry.size,
                                    "; the limit for all of this archive is ", most))
          .at(file)
          .help("unpack the archive and pack it again with entries stored, not deflated");
    total += entry.size;
  }
}

// Entries that share bytes are how small archives claim to hold petabytes.
void check_overlaps(std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges,
                    std::string_view file) {
  std::sort(ranges.begin(), ranges.end());
  for (std::size_t i = 1; i < ranges.size(); ++i)
    if (ranges[i].first < ranges[i - 1].second)
      throw damaged(file, cat("two entries overlap at offset ", ranges[i].first));
}

void check_readable(const ZipEntry& entry, std::string_view file) {
  if (entry.encrypted || (entry.method != 0 && entry.method != 8))
    throw UserError("TK0132", entry.encrypted
                                  ? cat("'", entry.name, "' in ", file, " is encrypted")
                                  : cat("'", entry.name, "' in ", file, " is packed by method ",
                                        entry.method, "; 0 (stored) and 8 (deflated) can be read"))
        .at(file)
        .help("unpack the archive and pack it again, stored or deflated");
}

void inflate_into(std::span<const std::byte> packed, std::span<std::byte> out,
                  const ZipEntry& entry, std::string_view file) {
  auto wrong = [&](std::string_view what) {
    return UserError("TK0134", cat("'", entry.name, "' in ", file, " is damaged: ", what))
        .at(file)
        .help("fetch or export the file again; `unzip -t` checks an archive");
  };
  // Ends the stream on every way out.
  struct Stream : z_stream {
    Stream() : z_stream{} { TK_CHECK(inflateInit2(this, -MAX_WBITS) == Z_OK); }
    ~Stream() { inflateEnd(this); }
    Stream(const Stream&) = delete;
    Stream& operator=(const Stream&) = delete;
  } stream;
  // zlib counts in 32 bits: feed it in pieces.
  constexpr std::size_t piece = 1U << 30;
  std::byte spare{};  // a stream that has more than its size runs into this
  std::size_t in = 0, made = 0;
  int state = Z_OK;
  while (state == Z_OK) {
    const std::size_t n_in = std::min(piece, packed.size() - in);
    const std::size_t n_out = std::min(piece, out.size() - made);
    stream.next_in = const_cast<Bytef*>(reinterpret_cast<const Bytef*>(packed.data() + in));
    stream.avail_in = static_cast<uInt>(n_in);
    stream.next_out = reinterpret_cast<Bytef*>(n_out == 0 ? &spare : out.data() + made);
    stream.avail_out = static_cast<uInt>(std::max<std::size_t>(n_out, 1));
    state = inflate(&stream, Z_NO_FLUSH);
    in += n_in - stream.avail_in;
    if (n_out == 0) {
      if (stream.avail_out == 0)
        throw wrong(cat("more data than the ", entry.size, " bytes it names"));
    } else {
      made += n_out - stream.avail_out;
    }
  }
  if (state == Z_BUF_ERROR) throw wrong("its data is cut short");
  if (state != Z_STREAM_END)
    throw wrong(stream.msg != nullptr ? stream.msg : "its data is not deflated");
  if (made != out.size())
    throw wrong(cat("it ends after ", made, " of the ", out.size(), " bytes it names"));
}

}  // namespace

Zip Zip::open(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  const std::span<const std::byte> bytes = mapped->bytes();
  return parse(bytes, path.string(), std::move(mapped));
}

Zip Zip::parse(std::span<const std::byte> bytes, std::string_view file,
               std::shared_ptr<const void> owner) {
  Zip zip;
  zip.bytes_ = bytes;
  zip.file_ = file;
  zip.owner_ = std::move(owner);
  const Directory directory = find_directory(bytes, file);
  const std::span<const std::byte> list = bytes.subspan(directory.offset, directory.size);
  std::vector<std::pair<std::uint64_t, std::uint64_t>> ranges;
  std::size_t at = 0;
  for (std::uint64_t i = 0; i < directory.n_entries; ++i) {
    if (!inside(at, central_size, list.size()) || u32(list, at) != central_signature)
      throw damaged(file,
                    cat("its directory ends after ", i, " of ", directory.n_entries, " entries"));
    const std::size_t name_size = u16(list, at + 28), extra_size = u16(list, at + 30),
                      comment_size = u16(list, at + 32);
    if (!inside(at + central_size, name_size + extra_size + comment_size, list.size()))
      throw damaged(file, cat("entry ", i, " of its directory is cut short"));
    ZipEntry entry;
    entry.name.assign(reinterpret_cast<const char*>(list.data()) + at + central_size, name_size);
    if (!plain_name(entry.name))
      throw damaged(file, cat("entry ", i,
                              " has a name that is empty, absolute, holds '..', a "
                              "backslash or a control character"));
    entry.encrypted = (u16(list, at + 8) & 1U) != 0;
    entry.method = u16(list, at + 10);
    entry.is_stored = entry.method == 0 && !entry.encrypted;
    entry.crc = u32(list, at + 16);
    entry.packed_size = u32(list, at + 20);
    entry.size = u32(list, at + 24);
    std::uint64_t local = u32(list, at + 42);
    read_zip64_extra(list.subspan(at + central_size + name_size, extra_size), entry, local, file);
    entry.offset = data_offset(bytes, local, entry, directory.offset, file);
    if (entry.is_stored && entry.size != entry.packed_size)
      throw damaged(file, cat("entry '", entry.name, "' is stored in ", entry.packed_size,
                              " bytes, yet holds ", entry.size));
    ranges.emplace_back(local, entry.offset + entry.packed_size);
    if (entry.name.back() != '/') zip.entries_.push_back(std::move(entry));
    at += central_size + name_size + extra_size + comment_size;
  }
  check_overlaps(std::move(ranges), file);
  check_sizes(zip.entries_, bytes.size(), file);
  zip.by_name_.reserve(zip.entries_.size());
  for (std::size_t i = 0; i < zip.entries_.size(); ++i)
    if (!zip.by_name_.emplace(zip.entries_[i].name, i).second)
      throw damaged(file, cat("two entries are named '", zip.entries_[i].name, "'"));
  return zip;
}

const ZipEntry* Zip::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  return found == by_name_.end() ? nullptr : &entries_[found->second];
}

std::span<const std::byte> Zip::stored(const ZipEntry& entry) const {
  TK_CHECK(entry.is_stored, entry.name);
  return bytes_.subspan(entry.offset, entry.size);
}

void Zip::read_into(const ZipEntry& entry, std::span<std::byte> out) const {
  check_readable(entry, file_);
  TK_CHECK(out.size() == entry.size, entry.name);
  const std::span<const std::byte> packed = bytes_.subspan(entry.offset, entry.packed_size);
  if (entry.is_stored) {
    if (!out.empty()) std::memcpy(out.data(), packed.data(), out.size());
  } else {
    inflate_into(packed, out, entry, file_);
  }
  const uLong crc = crc32_z(0, reinterpret_cast<const Bytef*>(out.data()), out.size());
  if (crc != entry.crc)
    throw UserError(
        "TK0134", cat("'", entry.name, "' in ", file_, " is damaged: its checksum does not match"))
        .at(file_)
        .help("fetch or export the file again; `unzip -t` checks an archive");
}

std::string Zip::read(const ZipEntry& entry) const {
  check_readable(entry, file_);  // before memory is taken for what it claims to be
  std::string out(entry.size, '\0');
  read_into(entry, std::as_writable_bytes(std::span(out)));
  return out;
}

}  // namespace tk
