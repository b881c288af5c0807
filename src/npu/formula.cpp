// Arithmetic of published metrics: + - * / ( ), numbers and five names.
#include <cctype>
#include <charconv>

#include "base/error.h"
#include "npu/validation.h"

namespace tk {
namespace {

class Parser {
 public:
  Parser(std::string_view text, const FormulaNames& names) : text_(text), names_(names) {}

  double run() {
    const double v = sum();
    if (!rest().empty()) fail();
    return v;
  }

 private:
  [[noreturn]] void fail() const {
    throw UserError("TK1421", cat("the formula '", text_, "' cannot be read at position ", at_))
        .help("it may have numbers, S, global_batch, query_len, packages, accepted, + - * / ( )");
  }
  std::string_view rest() {
    while (at_ < text_.size() && text_[at_] == ' ') ++at_;
    return text_.substr(at_);
  }
  bool take(char c) {
    if (rest().empty() || rest()[0] != c) return false;
    ++at_;
    return true;
  }
  double sum() {
    double v = product();
    for (;;) {
      if (take('+')) {
        v += product();
      } else if (take('-')) {
        v -= product();
      } else {
        return v;
      }
    }
  }
  double product() {
    double v = atom();
    for (;;) {
      if (take('*')) {
        v *= atom();
      } else if (take('/')) {
        v /= atom();
      } else {
        return v;
      }
    }
  }
  double atom() {
    if (++depth_ > 64) fail();
    if (take('(')) {
      const double v = sum();
      if (!take(')')) fail();
      --depth_;
      return v;
    }
    --depth_;
    const std::string_view r = rest();
    double v = 0;
    const auto [end, error] = std::from_chars(r.data(), r.data() + r.size(), v);
    if (error == std::errc()) {
      at_ += static_cast<std::size_t>(end - r.data());
      return v;
    }
    std::size_t n = 0;
    while (n < r.size() && (std::isalnum(static_cast<unsigned char>(r[n])) != 0 || r[n] == '_'))
      ++n;
    const std::string_view name = r.substr(0, n);
    at_ += n;
    if (name == "S") return names_.S;
    if (name == "global_batch") return names_.global_batch;
    if (name == "query_len") return names_.query_len;
    if (name == "packages") return names_.packages;
    if (name == "accepted") return names_.accepted;
    at_ -= n;
    fail();
  }
  std::string_view text_;
  const FormulaNames& names_;
  std::size_t at_ = 0;
  int depth_ = 0;
};

}  // namespace

double eval_formula(std::string_view formula, const FormulaNames& names) {
  return Parser(formula, names).run();
}

}  // namespace tk
