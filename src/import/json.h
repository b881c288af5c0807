// Reading JSON. The only file that knows simdjson; readers of formats see these few types.
//
//   json::Document doc = json::parse(text, "config.json");
//   std::int64_t n = doc.root()["hidden_size"].integer();
//
// Every question that the file answers wrongly throws a UserError that names the file and the path
// to the value ("graph.nodes[3].target"): TK0110 when the text is no JSON, TK0111 when the JSON is
// not what was expected. Paths are found only when an error is built, so readers pass none along.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"

namespace tk::json {

enum class Kind { null, boolean, integer, number, string, array, object };

struct Tape;  // the parsed text, in json.cpp
class Elements;
class Members;

// A place in a Document, valid as long as the Document lives. Cheap to copy.
class Value {
 public:
  Kind kind() const;
  bool is_null() const { return kind() == Kind::null; }
  bool is_string() const { return kind() == Kind::string; }
  bool is_array() const { return kind() == Kind::array; }
  bool is_object() const { return kind() == Kind::object; }

  // The value as one type, or TK0111. Strings point into the Document.
  std::string_view string() const;
  std::int64_t integer() const;  // a whole number of 64 bits; 2.0 is not one
  double number() const;         // any number
  bool boolean() const;

  Elements elements() const;  // of an array, for range-for
  Members members() const;    // of an object, in the order of the file; names may repeat
  std::size_t size() const;   // of an array or object; counts them

  // A member of an object; the first of that name. [] wants it to be there; find also takes null
  // for absent. Linear in the size of the object: loop over members() of large ones.
  Value operator[](std::string_view name) const;
  std::optional<Value> find(std::string_view name) const;

  // A TK0111 about this value; `wrong` completes "<path> ...".
  UserError error(std::string_view wrong) const;
  std::string path() const;  // "graph.nodes[3].target"; the empty path is the document itself
  std::string_view file() const;

 private:
  friend class Document;
  friend class Elements;
  friend class Members;
  Value(const Tape* tape, std::size_t index) : tape_(tape), index_(index) {}
  std::size_t after() const;
  void want(Kind kind) const;

  const Tape* tape_;
  std::size_t index_;
};

// Ranges over what an array or an object holds.
class Elements {
 public:
  struct Iterator {
    const Tape* tape;
    std::size_t index;
    Value operator*() const { return Value(tape, index); }
    Iterator& operator++() {
      index = Value(tape, index).after();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  Iterator begin() const { return {tape_, begin_}; }
  Iterator end() const { return {tape_, end_}; }

 private:
  friend class Value;
  Elements(const Tape* tape, std::size_t begin, std::size_t end)
      : tape_(tape), begin_(begin), end_(end) {}
  const Tape* tape_;
  std::size_t begin_, end_;
};

struct Member {
  std::string_view name;
  Value value;
};

class Members {
 public:
  struct Iterator {
    const Tape* tape;
    std::size_t index;  // of the name; its value follows
    Member operator*() const { return {Value(tape, index).string(), Value(tape, index + 1)}; }
    Iterator& operator++() {
      index = Value(tape, index + 1).after();
      return *this;
    }
    bool operator!=(const Iterator& other) const { return index != other.index; }
  };
  Iterator begin() const { return {tape_, begin_}; }
  Iterator end() const { return {tape_, end_}; }

 private:
  friend class Value;
  Members(const Tape* tape, std::size_t begin, std::size_t end)
      : tape_(tape), begin_(begin), end_(end) {}
  const Tape* tape_;
  std::size_t begin_, end_;
};

// A parsed text. It copies what it needs: the text may go away.
class Document {
 public:
  Value root() const;
  const std::string& file() const;
  ~Document();
  Document(Document&&) noexcept;
  Document& operator=(Document&&) noexcept;

 private:
  friend Document parse(std::string_view text, std::string_view file);
  explicit Document(std::unique_ptr<Tape> tape);
  std::unique_ptr<Tape> tape_;
};

constexpr int max_depth = 512;                 // of arrays and objects in each other
constexpr std::size_t max_bytes = 1ULL << 30;  // of the text

// TK0110: not JSON (with line and column), nested deeper than max_depth, or larger than max_bytes.
// `file` is the name for messages.
Document parse(std::string_view text, std::string_view file);

// Members that may be absent (or null), and lists of one type.
std::string_view string_or(const Value& object, std::string_view name, std::string_view otherwise);
std::int64_t integer_or(const Value& object, std::string_view name, std::int64_t otherwise);
double number_or(const Value& object, std::string_view name, double otherwise);
bool boolean_or(const Value& object, std::string_view name, bool otherwise);
std::vector<std::int64_t> integers(const Value& array);
std::vector<std::string> strings(const Value& array);

}  // namespace tk::json
