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

std::string quoted(const std::string& name, const std::filesystem::path& path) {
  try {
    return nlohmann::json(name).dump();
  } catch (const nlohmann::json::type_error&) {  // the one thing dump refuses
    throw UserError("TK0121", "cannot write a tensor whose name is not UTF-8").at(path.string());
  }
}

}  // namespace

void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors) {
  std::vector<std::size_t> order(tensors.size());
  std::iota(order.begin(), order.end(), 0U);
  std::stable_sort(order.begin(), order.end(), [&](std::size_t a, std::size_t b) {
    return size_of(tensors[a].second.dtype) > size_of(tensors[b].second.dtype);
  });

  std::string text = R"({"__metadata__":{"format":"pt"})";
  std::int64_t at = 0;
  std::set<std::string_view> seen;
  for (std::size_t i : order) {
    const auto& [name, view] = tensors[i];
    if (!seen.insert(name).second || name == "__metadata__")
      throw UserError("TK0121", cat("cannot write two tensors named '", name, "' into one file"))
          .at(path.string());
    const nlohmann::json entry = {
        {"dtype", safetensors_name(view.dtype)},
        {"shape", std::vector<std::int64_t>(view.shape.begin(), view.shape.end())},
        {"data_offsets", {at, at + view.bytes()}}};
    text += cat(",", quoted(name, path), ":", entry.dump());
    at += view.bytes();
  }
  text += '}';
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
