#include "emit/load_weights.h"

#include "base/error.h"
#include "emit/checkpoint_names.h"
#include "emit/python_text.h"

namespace tk::emit {
namespace {

std::vector<std::string> load_lines(const Source& source, const CheckpointNames& names) {
  const std::string& wrapper = source.prefill->paths.wrapper;
  std::vector<std::string> lines = {
      R"("""Copies (name, tensor) pairs of the checkpoint to their places; returns their names.""")",
      "parameters = dict(self.named_parameters())",
      "places = parameters | dict(self.named_buffers())",
      "filled, loaded = set(), set()",
      "for name, tensor in weights:",
  };
  const auto add = [&](std::initializer_list<std::string> more) {
    lines.insert(lines.end(), more);
  };
  if (!names.unused.empty()) add({"    if name.startswith(UNUSED):", "        continue"});
  if (!wrapper.empty())
    add({cat("    bare = name.removeprefix(\"", wrapper, "\")  # of a captured model"),
         cat("    if name not in places and (bare in places or bare.startswith(\"", wrapper,
             "\")):"),
         "        name = bare"});
  for (const auto& [name, own] : source.prefill->paths.tied) {
    const std::string same = wrapper.empty() ? cat("== \"", name, "\"")
                                             : cat("in (\"", name, "\", \"", wrapper, name, "\")");
    add({cat("    if name ", same, ":  # one table with two names"),
         cat("        name = \"", own, "\"")});
  }
  add({"    place, target = places.get(name), name"});
  if (!names.places.empty())
    add({"    if place is None:", "        place, target = self._place_of(name, places)"});
  add({"    if place is None:",
       "        raise ValueError(f\"{name}: the model has no such weight\")",
       "    if place.shape != tensor.shape:",
       R"(        raise ValueError(f"{name}: {tuple(tensor.shape)} instead of {tuple(place.shape)}"))",
       "    place.data.copy_(tensor)", "    filled.add(target)", "    loaded.add(name)",
       "missing = sorted(parameters.keys() - filled)", "if missing:",
       cat("    raise ValueError(",
           R"(f"the checkpoint lacks {len(missing)} weights: {', '.join(missing[:5])}"))"),
       "return loaded"});
  return lines;
}

const std::vector<std::string>& place_lines() {
  static const std::vector<std::string> lines = {
      "\"\"\"The weight that PLACES has for a name, or the part of it, and its own name.\"\"\"",
      "numbers = re.findall(r\"(?<=\\.)\\d+(?=\\.)\", name)",
      "pattern = re.sub(r\"(?<=\\.)\\d+(?=\\.)\", \"*\", name)",
      "if pattern not in PLACES:",
      "    return None, name",
      "target, part, parts = PLACES[pattern]",
      "layers = numbers[: target.count(\"*\")]",
      "for number in layers:",
      "    target = target.replace(\"*\", number, 1)",
      "place = places[target].data",
      "if len(numbers) > len(layers):  # the last one is the expert's",
      "    place = place[int(numbers[-1])]",
      "return place.tensor_split(parts)[part], target",
  };
  return lines;
}

}  // namespace

std::string load_weights_tables(const Source& source) {
  const CheckpointNames names = checkpoint_names(source);
  std::string text;
  if (!names.places.empty()) {
    text +=
        "\n# What the checkpoint has under another name or in parts, * for a number: the weight,\n"
        "# and which of how many parts of its first axis (of its expert's, where it has those).\n"
        "PLACES = {\n";
    for (const auto& [name, place] : names.places)
      text += wrapped(
          cat("\"", name, "\": (\"", place.weight, "\", ", place.part, ", ", place.parts, "),"), 4);
    text += "}\n";
  }
  if (!names.unused.empty()) {
    text += "\n# Of the checkpoint, and not of this model.\n";
    std::string list;
    for (const std::string& name : names.unused) list += cat("\"", name, "\", ");
    if (names.unused.size() > 1) list.resize(list.size() - 2);
    if (list.ends_with(' ')) list.pop_back();
    text += wrapped("UNUSED = (" + list + ")", 0);
  }
  return text;
}

std::vector<std::pair<std::string, std::vector<std::string>>> load_weights_methods(
    const Source& source) {
  const CheckpointNames names = checkpoint_names(source);
  std::vector<std::pair<std::string, std::vector<std::string>>> methods;
  methods.emplace_back("def load_weights(self, weights):", load_lines(source, names));
  if (!names.places.empty())
    methods.emplace_back("def _place_of(self, name, places):", place_lines());
  return methods;
}

}  // namespace tk::emit
