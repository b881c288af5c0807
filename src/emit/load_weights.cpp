#include "emit/load_weights.h"

namespace tk::emit {
namespace {

// Experts that the model holds as one tensor [E, 2I, H] and checkpoints as one each.
bool has_stacked_experts(const Source& source) {
  for (const auto& w : source.prefill->graph->weights()) {
    if (!w->name.ends_with(".experts.gate_up_proj") || w->type.rank() != 3) continue;
    const std::string down = w->name.substr(0, w->name.size() - 12) + "down_proj";
    const Value* d = source.prefill->graph->find_weight(down);
    // [E, 2I, H] and [E, H, I]: rows are what the product gives, as nn.Linear has it.
    if (d != nullptr && d->type.rank() == 3 && d->type.dim(1) == w->type.dim(2)) return true;
  }
  return false;
}

}  // namespace

std::vector<std::string> load_weights_lines(const Source& source) {
  const bool experts = has_stacked_experts(source);
  const std::string& wrapper = source.prefill->paths.wrapper;
  std::vector<std::string> lines = {
      "\"\"\"Copies (name, tensor) pairs of the checkpoint to their places; returns their "
      "names.\"\"\"",
      "parameters = dict(self.named_parameters())",
      "places = parameters | dict(self.named_buffers())",
      "filled, loaded = set(), set()",
      "for name, tensor in weights:",
  };
  if (!wrapper.empty())
    lines.insert(lines.end(),
                 {
                     "    bare = name.removeprefix(\"" + wrapper + "\")  # of a captured model",
                     "    if name not in places and (bare in places or bare.startswith(\"" +
                         wrapper + "\")):",
                     "        name = bare",
                 });
  for (const auto& [name, own] : source.prefill->paths.tied) {
    const std::string names = wrapper.empty() ? "== \"" + name + "\""
                                              : "in (\"" + name + "\", \"" + wrapper + name + "\")";
    lines.insert(lines.end(), {"    if name " + names + ":  # one table with two names",
                               "        name = \"" + own + "\""});
  }
  if (experts) {
    lines.insert(lines.end(),
                 {
                     "    place, target = places.get(name), name",
                     "    if place is None and \".experts.\" in name:",
                     "        place, target = self._place_in_experts(name, parameters)",
                 });
  } else {
    lines.insert(lines.end(), {"    place, target = places.get(name), name"});
  }
  lines.insert(lines.end(),
               {
                   "    if place is None:",
                   "        raise ValueError(f\"{name}: the model has no such weight\")",
                   "    if place.shape != tensor.shape:",
                   "        raise ValueError(f\"{name}: {tuple(tensor.shape)} instead of "
                   "{tuple(place.shape)}\")",
                   "    place.data.copy_(tensor)",
                   "    filled.add(target)",
                   "    loaded.add(name)",
                   "missing = sorted(parameters.keys() - filled)",
                   "if missing:",
                   "    raise ValueError(f\"the checkpoint lacks {len(missing)} weights: {', "
                   "'.join(missing[:5])}\")",
                   "return loaded",
               });
  return lines;
}

std::vector<std::pair<std::string, std::vector<std::string>>> expert_methods(const Source& source) {
  if (!has_stacked_experts(source)) return {};
  return {
      {"def _place_in_experts(self, name, parameters):",
       {
           "\"\"\"The rows of 'experts.gate_up_proj' that 'experts.3.up_proj.weight' fills.\"\"\"",
           "head, expert, kind, _ = name.rsplit(\".\", 3)",
           "target = f\"{head}.{'down_proj' if kind == 'down_proj' else 'gate_up_proj'}\"",
           "if target not in parameters:",
           "    return None, name",
           "place = parameters[target].data[int(expert)]",
           "if kind != \"down_proj\":",
           "    gate, up = place.chunk(2)",
           "    place = gate if kind == \"gate_proj\" else up",
           "return place, target",
       }}};
}

}  // namespace tk::emit
