// Reading and writing safetensors: named tensors after a JSON header.
//
//   8 bytes   n, the size of the header, little-endian
//   n bytes   {"name": {"dtype": "F32", "shape": [2, 3], "data_offsets": [begin, end]}, ...}
//   the rest  the data; offsets count from here; no gaps, no overlaps
//
// Format: https://huggingface.co/docs/safetensors, and its reader (which refuses what we refuse).
#pragma once

#include <cstddef>
#include <filesystem>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <utility>
#include <vector>

#include "base/tensor.h"

namespace tk {

struct SafeTensor {
  std::string name;
  Tensor tensor;            // a view into the file; it is mapped read-only: never write to it
  std::string file;         // where it lies
  std::string other_dtype;  // not empty: a dtype that Tensor has not ("'F8_E4M3'"); no tensor then
};

class SafeTensors {
 public:
  SafeTensors(SafeTensors&&) = default;
  SafeTensors& operator=(SafeTensors&&) = default;
  SafeTensors(const SafeTensors&) = delete;  // names are looked up by views into entries_
  SafeTensors& operator=(const SafeTensors&) = delete;

  // A .safetensors file, a *.index.json (the tensors of its weight_map, in the shards beside it),
  // or a folder with model.safetensors.index.json or model.safetensors. Throws TK0120 (not
  // safetensors), TK0121 (the header contradicts the file), TK0123 (a shard or a folder lacks what
  // it should hold), TK0110, TK0111 (the JSON), and those of MappedFile::open.
  static SafeTensors open(const std::filesystem::path& path);
  // One file's bytes; `file` is the name for messages, `owner` keeps the bytes alive.
  static SafeTensors parse(std::span<const std::byte> bytes, std::string_view file,
                           const std::shared_ptr<void>& owner = nullptr);

  // nullptr when absent. TK0122 when its dtype or rank is one that Tokamak has not.
  const Tensor* find(std::string_view name) const;
  const std::vector<SafeTensor>& entries() const { return entries_; }  // in the order of the header
  std::vector<std::string> names() const;

 private:
  SafeTensors() = default;
  void index_names(std::string_view file);
  std::vector<SafeTensor> entries_;
  std::unordered_map<std::string_view, std::size_t> by_name_;
};

// Writes the tensors to one file that appears when it is whole; views that are not contiguous are
// copied one at a time. Wide elements come first, so that every tensor is aligned. Throws TK0103,
// and TK0121 for a name that occurs twice or is not UTF-8.
void write_safetensors(const std::filesystem::path& path,
                       const std::vector<std::pair<std::string, TensorView>>& tensors);

}  // namespace tk
