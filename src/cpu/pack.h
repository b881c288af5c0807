// Weights of matrix products in the layout of their kernels (kernels::pack_weight): made once for
// all plans of a model, and kept in a file from one process to the next.
#pragma once

#include <map>
#include <memory>
#include <string>

#include "base/threads.h"
#include "cpu/packed_file.h"
#include "graph/weights.h"
#include "plan/plan.h"

namespace tk {

// Packs what make_plan offers, when every kernel of the step takes it packed, unless the file has
// it. The memory is in huge pages where the system gives them.
class WeightPacker {
 public:
  // `weights` tell which files the contents come from; only then can they be found again on disk.
  WeightPacker(Team* team, const Weights& weights);

  Tensor operator()(const ConstantInput& input);
  // Writes the file, when something was packed that it has not and packing takes long.
  void save();
  std::int64_t bytes() const { return bytes_; }

 private:
  Tensor room(std::int64_t bytes);
  void pack(const TensorView& w, bool n_k, bf16* out) const;
  Team* team_;
  Tensor chunk_;  // huge pages that small weights share
  std::int64_t used_ = 0;
  std::map<std::string, Tensor, std::less<>> packed_;  // by key and layout
  std::unique_ptr<PackedFile> file_;                   // null: no cache
  std::int64_t bytes_ = 0;
  bool news_ = false;
};

// The element order of a packed [N, K] or [E, K, N] weight undone, for readers other than its
// kernels: out is contiguous.
void unpack_weight(const TensorView& packed, bool n_k, void* out);
// Whether the weight of this operator is [N, K] (else [.., K, N]).
bool weight_is_n_k(const Node& node);

// Zeroed memory of whole huge pages.
Tensor huge_memory(std::int64_t bytes);

}  // namespace tk
