#include <cctype>
#include <vector>

#include "base/error.h"
#include "import/regex.h"

namespace tk {
namespace {

// What Oniguruma's shorthands stand for, as the inside of a PCRE2 class. Measured over all code
// points: PCRE2's own \s has U+180E besides, its \w has N* and not Alphabetic.
constexpr std::string_view space =
    R"(\x{9}-\x{d}\x{20}\x{85}\x{a0}\x{1680}\x{2000}-\x{200a}\x{2028}\x{2029}\x{202f}\x{205f}\x{3000})";
constexpr std::string_view not_space =
    R"(\x{0}-\x{8}\x{e}-\x{1f}\x{21}-\x{84}\x{86}-\x{9f}\x{a1}-\x{167f}\x{1681}-\x{1fff})"
    R"(\x{200b}-\x{2027}\x{202a}-\x{202e}\x{2030}-\x{205e}\x{2060}-\x{2fff}\x{3001}-\x{10ffff})";
constexpr std::string_view word = R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc})";
// Outside a class its \w has these of Latin-1 too: superscripts and fractions.
constexpr std::string_view lone_word =
    R"(\p{Alphabetic}\p{M}\p{Nd}\p{Pc}\x{b2}\x{b3}\x{b9}\x{bc}-\x{be})";
constexpr std::string_view hexadecimal = "0-9a-fA-F";

struct Posix {
  std::string_view name, inside;
};
constexpr Posix posix[] = {{"alpha", R"(\p{Alphabetic})"},
                           {"digit", R"(\p{Nd})"},
                           {"alnum", R"(\p{Alphabetic}\p{Nd})"},
                           {"upper", R"(\p{Uppercase})"},
                           {"lower", R"(\p{Lowercase})"},
                           {"space", space},
                           {"xdigit", hexadecimal},
                           {"word", word}};

class Translator {
 public:
  Translator(std::string_view pattern, std::string_view file) : in_(pattern), file_(file) {}

  std::string run() {
    while (at_ < in_.size()) one();
    return std::move(out_);
  }

 private:
  UserError error(std::string_view wrong) const {
    return UserError("TK0602",
                     cat("the pattern '", in_.substr(0, 200), "' ", wrong, ", at offset ", at_))
        .at(file_);
  }
  char peek(std::size_t ahead = 0) const {
    return at_ + ahead < in_.size() ? in_[at_ + ahead] : '\0';
  }

  // One atom, group bracket, alternation or quantifier.
  void one() {
    const char c = in_[at_];
    if (c == '\\') {
      atom_ = out_.size();
      escape(false);
    } else if (c == '[') {
      atom_ = out_.size();
      character_class();
    } else if (c == '(') {
      groups_.push_back(out_.size());
      open_group();
    } else if (c == ')') {
      if (!groups_.empty()) {
        atom_ = groups_.back();
        groups_.pop_back();
      }
      copy();
    } else if (c == '{' && interval() > 0) {
      out_.append(in_.substr(at_, interval()));
      at_ += interval();
      // In Oniguruma x{2}+ repeats x{2}; in PCRE2 it is possessive.
      if (peek() == '+') {
        out_.insert(atom_, "(?:");
        out_ += ')';
      }
    } else {
      if (c != '*' && c != '+' && c != '?') atom_ = out_.size();
      copy();
    }
  }

  // A whole character: an atom must not be cut.
  void copy() {
    do out_ += in_[at_++];
    while (at_ < in_.size() && (static_cast<unsigned char>(in_[at_]) & 0xc0U) == 0x80U);
  }

  // The length of "{n}", "{n,}", "{,m}" or "{n,m}" here, or 0.
  std::size_t interval() const {
    std::size_t n = 1;
    bool digits = false;
    while (std::isdigit(static_cast<unsigned char>(peek(n))) != 0 || peek(n) == ',') {
      digits = digits || peek(n) != ',';
      ++n;
    }
    return digits && peek(n) == '}' ? n + 1 : 0;
  }

  // "(" and what belongs to it: in (?m) Oniguruma's m is PCRE2's s.
  void open_group() {
    copy();
    if (peek() != '?') return;
    copy();
    std::size_t n = 0;
    while (std::isalpha(static_cast<unsigned char>(peek(n))) != 0 || peek(n) == '-') ++n;
    if (n == 0 || (peek(n) != ':' && peek(n) != ')')) return;
    for (; n > 0; --n, ++at_) {
      const char flag = in_[at_];
      if (flag != 'i' && flag != 'm' && flag != 'x' && flag != '-')
        throw error(cat("has the option '", flag, "', which is not read"));
      out_ += flag == 'm' ? 's' : flag;
    }
  }

  void shorthand(std::string_view inside, bool negated, bool in_class) {
    if (in_class && negated) {
      if (inside != space) throw error("has a negated shorthand in a class, which is not read");
      out_ += not_space;
    } else if (in_class) {
      out_ += inside;
    } else {
      out_ += cat(negated ? "[^" : "[", inside, "]");
    }
  }

  void escape(bool in_class) {
    const char c = peek(1);
    if (c == '\0' && at_ + 1 >= in_.size()) throw error("ends in a backslash");
    at_ += 2;
    switch (c) {
      case 's':
      case 'S':
        return shorthand(space, c == 'S', in_class);
      case 'w':
      case 'W':
        return shorthand(in_class ? word : lone_word, c == 'W', in_class);
      case 'h':
      case 'H':
        return shorthand(hexadecimal, c == 'H', in_class);
      case 'v':
        out_ += "\\x{b}";
        return;
      case 'u':
        for (std::size_t i = 0; i < 4; ++i)
          if (std::isxdigit(static_cast<unsigned char>(peek(i))) == 0)
            throw error("has a \\u without four hexadecimal digits");
        out_ += cat("\\x{", in_.substr(at_, 4), "}");
        at_ += 4;
        return;
      case 'Q':
      case 'E':
        throw error(cat("has a \\", c, ", which is not read"));
      default:
        --at_;
        out_ += '\\';
        copy();
        // The braces of \p{L} and \x{2581} are no quantifier.
        if (std::string_view("pPxkgo").find(c) != std::string_view::npos && peek() == '{')
          while (at_ < in_.size() && out_.back() != '}') copy();
    }
  }

  void character_class() {
    copy();
    if (peek() == '^') copy();
    if (peek() == ']') {
      out_ += "\\]";
      ++at_;
    }
    while (true) {
      if (at_ >= in_.size()) throw error("has a '[' without its ']'");
      if (peek() == ']') break;
      if (peek() == '\\') {
        escape(true);
      } else if (peek() == '[') {
        posix_class();
      } else if (peek() == '&' && peek(1) == '&') {
        throw error("intersects character classes, which is not read");
      } else {
        copy();
      }
    }
    copy();
  }

  void posix_class() {
    for (const Posix& known : posix) {
      const std::string text = cat("[:", known.name, ":]");
      if (in_.substr(at_, text.size()) != text) continue;
      out_ += known.inside;
      at_ += text.size();
      return;
    }
    throw error("has a character class within another, which is not read");
  }

  std::string_view in_, file_;
  std::size_t at_ = 0;
  std::string out_;
  std::size_t atom_ = 0;             // where the last atom begins in out_
  std::vector<std::size_t> groups_;  // where the open groups begin in out_
};

}  // namespace

std::string pcre_of_oniguruma(std::string_view pattern, std::string_view file) {
  return Translator(pattern, file).run();
}

}  // namespace tk
