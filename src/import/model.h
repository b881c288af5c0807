// A captured model as a whole: its graph, its weights, and what lies beside them.
#pragma once

#include <filesystem>

#include "graph/graph.h"
#include "graph/weights.h"
#include "import/config.h"
#include "import/pt2.h"

namespace tk {

struct CapturedModel {
  Graph graph;
  Weights weights;           // exactly those of the graph, or none
  bool has_weights = false;  // false: a graph for study only
  ModelConfig config;
  std::filesystem::path folder;          // that the .pt2 lies in
  std::filesystem::path graph_path;      // the .pt2
  std::filesystem::path tokenizer_path;  // tokenizer.json; empty when there is none
};

// `path` is a .pt2 or a folder with one (model.pt2, or the only *.pt2). Configuration and tokenizer
// lie beside it or in hf/. Weights come from the .pt2, used where they lie in the file, or from
// safetensors beside it.
// Throws TK0230 (no capture here), TK0231 (a weight is missing), TK0232 (a weight is of another
// type than the graph says), and those of import_pt2, Pt2Archive and SafeTensors.
CapturedModel load_model(const std::filesystem::path& path, const ImportOptions& options = {});

// Throws TK0233 at the first NaN or infinity, with the weight's name and the index. Reads every
// byte: for optimise and check, not for each run.
void check_finite(const Weights& weights);

}  // namespace tk
