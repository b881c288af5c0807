#include "ops/ops.h"

#include <algorithm>
#include <vector>

#include "base/error.h"
#include "ops/npu/npu_ops.h"

namespace tk {
namespace {

std::vector<const OpDef*> sorted_ops() {
  std::vector<const OpDef*> all = {
#define TK_OP(symbol) &ops::symbol,
#include "ops/npu/npu_ops.def"
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

// Other names of the same functions, with the same arguments.
struct Alias {
  std::string_view name, of;
};
constexpr Alias aliases[] = {
    {"aten.absolute", "aten.abs"},
    {"aten.arccos", "aten.acos"},
    {"aten.arcsin", "aten.asin"},
    {"aten.arctan", "aten.atan"},
    {"aten.arctan2", "aten.atan2"},
    {"aten.broadcast_to", "aten.expand"},
    {"aten.clip", "aten.clamp"},
    {"aten.concat", "aten.cat"},
    {"aten.concatenate", "aten.cat"},
    {"aten.detach_copy", "aten.clone"},
    {"aten.divide", "aten.div"},
    {"aten.fix", "aten.trunc"},
    {"aten.greater", "aten.gt"},
    {"aten.greater_equal", "aten.ge"},
    {"aten.lift_fresh", "aten.lift_fresh_copy"},
    {"aten.less", "aten.lt"},
    {"aten.less_equal", "aten.le"},
    {"aten.moveaxis", "aten.movedim"},
    {"aten.multiply", "aten.mul"},
    {"aten.negative", "aten.neg"},
    {"aten.not_equal", "aten.ne"},
    {"aten.ravel", "aten.flatten"},
    {"aten.reshape_as", "aten.view_as"},
    {"aten.special_erf", "aten.erf"},
    {"aten.special_exp2", "aten.exp2"},
    {"aten.special_expit", "aten.sigmoid"},
    {"aten.special_expm1", "aten.expm1"},
    {"aten.special_log1p", "aten.log1p"},
    {"aten.special_softmax", "aten.softmax"},
    {"aten.subtract", "aten.sub"},
    {"aten.swapdims", "aten.transpose"},
    {"aten.true_divide", "aten.div"},
};

const OpDef* find_exact(std::string_view name) {
  const auto& all = list();
  auto it = std::lower_bound(all.begin(), all.end(), name,
                             [](const OpDef* op, std::string_view n) { return op->name < n; });
  return it != all.end() && (*it)->name == name ? *it : nullptr;
}

}  // namespace

std::span<const OpDef* const> all_ops() { return list(); }

const OpDef* find_op(std::string_view name) {
  if (const OpDef* op = find_exact(name)) return op;
  const auto* alias = std::find_if(std::begin(aliases), std::end(aliases),
                                   [&](const Alias& a) { return a.name == name; });
  return alias != std::end(aliases) ? find_exact(alias->of) : nullptr;
}

}  // namespace tk
