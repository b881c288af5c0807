#include "emit/python_text.h"

#include <cctype>

namespace tk::emit {
namespace {

constexpr std::size_t width = 100;

// The widest bracket at depth 0, and its end.
bool find_bracket(std::string_view s, std::size_t* open, std::size_t* close) {
  bool found = false;
  int depth = 0;
  std::size_t start = 0;
  char quote = 0;
  for (std::size_t i = 0; i < s.size(); ++i) {
    const char c = s[i];
    if (quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[' || c == '{') {
      if (depth++ == 0) start = i;
    }
    if (c == ')' || c == ']' || c == '}') {
      if (--depth == 0 && i > start + 1 && (!found || i - start > *close - *open)) {
        *open = start;
        *close = i;
        found = true;
      }
    }
  }
  return found;
}

std::vector<std::string_view> split_arguments(std::string_view s) {
  std::vector<std::string_view> parts;
  int depth = 0;
  std::size_t start = 0;
  char quote = 0;
  for (std::size_t i = 0; i <= s.size(); ++i) {
    const char c = i < s.size() ? s[i] : ',';
    if (quote != 0) {
      if (c == quote) quote = 0;
      continue;
    }
    if (c == '"' || c == '\'') quote = c;
    if (c == '(' || c == '[' || c == '{') ++depth;
    if (c == ')' || c == ']' || c == '}') --depth;
    if (c == ',' && depth == 0) {
      std::string_view part = s.substr(start, i - start);
      while (part.starts_with(' ')) part.remove_prefix(1);
      if (!part.empty()) parts.push_back(part);
      start = i + 1;
    }
  }
  return parts;
}

std::string spaces(int n) { return std::string(static_cast<std::size_t>(n), ' '); }

}  // namespace

std::string wrapped(std::string_view statement, int indent) {
  while (statement.starts_with("    ")) {
    statement.remove_prefix(4);
    indent += 4;
  }
  const std::string line = spaces(indent) + std::string(statement);
  std::size_t open = 0;
  std::size_t close = 0;
  if (line.size() <= width || !find_bracket(statement, &open, &close)) return line + "\n";
  const std::string_view inner = statement.substr(open + 1, close - open - 1);
  const std::string head = spaces(indent) + std::string(statement.substr(0, open + 1)) + "\n";
  const std::string tail = spaces(indent) + std::string(statement.substr(close)) + "\n";
  const std::vector<std::string_view> parts = split_arguments(inner);
  const bool generator = inner.find(" for ") != std::string_view::npos;
  if (static_cast<std::size_t>(indent) + 4 + inner.size() <= width && !inner.ends_with(','))
    return head + spaces(indent + 4) + std::string(inner) + "\n" + tail;
  // Numbers are filled into lines, arguments get a line each.
  bool numbers = parts.size() > 3;
  for (const std::string_view p : parts)
    numbers = numbers && p.size() <= 24 &&
              p.find_first_not_of("0123456789.e-+") == std::string_view::npos;
  std::string body;
  if (numbers) {
    std::string row = spaces(indent + 4);
    for (const std::string_view p : parts) {
      if (row.size() + p.size() + 1 > width) {
        while (row.ends_with(' ')) row.pop_back();
        body += row + "\n";
        row = spaces(indent + 4);
      }
      row += std::string(p) + ", ";
    }
    row.pop_back();
    body += row + "\n";
  } else {
    for (const std::string_view p : parts) {
      std::string item = wrapped(p, indent + 4);
      const bool alone = parts.size() == 1 && generator;
      if (!alone) item.insert(item.size() - 1, ",");
      body += item;
    }
  }
  return head + body + tail;
}

std::string camel(std::string_view name) {
  std::string out;
  bool upper = true;
  for (const char c : name) {
    if (c == '_') {
      upper = true;
      continue;
    }
    out += upper ? static_cast<char>(std::toupper(static_cast<unsigned char>(c))) : c;
    upper = false;
  }
  return out;
}

}  // namespace tk::emit
