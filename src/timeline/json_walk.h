// A walk over JSON by its structural characters, which simdjson's first stage finds (and which
// checks UTF-8 and closed strings). Nothing is copied: values are views of the text, and what
// nobody asks for is passed over without looking at its characters. Internal to the trace reader.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <string_view>

namespace simdjson::internal {
class dom_parser_implementation;
}

namespace tk {

// Structural characters of a text: brackets, colons, commas, and the first of each scalar.
class JsonIndex {
 public:
  JsonIndex();
  ~JsonIndex();
  // `text` has simdjson's padding (32 bytes) behind it. Empty, or why this is no JSON text.
  std::string build(const char* text, std::size_t size);
  const std::uint32_t* begin() const;
  const std::uint32_t* end() const;

 private:
  std::unique_ptr<simdjson::internal::dom_parser_implementation> impl_;
};

// A value inside an object. A string is without its quotes and with its escapes.
struct JsonValue {
  enum Kind : std::uint8_t { string, scalar, object, array };
  Kind kind = scalar;
  std::string_view text;              // of string and scalar
  const std::uint32_t* at = nullptr;  // of object and array: their opening bracket
};

// Stands on a structural character. Every step checks what it sees; after one that fails the
// position means nothing.
class JsonWalk {
 public:
  JsonWalk(const char* text, const std::uint32_t* at, const std::uint32_t* end)
      : text_(text), at_(at), end_(end) {}

  bool done() const { return at_ >= end_; }
  char peek() const { return at_ < end_ ? text_[*at_] : '\0'; }
  const std::uint32_t* position() const { return at_; }
  void step() { ++at_; }
  std::uint32_t offset() const { return *at_; }

  // Standing on '{': calls field(key, value) for each, and ends behind the '}'. False: no object.
  // The value of a nested one is passed over when the call returns.
  template <class Field>
  bool object(Field&& field) {
    if (peek() != '{') return false;
    ++at_;
    if (peek() == '}') {
      ++at_;
      return true;
    }
    for (;;) {
      // A key, its colon, a value and what follows: four structural characters at least.
      if (end_ - at_ < 4 || text_[at_[0]] != '"' || text_[at_[1]] != ':') return false;
      std::string_view key = token();
      if (key.size() < 2 || key.back() != '"') return false;
      key = key.substr(1, key.size() - 2);
      at_ += 2;
      JsonValue value;
      switch (text_[*at_]) {
        case '{':
        case '[':
          value.kind = text_[*at_] == '{' ? JsonValue::object : JsonValue::array;
          value.at = at_;
          if (!skip_nested()) return false;
          break;
        case '"':
          value.kind = JsonValue::string;
          value.text = token();
          if (value.text.size() < 2 || value.text.back() != '"') return false;
          value.text = value.text.substr(1, value.text.size() - 2);
          ++at_;
          break;
        case ':':
        case ',':
        case '}':
        case ']':
          return false;
        default:
          value.text = token();
          ++at_;
      }
      field(key, value);
      const char c = peek();
      ++at_;
      if (c == '}') return true;
      if (c != ',') return false;
    }
  }

  // Passes over any value.
  bool skip_value() {
    const char c = peek();
    if (c == '{' || c == '[') return skip_nested();
    if (c == '\0' || c == ':' || c == ',' || c == '}' || c == ']') return false;
    ++at_;
    return true;
  }

 private:
  // From here up to the next structural character, without the blanks between.
  std::string_view token() const {
    const char* from = text_ + at_[0];
    const char* to = text_ + at_[1];
    while (to > from && (to[-1] == ' ' || to[-1] == '\n' || to[-1] == '\r' || to[-1] == '\t')) --to;
    return {from, static_cast<std::size_t>(to - from)};
  }

  bool skip_nested() {
    int depth = 0;
    do {
      const char c = static_cast<char>(text_[*at_++] | 0x20);  // brackets become braces
      depth += (c == '{') - (c == '}');
    } while (depth > 0 && at_ < end_);
    return depth == 0;
  }

  const char* text_;
  const std::uint32_t *at_, *end_;
};

// A string's value, from its text between the quotes. `scratch` is used where it has escapes.
// False: a bad escape.
bool json_unescaped(std::string_view raw, std::string& scratch, std::string_view& value);

}  // namespace tk
