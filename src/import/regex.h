// The regular expressions of tokenizer.json files, run by PCRE2 (compiled where it can be).
//
// They are written for Oniguruma. Where the two languages differ (\s, \w, \h, \v, \u, x{2}+, (?m),
// [[:alpha:]]), the pattern is rewritten; what cannot be (nested character classes) is an error.
// Characters that Unicode got after version 14, which PCRE2 of Debian 12 knows, match no class.
#pragma once

#include <cstddef>
#include <functional>
#include <memory>
#include <string>
#include <string_view>

namespace tk {

// A part of a text: a match, or what lies between two.
struct Span {
  std::size_t begin, end;
  bool is_match;
};

class Regex {
 public:
  // Throw TK0602 when the pattern is not one. `file` is the name for messages.
  static Regex compile(std::string_view oniguruma, std::string_view file);
  static Regex literal(std::string_view text, std::string_view file);

  // Calls f for each Span of the text, in order; together they cover it. A match may be empty; an
  // empty match right after another is none. The text must be valid UTF-8. Throws TK0603 when
  // matching runs past its limits.
  void split(std::string_view text, const std::function<void(Span)>& f) const;

 private:
  struct Code;
  static Regex make(const std::string& pattern, std::string_view shown, bool is_literal,
                    std::string_view file);
  std::shared_ptr<const Code> code_;
};

// The pattern in PCRE2's language. Throws TK0602.
std::string pcre_of_oniguruma(std::string_view pattern, std::string_view file);

}  // namespace tk
