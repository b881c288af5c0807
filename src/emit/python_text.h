// Python source as text: wrapping at 100 columns as ruff and black do.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tk::emit {

// One statement, indented by `indent` spaces; brackets are broken where it is too long.
std::string wrapped(std::string_view statement, int indent);
std::string camel(std::string_view name);  // "qwen3_moe" -> "Qwen3Moe"

}  // namespace tk::emit
