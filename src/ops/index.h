// What reading and writing by index share.
#pragma once

#include <vector>

#include "ops/view.h"

namespace tk::ops {

// Fails for masks, whose results would have sizes that depend on values.
void need_index(const Args& args, int input);

// The shape of self[indices], where input first + i is the index tensor of axis i.
SymDims indexed_shape(const Args& args, int first);

// The places that the indices name in `target`: element offsets, and what lies at each of them.
struct IndexPlan {
  std::vector<std::int64_t> offsets;
  TensorView part;   // target without the indexed axes
  Dims index_shape;  // of the broadcast indices
  int place;         // where its axes stand in the result

  // t has the result's shape: what lies at each place of the indices, and the places' offsets.
  TensorView other(const TensorView& t, std::vector<std::int64_t>* at) const;
};
IndexPlan plan_index(const EvalArgs& args, int first, const TensorView& target);

// gather and scatter: an index of the rank of self, within self and src but for `dim`.
void need_lines(const Args& args, int index, int src = -1);
void need_lines_fit(const EvalArgs& args, const TensorView& index, const TensorView& t, int dim);

}  // namespace tk::ops
