// `tokamak profile --graph`: the kernels of a captured model, for their names.
#pragma once

#include <string>
#include <vector>

#include "timeline/structure_graph.h"

namespace tk::cli {

// Of one step on an NPU, fused as far as torch_npu's operators go. `path`: a .pt2, or a folder that
// optimize made. Throws UserError.
std::vector<GraphKernel> model_kernels(const std::string& path, bool prefill);

}  // namespace tk::cli
