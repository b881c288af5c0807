#include "import/tokenizer_parts.h"
#include "import/unicode.h"

namespace tk {
namespace {

Normalizer to_form(unicode::Form form) {
  return [form](const std::string& text, std::size_t limit) {
    std::string out = unicode::normalize(text, form);
    check_growth(out.size(), limit);
    return out;
  };
}

Normalizer sequence(const json::Value& value) {
  std::vector<Normalizer> steps;
  for (const json::Value& step : value["normalizers"].elements())
    steps.push_back(read_normalizer(step));
  return [steps = std::move(steps)](std::string text, std::size_t limit) {
    for (const Normalizer& step : steps) text = step(std::move(text), limit);
    return text;
  };
}

Normalizer prepend(const json::Value& value) {
  return [prefix = std::string(value["prepend"].string())](std::string text, std::size_t limit) {
    if (text.empty()) return text;
    check_growth(text.size() + prefix.size(), limit);
    return prefix + text;
  };
}

Normalizer strip(bool left, bool right) {
  return [=](const std::string& text, std::size_t) {
    std::size_t begin = 0, end = text.size();
    while (left && begin < end) {
      std::size_t after = begin;
      if (!unicode::is_space(unicode::next(text, after))) break;
      begin = after;
    }
    while (right && end > begin) {
      std::size_t before = end;
      if (!unicode::is_space(unicode::previous(text, before))) break;
      end = before;
    }
    return text.substr(begin, end - begin);
  };
}

std::string without_marks(const std::string& text, std::size_t) {
  std::string out;
  for (std::size_t at = 0; at < text.size();) {
    const char32_t c = unicode::next(text, at);
    if (!unicode::is_mark(c)) unicode::append(out, c);
  }
  return out;
}

}  // namespace

Regex read_pattern(const json::Value& value) {
  if (const auto text = value.find("String")) return Regex::literal(text->string(), value.file());
  return Regex::compile(value["Regex"].string(), value.file());
}

std::string replace_all(const Regex& pattern, std::string_view text, std::string_view content,
                        std::size_t limit) {
  std::string out;
  pattern.split(text, [&](Span span) {
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    out += span.is_match ? content : part;
    check_growth(out.size(), limit);
  });
  return out;
}

void check_growth(std::size_t size, std::size_t limit) {
  if (size > limit)
    throw UserError("TK0603", cat("the tokenizer's replacements make a text of ", size,
                                  " bytes or more; the limit for this text is ", limit));
}

UserError not_read(const json::Value& value, std::string_view what) {
  const std::string path = value.path();
  UserError error(
      "TK0601", cat(value.file(), " has ", what, path.empty() ? std::string() : cat(", at ", path),
                    ", which Tokamak does not read"));
  return std::move(error).at(value.file()).help("give token ids in place of text: --ids");
}

Normalizer read_normalizer(const json::Value& value) {
  using unicode::Form;
  const std::string_view type = value["type"].string();
  if (type == "Sequence") return sequence(value);
  if (type == "NFC") return to_form(Form::nfc);
  if (type == "NFD") return to_form(Form::nfd);
  if (type == "NFKC") return to_form(Form::nfkc);
  if (type == "NFKD") return to_form(Form::nfkd);
  if (type == "Prepend") return prepend(value);
  if (type == "StripAccents") return without_marks;
  if (type == "Lowercase")
    return [](const std::string& text, std::size_t) { return unicode::lowercase(text); };
  if (type == "ByteLevel")
    return [](const std::string& text, std::size_t) { return unicode::bytes_to_characters(text); };
  if (type == "Strip")
    return strip(json::boolean_or(value, "strip_left", true),
                 json::boolean_or(value, "strip_right", true));
  if (type == "Replace")
    return [pattern = read_pattern(value["pattern"]),
            content = std::string(value["content"].string())](const std::string& text,
                                                              std::size_t limit) {
      return replace_all(pattern, text, content, limit);
    };
  throw not_read(value, cat("the normalizer '", type, "'"));
}

}  // namespace tk
