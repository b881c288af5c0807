// What view operators share. A view function finds the shape of each result in args.out(i), whose
// data is null then.
#pragma once

#include "ops/compute.h"

namespace tk::ops {

// t moved by an offset in elements.
inline TensorView moved(TensorView t, std::int64_t elements) {
  t.data = static_cast<char*>(t.data) + elements * static_cast<std::int64_t>(size_of(t.dtype));
  return t;
}

// The view of t with another shape of as many elements; false when its strides don't allow one.
bool reshape_view(const TensorView& t, const Dims& shape, TensorView* out);

// The eval of a view operator: its view, copied.
template <bool (*view)(const EvalArgs&, std::span<TensorView>)>
void eval_view(const EvalArgs& args) {
  std::vector<TensorView> views(static_cast<std::size_t>(args.n_outputs()));
  TK_CHECK(view(args, views), args.op().name, " has no view");
  for (int i = 0; i < args.n_outputs(); ++i)
    copy_into(args.out(i), views[static_cast<std::size_t>(i)]);
}

// One result, the same elements in the same order: reshape and its kin.
bool view_reshape(const EvalArgs& args, std::span<TensorView> outputs);
void eval_reshape(const EvalArgs& args);

// Of aten.slice; slice_scatter has the same attributes.
std::vector<Type> infer_slice(const Args& args);

// TK0505: the sizes found when running contradict the graph's.
void need_shape(const EvalArgs& args, bool holds, const TensorView& found);

}  // namespace tk::ops
