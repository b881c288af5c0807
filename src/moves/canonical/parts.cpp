// Parts of tensors, and tensors made of parts.
#include <algorithm>

#include "moves/canonical/rules.h"

namespace tk::canonical {
namespace {

// start, end and step of a slice, counted from 0 and inside the axis. Nothing when a bound is
// symbolic and may lie outside.
struct Bounds {
  Sym start, end, step;
};

std::optional<Sym> bound(const Attr* attr, const Sym& size, const Sym& otherwise) {
  if (attr == nullptr) return otherwise;
  const Sym* s = std::get_if<Sym>(attr);
  if (s == nullptr) return std::nullopt;
  if (*s == size) return size;
  if (!s->is_const()) return std::nullopt;
  const std::int64_t v = s->value();
  if (v == 0) return Sym(0);
  if (v == INT64_MAX) return size;
  if (size.is_const())
    return Sym(std::clamp<std::int64_t>(v < 0 ? v + size.value() : v, 0, size.value()));
  return std::nullopt;  // a symbolic size may be smaller than the number
}

std::optional<Bounds> bounds_of(const Node& n) {
  const int dim = axis(n, "dim", type(n).rank());
  const Sym& size = type(n).dim(dim);
  const Args args = n.args();
  const auto start = bound(args.attr("start"), size, 0);
  const auto end = bound(args.attr("end"), size, size);
  if (!start || !end) return std::nullopt;
  return Bounds{*start, *end, args.sym("step")};
}

bool is_whole(const Bounds& b, const Sym& size) {
  return b.start.is(0) && b.end == size && b.step.is(1);
}

}  // namespace

Replacement drop_slice(Builder&, const Node& n) {
  const auto b = bounds_of(n);
  if (!b || !is_whole(*b, type(n).dim(axis(n, "dim", type(n).rank())))) return {};
  return {n.in(0)};
}

// Both bounds written out, axis and bounds counted from 0.
Replacement spell_slice(Builder& b, const Node& n) {
  const auto bounds = bounds_of(n);
  if (!bounds) return {};
  const int dim = axis(n, "dim", type(n).rank());
  const Attr* start = n.attrs.find("start");
  const Attr* end = n.attrs.find("end");
  const bool same = start != nullptr && *start == Attr(bounds->start) && end != nullptr &&
                    *end == Attr(bounds->end) && n.args().i64("dim") == dim;
  if (same) return {};
  return {slice(b, n.in(0), dim, bounds->start, bounds->end, bounds->step)};
}

// A slice that lies in one of the joined parts is a slice of that part.
Replacement slice_of_cat(Builder& b, const Node& n) {
  const Node* cat = made_by(n.in(0), "aten.cat");
  const auto bounds = bounds_of(n);
  const int dim = axis(n, "dim", type(n).rank());
  if (cat == nullptr || !bounds || axis(*cat, "dim", type(n).rank()) != dim) return {};
  if (!bounds->start.is_const() || !bounds->end.is_const()) return {};
  std::int64_t from = 0;
  for (Value* part : cat->inputs) {
    const Sym& size = part->type.dim(dim);
    if (!size.is_const()) return {};
    const std::int64_t to = from + size.value();
    const bool inside = bounds->start.value() >= from && bounds->end.value() <= to;
    if (inside && part->type.dtype == type(n).dtype)
      return {
          slice(b, part, dim, bounds->start - Sym(from), bounds->end - Sym(from), bounds->step)};
    from = to;
  }
  return {};
}

Replacement spell_narrow(Builder& b, const Node& n) {
  const Args args = n.args();
  const int dim = axis(n, "dim", type(n).rank());
  Sym start = args.sym("start");
  if (start.is_const() && start.value() < 0) start = start + type(n).dim(dim);
  return {slice(b, n.in(0), dim, start, start + args.sym("length"))};
}

Replacement split_to_slices(Builder& b, const Node& n) {
  const int dim = axis(n, "dim", type(n).rank());
  Replacement out;
  Sym start = 0;
  for (const auto& part : n.outputs) {
    const Sym end = start + part->type.dim(dim);
    out.push_back(part->uses.empty() ? nullptr : slice(b, n.in(0), dim, start, end));
    start = end;
  }
  return out;
}

// Side by side along a new axis of size 1 each.
Replacement stack_to_cat(Builder& b, const Node& n) {
  const int dim = axis(n, "dim", type(n).rank() + 1);
  std::vector<Value*> inputs;
  for (Value* v : n.inputs) {
    SymDims shape = v->type.shape;
    shape.insert(shape.begin() + dim, Sym(1));
    inputs.push_back(reshape(b, v, shape));
  }
  return {b.op("aten.cat", inputs, {{"dim", Sym(dim)}})};
}

Replacement unbind_to_selects(Builder& b, const Node& n) {
  const int dim = axis(n, "dim", type(n).rank());
  Replacement out;
  std::int64_t i = 0;
  for (const auto& part : n.outputs) {
    out.push_back(part->uses.empty()
                      ? nullptr
                      : b.op("aten.select", {n.in(0)}, {{"dim", Sym(dim)}, {"index", Sym(i)}}));
    ++i;
  }
  return out;
}

Replacement drop_cat(Builder&, const Node& n) {
  if (n.inputs.size() != 1 || type(n) != n.out()->type) return {};
  return {n.in(0)};
}

Replacement scatter_all(Builder&, const Node& n) {
  const auto b = bounds_of(n);
  if (!b || !is_whole(*b, type(n).dim(axis(n, "dim", type(n).rank())))) return {};
  if (n.in(1)->type != n.out()->type) return {};
  return {n.in(1)};
}

// Parts written one by one until they cover the whole axis: nothing of the base is left.
Replacement scatters_to_cat(Builder& b, const Node& n) {
  struct Part {
    Bounds bounds;
    Value* value;
  };
  const int dim = axis(n, "dim", type(n).rank());
  const Sym& size = type(n).dim(dim);
  std::vector<Part> parts;
  const Node* at = &n;
  while (at != nullptr && axis(*at, "dim", type(*at).rank()) == dim) {
    auto bounds = bounds_of(*at);
    if (!bounds || !bounds->step.is(1)) return {};
    parts.push_back({*bounds, at->in(1)});
    at = made_by(at->in(0), "aten.slice_scatter");
  }
  // The parts must touch without overlapping; which one begins where another ends is found by
  // equality, as bounds may be symbolic.
  std::vector<Value*> joined;
  Sym from = 0;
  while (from != size) {
    auto part = std::find_if(parts.begin(), parts.end(), [&](const Part& p) {
      return p.bounds.start == from && p.value != nullptr;
    });
    if (part == parts.end() || part->bounds.end == part->bounds.start) return {};
    joined.push_back(part->value);
    from = part->bounds.end;
    part->value = nullptr;
  }
  if (joined.size() != parts.size()) return {};
  if (joined.size() == 1) return {joined[0]};
  return {b.op("aten.cat", joined, {{"dim", Sym(dim)}})};
}

Replacement select_scatter_all(Builder& b, const Node& n) {
  const int dim = axis(n, "dim", type(n).rank());
  if (!type(n).dim(dim).is(1)) return {};
  return {reshape(b, n.in(1), n.out()->type.shape)};
}

}  // namespace tk::canonical
