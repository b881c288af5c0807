#include "emit/module_text.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "emit/load_weights.h"
#include "emit/parameters.h"
#include "emit/python_text.h"
#include "emit/shape_up.h"

namespace tk::emit {
namespace {

void collect_constants(const std::string& line, ModuleText* out) {
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != mark_key) {
      out->skeleton += line[i];
      continue;
    }
    const std::size_t value = line.find(mark_value, i);
    const std::size_t end = line.find(mark_end, i);
    out->constants.emplace_back(line.substr(i + 1, value - i - 1),
                                line.substr(value + 1, end - value - 1));
    out->skeleton += mark_key;
    i = end;
  }
  out->skeleton += '\n';
}

// The line with its constants replaced, in order.
std::string replaced(const std::string& line, const std::vector<std::string>& replace,
                     std::size_t* next) {
  std::string out;
  for (std::size_t i = 0; i < line.size(); ++i) {
    if (line[i] != mark_key) {
      out += line[i];
      continue;
    }
    out += replace[(*next)++];
    i = line.find(mark_end, i);
  }
  return out;
}

void mark_step_users(Region* r) {
  for (; r != nullptr; r = r->parent) r->uses_step = true;
}

// Puts the inputs of `region` into the order of `wanted`; false when the names are others, or the
// order is that already.
bool align(const std::vector<std::string>& wanted, const std::vector<std::string>& names,
           Region* region) {
  if (wanted == names ||
      !std::is_permutation(wanted.begin(), wanted.end(), names.begin(), names.end()))
    return false;
  std::vector<const Value*> inputs;
  for (const std::string& name : wanted)
    inputs.push_back(region->inputs[static_cast<std::size_t>(
        std::find(names.begin(), names.end(), name) - names.begin())]);
  region->inputs = std::move(inputs);
  return true;
}

// Arguments that one phase alone has become arguments of the other one too, unread there. False
// when both have the same.
bool unite(const std::vector<std::string>& names, Region* region,
           const std::vector<std::string>& other_names, const Region& other) {
  std::vector<const Value*> inputs;
  bool changed = false;
  for (std::size_t i = 0; i < other_names.size(); ++i) {
    const auto mine = std::find(names.begin(), names.end(), other_names[i]);
    if (mine != names.end()) {
      inputs.push_back(region->inputs[static_cast<std::size_t>(mine - names.begin())]);
      continue;
    }
    region->foreign.emplace(other.inputs[i], other_names[i]);
    inputs.push_back(other.inputs[i]);
    changed = true;
  }
  if (!changed) return false;
  for (std::size_t i = 0; i < names.size(); ++i)
    if (std::find(other_names.begin(), other_names.end(), names[i]) == other_names.end())
      inputs.push_back(region->inputs[i]);
  region->inputs = std::move(inputs);
  return true;
}

std::string signature(std::string_view method, const Body& body, bool uses_step) {
  std::string text = cat("def ", method, "(self");
  for (const std::string& p : body.params) {
    text += ", " + p;
  }
  if (uses_step) text += ", forward_metadata";
  return text + "):";
}

}  // namespace

ModuleText module_text(const Source& source, Region& prefill, Region& decode,
                       const std::function<Construction(const std::string&)>& construct) {
  ModuleText out;
  if (prefill.line > 0) out.origin = cat(prefill.file, ":", prefill.line);
  out.is_residual_norm = prefill.nodes.size() == 1 && prefill.nodes[0]->op == &residual_norm &&
                         prefill.children.empty();
  if (prefill.uses_step || decode.uses_step) {
    mark_step_users(&prefill);
    mark_step_users(&decode);
  }
  const Parameters parameters = parameters_of(source, prefill, decode, construct);
  out.init = parameters.init;
  const bool whole = prefill.path.empty();
  std::vector<std::string> cache = parameters.cache;
  std::vector<std::string> folds = parameters.folds;
  if (whole) {
    for (const auto& [lines, name] : {std::pair{&cache, "init_cache(num_blocks, device)"},
                                      std::pair{&folds, "process_weights_after_loading()"}}) {
      const std::string method = std::string(name).substr(0, std::string_view(name).find('('));
      lines->push_back("for module in list(self.modules()):");
      lines->push_back("    if module is not self and hasattr(module, \"" + method + "\"):");
      lines->push_back(cat("        module.", name));
    }
    for (const auto& method : load_weights_methods(source)) out.methods.push_back(method);
  }
  if (!folds.empty()) out.methods.emplace_back("def process_weights_after_loading(self):", folds);
  if (!cache.empty()) out.methods.emplace_back("def init_cache(self, num_blocks, device):", cache);
  Body first = body_of(*source.prefill, prefill);
  Body second = body_of(*source.decode, decode);
  if (unite(second.params, &decode, first.params, prefill))
    second = body_of(*source.decode, decode);
  if (unite(first.params, &prefill, second.params, decode))
    first = body_of(*source.prefill, prefill);
  // Each graph has its own order of first uses; the prefill's is taken.
  if (align(first.params, second.params, &decode)) second = body_of(*source.decode, decode);
  if (first.params != second.params || prefill.outputs.size() != decode.outputs.size()) {
    out.conflict = true;
    return out;
  }
  for (const Body* b : {&first, &second}) {
    out.helpers.insert(b->helpers.begin(), b->helpers.end());
    out.uses_npu |= b->uses_npu;
    out.unrolled |= b->unrolled;
  }
  if (first.lines == second.lines) {
    out.methods.emplace_back(signature("forward", first, prefill.uses_step), first.lines);
  } else {
    mark_step_users(&prefill);
    mark_step_users(&decode);
    std::string args;
    for (const std::string& p : first.params) args += p + ", ";
    args += "forward_metadata)";
    out.methods.emplace_back(
        signature("forward", first, true),
        std::vector<std::string>{"if forward_metadata.is_prefill:",
                                 "    return self.prefill(" + args, "return self.decode(" + args});
    out.methods.emplace_back(signature("prefill", first, true), first.lines);
    out.methods.emplace_back(signature("decode", second, true), second.lines);
  }
  for (const std::string& line : out.init) collect_constants(line, &out);
  out.n_init_constants = out.constants.size();
  for (const auto& [head, lines] : out.methods) {
    out.skeleton += head + "\n";
    for (const std::string& line : lines) collect_constants(line, &out);
  }
  return out;
}

bool reads_config(const ModuleText& module, const std::vector<std::string>& replace) {
  std::size_t next = 0;
  return std::any_of(module.init.begin(), module.init.end(), [&](const std::string& line) {
    return replaced(line, replace, &next).find("config") != std::string::npos;
  });
}

std::string class_text(const ModuleText& module, const std::string& name, bool takes_config,
                       const std::vector<std::string>& params,
                       const std::map<std::string, std::string>& kept,
                       const std::vector<std::string>& replace) {
  std::string text;
  if (!module.origin.empty()) text += "# " + module.origin + "\n";
  text += "class " + name + "(nn.Module):\n";
  std::size_t next = 0;
  bool first = true;
  const auto blank = [&] {
    if (!first) text += "\n";
    first = false;
  };
  if (!module.init.empty() || !params.empty() || !kept.empty()) {
    blank();
    std::string head = "def __init__(self";
    if (takes_config) head += ", config";
    for (const std::string& p : params) head += ", " + p;
    text += wrapped(head + "):", 4) + "        super().__init__()\n";
    for (const auto& [k, value] : kept) text += cat("        self.", k, " = ", value, "\n");
    for (const std::string& line : module.init) text += wrapped(replaced(line, replace, &next), 8);
  }
  for (const auto& [head, lines] : module.methods) {
    blank();
    text += wrapped(head, 4);
    for (const std::string& line : lines) text += wrapped(replaced(line, replace, &next), 8);
  }
  return text;
}

}  // namespace tk::emit
