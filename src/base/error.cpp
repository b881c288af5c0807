#include "base/error.h"

#include <algorithm>
#include <vector>

namespace tk {

UserError::UserError(std::string_view code, std::string message)
    : code_(code), message_(std::move(message)) {
  render();
}

UserError&& UserError::at(std::string_view file, int line) && {
  file_ = file;
  line_ = line;
  render();
  return std::move(*this);
}

UserError&& UserError::in_module(std::string_view path) && {
  module_ = path;
  render();
  return std::move(*this);
}

UserError&& UserError::note(std::string_view text) && {
  notes_ += cat("\n  note: ", text);
  render();
  return std::move(*this);
}

UserError&& UserError::help(std::string_view text) && {
  notes_ += cat("\n  help: ", text);
  render();
  return std::move(*this);
}

void UserError::render() {
  text_ = cat("error[", code_, "]: ", message_);
  std::string place = file_;
  if (line_ > 0) place += cat(":", line_);
  if (!module_.empty()) place = place.empty() ? module_ : cat(module_, " (", place, ")");
  if (!place.empty()) text_ += cat("\n  --> ", place);
  text_ += notes_;
}

InternalError::InternalError(const char* file, int line, std::string_view message)
    : text_(cat("internal error at ", file, ":", line, ": ", message,
                "\n  this is a bug in Tokamak; please report it with the command and its input")) {}

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      std::size_t up = row[j];
      row[j] = std::min({up + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = up;
    }
  }
  return row[b.size()];
}

}  // namespace tk
