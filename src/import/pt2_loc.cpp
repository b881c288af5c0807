#include "import/pt2_loc.h"

#include <cctype>
#include <charconv>

#include "base/error.h"

namespace tk {

Frame innermost_frame(std::string_view trace) {
  // File "site-packages/transformers/models/llama/modeling_llama.py", line 372, in forward
  constexpr std::string_view open = "File \"";
  constexpr std::string_view middle = "\", line ";
  for (std::size_t at = trace.rfind(open); at != std::string_view::npos;
       at = at == 0 ? std::string_view::npos : trace.rfind(open, at - 1)) {
    const std::string_view rest = trace.substr(at + open.size());
    const std::size_t end = rest.find(middle);
    if (end == std::string_view::npos || rest.find('\n') < end) continue;
    const std::string_view path = rest.substr(0, end);
    if (path.find("/torch/") != std::string_view::npos || path.starts_with("torch/")) continue;
    Frame frame;
    const std::string_view digits = rest.substr(end + middle.size(), 10);
    std::from_chars(digits.data(), digits.data() + digits.size(), frame.line);
    frame.file = path.substr(path.find_last_of("/\\") + 1);  // npos + 1 is 0
    for (char& c : frame.file)
      if (c == '(' || c == ')' || c == '\n') c = '_';  // delimiters of the text form
    return frame;
  }
  return {};
}

ModuleEntry innermost_module(std::string_view stack) {
  const std::string_view entry = stack.substr(stack.rfind(';') + 1);
  const std::size_t first = entry.find(',');
  const std::size_t second = first == std::string_view::npos ? first : entry.find(',', first + 1);
  if (second == std::string_view::npos) return {};
  ModuleEntry out{entry.substr(first + 1, second - first - 1), entry.substr(second + 1)};
  if (out.path.starts_with("_empty_nn_module_stack")) return {};
  out.type = out.type.substr(out.type.rfind('.') + 1);
  return out;
}

void WrapperFinder::add_weight(std::string_view name) {
  if (name.empty()) return;
  const std::string_view head = name.substr(0, name.find('.'));
  if (child_.empty()) child_ = head;
  if (head != child_) single_ = false;
}

void WrapperFinder::add_module(std::string_view path) {
  add_weight(path);
  if (path.find('.') != std::string_view::npos) nested_ = true;
}

std::string WrapperFinder::prefix() const {
  return single_ && nested_ && !child_.empty() ? child_ + "." : "";
}

const Loc* Locations::of(const json::Value& metadata) {
  Loc loc;
  if (auto stack = metadata.find("nn_module_stack"); stack && stack->is_string()) {
    const ModuleEntry entry = innermost_module(stack->string());
    std::string_view path = entry.path;
    if (!prefix_.empty() && path.starts_with(prefix_)) {
      path.remove_prefix(prefix_.size());
    } else if (cat(path, ".") == prefix_) {
      path = {};
    }
    loc.module = path;
    loc.module_type = entry.type;
    std::erase_if(loc.module, [](char c) { return c == '"' || c == '\n'; });
    std::erase_if(loc.module_type, [](char c) {
      return std::isalnum(static_cast<unsigned char>(c)) == 0 && c != '_';
    });
  }
  if (auto trace = metadata.find("stack_trace"); trace && trace->is_string()) {
    const std::string_view text = trace->string();
    auto it = frames_.find(text);
    if (it == frames_.end()) it = frames_.emplace(text, innermost_frame(text)).first;
    loc.file = it->second.file;
    loc.line = it->second.line;
  }
  if (loc == Loc{}) return nullptr;
  return graph_.loc(std::move(loc));
}

}  // namespace tk
