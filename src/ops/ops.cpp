#include "ops/ops.h"

#include <algorithm>
#include <vector>

#include "base/error.h"

namespace tk {
namespace {

std::vector<const OpDef*> sorted_ops() {
  std::vector<const OpDef*> all = {
#define TK_OP(symbol) &ops::symbol,
#include "ops/ops.def"
#undef TK_OP
  };
  std::sort(all.begin(), all.end(),
            [](const OpDef* a, const OpDef* b) { return a->name < b->name; });
  for (std::size_t i = 1; i < all.size(); ++i)
    TK_CHECK(all[i - 1]->name != all[i]->name, "two operators are called ", all[i]->name);
  return all;
}

const std::vector<const OpDef*>& list() {
  static const std::vector<const OpDef*> all = sorted_ops();
  return all;
}

}  // namespace

std::span<const OpDef* const> all_ops() { return list(); }

const OpDef* find_op(std::string_view name) {
  const auto& all = list();
  auto it = std::lower_bound(all.begin(), all.end(), name,
                             [](const OpDef* op, std::string_view n) { return op->name < n; });
  return it != all.end() && (*it)->name == name ? *it : nullptr;
}

}  // namespace tk
