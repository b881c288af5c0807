#include "import/safetensors.h"

#include <algorithm>
#include <cstring>
#include <map>
#include <unordered_map>

#include "base/error.h"
#include "base/file.h"
#include "import/json.h"
#include "import/safetensors_dtype.h"

namespace tk {
namespace {

// The limit of the format's own reader.
constexpr std::uint64_t most_header_bytes = 100'000'000;

UserError not_safetensors(std::string_view file, std::string_view wrong) {
  return UserError("TK0120", cat(file, " is not a safetensors file: ", wrong))
      .at(file)
      .help("fetch or export it again, and check that it is not a Git LFS pointer");
}

UserError contradiction(std::string_view file, std::string_view name, std::string_view wrong) {
  return UserError("TK0121", cat("tensor '", name, "' ", wrong))
      .at(file)
      .help("the file is cut short or damaged: fetch or export it again");
}

// One entry of the header, as it stands there.
struct Listed {
  std::string_view name, dtype;
  std::vector<std::int64_t> shape;
  std::uint64_t begin = 0, end = 0;  // in the data
};

Listed read_entry(const json::Member& member) {
  Listed entry;
  entry.name = member.name;
  entry.dtype = member.value["dtype"].string();
  const json::Value shape = member.value["shape"];
  entry.shape = json::integers(shape);
  for (std::int64_t dim : entry.shape)
    if (dim < 0) throw shape.error(cat("has the negative size ", dim));
  const json::Value offsets = member.value["data_offsets"];
  const std::vector<std::int64_t> range = json::integers(offsets);
  if (range.size() != 2 || range[0] < 0 || range[1] < range[0])
    throw offsets.error("should be a begin and an end, the end not before the begin");
  entry.begin = static_cast<std::uint64_t>(range[0]);
  entry.end = static_cast<std::uint64_t>(range[1]);
  return entry;
}

// The data is covered from begin to end, once. What is not could hide anything.
void check_coverage(const std::vector<Listed>& entries, std::uint64_t data_size,
                    std::string_view file) {
  std::vector<const Listed*> order;
  order.reserve(entries.size());
  for (const Listed& entry : entries) order.push_back(&entry);
  std::sort(order.begin(), order.end(), [](const Listed* a, const Listed* b) {
    return std::tie(a->begin, a->end) < std::tie(b->begin, b->end);
  });
  std::uint64_t reached = 0;
  for (const Listed* entry : order) {
    if (entry->end > data_size)
      throw contradiction(file, entry->name,
                          cat("ends at byte ", entry->end, " of the data, which has ", data_size));
    if (entry->begin != reached)
      throw contradiction(file, entry->name,
                          cat("begins at byte ", entry->begin, " of the data, where ",
                              entry->begin < reached ? "another tensor lies" : "a gap ends"));
    reached = entry->end;
  }
  if (reached != data_size)
    throw UserError("TK0121",
                    cat(file, " holds ", data_size - reached, " bytes after its last tensor"))
        .at(file)
        .help("the file is damaged: fetch or export it again");
}

// The size in bytes that dtype and shape ask for. False when it, or a stride, overflows.
bool bytes_needed(const Listed& entry, DType dtype, std::uint64_t* bytes) {
  std::int64_t n = static_cast<std::int64_t>(size_of(dtype));
  bool is_empty = false;
  for (std::int64_t dim : entry.shape) {
    if (__builtin_mul_overflow(n, std::max<std::int64_t>(dim, 1), &n)) return false;
    is_empty = is_empty || dim == 0;
  }
  *bytes = is_empty ? 0 : static_cast<std::uint64_t>(n);
  return true;
}

Tensor view_of(const Listed& entry, DType dtype, std::span<const std::byte> data,
               std::shared_ptr<void> owner) {
  const Dims shape(entry.shape);
  const std::byte* begin = data.data() + entry.begin;
  if (reinterpret_cast<std::uintptr_t>(begin) % size_of(dtype) != 0) {
    // The format allows it, no writer we know does it, and kernels read aligned elements only.
    Tensor copy = Tensor::empty(dtype, shape);
    std::memcpy(copy.data, begin, entry.end - entry.begin);
    return copy;
  }
  Tensor tensor;
  tensor.data = const_cast<std::byte*>(begin);
  tensor.dtype = dtype;
  tensor.shape = shape;
  tensor.strides = contiguous_strides(shape);
  tensor.owner = std::move(owner);
  return tensor;
}

SafeTensors open_file(const std::filesystem::path& path) {
  auto mapped = MappedFile::open(path);
  const std::span<const std::byte> bytes = mapped->bytes();
  // The owner only has to live as long as the views; nobody writes through it.
  return SafeTensors::parse(bytes, path.string(),
                            std::const_pointer_cast<MappedFile>(std::move(mapped)));
}

// Shards lie beside their index: a name that leads elsewhere is refused.
bool plain_file_name(std::string_view name) {
  return !name.empty() && name != "." && name != ".." &&
         name.find_first_of(std::string_view("/\\\0", 3)) == std::string_view::npos;
}

std::filesystem::path main_file_in(const std::filesystem::path& folder) {
  for (const char* name : {"model.safetensors.index.json", "model.safetensors"})
    if (std::filesystem::exists(folder / name)) return folder / name;
  std::string found;
  int n = 0;
  std::error_code ignored;  // an unreadable folder just has nothing to name
  for (const auto& item : std::filesystem::directory_iterator(folder, ignored))
    if (item.path().extension() == ".safetensors" && ++n <= 5)
      found += cat(found.empty() ? "" : ", ", item.path().filename().string());
  UserError error("TK0123", cat(folder.string(),
                                " holds no model.safetensors and no "
                                "model.safetensors.index.json"));
  if (found.empty()) throw std::move(error).at(folder.string());
  throw std::move(error).at(folder.string()).note(cat("it holds ", found));
}

// A tensor that the model knows by several names is written once; the metadata of a capture has the
// other names: {"lm_head.weight": "embed_tokens.weight"}.
void add_aliases(const json::Value& header, std::string_view file,
                 std::vector<SafeTensor>* entries) {
  const auto metadata = header.find("__metadata__");
  if (!metadata || !metadata->is_object()) return;
  const auto text = metadata->find("tokamak.aliases");
  if (!text || !text->is_string()) return;
  const json::Document aliases = json::parse(text->string(), file);
  std::unordered_map<std::string_view, std::size_t> by_name;
  for (std::size_t i = 0; i < entries->size(); ++i) by_name.emplace((*entries)[i].name, i);
  std::vector<SafeTensor> added;
  for (const json::Member& member : aliases.root().members()) {
    const auto target = by_name.find(member.value.string());
    if (target == by_name.end())
      throw UserError("TK0121", cat("'", member.name, "' is another name for '",
                                    member.value.string(), "', which is not in the file"))
          .at(file);
    added.push_back((*entries)[target->second]);
    added.back().name = member.name;
  }
  entries->insert(entries->end(), added.begin(), added.end());
}

}  // namespace

SafeTensors SafeTensors::parse(std::span<const std::byte> bytes, std::string_view file,
                               const std::shared_ptr<void>& owner) {
  std::uint64_t header_size = 0;
  if (bytes.size() < sizeof header_size)
    throw not_safetensors(file, cat("it has only ", bytes.size(), " bytes"));
  std::memcpy(&header_size, bytes.data(), sizeof header_size);
  const std::span<const std::byte> rest = bytes.subspan(sizeof header_size);
  if (header_size > most_header_bytes || header_size > rest.size())
    throw not_safetensors(file, cat("it begins with a header of ", header_size, " bytes, and has ",
                                    rest.size(), " (the limit is ", most_header_bytes, ")"));
  const std::string_view text(reinterpret_cast<const char*>(rest.data()), header_size);
  if (text.empty() || text.front() != '{')
    throw not_safetensors(file, "its header does not begin with '{'");
  const std::span<const std::byte> data = rest.subspan(header_size);
  const json::Document header = json::parse(text, file);

  std::vector<Listed> listed;
  for (const json::Member& member : header.root().members())
    if (member.name != "__metadata__") listed.push_back(read_entry(member));
  check_coverage(listed, data.size(), file);

  SafeTensors out;
  out.entries_.reserve(listed.size());
  for (const Listed& entry : listed) {
    SafeTensor& made = out.entries_.emplace_back();
    made.name = entry.name;
    made.file = file;
    DType dtype{};
    if (!dtype_of_safetensors(entry.dtype, &dtype)) {
      made.other_dtype = cat("'", entry.dtype, "'");
      continue;
    }
    std::uint64_t needed = 0;
    if (!bytes_needed(entry, dtype, &needed) || needed != entry.end - entry.begin)
      throw contradiction(file, entry.name,
                          cat("has ", entry.end - entry.begin, " bytes, which are not ",
                              entry.dtype, " of its shape"));
    if (entry.shape.size() > static_cast<std::size_t>(max_rank)) {
      made.other_dtype = cat(entry.dtype, " of rank ", entry.shape.size());
      continue;
    }
    made.tensor = view_of(entry, dtype, data, owner);
  }
  add_aliases(header.root(), file, &out.entries_);
  out.index_names(file);
  return out;
}

void SafeTensors::index_names(std::string_view file) {
  by_name_.reserve(entries_.size());
  for (std::size_t i = 0; i < entries_.size(); ++i)
    if (!by_name_.emplace(entries_[i].name, i).second)
      throw contradiction(file, entries_[i].name, "is there twice");
}

SafeTensors SafeTensors::open(const std::filesystem::path& path) {
  if (std::filesystem::is_directory(path)) return open(main_file_in(path));
  if (path.extension() != ".json") return open_file(path);

  const json::Document index = json::parse(MappedFile::open(path)->text(), path.string());
  const json::Value map = index.root()["weight_map"];
  std::map<std::string, SafeTensors, std::less<>> shards;
  SafeTensors out;
  for (const json::Member& member : map.members()) {
    const std::string_view shard_name = member.value.string();
    if (!plain_file_name(shard_name))
      throw member.value.error("should be the name of a file in the same folder");
    auto shard = shards.find(shard_name);
    if (shard == shards.end()) {
      const std::filesystem::path beside = path.parent_path() / shard_name;
      if (!std::filesystem::exists(beside))
        throw UserError("TK0123", cat("there is no ", beside.string(), ", where ", path.string(),
                                      " says that '", member.name, "' is"))
            .at(path.string())
            .help("fetch the shards again: all of them lie beside the index");
      shard = shards.emplace(shard_name, open_file(beside)).first;
    }
    const auto found = shard->second.by_name_.find(member.name);
    if (found == shard->second.by_name_.end())
      throw UserError("TK0123", cat(shard_name, " holds no '", member.name, "', which ",
                                    path.string(), " says it does"))
          .at(path.string())
          .help("index and shards are not of the same model, or of different versions of it");
    out.entries_.push_back(shard->second.entries_[found->second]);
  }
  out.index_names(path.string());
  return out;
}

const Tensor* SafeTensors::find(std::string_view name) const {
  const auto found = by_name_.find(name);
  if (found == by_name_.end()) return nullptr;
  const SafeTensor& entry = entries_[found->second];
  if (!entry.other_dtype.empty())
    throw UserError("TK0122", cat("tensor '", name, "' is ", entry.other_dtype, "; Tokamak reads ",
                                  safetensors_dtypes(), " of rank up to ", max_rank))
        .at(entry.file);
  return &entry.tensor;
}

std::vector<std::string> SafeTensors::names() const {
  std::vector<std::string> out;
  out.reserve(entries_.size());
  for (const SafeTensor& entry : entries_) out.push_back(entry.name);
  return out;
}

}  // namespace tk
