#include "import/config.h"

#include <optional>

#include "base/file.h"
#include "import/json.h"

namespace tk {
namespace {

// A number or a list of them, as eos_token_id is.
std::vector<std::int64_t> ids(const json::Value& object, std::string_view name) {
  const auto v = object.find(name);
  if (!v || v->is_null()) return {};
  if (v->is_array()) return json::integers(*v);
  return {v->integer()};
}

std::int64_t first_id(const json::Value& object, std::string_view name, std::int64_t otherwise) {
  const auto list = ids(object, name);
  return list.empty() ? otherwise : list.front();
}

}  // namespace

ModelConfig read_config(const std::filesystem::path& folder) {
  ModelConfig out;
  const std::filesystem::path main = folder / "config.json";
  if (std::filesystem::exists(main)) {
    out.text = read_file(main);
    const json::Document document = json::parse(out.text, main.string());
    const json::Value root = document.root();
    out.model_type = json::string_or(root, "model_type", "");
    // A model of text and images keeps these one level down.
    const auto text = root.find("text_config");
    const json::Value c = text && text->is_object() ? *text : root;
    out.eos_ids = ids(c, "eos_token_id");
    if (out.eos_ids.empty()) out.eos_ids = ids(root, "eos_token_id");
    out.bos_id = first_id(c, "bos_token_id", first_id(root, "bos_token_id", -1));
    out.max_positions = json::integer_or(c, "max_position_embeddings", 0);
    out.vocab_size = json::integer_or(c, "vocab_size", 0);
  }
  const std::filesystem::path generation = folder / "generation_config.json";
  if (std::filesystem::exists(generation)) {
    const json::Document document = json::parse(read_file(generation), generation.string());
    auto list = ids(document.root(), "eos_token_id");
    if (!list.empty()) out.eos_ids = std::move(list);
    out.bos_id = first_id(document.root(), "bos_token_id", out.bos_id);
  }
  const std::filesystem::path checkpoint = folder / "checkpoint.json";
  if (std::filesystem::exists(checkpoint)) out.checkpoint_text = read_file(checkpoint);
  return out;
}

}  // namespace tk
