#include <algorithm>

#include "import/tokenizer_parts.h"
#include "import/unicode.h"

namespace tk {
namespace {

// What becomes of the matches when a text is split at them.
enum class Behavior { removed, isolated, merged_with_previous, merged_with_next, contiguous };

Behavior read_behavior(const json::Value& value) {
  // Spelled in two ways over time.
  const std::string_view name = value.string();
  if (name == "Removed" || name == "removed") return Behavior::removed;
  if (name == "Isolated" || name == "isolated") return Behavior::isolated;
  if (name == "MergedWithPrevious" || name == "merged_with_previous")
    return Behavior::merged_with_previous;
  if (name == "MergedWithNext" || name == "merged_with_next") return Behavior::merged_with_next;
  if (name == "Contiguous" || name == "contiguous") return Behavior::contiguous;
  throw not_read(value, cat("the behavior '", name, "'"));
}

// Finds the spans of a text; they cover it in order.
using Finder = std::function<std::vector<Span>(const std::string& text)>;

Finder by_pattern(Regex pattern) {
  return [pattern = std::move(pattern)](const std::string& text) {
    std::vector<Span> spans;
    pattern.split(text, [&](Span span) { spans.push_back(span); });
    return spans;
  };
}

// Every character that `matches` is a match of its own.
Finder by_character(std::function<bool(char32_t)> matches) {
  return [matches = std::move(matches)](const std::string& text) {
    std::vector<Span> spans;
    std::size_t done = 0;
    for (std::size_t at = 0; at < text.size();) {
      const std::size_t begin = at;
      if (!matches(unicode::next(text, at))) continue;
      if (done < begin) spans.push_back({done, begin, false});
      spans.push_back({begin, at, true});
      done = at;
    }
    if (done < text.size()) spans.push_back({done, text.size(), false});
    return spans;
  };
}

// The spans that `behavior` makes of these; what is a match afterwards is dropped.
std::vector<Span> arranged(std::vector<Span> spans, Behavior behavior) {
  if (behavior == Behavior::removed) return spans;
  std::vector<Span> out;
  out.reserve(spans.size());
  const bool backwards = behavior == Behavior::merged_with_next;
  if (backwards) std::reverse(spans.begin(), spans.end());
  bool previous = false;
  for (const Span& span : spans) {
    const bool merge = behavior == Behavior::contiguous ? span.is_match == previous
                       : behavior == Behavior::isolated ? false
                                                        : span.is_match && !previous;
    if (!merge || out.empty())
      out.push_back({span.begin, span.end, false});
    else if (backwards)
      out.back().begin = span.begin;
    else
      out.back().end = span.end;
    previous = span.is_match;
  }
  if (backwards) std::reverse(out.begin(), out.end());
  return out;
}

void split(std::vector<Piece>& pieces, const Finder& find, Behavior behavior, bool invert) {
  std::vector<Piece> out;
  for (const Piece& piece : pieces) {
    std::vector<Span> spans = find(piece.text);
    for (Span& span : spans) span.is_match = span.is_match != invert;
    for (const Span& span : arranged(std::move(spans), behavior))
      if (!span.is_match && span.begin < span.end)
        out.push_back({piece.text.substr(span.begin, span.end - span.begin),
                       piece.is_first && span.begin == 0});
  }
  pieces = std::move(out);
}

PreTokenizer splitter(Finder find, Behavior behavior, bool invert = false) {
  return [=, find = std::move(find)](std::vector<Piece>& pieces) {
    split(pieces, find, behavior, invert);
  };
}

// GPT-2's split: contractions, words, numbers and signs with the space before them, and spaces.
constexpr std::string_view gpt2_pattern =
    R"('s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+)";

// \w+|[^\w\s]+ with the \w of UTS 18, which is not quite Oniguruma's.
constexpr std::string_view words_pattern =
    R"([\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)"
    R"(|[^\s\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{200c}\x{200d}]+)";

PreTokenizer byte_level(const json::Value& value) {
  const bool add_prefix_space = json::boolean_or(value, "add_prefix_space", true);
  const bool use_regex = json::boolean_or(value, "use_regex", true);
  Finder find;
  if (use_regex) find = by_pattern(Regex::compile(gpt2_pattern, value.file()));
  return [=](std::vector<Piece>& pieces) {
    if (add_prefix_space)
      for (Piece& piece : pieces)
        if (piece.text.front() != ' ') piece.text.insert(0, 1, ' ');
    if (use_regex) split(pieces, find, Behavior::isolated, false);
    for (Piece& piece : pieces) piece.text = unicode::bytes_to_characters(piece.text);
  };
}

PreTokenizer metaspace(const json::Value& value) {
  const std::string replacement(value["replacement"].string());
  std::size_t after = 0;
  if (replacement.empty() || (unicode::next(replacement, after), after != replacement.size()))
    throw value["replacement"].error("should be one character");
  std::string_view scheme = json::string_or(value, "prepend_scheme", "always");
  if (!json::boolean_or(value, "add_prefix_space", true)) scheme = "never";  // its name until 2023
  if (scheme != "always" && scheme != "first" && scheme != "never")
    throw not_read(value, cat("the prepend_scheme '", scheme, "'"));
  const bool always = scheme == "always", first = scheme == "first";
  const bool splits = json::boolean_or(value, "split", true);
  const Finder find = by_pattern(Regex::literal(replacement, value.file()));
  return [=](std::vector<Piece>& pieces) {
    for (Piece& piece : pieces) {
      std::string text;
      for (char c : piece.text) c == ' ' ? text += replacement : text += c;
      if ((always || (first && piece.is_first)) && !text.starts_with(replacement))
        text.insert(0, replacement);
      piece.text = std::move(text);
    }
    if (splits) split(pieces, find, Behavior::merged_with_next, false);
  };
}

PreTokenizer sequence(const json::Value& value) {
  std::vector<PreTokenizer> steps;
  for (const json::Value& step : value["pretokenizers"].elements())
    steps.push_back(read_pre_tokenizer(step));
  return [steps = std::move(steps)](std::vector<Piece>& pieces) {
    for (const PreTokenizer& step : steps) step(pieces);
  };
}

PreTokenizer at_delimiter(const json::Value& value) {
  return splitter(by_pattern(Regex::literal(value["delimiter"].string(), value.file())),
                  Behavior::removed);
}

}  // namespace

PreTokenizer read_pre_tokenizer(const json::Value& value) {
  const std::string_view type = value["type"].string();
  if (type == "Sequence") return sequence(value);
  if (type == "ByteLevel") return byte_level(value);
  if (type == "Metaspace") return metaspace(value);
  if (type == "CharDelimiterSplit") return at_delimiter(value);
  if (type == "Split")
    return splitter(by_pattern(read_pattern(value["pattern"])), read_behavior(value["behavior"]),
                    json::boolean_or(value, "invert", false));
  if (type == "Digits")
    return splitter(by_character(unicode::is_numeric),
                    json::boolean_or(value, "individual_digits", false) ? Behavior::isolated
                                                                        : Behavior::contiguous);
  if (type == "Punctuation") {
    const auto behavior = value.find("behavior");
    return splitter(by_character(unicode::is_punctuation),
                    behavior ? read_behavior(*behavior) : Behavior::isolated);
  }
  if (type == "WhitespaceSplit")
    return splitter(by_character(unicode::is_space), Behavior::removed);
  if (type == "Whitespace")
    return splitter(by_pattern(Regex::compile(words_pattern, value.file())), Behavior::removed,
                    true);
  throw not_read(value, cat("the pre-tokenizer '", type, "'"));
}

}  // namespace tk
