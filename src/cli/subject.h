// The graph that is timed or compared: of a captured model, or of a folder that optimize made.
#pragma once

#include <cstdint>
#include <string>

#include "graph/graph.h"
#include "trial/optimize.h"

namespace tk::cli {

struct SubjectOptions {
  Target target = Target::a3;
  bool prefill = false;
  bool fuse = true;  // a captured model's: as far as torch_npu's operators go, `pending` ones too
  std::int64_t block_size = OptimizeOptions{}.block_size;
};
struct SubjectGraph {
  std::string name;  // for people
  Graph graph;
};
// `path`: a .pt2, or a folder. Without fusion a captured model's graph is that of decode, which
// takes any number of tokens. Throws UserError.
SubjectGraph open_graph(const std::string& path, const SubjectOptions& options);

}  // namespace tk::cli
