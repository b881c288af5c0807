// In-place operators made functional. A capture may write into a tensor through a view:
//
//   k = new_empty(...);  k[..., :16].copy_(a);  use(k)
//
// Here every name of the capture is a Place: a storage and the views that lead to it. A write
// rebuilds the storage's base out of its old value (slice_scatter and the like); a later read of
// the base, or of another view of it, takes the new value.
#pragma once

#include <cstddef>
#include <string>
#include <string_view>
#include <vector>

#include "graph/graph.h"

namespace tk {

// How an operator's result aliases its first tensor.
enum class Aliasing {
  none,   // new memory
  view,   // always the same memory
  maybe,  // depends on strides: reshape, contiguous
  same,   // input 0 itself when the type is the same, else new memory: to, type_as, dropout
};
Aliasing aliasing_of(std::string_view op);

class Places {
 public:
  using Id = std::size_t;
  explicit Places(Graph& graph) : graph_(graph) {}

  // `name` is the capture's name of the value, for messages.
  Id add_base(Value* value, std::string_view name);
  // Result `result` of `node`, whose input 0 was read from `parent`. A base of its own when the
  // operator makes new memory.
  Id add_result(Id parent, Node* node, int result, std::string_view name);

  const Type& type(Id id) const { return places_[id].value->type; }
  // The current value. Throws TK0221 when a write went through a view that may or may not be one.
  Value* read(Id id, const Loc* loc);
  // In-place change: `value` has the type of the place. Throws TK0220 (the base is a weight or an
  // input) and TK0221 (no way to write through this view).
  void write(Id id, Value* value, const Loc* loc);

 private:
  struct Place {
    std::string_view name;
    std::size_t storage;
    Id parent;           // itself for the base
    Node* step;          // the view operator that makes it from the parent; null for the base
    int result = 0;      // of the step
    bool maybe = false;  // an alias or a copy
    Value* value;
    int version = 0;  // of the storage, when `value` was true
  };
  struct Storage {
    Id base;
    int version = 0;
    Id doubted_by = 0;  // the last write through a view that may be a copy; the base is stale then
  };
  Value* rebuild(const Place& place, Value* parent, const Loc* loc);
  Value* scatter(const Place& place, Value* parent, Value* value, const Loc* loc);
  [[noreturn]] void cannot_write(const Place& place, const Loc* loc) const;

  Graph& graph_;
  std::vector<Place> places_;
  std::vector<Storage> storages_;
};

}  // namespace tk
