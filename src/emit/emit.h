// A cached model as torch_npu code that a person can read, run and copy to a machine with NPUs.
#pragma once

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "emit/graph_mode.h"
#include "graph/graph.h"
#include "graph/verdict.h"
#include "graph/weights.h"
#include "import/config.h"
#include "import/model.h"

namespace tk::emit {

struct Model {
  std::string name;       // "qwen3_8b": of the files and classes
  Graph prefill, decode;  // cached, fused for the target
  Weights weights;        // those of `constants` are read, no others
  // Weights that no checkpoint holds (buffers that are not saved): written into the code.
  std::set<std::string, std::less<>> constants;
  // Types of modules by path, as the captured model has them: "model.layers.0" ->
  // "LlamaDecoderLayer".
  std::map<std::string, std::string, std::less<>> types;
  ModelConfig config;
  std::int64_t block_size = 128;
  std::int64_t max_positions = 0;  // 0: none known
};

struct Options {
  std::string model_path;            // written into the YAML; empty: a placeholder
  std::vector<std::string> prompts;  // of the YAML; empty: a default
  std::string platform = "A2";       // A2 or A3
  bool framework = false;  // for the framework of cann-recipes-infer: no runner of its own
  ExeMode exe_mode = ExeMode::eager;  // how decode runs; prefill is eager
};

struct File {
  std::string path;  // below the directory
  std::string text;
  bool executable = false;
};

struct Emitted {
  std::vector<File> files;
  std::vector<std::string> notes;  // what could not be written as the model has it
};

// What a captured model knows beside its graphs: weights, constants, types of modules. Throws
// TK1201 and what reading the archive throws.
Model of_capture(const CapturedModel& captured, std::string_view name, Graph prefill, Graph decode,
                 std::int64_t block_size);

// The same input gives the same bytes. Throws TK1201 (a name that cannot be one), TK1202 (an
// operator that has no form in Python), TK1203 (a constant without its values).
Emitted write_model(const Model& model, const Options& options);

// Written beside `folder`, then renamed. Throws TK1204 when `folder` exists and `force` is not set
// and TK0103.
void save(const std::filesystem::path& folder, const Emitted& emitted, bool force);

// "Qwen3-8B" -> "qwen3_8b"; a leading digit gets "m_". Throws TK1201 when nothing is left.
std::string python_name(std::string_view name);

}  // namespace tk::emit
