#include "trial/deployment.h"

#include <nlohmann/json.hpp>

#include "base/error.h"
#include "base/file.h"
#include "import/json.h"
#include "import/safetensors.h"

namespace tk {
namespace {

namespace fs = std::filesystem;
constexpr std::int64_t format_version = 1;

nlohmann::ordered_json json_of(const CacheSpec& cache) {
  nlohmann::ordered_json entries = nlohmann::json::array();
  for (const CacheEntry& e : cache.entries)
    entries.push_back(
        {{"name", e.name}, {"heads", e.heads}, {"dim", e.dim}, {"dtype", name_of(e.dtype)}});
  nlohmann::ordered_json layers = nlohmann::json::array();
  for (const CacheLayer& l : cache.layers)
    layers.push_back({{"module", l.module},
                      {"kind", l.kind},
                      {"mask", l.mask.kind},
                      {"window", l.mask.window},
                      {"query_heads", l.query_heads},
                      {"kv_heads", l.kv_heads},
                      {"head_dim", l.head_dim},
                      {"v_dim", l.v_dim},
                      {"sinks", l.sinks},
                      {"softcap", l.softcap},
                      {"entries", l.entries}});
  return {{"block_size", cache.block_size}, {"entries", entries}, {"layers", layers}};
}

CacheSpec cache_of(const json::Value& v) {
  CacheSpec cache;
  cache.block_size = v["block_size"].integer();
  for (const json::Value e : v["entries"].elements()) {
    CacheEntry entry{std::string(e["name"].string()), e["heads"].integer(), e["dim"].integer(),
                     DType::f32};
    if (!parse_dtype(e["dtype"].string(), &entry.dtype)) throw e["dtype"].error("is no dtype");
    cache.entries.push_back(std::move(entry));
  }
  for (const json::Value l : v["layers"].elements()) {
    CacheLayer layer;
    layer.module = l["module"].string();
    layer.kind = l["kind"].string();
    layer.mask = {std::string(l["mask"].string()), l["window"].integer()};
    layer.query_heads = l["query_heads"].integer();
    layer.kv_heads = l["kv_heads"].integer();
    layer.head_dim = l["head_dim"].integer();
    layer.v_dim = l["v_dim"].integer();
    layer.sinks = l["sinks"].boolean();
    layer.softcap = l["softcap"].number();
    for (std::int64_t i : json::integers(l["entries"]))
      layer.entries.push_back(static_cast<int>(i));
    cache.layers.push_back(std::move(layer));
  }
  return cache;
}

void copy_beside(const fs::path& from, const fs::path& to) {
  if (from.empty() || !fs::exists(from)) return;
  std::error_code error;
  if (fs::equivalent(from, to, error)) return;
  write_file(to, MappedFile::open(from)->text());
}

}  // namespace

void save_deployment(const fs::path& folder, const Deployment& d, const CapturedModel& source) {
  std::error_code error;
  fs::create_directories(folder, error);
  if (error)
    throw UserError("TK0103",
                    cat("cannot make the folder ", folder.string(), ": ", error.message()));
  std::vector<std::pair<std::string, TensorView>> tensors;
  for (const auto& [name, tensor] : d.engine.weights) tensors.emplace_back(name, tensor);
  // The marker goes first and comes back last: a folder with it is whole.
  fs::remove(folder / "tokamak.json", error);
  write_safetensors(folder / "model.safetensors", tensors);
  write_file(folder / "prefill.tk", print(d.engine.prefill));
  write_file(folder / "decode.tk", print(d.engine.decode));
  copy_beside(source.tokenizer_path, folder / "tokenizer.json");
  if (!source.tokenizer_path.empty()) {
    const fs::path beside = source.tokenizer_path.parent_path();
    for (const char* name : {"tokenizer_config.json", "generation_config.json"})
      copy_beside(beside / name, folder / name);
  }
  if (!d.config.text.empty()) write_file(folder / "config.json", d.config.text);
  fs::remove(folder / "checkpoint.json", error);
  if (!d.config.checkpoint_text.empty())
    write_file(folder / "checkpoint.json", d.config.checkpoint_text);
  const nlohmann::ordered_json facts{{"format", "tokamak"},
                                     {"version", format_version},
                                     {"name", d.name},
                                     {"max_positions", d.engine.max_positions},
                                     {"prefill_buckets", d.engine.prefill_buckets},
                                     {"eos_ids", d.config.eos_ids},
                                     {"bos_id", d.config.bos_id},
                                     {"cache", json_of(d.cache)}};
  write_file(folder / "tokamak.json", facts.dump(1) + "\n");
}

bool is_deployment(const fs::path& folder) { return fs::exists(folder / "tokamak.json"); }

Deployment load_deployment(const fs::path& folder) {
  const fs::path marker = folder / "tokamak.json";
  if (!fs::exists(marker))
    throw UserError("TK0820",
                    cat(folder.string(), " is no optimised model: it has no tokamak.json"))
        .help("make one with: tokamak optimize MODEL -o OUT");
  const json::Document document = json::parse(read_file(marker), marker.string());
  const json::Value root = document.root();
  if (root["format"].string() != "tokamak" || root["version"].integer() != format_version)
    throw UserError("TK0820", cat(folder.string(), " was written by another version of Tokamak"))
        .at(marker.string())
        .help("run tokamak optimize again");
  Deployment d;
  d.folder = folder;
  d.name = root["name"].string();
  d.cache = cache_of(root["cache"]);
  d.config = read_config(folder);
  d.config.eos_ids = json::integers(root["eos_ids"]);
  d.config.bos_id = root["bos_id"].integer();
  d.engine.block_size = d.cache.block_size;
  d.engine.max_positions = root["max_positions"].integer();
  if (root.find("prefill_buckets"))
    d.engine.prefill_buckets = json::integers(root["prefill_buckets"]);
  for (const bool prefill : {true, false}) {
    const fs::path path = folder / (prefill ? "prefill.tk" : "decode.tk");
    const auto text = MappedFile::open(path);
    (prefill ? d.engine.prefill : d.engine.decode) = parse_graph(text->text(), path.string());
  }
  const SafeTensors file = SafeTensors::open(folder / "model.safetensors");
  for (const Graph* graph : {&d.engine.prefill, &d.engine.decode})
    for (const auto& w : graph->weights()) {
      const Tensor* t = file.find(w->name);
      if (t == nullptr)
        throw UserError("TK0231", cat("the weight '", w->name, "' is missing"))
            .at((folder / "model.safetensors").string());
      d.engine.weights[w->name] = *t;
    }
  if (fs::exists(folder / "tokenizer.json")) d.tokenizer_path = folder / "tokenizer.json";
  return d;
}

}  // namespace tk
