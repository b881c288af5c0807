#include "timeline/page/html.h"

#include <fmt/format.h>

namespace tk {

std::string number_cell(double value, std::string_view text) {
  return fmt::format("<td class=n data-v=\"{:.9g}\">{}</td>", value, text);
}

std::string script_safe(std::string json) {
  std::string out;
  out.reserve(json.size());
  for (char c : json) {
    if (c == '<')
      out += "\\u003c";
    else
      out += c;
  }
  return out;
}

}  // namespace tk
