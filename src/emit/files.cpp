#include "emit/files.h"

#include <fmt/format.h>

#include <algorithm>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "emit/framework_templates.h"
#include "emit/load_weights.h"
#include "emit/python_text.h"
#include "emit/templates.h"

namespace tk::emit {
namespace {

using Json = nlohmann::ordered_json;

std::string dtype_name(DType dtype) { return torch_dtype(dtype).substr(6); }

std::string framework_name(const Source& source) {
  return camel(source.model->name) + "ForFramework";
}

std::string modeling(const Source& source, const Classes& classes, const Options& options) {
  const bool framework = options.framework;
  const ExeMode mode = options.exe_mode;
  std::set<std::string> needed = classes.helpers;
  if (needed.count("paged_attention") != 0 || needed.count("mla_paged_attention") != 0)
    needed.insert("attend");
  if (needed.count("linear_glu") != 0 || needed.count("grouped_linear_glu") != 0)
    needed.insert("gated");
  std::string helpers;
  for (const char* name : {"attend", "paged_attention", "mla_paged_attention", "cache_write",
                           "gated", "linear_glu", "grouped_linear_glu"})
    if (needed.erase(name) != 0) helpers += "\n" + helper_text(name);
  if (!needed.empty())
    throw UserError("TK1202", cat("tk.", *needed.begin(), " has no form in Python"));
  helpers = load_weights_tables(source) + helpers;
  const bool matches_names = helpers.find("PLACES = ") != std::string::npos;
  const bool functional = (classes.text + helpers).find("F.") != std::string::npos;
  return filled(std::string(modeling_head),
                {{"TITLE", camel(source.model->name)},
                 {"PARTIAL", framework ? "from functools import partial\n" : ""},
                 {"EXECUTOR", framework ? std::string(framework_imports) : ""},
                 {"ATTENTION",
                  framework ? "ATTENTION = \"FullAttention\"  # the framework's name of the cache\n"
                            : ""},
                 {"BLOCK_SIZE", std::to_string(source.model->block_size)},
                 {"RE", matches_names ? "import re\n" : ""},
                 {"GRAPH", metadata_for_graph_mode(mode)},
                 {"IMPORT_GRAPH", mode == ExeMode::ge_graph ? "import torchair\n" : ""},
                 {"FUNCTIONAL", functional ? "import torch.nn.functional as F\n" : ""},
                 {"NPU", classes.uses_npu ? "import torch_npu\n" : ""}}) +
         for_graph_mode(helpers + classes.text, mode) +
         (framework ? filled(std::string(framework_class), {{"CLASS", framework_name(source)},
                                                            {"MODEL", classes.model},
                                                            {"DTYPE", dtype_name(source.dtype)}})
                    : "");
}

// "hidden_size: int = 64": the numbers and switches of config.json.
std::string configuration(const Source& source, bool framework) {
  std::string fields;
  const Json config =
      source.model->config.text.empty() ? Json::object() : Json::parse(source.model->config.text);
  for (const auto& [key, value] : config.items()) {
    if (key == "transformers_version") continue;
    std::string text;
    std::string type;
    if (value.is_boolean()) {
      type = "bool", text = value.get<bool>() ? "True" : "False";
    } else if (value.is_number_integer()) {
      type = "int", text = value.dump();
    } else if (value.is_number_float()) {
      type = "float", text = value.dump();
    } else if (value.is_string() && (key == "model_type" || key == "hidden_act")) {
      type = "str", text = value.dump();
    } else {
      continue;
    }
    fields += cat("    ", key, ": ", type, " = ", text, "\n");
  }
  std::string eos;
  for (const std::int64_t id : source.model->config.eos_ids) eos += cat(id, ", ");
  fields += "    eos_token_ids: tuple = (" + eos + ")\n";
  if (eos.ends_with(", ")) {
    const bool one = source.model->config.eos_ids.size() == 1;
    const std::size_t at = fields.rfind(", )");
    fields.replace(at, 3, one ? ",)" : ")");
  }
  // eos_token_ids stands for both files of the checkpoint.
  std::string kept;
  std::size_t start = 0;
  while (start < fields.size()) {
    const std::size_t end = fields.find('\n', start) + 1;
    const std::string line = fields.substr(start, end - start);
    if (line.find(" eos_token_id:") == std::string::npos) kept += line;
    start = end;
  }
  if (framework)
    kept +=
        "\n    @property\n    def eos_token_id(self):\n        return list(self.eos_token_ids)\n";
  return filled(std::string(configuration_text), {{"MORE", framework ? ", **_" : ""},
                                                  {"CLASS", camel(source.model->name) + "Config"},
                                                  {"FIELDS", kept}});
}

std::string yaml_list(const std::vector<std::string>& items) {
  std::string text;
  for (const std::string& i : items) text += "    - " + Json(i).dump() + "\n";
  return text;
}

}  // namespace

std::string filled(std::string text,
                   const std::vector<std::pair<std::string, std::string>>& values) {
  // One pass: what looks like a mark in a value, a prompt for one, is the user's own text.
  std::string out;
  std::size_t done = 0;
  for (std::size_t at = text.find('@'); at != std::string::npos; at = text.find('@', done)) {
    out.append(text, done, at - done);
    done = at;
    for (const auto& [key, value] : values) {
      if (text.compare(at + 1, key.size() + 1, key + "@") != 0) continue;
      out += value;
      done += key.size() + 2;
      break;
    }
    if (done == at) out += text[done++];
  }
  return out.append(text, done);
}

std::vector<File> files_of(const Source& source, const Classes& classes, const Options& options) {
  const Model& m = *source.model;
  std::vector<std::string> prompts = options.prompts;
  if (prompts.empty()) prompts = {"Once upon a time", "The capital of France is"};
  const std::string name = camel(m.name);
  const ExeMode mode = options.exe_mode;
  const bool graph = mode != ExeMode::eager;
  const std::int64_t limit = m.max_positions > 0 ? m.max_positions : 4096;
  const std::vector<std::pair<std::string, std::string>> values = {
      {"NAME", m.name},
      {"TITLE", name},
      {"MODEL", classes.model},
      {"CONFIG", name + "Config"},
      {"RUNNER", name + "Runner"},
      {"CLASS", framework_name(source)},
      {"BLOCK_SIZE", std::to_string(m.block_size)},
      {"MAX_LEN", std::to_string(limit)},
      {"DTYPE", dtype_name(source.dtype)},
      {"DEVICE", classes.uses_npu ? "npu" : "cpu"},
      {"TORCH_NPU",
       classes.uses_npu ? "import torch_npu  # noqa: F401, registers the device\n" : ""},
      {"PLATFORM", options.platform},
      {"EXE_MODE", std::string(name_of(mode))},
      {"GRAPH_KEYS", graph_keys(mode)},
      {"GRAPH_IMPORT",
       graph ? "from graph_mode import compile_decode, mark_caches_static, mark_static\n" : ""},
      {"COMPILE", graph ? "        self.decode = compile_decode(self.model)\n" : ""},
      {"CACHES_STATIC", graph ? "            mark_caches_static(self.model)\n" : ""},
      {"STEP", graph ? std::string(graph_step) : std::string(eager_step)},
      {"MODEL_PATH",
       Json(options.model_path.empty() ? "<folder of the checkpoint>" : options.model_path).dump()},
      {"PROMPTS", yaml_list(prompts)},
      {"BATCH", std::to_string(prompts.size())},
      {"NPU_REQUIREMENT", classes.uses_npu ? "torch_npu==2.8.0\n" : ""},
      {"NPU_ROW", classes.uses_npu ? "| torch_npu | 2.8.0 |\n" : ""},
      {"PRODUCT", options.platform == "A3" ? "Atlas A3 series" : "Atlas A2 series"}};
  const bool framework = options.framework;
  std::vector<File> files = {
      {"models/modeling_" + m.name + ".py", modeling(source, classes, options)},
      {"models/configuration_" + m.name + ".py", configuration(source, framework)},
      {"requirements.txt", filled(std::string(requirements), values)},
  };
  if (framework) {
    files.insert(files.end(),
                 {{"config/" + m.name + ".yaml", filled(std::string(framework_yaml), values)},
                  {"registry.patch", filled(std::string(registry_patch), values)},
                  {"README.md", filled(std::string(framework_readme), values)}});
    return files;
  }
  files.insert(files.end(),
               {
                   {"runner_" + m.name + ".py", filled(std::string(runner_text), values)},
                   {"infer.py", filled(std::string(infer_py), values)},
                   {"infer.sh", filled(std::string(infer_sh), values), true},
                   {"config/" + m.name + ".yaml", filled(std::string(yaml_text), values)},
                   {"README.md", filled(std::string(readme), values)},
               });
  if (graph) files.push_back({"graph_mode.py", graph_mode_text(mode)});
  return files;
}

}  // namespace tk::emit
