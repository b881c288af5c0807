#include "import/json.h"

#include <simdjson.h>

#include <algorithm>

namespace tk::json {
namespace {

using simdjson::internal::tape_ref;
using simdjson::internal::tape_type;

std::string_view name_of(Kind kind) {
  switch (kind) {
    case Kind::null:
      return "null";
    case Kind::boolean:
      return "true or false";
    case Kind::integer:
      return "an integer";
    case Kind::number:
      return "a number";
    case Kind::string:
      return "a string";
    case Kind::array:
      return "an array";
    case Kind::object:
      return "an object";
  }
  return "?";
}

// Text of a message: short, and printable.
std::string excerpt(std::string_view text) {
  constexpr std::size_t longest = 60;
  std::string out;
  for (char c : text.substr(0, longest))
    out += static_cast<unsigned char>(c) < 0x20 || c == 0x7f ? '?' : c;
  if (text.size() > longest) out += "...";
  return out;
}

// simdjson's DOM does not say where an error is, its on-demand reader does: read again with that
// one, only to find the place. Returns false when it sees no error (it checks less).
bool walk(simdjson::ondemand::value value, int depth, simdjson::error_code& error) {
  if (depth > max_depth) {
    error = simdjson::DEPTH_ERROR;
    return true;
  }
  auto failed = [&](simdjson::error_code code) {
    error = code;
    return code != simdjson::SUCCESS;
  };
  auto type = simdjson::ondemand::json_type::null;
  if (failed(value.type().get(type))) return true;
  switch (type) {
    case simdjson::ondemand::json_type::object: {
      simdjson::ondemand::object object;
      if (failed(value.get_object().get(object))) return true;
      for (auto field : object) {
        simdjson::ondemand::value member;
        std::string_view key;
        if (failed(field.error())) return true;
        if (failed(field.unescaped_key().get(key))) return true;
        if (failed(field.value().get(member)) || walk(member, depth + 1, error)) return true;
      }
      return false;
    }
    case simdjson::ondemand::json_type::array: {
      simdjson::ondemand::array array;
      if (failed(value.get_array().get(array))) return true;
      for (auto item : array) {
        simdjson::ondemand::value element;
        if (failed(item.get(element)) || walk(element, depth + 1, error)) return true;
      }
      return false;
    }
    case simdjson::ondemand::json_type::string: {
      std::string_view text;
      return failed(value.get_string().get(text));
    }
    case simdjson::ondemand::json_type::number: {
      simdjson::ondemand::number number;
      return failed(value.get_number().get(number));
    }
    case simdjson::ondemand::json_type::boolean: {
      bool b = false;
      return failed(value.get_bool().get(b));
    }
    case simdjson::ondemand::json_type::null: {
      bool null = false;
      if (failed(value.is_null().get(null))) return true;
      if (!null) error = simdjson::N_ATOM_ERROR;
      return !null;
    }
  }
  return false;
}

// Where reading stops, as a byte offset; npos when it is not known.
std::size_t place_of_error(const simdjson::padded_string& text) {
  simdjson::ondemand::parser parser;
  simdjson::ondemand::document document;
  if (parser.iterate(text).get(document) != simdjson::SUCCESS) return std::string_view::npos;
  simdjson::ondemand::value root;
  simdjson::error_code error = document.get_value().get(root);
  if (error == simdjson::SUCCESS && !walk(root, 1, error)) return std::string_view::npos;
  const char* location = nullptr;
  if (document.current_location().get(location) != simdjson::SUCCESS) return text.size();
  return std::min(static_cast<std::size_t>(location - text.data()), text.size());
}

// The offset of the first byte that is not UTF-8, or npos.
std::size_t place_of_bad_utf8(std::string_view text) {
  if (simdjson::validate_utf8(text.data(), text.size())) return std::string_view::npos;
  std::size_t good = 0;  // text[0, good) is valid; find the longest such by halving
  std::size_t bad = text.size();
  while (bad - good > 8) {
    std::size_t middle = good + (bad - good) / 2;
    while (middle > good && (static_cast<unsigned char>(text[middle]) & 0xc0U) == 0x80U) --middle;
    if (middle == good) break;  // a run of continuation bytes: the error is here
    (simdjson::validate_utf8(text.data() + good, middle - good) ? good : bad) = middle;
  }
  return good;
}

UserError syntax_error(const simdjson::padded_string& text, std::string_view file,
                       simdjson::error_code code) {
  std::string what = code == simdjson::DEPTH_ERROR ? cat("nested deeper than ", max_depth)
                                                   : std::string(simdjson::error_message(code));
  const std::string_view whole(text.data(), text.size());
  std::size_t place =
      code == simdjson::UTF8_ERROR ? place_of_bad_utf8(whole) : place_of_error(text);
  std::string near;
  int line = 0;
  if (place != std::string_view::npos) {
    const std::string_view before = whole.substr(0, place);
    line = 1 + static_cast<int>(std::count(before.begin(), before.end(), '\n'));
    const std::size_t start = before.rfind('\n');
    near = cat(", line ", line, " column ",
               place - (start == std::string_view::npos ? 0 : start + 1) + 1);
    if (code != simdjson::UTF8_ERROR && place < whole.size())
      near += cat(", at '", excerpt(whole.substr(place, 30)), "'");
  }
  return UserError("TK0110", cat(file, " is not valid JSON", near, ": ", what))
      .at(file, line)
      .help("the file may be cut short or damaged; write or fetch it again");
}

}  // namespace

// What simdjson parsed (its tape is described in its doc/tape.md), with the name of the file.
struct Tape {
  simdjson::dom::document document;
  std::string file;
  tape_ref at(std::size_t index) const { return {&document, index}; }
};

Kind Value::kind() const {
  switch (tape_->at(index_).tape_ref_type()) {
    case tape_type::START_OBJECT:
      return Kind::object;
    case tape_type::START_ARRAY:
      return Kind::array;
    case tape_type::STRING:
      return Kind::string;
    case tape_type::INT64:
      return Kind::integer;
    case tape_type::UINT64:  // more than an int64 holds
    case tape_type::DOUBLE:
      return Kind::number;
    case tape_type::TRUE_VALUE:
    case tape_type::FALSE_VALUE:
      return Kind::boolean;
    default:
      return Kind::null;
  }
}

std::size_t Value::after() const { return tape_->at(index_).after_element(); }

void Value::want(Kind expected) const {
  const Kind found = kind();
  if (found == expected) return;
  std::string shown(name_of(found));
  if (found == Kind::string) shown = cat("the string '", excerpt(string()), "'");
  if (found == Kind::integer) shown = cat(integer());
  if (found == Kind::number) shown = cat(number());
  throw error(cat("should be ", name_of(expected), ", and is ", shown));
}

std::string_view Value::string() const {
  want(Kind::string);
  return tape_->at(index_).get_string_view();
}

std::int64_t Value::integer() const {
  want(Kind::integer);
  return tape_->at(index_).next_tape_value<std::int64_t>();
}

double Value::number() const {
  const tape_ref ref = tape_->at(index_);
  if (ref.is_double()) return ref.next_tape_value<double>();
  if (ref.is_uint64()) return static_cast<double>(ref.next_tape_value<std::uint64_t>());
  if (ref.is_int64()) return static_cast<double>(ref.next_tape_value<std::int64_t>());
  want(Kind::number);
  return 0;
}

bool Value::boolean() const {
  want(Kind::boolean);
  return tape_->at(index_).is_true();
}

// The tape of a container: its start (which holds the index after its end), what is in it, its end.
Elements Value::elements() const {
  want(Kind::array);
  return {tape_, index_ + 1, after() - 1};
}

Members Value::members() const {
  want(Kind::object);
  return {tape_, index_ + 1, after() - 1};
}

std::size_t Value::size() const {
  std::size_t n = 0;
  if (is_object()) {
    const Members all = members();
    for (auto it = all.begin(); it != all.end(); ++it) ++n;
  } else {
    const Elements all = elements();
    for (auto it = all.begin(); it != all.end(); ++it) ++n;
  }
  return n;
}

std::optional<Value> Value::find(std::string_view name) const {
  for (const Member& member : members())
    if (member.name == name) {
      if (member.value.is_null()) return std::nullopt;
      return member.value;
    }
  return std::nullopt;
}

Value Value::operator[](std::string_view name) const {
  std::vector<std::string_view> names;
  for (const Member& member : members()) {
    if (member.name == name) return member.value;
    if (names.size() < 1000) names.push_back(member.name);
  }
  UserError missing = error(cat("has no member '", name, "'"));
  const std::string near = name.size() < 100 ? nearest(name, names) : "";
  if (!near.empty()) throw std::move(missing).note(cat("there is '", excerpt(near), "'"));
  throw missing;
}

std::string Value::path() const {
  std::string out;
  Value here(tape_, 1);
  while (here.index_ < index_) {
    bool deeper = false;
    if (here.is_object()) {
      for (const Member& member : here.members())
        if (index_ < member.value.after()) {
          out += cat(out.empty() ? "" : ".", excerpt(member.name));
          here = member.value;
          deeper = true;
          break;
        }
    } else if (here.is_array()) {
      std::size_t i = 0;
      for (const Value& element : here.elements()) {
        if (index_ < element.after()) {
          out += cat("[", i, "]");
          here = element;
          deeper = true;
          break;
        }
        ++i;
      }
    }
    TK_CHECK(deeper, "a value outside its document");
  }
  return out;
}

std::string_view Value::file() const { return tape_->file; }

UserError Value::error(std::string_view wrong) const {
  const std::string where = path();
  return UserError("TK0111", cat(where.empty() ? "the top level" : where, " ", wrong)).at(file());
}

Document::Document(std::unique_ptr<Tape> tape) : tape_(std::move(tape)) {}
Document::~Document() = default;
Document::Document(Document&&) noexcept = default;
Document& Document::operator=(Document&&) noexcept = default;

// Index 0 of the tape is the document itself.
Value Document::root() const { return {tape_.get(), 1}; }
const std::string& Document::file() const { return tape_->file; }

Document parse(std::string_view text, std::string_view file) {
  if (text.size() > max_bytes)
    throw UserError("TK0110",
                    cat(file, " has ", text.size(), " bytes of JSON; the limit is ", max_bytes))
        .at(file);
  auto tape = std::make_unique<Tape>();
  tape->file = file;
  const simdjson::padded_string padded(text);
  simdjson::dom::parser parser(max_bytes);
  simdjson::error_code error = parser.allocate(std::max<std::size_t>(text.size(), 64), max_depth);
  simdjson::dom::element root;
  if (error == simdjson::SUCCESS)
    error = parser.parse_into_document(tape->document, padded).get(root);
  if (error != simdjson::SUCCESS) throw syntax_error(padded, file, error);
  return Document(std::move(tape));
}

std::string_view string_or(const Value& object, std::string_view name, std::string_view otherwise) {
  const auto value = object.find(name);
  return value ? value->string() : otherwise;
}
std::int64_t integer_or(const Value& object, std::string_view name, std::int64_t otherwise) {
  const auto value = object.find(name);
  return value ? value->integer() : otherwise;
}
double number_or(const Value& object, std::string_view name, double otherwise) {
  const auto value = object.find(name);
  return value ? value->number() : otherwise;
}
bool boolean_or(const Value& object, std::string_view name, bool otherwise) {
  const auto value = object.find(name);
  return value ? value->boolean() : otherwise;
}

std::vector<std::int64_t> integers(const Value& array) {
  std::vector<std::int64_t> out;
  for (const Value& element : array.elements()) out.push_back(element.integer());
  return out;
}
std::vector<std::string> strings(const Value& array) {
  std::vector<std::string> out;
  for (const Value& element : array.elements()) out.emplace_back(element.string());
  return out;
}

}  // namespace tk::json
