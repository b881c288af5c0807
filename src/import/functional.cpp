#include "import/functional.h"

#include <algorithm>
#include <array>

#include "base/error.h"

namespace tk {
namespace {

UserError placed(UserError error, const Loc* loc) {
  if (loc == nullptr) return error;
  return std::move(error).at(loc->file, loc->line).in_module(loc->module);
}

// The part of the parent that result `i` of a split, chunk or unbind is.
Sym part_start(const Node& split, int i, int axis) {
  Sym start = 0;
  for (int k = 0; k < i; ++k) start = start + split.out(k)->type.dim(axis);
  return start;
}

int axis_of(const Node& node, std::string_view name, int rank) {
  const std::int64_t axis = node.args().i64(name);
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

constexpr std::array splits = {std::string_view("aten.split"), std::string_view("aten.chunk"),
                               std::string_view("aten.split_with_sizes"),
                               std::string_view("aten.tensor_split")};

bool is_split(const Node& node) {
  return std::find(splits.begin(), splits.end(), node.op->name) != splits.end();
}

SymDims inverse(const std::vector<std::int64_t>& permutation) {
  SymDims out(permutation.size(), 0);
  const auto rank = static_cast<std::int64_t>(permutation.size());
  for (std::int64_t i = 0; i < rank; ++i) {
    const std::int64_t p = permutation[static_cast<std::size_t>(i)];
    out[static_cast<std::size_t>(p < 0 ? p + rank : p)] = i;
  }
  return out;
}

}  // namespace

Aliasing aliasing_of(std::string_view op) {
  struct Row {
    std::string_view op;
    Aliasing aliasing;
  };
  static constexpr std::array rows = {
      Row{"aten.alias", Aliasing::view},
      Row{"aten.detach", Aliasing::view},
      Row{"aten.view", Aliasing::view},
      Row{"aten.view_as", Aliasing::view},
      Row{"aten.slice", Aliasing::view},
      Row{"aten.select", Aliasing::view},
      Row{"aten.narrow", Aliasing::view},
      Row{"aten.unsqueeze", Aliasing::view},
      Row{"aten.squeeze", Aliasing::view},
      Row{"aten.transpose", Aliasing::view},
      Row{"aten.permute", Aliasing::view},
      Row{"aten.t", Aliasing::view},
      Row{"aten.numpy_T", Aliasing::view},
      Row{"aten.mT", Aliasing::view},
      Row{"aten.swapaxes", Aliasing::view},
      Row{"aten.swapdims", Aliasing::view},
      Row{"aten.movedim", Aliasing::view},
      Row{"aten.unflatten", Aliasing::view},
      Row{"aten.expand", Aliasing::view},
      Row{"aten.expand_as", Aliasing::view},
      Row{"aten.broadcast_to", Aliasing::view},
      Row{"aten.split", Aliasing::view},
      Row{"aten.chunk", Aliasing::view},
      Row{"aten.split_with_sizes", Aliasing::view},
      Row{"aten.tensor_split", Aliasing::view},
      Row{"aten.unbind", Aliasing::view},
      Row{"aten.diagonal", Aliasing::view},
      Row{"aten.unfold", Aliasing::view},
      Row{"aten.as_strided", Aliasing::view},
      Row{"aten.real", Aliasing::view},
      Row{"aten.imag", Aliasing::view},
      Row{"aten.view_as_real", Aliasing::view},
      Row{"aten.view_as_complex", Aliasing::view},
      Row{"aten.reshape", Aliasing::maybe},
      Row{"aten.flatten", Aliasing::maybe},
      Row{"aten.ravel", Aliasing::maybe},
      Row{"aten.contiguous", Aliasing::maybe},
      Row{"aten.reshape_as", Aliasing::maybe},
      Row{"aten.to", Aliasing::same},
      Row{"aten.type_as", Aliasing::same},
      Row{"aten.dropout", Aliasing::same},
  };
  for (const Row& row : rows)
    if (row.op == op) return row.aliasing;
  return Aliasing::none;
}

Places::Id Places::add_base(Value* value, std::string_view name) {
  const Id id = places_.size();
  storages_.push_back({id});
  places_.push_back({name, storages_.size() - 1, id, nullptr, 0, false, value, 0});
  return id;
}

Places::Id Places::add_result(Id parent, Node* node, int result, std::string_view name) {
  Value* value = node->out(result);
  const Aliasing aliasing = aliasing_of(node->op->name);
  if (aliasing == Aliasing::none ||
      (aliasing == Aliasing::same && !(value->type == node->in(0)->type)))
    return add_base(value, name);
  const Id id = places_.size();
  const std::size_t storage = places_[parent].storage;
  places_.push_back({name, storage, parent, node, result, aliasing == Aliasing::maybe, value,
                     storages_[storage].version});
  return id;
}

Value* Places::read(Id id, const Loc* loc) {
  // Collects the stale views on the way up, then makes them anew on the way down.
  std::vector<Id> stale;
  Id at = id;
  while (places_[at].version != storages_[places_[at].storage].version) {
    stale.push_back(at);
    if (places_[at].parent == at) break;
    at = places_[at].parent;
  }
  if (stale.empty()) return places_[id].value;
  const Storage& storage = storages_[places_[id].storage];
  const bool base_unknown = stale.back() == storage.base;
  for (const Id s : stale)
    if (base_unknown || places_[s].maybe) {
      const Place& doubt = places_[base_unknown ? storage.doubted_by : s];
      throw placed(
          UserError("TK0221", cat("the capture changes memory in place, and whether '",
                                  places_[id].name, "' sees the change depends on strides: '",
                                  doubt.name, "' (", doubt.step->op->name, ") is a view or a copy"))
              .help("write .clone() or .contiguous() before the in-place change in the model"),
          loc);
    }
  while (!stale.empty()) {
    Place& place = places_[stale.back()];
    stale.pop_back();
    place.value = rebuild(place, places_[place.parent].value, loc);
    place.version = storage.version;
  }
  return places_[id].value;
}

Value* Places::rebuild(const Place& place, Value* parent, const Loc* loc) {
  Node* step = place.step;
  TK_CHECK(step != nullptr, "a base is never stale");
  if (!is_split(*step)) {
    std::vector<Value*> inputs = step->inputs;
    inputs[0] = parent;
    return graph_.insert(nullptr, *step->op, std::move(inputs), step->attrs, loc)
        ->out(place.result);
  }
  const int axis = axis_of(*step, "dim", parent->type.rank());
  const Sym start = part_start(*step, place.result, axis);
  const Sym end = start + step->out(place.result)->type.dim(axis);
  return Builder{graph_, nullptr, loc}.op("aten.slice", {parent},
                                          {{"dim", Sym(axis)}, {"start", start}, {"end", end}});
}

void Places::write(Id id, Value* value, const Loc* loc) {
  Storage& storage = storages_[places_[id].storage];
  const Value* base = places_[storage.base].value;
  if (base->kind != ValueKind::node)
    throw placed(
        UserError("TK0220", cat("the capture changes ",
                                base->kind == ValueKind::weight ? "the weight" : "the input", " '",
                                base->name, "' in place"))
            .help("a captured forward has no side effects: write to a copy in the model"),
        loc);
  TK_CHECK(value->type == places_[id].value->type, "type of what is written to ", places_[id].name);
  std::vector<Id> changed;
  for (Id at = id;; at = places_[at].parent) {
    Place& place = places_[at];
    place.value = value;
    changed.push_back(at);
    if (place.parent == at) break;
    if (place.maybe) {  // the memory of the parent changed or did not: it is unknown from here on
      storage.doubted_by = at;
      break;
    }
    value = scatter(place, read(place.parent, loc), value, loc);
  }
  ++storage.version;
  for (const Id c : changed) places_[c].version = storage.version;
}

void Places::cannot_write(const Place& place, const Loc* loc) const {
  throw placed(UserError("TK0221", cat("the capture writes in place through '", place.name,
                                       "', a view made by ", place.step->op->name,
                                       ", which is not supported"))
                   .note(cat("the view is ", print(*place.step)))
                   .help("write to a copy, or through slices, in the model"),
               loc);
}

// The parent with the part that the view shows replaced.
Value* Places::scatter(const Place& place, Value* parent, Value* value, const Loc* loc) {
  const Node& step = *place.step;
  Builder builder{graph_, nullptr, loc};
  const int rank = parent->type.rank();
  const std::string_view op = step.op->name;
  if (value->type == parent->type &&
      (op == "aten.alias" || op == "aten.detach" || op == "aten.to" || op == "aten.type_as" ||
       op == "aten.dropout"))
    return value;
  if (op == "aten.slice") return builder.op("aten.slice_scatter", {parent, value}, step.attrs);
  if (op == "aten.narrow") {
    const Sym start = step.args().sym("start");
    return builder.op("aten.slice_scatter", {parent, value},
                      {{"dim", step.args().sym("dim")},
                       {"start", start},
                       {"end", start + step.args().sym("length")}});
  }
  if (op == "aten.select")
    return builder.op("aten.select_scatter", {parent, value},
                      {{"dim", step.args().sym("dim")}, {"index", step.args().sym("index")}});
  if (op == "aten.unbind")
    return builder.op("aten.select_scatter", {parent, value},
                      {{"dim", Sym(axis_of(step, "dim", rank))}, {"index", Sym(place.result)}});
  if (is_split(step)) {
    const int axis = axis_of(step, "dim", rank);
    const Sym start = part_start(step, place.result, axis);
    return builder.op(
        "aten.slice_scatter", {parent, value},
        {{"dim", Sym(axis)}, {"start", start}, {"end", start + value->type.dim(axis)}});
  }
  if (op == "aten.view" || op == "aten.view_as" || op == "aten.unsqueeze" || op == "aten.squeeze" ||
      op == "aten.unflatten") {
    if (value->type.dtype != parent->type.dtype) cannot_write(place, loc);
    return builder.op("aten.reshape", {value}, {{"shape", parent->type.shape}});
  }
  if (op == "aten.transpose" || op == "aten.swapaxes" || op == "aten.swapdims" || op == "aten.t" ||
      op == "aten.mT" || op == "aten.numpy_T")  // their own inverses
    return builder.op(op, {value}, step.attrs);
  if (op == "aten.permute")
    return builder.op("aten.permute", {value}, {{"dims", inverse(step.args().ints("dims"))}});
  cannot_write(place, loc);
}

}  // namespace tk
