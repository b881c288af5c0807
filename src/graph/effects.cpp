#include "graph/effects.h"

namespace tk {

bool changes_state(const Node& node) {
  for (const int i : node.op->updates) {
    const Value* v = i < 0 ? nullptr : node.in(i);
    while (v != nullptr && v->node != nullptr) {
      const Node& from = *v->node;
      const auto out = static_cast<std::size_t>(v->index);
      const int through = out < from.op->updates.size() ? from.op->updates[out]
                          : from.op->view != nullptr    ? 0
                                                        : -1;
      v = through < 0 ? nullptr : from.in(through);
    }
    if (v != nullptr && v->kind == ValueKind::state) return true;
  }
  return false;
}

}  // namespace tk
