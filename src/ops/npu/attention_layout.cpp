#include "ops/npu/attention_layout.h"

#include "base/error.h"
#include "ops/infer.h"

namespace tk::ops {
namespace {

constexpr AttentionLayout layouts[] = {
    {"BSH", "BSH", "BSH"},         {"BSND", "BSND", "BSND"},      {"BNSD", "BNSD", "BNSD"},
    {"BNSD_BSND", "BNSD", "BSND"}, {"BSH_BNSD", "BSH", "BNSD"},   {"BSND_BNSD", "BSND", "BNSD"},
    {"BSH_NBSD", "BSH", "NBSD"},   {"BSND_NBSD", "BSND", "NBSD"}, {"BNSD_NBSD", "BNSD", "NBSD"},
    {"TND", "TND", "TND"},         {"TND_NTD", "TND", "NTD"},     {"NTD", "NTD", "NTD"},
    {"NTD_TND", "NTD", "TND"},     {"SBH", "SBH", "SBH"},
};

}  // namespace

const AttentionLayout* attention_layout(std::string_view name) {
  for (const AttentionLayout& l : layouts)
    if (l.name == name) return &l;
  return nullptr;
}

std::string attention_layout_names() {
  std::string out;
  for (const AttentionLayout& l : layouts) out += cat(out.empty() ? "" : ", ", l.name);
  return out;
}

std::string_view cache_axes(int rank) {
  return rank == 3 ? "BSH" : rank == 4 ? "BNSD" : rank == 5 ? "BNGSL" : "";
}

std::optional<Sym> size_along(const Type& t, std::string_view axes, char letter,
                              std::int64_t heads) {
  const auto at = [&](char c) -> const Sym* {
    const std::size_t i = axes.find(c);
    const bool there = i != std::string_view::npos && static_cast<int>(i) < t.rank();
    return there ? &t.dim(static_cast<int>(i)) : nullptr;
  };
  if (const Sym* s = at(letter)) return *s;
  if (letter == 'D' && at('G') != nullptr && at('L') != nullptr) return *at('G') * *at('L');
  if (letter == 'D' && at('H') != nullptr) return exact_div(*at('H'), heads);
  if (letter == 'N' && at('H') != nullptr) return Sym(heads);
  return std::nullopt;
}

SymDims shape_of_axes(std::string_view axes, const Sym& batch, const Sym& positions,
                      std::int64_t heads, const Sym& dim) {
  SymDims shape;
  for (const char c : axes)
    shape.push_back(c == 'B'               ? batch
                    : c == 'S' || c == 'T' ? positions
                    : c == 'N'             ? Sym(heads)
                    : c == 'H'             ? dim * heads
                                           : dim);
  return shape;
}

}  // namespace tk::ops
