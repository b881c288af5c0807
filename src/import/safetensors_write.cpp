#include <algorithm>
#include <nlohmann/json.hpp>
#include <numeric>
#include <set>

#include "base/error.h"
#include "base/file.h"
#include "import/safetensors.h"
#include "import/safetensors_dtype.h"

namespace tk {
namespace {

struct Name {
  DType dtype;
  std::string_view name;
};
constexpr Name names[] = {{DType::f64, "F64"},      {DType::f32, "F32"}, {DType::f16, "F16"},
                          {DType::bf16, "BF16"},    {DType::i64, "I64"}, {DType::i32, "I32"},
                          {DType::i16, "I16"},      {DType::i8, "I8"},   {DType::u8, "U8"},
                          {DType::boolean, "BOOL"}, {DType::c64, "C64"}};

}  // namespace

bool dtype_of_safetensors(std::string_view name, DType* out) {
  for (const Name& known : names)
    if (known.name == name) {
      *out = known.dtype;
      return true;
    }
  return false;
}

std::string_view safetensors_name(DType dtype) {
  for (const Name& known : names)
    if (known.dtype == dtype) return known.name;
  TK_CHECK(false, name_of(dtype));
}

std::string safetensors_dtypes() {
  std::string out;
  for (const Name& known : names) out += cat(out.empty() ? "" : ", ", known.name);
  return out;
}

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype) > size_of(tensors[b].second.dtype);
  });

  nlohmann::ordered_json header = nlohmann::ordered_json::object();
  header["__metadata__"] = {{"format", "pt"}};
  std::int64_t at = 0;
  std::set<std::string_view> seen;
  for (std::size_t i : order) {
    const auto& [name, view] = tensors[i];
    if (!seen.insert(name).second || name == "__metadata__")
      throw UserError("TK0121", cat("cannot write two tensors named '", name, "' into one file"))
          .at(path.string());
    header[name] = {{"dtype", safetensors_name(view.dtype)},
                    {"shape", std::vector<std::int64_t>(view.shape.begin(), view.shape.end())},
                    {"data_offsets", {at, at + view.bytes()}}};
    at += view.bytes();
  }
  std::string text;
  try {
    text = header.dump();
  } catch (const nlohmann::json::type_error&) {  // the one thing dump refuses
    throw UserError("TK0121", "cannot write a tensor whose name is not UTF-8").at(path.string());
  }
  text.append((8 - text.size() % 8) % 8, ' ');  // aligns the data

  AtomicFile file(path);
  const std::uint64_t n = text.size();
  file.write({reinterpret_cast<const char*>(&n), sizeof n});
  file.write(text);
  for (std::size_t i : order) {
    const TensorView& view = tensors[i].second;
    Tensor copy;
    if (!view.contiguous()) copy = contiguous(view);
    const void* data = copy.data != nullptr ? copy.data : view.data;
    file.write({static_cast<const char*>(data), static_cast<std::size_t>(view.bytes())});
  }
  file.commit();
}

}  // namespace tk
