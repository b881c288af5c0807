#include "emit/checkpoint_names.h"

#include <algorithm>

#include "base/error.h"
#include "import/json.h"

namespace tk::emit {
namespace {

// "model.layers.*.mlp.experts" of "model.layers.3.mlp.experts".
std::string pattern_of(std::string_view name) {
  std::string out;
  while (!name.empty()) {
    const std::size_t end = std::min(name.find('.'), name.size());
    const std::string_view part = name.substr(0, end);
    const bool number = part.find_first_not_of("0123456789") == std::string_view::npos;
    out += cat(out.empty() ? "" : ".", number ? "*" : part);
    name.remove_prefix(std::min(end + 1, name.size()));
  }
  return out;
}

// Experts that the model holds as one tensor [E, 2I, H] and checkpoints as one each.
void expect_experts(const Source& source, CheckpointNames* names) {
  for (const auto& w : source.prefill->graph->weights()) {
    constexpr std::string_view merged = "gate_up_proj";
    if (!w->name.ends_with(cat(".experts.", merged)) || w->type.rank() != 3) continue;
    const std::string experts = w->name.substr(0, w->name.size() - merged.size());
    const Value* down = source.prefill->graph->find_weight(experts + "down_proj");
    // [E, 2I, H] and [E, H, I]: rows are what the product gives, as nn.Linear has it.
    if (down == nullptr || down->type.rank() != 3 || down->type.dim(1) != w->type.dim(2)) continue;
    const std::string bare = source.prefill->paths.weight(*w);
    const std::string pattern = pattern_of(bare.substr(0, bare.size() - merged.size() - 1));
    const auto add = [&](std::string_view kind, std::string_view target, std::int64_t part,
                         std::int64_t parts) {
      names->places[cat(pattern, ".*.", kind, ".weight")] = {cat(pattern, ".", target), part,
                                                             parts};
    };
    add("gate_proj", merged, 0, 2);
    add("up_proj", merged, 1, 2);
    add("down_proj", "down_proj", 0, 1);
  }
}

void read_names(const std::string& text, const Paths& paths, CheckpointNames* names) {
  const json::Document document = json::parse(text, "checkpoint.json");
  const json::Value root = document.root();
  for (const json::Value name : root["unplaced"].elements())
    throw UserError("TK1213", cat("the checkpoint's '", name.string(),
                                  "' is converted when it is loaded, in a way that the written "
                                  "code does not know"))
        .help("save the loaded model again with its own names, and capture that checkpoint");
  for (const auto& [name, place] : root["places"].members()) {
    std::vector<json::Value> all;
    for (const json::Value v : place.elements()) all.push_back(v);
    if (all.size() != 3) throw place.error("is not [name, part, parts]");
    std::string weight(all[0].string());
    if (const auto tied = paths.tied.find(weight); tied != paths.tied.end()) weight = tied->second;
    names->places[std::string(name)] = {std::move(weight), all[1].integer(), all[2].integer()};
  }
  for (const json::Value name : root["unused"].elements())
    names->unused.emplace_back(name.string());
}

}  // namespace

CheckpointNames checkpoint_names(const Source& source) {
  CheckpointNames names;
  const std::string& text = source.model->config.checkpoint_text;
  if (text.empty())
    expect_experts(source, &names);
  else
    read_names(text, source.prefill->paths, &names);
  return names;
}

}  // namespace tk::emit
