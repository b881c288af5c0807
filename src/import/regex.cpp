#include "import/regex.h"

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include "base/error.h"
#include "import/unicode.h"

namespace tk {
namespace {

// Backtracking points one match may try: a floor, and more for long texts, of which a run of spaces
// may need several per character. No useful pattern comes near.
constexpr std::uint64_t least_match_limit = 10'000'000;
constexpr std::uint64_t match_limit_per_byte = 20;
constexpr std::uint32_t heap_limit_kib = 256 * 1024;
constexpr std::size_t longest_pattern = 20'000;

template <auto* release>
struct Releaser {
  template <typename T>
  void operator()(T* p) const {
    release(p);
  }
};
using MatchData = std::unique_ptr<pcre2_match_data, Releaser<pcre2_match_data_free>>;
using MatchContext = std::unique_ptr<pcre2_match_context, Releaser<pcre2_match_context_free>>;
using CompileContext = std::unique_ptr<pcre2_compile_context, Releaser<pcre2_compile_context_free>>;

std::string message_of(int error) {
  PCRE2_UCHAR text[256];
  pcre2_get_error_message(error, text, sizeof text);
  return reinterpret_cast<const char*>(text);
}

PCRE2_SPTR units(std::string_view text) {
  // PCRE2 wants a pointer even for no characters.
  return reinterpret_cast<PCRE2_SPTR>(text.data() != nullptr ? text.data() : "");
}

}  // namespace

struct Regex::Code {
  std::unique_ptr<pcre2_code, Releaser<pcre2_code_free>> code;
  std::string shown, file;
  bool jit = false;
};

Regex Regex::make(const std::string& pattern, std::string_view shown, bool is_literal,
                  std::string_view file) {
  const std::string excerpt(shown.substr(0, 200));
  if (pattern.size() > longest_pattern)
    throw UserError("TK0602",
                    cat("a pattern of ", pattern.size(), " bytes; the limit is ", longest_pattern))
        .at(file);
  const CompileContext context(pcre2_compile_context_create(nullptr));
  TK_CHECK(context != nullptr);
  pcre2_set_newline(context.get(), PCRE2_NEWLINE_LF);
  // ^ and $ are at every line, as in Oniguruma.
  const std::uint32_t options =
      PCRE2_UTF |
      (is_literal ? PCRE2_LITERAL : PCRE2_UCP | PCRE2_MULTILINE | PCRE2_NEVER_BACKSLASH_C);
  int error = 0;
  PCRE2_SIZE offset = 0;
  auto code = std::make_shared<Code>();
  code->code.reset(
      pcre2_compile(units(pattern), pattern.size(), options, &error, &offset, context.get()));
  if (code->code == nullptr)
    throw UserError("TK0602", cat("the pattern '", excerpt,
                                  "' is not a regular expression: ", message_of(error),
                                  ", at offset ", offset, " of '", pattern.substr(0, 200), "'"))
        .at(file);
  code->jit = pcre2_jit_compile(code->code.get(), PCRE2_JIT_COMPLETE) == 0;
  code->shown = excerpt;
  code->file = file;
  Regex regex;
  regex.code_ = std::move(code);
  return regex;
}

Regex Regex::compile(std::string_view oniguruma, std::string_view file) {
  return make(pcre_of_oniguruma(oniguruma, file), oniguruma, false, file);
}

Regex Regex::literal(std::string_view text, std::string_view file) {
  return make(std::string(text), text, true, file);
}

void Regex::split(std::string_view text, const std::function<void(Span)>& f) const {
  const MatchData match(pcre2_match_data_create(1, nullptr));
  const MatchContext context(pcre2_match_context_create(nullptr));
  TK_CHECK(match != nullptr && context != nullptr);
  const std::uint64_t limit = least_match_limit + match_limit_per_byte * text.size();
  pcre2_set_match_limit(context.get(),
                        static_cast<std::uint32_t>(std::min<std::uint64_t>(limit, UINT32_MAX)));
  pcre2_set_heap_limit(context.get(), heap_limit_kib);

  std::size_t done = 0;                           // covered by Spans so far
  std::size_t at = 0;                             // where to search
  std::size_t last_end = std::string_view::npos;  // of the last match
  while (at <= text.size()) {
    // Without PCRE2_NO_UTF_CHECK every call would check the whole text again.
    int result = pcre2_match(code_->code.get(), units(text), text.size(), at, PCRE2_NO_UTF_CHECK,
                             match.get(), context.get());
    if (result == PCRE2_ERROR_JIT_STACKLIMIT)  // the interpreter keeps its stack on the heap
      result = pcre2_match(code_->code.get(), units(text), text.size(), at,
                           PCRE2_NO_UTF_CHECK | PCRE2_NO_JIT, match.get(), context.get());
    if (result == PCRE2_ERROR_NOMATCH) break;
    if (result < 0)
      throw UserError("TK0603", cat("splitting a text of ", text.size(), " bytes by the pattern '",
                                    code_->shown, "' failed: ", message_of(result)))
          .at(code_->file);
    const PCRE2_SIZE* place = pcre2_get_ovector_pointer(match.get());
    // \K can put the begin after the end, or before what is done: neither is a match.
    const std::size_t begin = place[0], end = place[1];
    if (begin > end || begin < done || (begin == end && end == last_end)) {
      if (at >= text.size()) break;
      unicode::next(text, at);
      continue;
    }
    if (done < begin) f({done, begin, false});
    f({begin, end, true});
    done = at = last_end = end;
  }
  if (done < text.size() || text.empty()) f({done, text.size(), false});
}

}  // namespace tk
