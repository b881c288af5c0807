// Errors of Tokamak: a UserError (the input is at fault, or a limit of ours) and an InternalError
// (a bug of ours). A "no" of a move or a kernel is neither: it is a Verdict (verdict.h).
#pragma once

#include <exception>
#include <sstream>
#include <string>
#include <string_view>
#include <utility>

namespace tk {

// Joins anything printable into one string.
template <typename... Args>
std::string cat(const Args&... args) {
  std::ostringstream out;
  (out << ... << args);
  return out.str();
}

// The user's mistake or a limit of ours, written for a person: what was found, where, what was
// expected, what to do. `code` is TKnnnn and has a page in docs/errors.
class UserError : public std::exception {
 public:
  UserError(std::string_view code, std::string message);

  // Where: the user's own file (and line), or a module path of the model.
  UserError&& at(std::string_view file, int line = 0) &&;
  UserError&& in_module(std::string_view path) &&;
  UserError&& note(std::string_view text) &&;  // how it got there
  UserError&& help(std::string_view text) &&;  // what to do; only what has been checked

  const std::string& code() const { return code_; }
  const std::string& message() const { return message_; }
  bool has_place() const { return !file_.empty() || !module_.empty(); }
  // The whole text, as main prints it.
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  void render();
  std::string code_, message_, file_, module_, notes_, text_;
  int line_ = 0;
};

// A bug of Tokamak. main prints it with a request to report, and exits 3.
class InternalError : public std::exception {
 public:
  InternalError(const char* file, int line, std::string_view message);
  const char* what() const noexcept override { return text_.c_str(); }

 private:
  std::string text_;
};

// The nearest of `names` to `word` (edit distance at most 3), or empty: for "did you mean".
template <typename Names>
std::string nearest(std::string_view word, const Names& names);
std::size_t edit_distance(std::string_view a, std::string_view b);

template <typename Names>
std::string nearest(std::string_view word, const Names& names) {
  std::string best;
  std::size_t best_distance = 4;
  for (const auto& name : names) {
    std::size_t d = edit_distance(word, name);
    if (d < best_distance) {
      best_distance = d;
      best = std::string(name);
    }
  }
  return best;
}

}  // namespace tk

#define TK_CHECK(condition, ...)                                                  \
  do {                                                                            \
    if (!(condition))                                                             \
      throw ::tk::InternalError(                                                  \
          __FILE__, __LINE__,                                                     \
          ::tk::cat("check failed: " #condition " " __VA_OPT__(, ) __VA_ARGS__)); \
  } while (0)
