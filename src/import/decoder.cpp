#include <charconv>

#include "import/tokenizer_parts.h"
#include "import/unicode.h"

namespace tk {
namespace {

using Texts = std::vector<std::string>;

std::string joined(const Texts& texts) {
  std::string out;
  for (const std::string& text : texts) out += text;
  return out;
}

// All bytes together are UTF-8, or what of them is not becomes U+FFFD. A token with a character
// that stands for no byte (an added token) is taken as it is.
Texts byte_level(const Texts& tokens, std::size_t) {
  std::string bytes, of_token;
  for (const std::string& token : tokens)
    bytes += unicode::characters_to_bytes(token, &of_token) ? of_token : token;
  return {unicode::valid_utf8(bytes)};
}

// "<0x0A>" is the byte 10.
bool is_byte_token(const std::string& token, char* byte) {
  if (token.size() != 6 || !token.starts_with("<0x") || token.back() != '>') return false;
  unsigned value = 0;
  const auto [end, error] = std::from_chars(token.data() + 3, token.data() + 5, value, 16);
  *byte = static_cast<char>(value);
  return error == std::errc() && end == token.data() + 5;
}

// Runs of byte tokens are a text when they are UTF-8; else each of them is one U+FFFD.
Texts byte_fallback(Texts tokens, std::size_t) {
  Texts out;
  std::string run;
  auto flush = [&] {
    if (run.empty()) return;
    if (unicode::valid_utf8(run) == run)
      out.push_back(run);
    else
      out.insert(out.end(), run.size(), "\xef\xbf\xbd");
    run.clear();
  };
  for (std::string& token : tokens) {
    char byte = 0;
    if (is_byte_token(token, &byte)) {
      run += byte;
    } else {
      flush();
      out.push_back(std::move(token));
    }
  }
  flush();
  return out;
}

Decoder metaspace(const json::Value& value) {
  const std::string replacement(value["replacement"].string());
  const bool prepends = json::string_or(value, "prepend_scheme", "always") != "never" &&
                        json::boolean_or(value, "add_prefix_space", true);
  return [replacement, prepends](Texts tokens, std::size_t) {
    for (std::size_t i = 0; i < tokens.size(); ++i) {
      std::string out;
      for (std::size_t at = 0; at < tokens[i].size();) {
        const std::size_t begin = at;
        unicode::next(tokens[i], at);
        const std::string_view c = std::string_view(tokens[i]).substr(begin, at - begin);
        if (c != replacement)
          out += c;
        else if (i > 0 || !prepends)  // in the first token, each is a prefix
          out += ' ';
      }
      tokens[i] = std::move(out);
    }
    return tokens;
  };
}

// Takes up to `start` times `content` off the front of each token, up to `stop` off its end.
Decoder strip(const json::Value& value) {
  const std::string content(value["content"].string());
  const std::int64_t start = value["start"].integer(), stop = value["stop"].integer();
  if (content.empty()) throw value["content"].error("should be one character");
  return [=](Texts tokens, std::size_t) {
    for (std::string& token : tokens) {
      std::string_view rest = token;
      for (std::int64_t i = 0; i < start && rest.starts_with(content); ++i)
        rest.remove_prefix(content.size());
      for (std::int64_t i = 0; i < stop && rest.ends_with(content); ++i)
        rest.remove_suffix(content.size());
      token = std::string(rest);
    }
    return tokens;
  };
}

Decoder replace(const json::Value& value) {
  return [pattern = read_pattern(value["pattern"]),
          content = std::string(value["content"].string())](Texts tokens, std::size_t limit) {
    std::size_t total = 0;
    for (std::string& token : tokens) {
      token = replace_all(pattern, token, content, limit);
      total += token.size();
      check_growth(total, limit);
    }
    return tokens;
  };
}

// The suffix that ends a word is a space, except at the end.
Decoder bpe(const json::Value& value) {
  const Regex suffix = Regex::literal(json::string_or(value, "suffix", "</w>"), value.file());
  return [suffix](Texts tokens, std::size_t limit) {
    for (std::size_t i = 0; i < tokens.size(); ++i)
      tokens[i] = replace_all(suffix, tokens[i], i + 1 == tokens.size() ? "" : " ", limit);
    return tokens;
  };
}

Decoder sequence(const json::Value& value) {
  std::vector<Decoder> steps;
  for (const json::Value& step : value["decoders"].elements()) steps.push_back(read_decoder(step));
  return [steps = std::move(steps)](Texts tokens, std::size_t limit) {
    for (const Decoder& step : steps) tokens = step(std::move(tokens), limit);
    return tokens;
  };
}

}  // namespace

Decoder read_decoder(const json::Value& value) {
  const std::string_view type = value["type"].string();
  if (type == "Sequence") return sequence(value);
  if (type == "ByteLevel") return byte_level;
  if (type == "ByteFallback") return byte_fallback;
  if (type == "Metaspace") return metaspace(value);
  if (type == "Strip") return strip(value);
  if (type == "Replace") return replace(value);
  if (type == "BPEDecoder") return bpe(value);
  if (type == "Fuse") return [](const Texts& tokens, std::size_t) { return Texts{joined(tokens)}; };
  throw not_read(value, cat("the decoder '", type, "'"));
}

}  // namespace tk
