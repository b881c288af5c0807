// The layouts of torch_npu's attention as letters of ops/npu/attend.h: row_map.
#pragma once

#include <optional>
#include <string_view>

#include "graph/op.h"

namespace tk::ops {

struct AttentionLayout {
  std::string_view name, in, out;
  bool packed() const { return in.find('T') != std::string_view::npos; }
};
// Null when there is none of that name.
const AttentionLayout* attention_layout(std::string_view name);
std::string attention_layout_names();

// Letters of a paged cache of that rank: [blocks, block, H], [blocks, heads, block, D] and NZ
// [blocks, heads, D / lanes, block, lanes]; empty for another rank.
std::string_view cache_axes(int rank);

// Sizes by letter: "B", "S", "T", "N" and "D" (H / heads where there is H, lanes times groups in
// NZ). None when the tensor has no such axis or H is no multiple of heads.
std::optional<Sym> size_along(const Type& t, std::string_view axes, char letter,
                              std::int64_t heads);
// The inverse: a shape from letters.
SymDims shape_of_axes(std::string_view axes, const Sym& batch, const Sym& positions,
                      std::int64_t heads, const Sym& dim);

}  // namespace tk::ops
