#include "emit/library_args.h"

namespace tk::emit {

std::vector<LibraryArg> library_args(std::string_view signature) {
  std::vector<LibraryArg> args;
  std::size_t at = signature.find('(') + 1;
  const std::size_t end = signature.find(") ->");
  bool keyword = false;
  int depth = 0;
  std::size_t start = at;
  for (; at <= end; ++at) {
    const char c = signature[at];
    if (c == '(' || c == '[') ++depth;
    if ((c == ')' || c == ']') && at != end) --depth;
    if (at != end && (c != ',' || depth > 0)) continue;
    std::string_view text = signature.substr(start, at - start);
    while (text.starts_with(' ')) text.remove_prefix(1);
    start = at + 1;
    if (text == "*") {
      keyword = true;
      continue;
    }
    if (text.empty()) continue;
    const std::size_t equals = text.find('=');
    const std::string_view head = text.substr(0, equals);
    const std::size_t space = head.rfind(' ');
    args.push_back({std::string(head.substr(0, space)), std::string(head.substr(space + 1)),
                    equals == std::string_view::npos, keyword});
  }
  return args;
}

}  // namespace tk::emit
