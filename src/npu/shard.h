// Which values of a graph are split over tensor-parallel ranks, and where ranks must talk.
#pragma once

#include <unordered_map>
#include <unordered_set>

#include "graph/graph.h"

namespace tk {

enum class Split : std::uint8_t { whole, split, partial };  // partial: to be summed over the ranks

struct Sharding {
  std::unordered_map<const Value*, Split> of;       // absent: whole
  std::unordered_set<const Node*> column, row;      // products with a split weight
  std::unordered_set<const Value*> reduce, gather;  // all_reduce, all_gather after this value
  Split split(const Value* v) const {
    const auto it = of.find(v);
    return it == of.end() ? Split::whole : it->second;
  }
};

// A product with a weight is split by columns when what it makes reaches attention or the next
// product through element-wise operators alone; one that reads split rows is split by rows.
// `known`: values that weights alone decide.
Sharding shard(const Graph& graph, const std::unordered_set<const Value*>& known,
               bool split_experts);

bool is_attention(const Node& n);
bool is_grouped(const Node& n);
bool is_product(const Node& n);

}  // namespace tk
