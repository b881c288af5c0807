// The same elements in another shape or order: reshape, permute, expand.
#include <algorithm>

#include "moves/canonical/rules.h"

namespace tk::canonical {

Replacement spell_reshape(Builder& b, const Node& n) {
  return {reshape(b, n.in(0), n.out()->type.shape)};
}

Replacement drop_reshape(Builder&, const Node& n) {
  if (type(n).shape != n.out()->type.shape) return {};
  return {n.in(0)};
}

Replacement merge_reshapes(Builder& b, const Node& n) {
  const Node* first = made_by(n.in(0), "aten.reshape");
  if (first == nullptr) return {};
  return {reshape(b, first->in(0), n.out()->type.shape)};
}

// Without -1.
Replacement spell_shape(Builder& b, const Node& n) {
  if (n.args().syms("shape") == n.out()->type.shape) return {};
  return {reshape(b, n.in(0), n.out()->type.shape)};
}

namespace {

using Order = std::vector<std::int64_t>;

Order order_of(const Node& n) {
  const int rank = type(n).rank();
  Order order;
  for (int i = 0; i < rank; ++i) order.push_back(i);
  auto swap = [&](int i, int j) {
    std::swap(order[static_cast<std::size_t>(i)], order[static_cast<std::size_t>(j)]);
  };
  if (n.is("aten.transpose")) {
    if (rank > 0) swap(axis(n, "dim0", rank), axis(n, "dim1", rank));
  } else if (n.is("aten.permute")) {
    order = n.args().ints("dims");
    for (std::int64_t& d : order) d = d < 0 ? d + rank : d;
  } else if (n.is("aten.movedim")) {
    const Order from = n.args().ints("source");
    const Order to = n.args().ints("destination");
    Order placed(order.size(), -1);
    std::vector<bool> moved(order.size(), false);
    for (std::size_t i = 0; i < from.size(); ++i) {
      const std::int64_t f = from[i] < 0 ? from[i] + rank : from[i];
      const std::int64_t t = to[i] < 0 ? to[i] + rank : to[i];
      placed[static_cast<std::size_t>(t)] = f;
      moved[static_cast<std::size_t>(f)] = true;
    }
    std::size_t next = 0;
    for (std::int64_t& p : placed) {
      if (p >= 0) continue;
      while (moved[next]) ++next;
      p = static_cast<std::int64_t>(next++);
    }
    order = placed;
  } else if (n.is("aten.numpy_T")) {
    std::reverse(order.begin(), order.end());
  } else if (rank >= 2) {  // t, mT
    swap(rank - 2, rank - 1);
  }
  return order;
}

Value* permute(Builder& b, Value* v, const Order& order) {
  if (std::is_sorted(order.begin(), order.end())) return v;
  SymDims dims;
  for (const std::int64_t d : order) dims.emplace_back(d);
  return b.op("aten.permute", {v}, {{"dims", dims}});
}

}  // namespace

Replacement spell_permute(Builder& b, const Node& n) { return {permute(b, n.in(0), order_of(n))}; }

Replacement drop_permute(Builder&, const Node& n) {
  const Order order = order_of(n);
  if (!std::is_sorted(order.begin(), order.end())) return {};
  return {n.in(0)};
}

Replacement merge_permutes(Builder& b, const Node& n) {
  const Node* first = made_by(n.in(0), "aten.permute");
  if (first == nullptr) return {};
  const Order inner = order_of(*first);
  Order order;
  for (const std::int64_t d : order_of(n)) order.push_back(inner[static_cast<std::size_t>(d)]);
  return {permute(b, first->in(0), order)};
}

// Axes counted from 0.
Replacement spell_dims(Builder& b, const Node& n) {
  const Order dims = n.args().ints("dims");
  if (std::all_of(dims.begin(), dims.end(), [](std::int64_t d) { return d >= 0; })) return {};
  return {permute(b, n.in(0), order_of(n))};
}

Replacement spell_expand(Builder& b, const Node& n) {
  return {b.op("aten.expand", {n.in(0)}, {{"size", n.out()->type.shape}})};
}

Replacement drop_expand(Builder&, const Node& n) {
  if (type(n).shape != n.out()->type.shape) return {};
  return {n.in(0)};
}

Replacement merge_expands(Builder& b, const Node& n) {
  const Node* first = made_by(n.in(0), "aten.expand");
  if (first == nullptr) return {};
  return {b.op("aten.expand", {first->in(0)}, {{"size", n.out()->type.shape}})};
}

// Without -1.
Replacement spell_size(Builder& b, const Node& n) {
  const Args args = n.args();
  if (args.syms("size") == n.out()->type.shape && !args.flag("implicit")) return {};
  return {b.op("aten.expand", {n.in(0)}, {{"size", n.out()->type.shape}})};
}

Replacement drop_repeat(Builder& b, const Node& n) {
  for (const Sym& times : n.args().syms("repeats"))
    if (!times.is(1)) return {};
  return {reshape(b, n.in(0), n.out()->type.shape)};
}

}  // namespace tk::canonical
