#include "import/pt2_archive.h"

#include <unordered_map>

#include "base/error.h"
#include "import/pt2_symbols.h"

namespace tk {
namespace {

constexpr std::string_view graph_name = "models/model.json";

}  // namespace

Pt2Archive Pt2Archive::open(const std::filesystem::path& path) { return of(Zip::open(path)); }

Pt2Archive Pt2Archive::of(Zip zip) {
  Pt2Archive out(std::move(zip));
  int found = 0;
  for (const ZipEntry& entry : out.zip_.entries()) {
    if (!entry.name.ends_with(graph_name)) continue;
    const std::string folder = entry.name.substr(0, entry.name.size() - graph_name.size());
    if (!folder.empty() && folder.back() != '/') continue;
    if (folder.find('/') != folder.rfind('/')) continue;  // deeper than one folder
    out.folder_ = folder;
    ++found;
  }
  if (found != 1)
    throw UserError("TK0201", cat("the archive has ", found,
                                  " files models/model.json; one is "
                                  "expected in what torch.export.save "
                                  "writes"))
        .at(out.zip_.file())
        .help("save the model with torch.export.save, or capture it: python -m tokamak.capture");
  if (const ZipEntry* order = out.zip_.find(out.folder_ + "byteorder"))
    if (order->size < 64 && out.zip_.read(*order).starts_with("big"))
      throw UserError("TK0201", "the archive's byte order is big-endian, which is not supported")
          .at(out.zip_.file());
  return out;
}

json::Document Pt2Archive::graph() const {
  const ZipEntry* entry = zip_.find(folder_ + std::string(graph_name));
  TK_CHECK(entry != nullptr, zip_.file());
  return json::parse(zip_.read(*entry), zip_.file() + ":model.json");
}

Weights Pt2Archive::weights() const {
  Weights out;
  add_weights("data/weights/", "model_weights_config.json", &out);
  add_weights("data/constants/", "model_constants_config.json", &out);
  return out;
}

void Pt2Archive::add_weights(const std::string& folder, const std::string& config,
                             Weights* out) const {
  const ZipEntry* entry = zip_.find(folder_ + folder + config);
  if (entry == nullptr) return;
  const json::Document document = json::parse(zip_.read(*entry), zip_.file() + ":" + config);
  std::unordered_map<const ZipEntry*, Tensor> copies;  // tied weights share a record
  for (const json::Member m : document.root()["config"].members()) {
    const std::string name(m.name);
    auto wrong = [&](const std::string& what) {
      return UserError("TK0208", cat("the weight '", name, "' ", what)).at(zip_.file());
    };
    const json::Value meta = m.value["tensor_meta"];
    if (meta.is_null()) continue;  // an object of another kind
    const std::string record = folder_ + folder + std::string(m.value["path_name"].string());
    const ZipEntry* data = zip_.find(record);
    if (data == nullptr) throw wrong(cat("has no record ", record, " in the archive"));
    if (data->size == 0) continue;
    if (json::boolean_or(m.value, "use_pickle", false))
      throw wrong("is pickled, which is not supported: it is not a plain tensor");
    Tensor t;
    t.dtype = pt2_dtype(meta["dtype"]);
    auto read = [&](std::string_view list, Dims* dims) {
      for (const json::Value v : meta[list].elements()) {
        const std::int64_t n = v["as_int"].integer();
        if (n < 0 || dims->size() == max_rank)
          throw wrong(cat("has impossible ", list, ": ", dims->str(), " and ", n));
        dims->push_back(n);
      }
    };
    read("sizes", &t.shape);
    read("strides", &t.strides);
    if (t.shape.size() != t.strides.size()) throw wrong("has sizes and strides of different rank");
    // Records hold the whole storage; the tensor may be a part of it, or transposed.
    std::int64_t last = meta["storage_offset"]["as_int"].integer();
    const auto item = static_cast<std::int64_t>(size_of(t.dtype));
    const std::int64_t offset = last;
    bool fits = last >= 0;
    bool is_empty = false;
    for (int i = 0; i < t.shape.size(); ++i) {
      is_empty = is_empty || t.shape[i] == 0;
      std::int64_t step = 0;
      fits = fits && !__builtin_mul_overflow(t.strides[i], t.shape[i] - 1, &step) &&
             !__builtin_add_overflow(last, step, &last);
    }
    std::int64_t end = 0;
    fits = fits && !__builtin_add_overflow(last, 1, &end) &&
           !__builtin_mul_overflow(end, item, &end) &&
           static_cast<std::uint64_t>(end) <= data->size;
    if (!fits && !is_empty)
      throw wrong(cat("is ", name_of(t.dtype), t.shape.str(), " by its type, but its record has ",
                      data->size, " bytes"));
    if (data->is_stored && !data->encrypted) {
      const auto bytes = zip_.stored(*data);
      t.data = const_cast<std::byte*>(bytes.data());
      t.owner = std::const_pointer_cast<void>(zip_.owner());
    }
    if (t.data == nullptr || reinterpret_cast<std::uintptr_t>(t.data) % size_of(t.dtype) != 0) {
      Tensor& copy = copies[data];
      if (copy.data == nullptr) {
        copy = Tensor::empty(DType::u8, {static_cast<std::int64_t>(data->size)});
        zip_.read_into(*data, {copy.as<std::byte>(), data->size});
      }
      t.data = copy.data;
      t.owner = copy.owner;
    }
    t.data = static_cast<std::byte*>(t.data) + offset * item;
    out->emplace(name, std::move(t));
  }
}

}  // namespace tk
