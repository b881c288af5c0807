// Reading by index: embedding, index, gather.
#include "ops/index.h"

#include <cstring>

#include "ops/cost.h"
#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {

void need_index(const Args& args, int input) {
  const DType d = args.in(input).dtype;
  if (d == DType::boolean || d == DType::u8)
    args.fail("can't select by a mask: the size of the result would depend on values");
  need_integral(args, input);
}

// ---- index: tensors of indices for some axes, broadcast together

namespace {

struct IndexedAxes {
  std::vector<int> axes;  // those with an index tensor
  bool adjacent = true;   // then the index axes take their place, else they come first
};

template <typename A>
IndexedAxes indexed_axes(const A& args, int first) {
  IndexedAxes out;
  for (int i = first; i < args.n_inputs(); ++i) {
    if (!args.has(i)) continue;
    if (!out.axes.empty() && out.axes.back() != i - first - 1) out.adjacent = false;
    out.axes.push_back(i - first);
  }
  return out;
}

}  // namespace

SymDims indexed_shape(const Args& args, int first) {
  const IndexedAxes at = indexed_axes(args, first);
  const Type& t = args.in(0);
  if (at.axes.empty()) args.fail("needs an index");
  if (at.axes.back() >= t.rank())
    args.fail(cat("needs at most ", t.rank(), " indices for ", t.str()));
  SymDims index;
  for (int i : at.axes) {
    need_index(args, first + i);
    index = broadcast(args, index, args.in(first + i).shape);
  }
  SymDims shape;
  int place = 0;
  for (int i = 0; i < t.rank(); ++i) {
    if (std::find(at.axes.begin(), at.axes.end(), i) != at.axes.end()) continue;
    if (at.adjacent && i < at.axes.front()) ++place;
    shape.push_back(t.dim(i));
  }
  shape.insert(shape.begin() + place, index.begin(), index.end());
  if (static_cast<int>(shape.size()) > max_rank)
    args.fail(cat("makes rank ", shape.size(), ", ranks up to ", max_rank, " are supported"));
  return shape;
}

IndexPlan plan_index(const EvalArgs& args, int first, const TensorView& target) {
  const IndexedAxes at = indexed_axes(args, first);
  IndexPlan plan;
  // The broadcast shape of the indices.
  Dims shape;
  for (int i : at.axes) {
    const TensorView& t = args.in(first + i);
    while (shape.size() < t.rank()) shape.insert(0, 1);
    for (int k = 0; k < t.rank(); ++k) {
      std::int64_t& d = shape[shape.size() - t.rank() + k];
      if (d == 1) d = t.shape[k];
    }
  }
  plan.offsets.assign(static_cast<std::size_t>(shape.numel()), 0);
  for (int i : at.axes) {
    const Tensor ids = cast_to(expand(args.in(first + i), shape), DType::i64);
    for (std::size_t k = 0; k < plan.offsets.size(); ++k)
      plan.offsets[k] +=
          checked_index(args, ids.as<std::int64_t>()[k], target.shape[i], true) * target.strides[i];
  }
  plan.part = target;
  for (auto it = at.axes.rbegin(); it != at.axes.rend(); ++it) {
    plan.part.shape.erase(*it);
    plan.part.strides.erase(*it);
  }
  plan.index_shape = shape;
  plan.place = at.adjacent ? at.axes.front() : 0;
  return plan;
}

TensorView IndexPlan::other(const TensorView& t, std::vector<std::int64_t>* at) const {
  TensorView rest = t;
  Dims steps;
  for (int i = 0; i < index_shape.size(); ++i) {
    steps.push_back(rest.strides[place]);
    rest.shape.erase(place);
    rest.strides.erase(place);
  }
  at->clear();
  for_blocks<1>(index_shape, {steps}, [&](const auto& start, const auto& step, int n) {
    for (int i = 0; i < n; ++i) at->push_back(start[0] + i * step[0]);
  });
  return rest;
}

namespace {

std::vector<Type> infer_index(const Args& args) {
  return {{args.in(0).dtype, indexed_shape(args, 1)}};
}

void eval_index(const EvalArgs& args) {
  const IndexPlan plan = plan_index(args, 1, args.in(0));
  std::vector<std::int64_t> at;
  TensorView to = plan.other(args.out(), &at);
  need_shape(args, to.shape == plan.part.shape && at.size() == plan.offsets.size(), args.in(0));
  if (to.numel() == 0) return;
  if (to.rank() == 0) {  // single elements
    const std::size_t size = size_of(to.dtype);
    const char* from = args.in(0).as<const char>();
    for (std::size_t i = 0; i < at.size(); ++i)
      std::memcpy(to.as<char>() + at[i] * static_cast<std::int64_t>(size),
                  from + plan.offsets[i] * static_cast<std::int64_t>(size), size);
    return;
  }
  for (std::size_t i = 0; i < at.size(); ++i)
    copy_into(moved(to, at[i]), moved(plan.part, plan.offsets[i]));
}

// ---- embedding, index_select

std::vector<Type> infer_embedding(const Args& args) {
  need_rank(args, 0, 2, 2);
  need_index(args, 1);
  Type out{args.in(0).dtype, args.in(1).shape};
  out.shape.push_back(args.in(0).dim(1));
  return {out};
}

void eval_embedding(const EvalArgs& args) {
  const TensorView& weight = args.in(0);
  const Tensor ids = cast_to(args.in(1), DType::i64);
  const std::int64_t width = weight.shape[1];
  TensorView row = weight;
  row.shape = {width};
  row.strides = {weight.strides[1]};
  TensorView to = args.out();
  to.shape = {width};
  to.strides = {1};
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t id = checked_index(args, ids.as<std::int64_t>()[i], weight.shape[0], false);
    copy_into(moved(to, i * width), moved(row, id * weight.strides[0]));
  }
}

std::vector<Type> infer_index_select(const Args& args) {
  need_rank(args, 0, 0, max_rank);
  need_rank(args, 1, 0, 1);
  need_index(args, 1);
  Type t = args.in(0);
  const int dim = axis(args, "dim", t.rank());
  if (t.rank() > 0) t.shape[static_cast<std::size_t>(dim)] = args.in(1).numel();
  return {t};
}

void eval_index_select(const EvalArgs& args) {
  const TensorView& t = args.in(0);
  const int dim = axis(args.i64("dim"), t.rank());
  const Tensor ids = cast_to(args.in(1), DType::i64);
  if (t.rank() == 0) {
    for (std::int64_t i = 0; i < ids.numel(); ++i)
      checked_index(args, ids.as<std::int64_t>()[i], 1, false);
    return copy_into(args.out(), t);
  }
  const auto slice = [&](TensorView v, std::int64_t i) {
    v = moved(v, i * v.strides[dim]);
    v.shape.erase(dim);
    v.strides.erase(dim);
    return v;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t id = checked_index(args, ids.as<std::int64_t>()[i], t.shape[dim], false);
    copy_into(slice(args.out(), i), slice(t, id));
  }
}

// ---- gather

std::vector<Type> infer_gather(const Args& args) {
  need_lines(args, 1);
  return {{args.in(0).dtype, args.in(1).shape}};
}

void take_lines(const EvalArgs& args, const TensorView& t, const TensorView& index,
                const TensorView& out, int dim) {
  const std::int64_t n = line_size(index, dim);
  const auto size = static_cast<std::int64_t>(size_of(t.dtype));
  std::vector<std::int64_t> ids(static_cast<std::size_t>(n));
  for_lines<3>({index, t, out}, dim, [&](const Offsets<3>& at) {
    read_line(index, {at[0], n, line_stride(index, dim)}, ids.data());
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t id =
          checked_index(args, ids[static_cast<std::size_t>(i)], line_size(t, dim), false);
      std::memcpy(out.as<char>() + (at[2] + i * line_stride(out, dim)) * size,
                  t.as<char>() + (at[1] + id * line_stride(t, dim)) * size,
                  static_cast<std::size_t>(size));
    }
  });
}

void eval_gather(const EvalArgs& args) {
  const TensorView& t = args.in(0);
  const TensorView& index = args.in(1);
  const int dim = axis(args.i64("dim"), t.rank());
  need_lines_fit(args, index, t, dim);
  take_lines(args, t, index, args.out(), dim);
}

// ---- take_along_dim: gather whose operands broadcast but for dim; without dim, of all in a row

std::vector<Type> infer_take(const Args& args) {
  need_index(args, 1);
  const Type& t = args.in(0);
  const Type& index = args.in(1);
  if (!args.has_attr("dim")) return {{t.dtype, {index.numel()}}};
  if (index.rank() != t.rank() || t.rank() == 0)
    args.fail(cat("needs an index of the rank of ", t.str(), ", got ", index.str()));
  const int dim = axis(args, "dim", t.rank());
  SymDims a = t.shape;
  SymDims b = index.shape;
  a[static_cast<std::size_t>(dim)] = b[static_cast<std::size_t>(dim)] = 1;
  SymDims shape = broadcast(args, a, b);
  shape[static_cast<std::size_t>(dim)] = index.dim(dim);
  return {{t.dtype, shape}};
}

void eval_take(const EvalArgs& args) {
  const TensorView& out = args.out();
  if (!args.has_attr("dim")) {
    const auto flat = [](const TensorView& v, Tensor* copy) {
      *copy = contiguous(v);
      copy->shape = {v.numel()};
      copy->strides = {1};
      return *copy;
    };
    Tensor a, b;
    return take_lines(args, flat(args.in(0), &a), flat(args.in(1), &b), out, 0);
  }
  const int dim = axis(args.i64("dim"), out.rank());
  Dims shape = out.shape;
  shape[dim] = args.in(0).shape[dim];
  take_lines(args, expand(args.in(0), shape), expand(args.in(1), out.shape), out, dim);
}

}  // namespace

void need_lines(const Args& args, int index, int src) {
  need_index(args, index);
  const Type& t = args.in(0);
  const Type& i = args.in(index);
  const int dim = axis(args, "dim", t.rank());
  if (std::max(i.rank(), 1) != std::max(t.rank(), 1))
    args.fail(cat("needs an index of rank ", t.rank(), ", got ", i.str()));
  const auto within = [&](const Type& outer, bool along) {
    for (int k = 0; k < i.rank() && k < outer.rank(); ++k) {
      const Sym room = outer.dim(k) - i.dim(k);
      if ((along || k != dim) && room.is_const() && room.value() < 0)
        args.fail(cat("needs an index within ", outer.str(), ", got ", i.str()));
    }
  };
  within(t, false);
  if (src < 0 || !args.has(src)) return;
  if (std::max(args.in(src).rank(), 1) != std::max(i.rank(), 1))
    args.fail(cat("needs src of rank ", i.rank(), ", got ", args.in(src).str()));
  if (args.in(src).dtype != t.dtype) args.fail("needs self and src of one dtype");
  within(args.in(src), true);
}

void need_lines_fit(const EvalArgs& args, const TensorView& index, const TensorView& t, int dim) {
  for (int k = 0; k < index.rank() && k < t.rank(); ++k)
    need_shape(args, k == dim || index.shape[k] <= t.shape[k], index);
}

const OpDef aten_embedding{.name = "aten.embedding",
                           .schema =
                               "(Tensor weight, Tensor indices, int padding_idx=-1, "
                               "bool scale_grad_by_freq=false, bool sparse=false) -> Tensor",
                           .doc = "the rows of weight that indices name",
                           .infer = infer_embedding,
                           .eval = eval_embedding,
                           .cost = picked_cost};
const OpDef aten_index{.name = "aten.index",
                       .schema = "(Tensor self, Tensor?[] indices) -> Tensor",
                       .doc = "elements at indices that broadcast together, for some of the dims",
                       .infer = infer_index,
                       .eval = eval_index,
                       .cost = picked_cost};
const OpDef aten_index_select{.name = "aten.index_select",
                              .schema = "(Tensor self, int dim, Tensor index) -> Tensor",
                              .doc = "the parts of a dim that index names",
                              .infer = infer_index_select,
                              .eval = eval_index_select,
                              .cost = picked_cost};
const OpDef aten_gather{
    .name = "aten.gather",
    .schema = "(Tensor self, int dim, Tensor index, *, bool sparse_grad=false) -> Tensor",
    .doc = "out[i][j] = self[i][index[i][j]] along dim",
    .infer = infer_gather,
    .eval = eval_gather,
    .cost = picked_cost};

const OpDef aten_take_along_dim{
    .name = "aten.take_along_dim",
    .schema = "(Tensor self, Tensor indices, int? dim=None) -> Tensor",
    .doc = "gather whose operands broadcast; without dim, from all elements in a row",
    .infer = infer_take,
    .eval = eval_take};

}  // namespace tk::ops
