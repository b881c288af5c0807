#include "graph/limit_expr.h"

#include <cctype>

#include "base/error.h"

namespace tk {
namespace {

using Kind = LimitExpr::Kind;

bool is_word(char c) { return std::isalnum(static_cast<unsigned char>(c)) != 0 || c == '_'; }

class Parser {
 public:
  explicit Parser(std::string_view text) : text_(text) { next(); }

  LimitExpr whole() {
    LimitExpr e = condition();
    if (!token_.empty()) fail("ends too early");
    return e;
  }

 private:
  [[noreturn]] void fail(std::string_view what) const {
    throw InternalError(__FILE__, __LINE__,
                        cat("limit '", text_, "' ", what, " at '", text_.substr(start_), "'"));
  }

  void next() {
    last_end_ = end_;
    start_ = end_;
    while (start_ < text_.size() && text_[start_] == ' ') ++start_;
    end_ = start_;
    if (end_ == text_.size()) {
      token_ = {};
      return;
    }
    const char c = text_[end_];
    if (std::isdigit(static_cast<unsigned char>(c)) != 0) {
      while (end_ < text_.size() && (is_word(text_[end_]) || text_[end_] == '.' ||
                                     (text_[end_] == '-' && text_[end_ - 1] == 'e')))
        ++end_;
    } else if (is_word(c)) {
      while (end_ < text_.size() && is_word(text_[end_])) ++end_;
    } else if (c == '"') {
      end_ = text_.find('"', end_ + 1);
      if (end_ == std::string_view::npos) fail("has an open string");
      ++end_;
    } else {
      const std::string_view two = text_.substr(end_, 2);
      const bool pair = two == "==" || two == "!=" || two == "<=" || two == ">=" || two == "//";
      end_ += pair ? 2 : 1;
    }
    token_ = text_.substr(start_, end_ - start_);
  }

  bool take(std::string_view token) {
    if (token_ != token) return false;
    next();
    return true;
  }
  void demand(std::string_view token) {
    if (!take(token)) fail(cat("lacks '", token, "'"));
  }

  LimitExpr made(Kind kind, std::string text, std::vector<LimitExpr> args, std::size_t from) {
    LimitExpr e;
    e.kind = kind;
    e.text = std::move(text);
    e.args = std::move(args);
    e.source = text_.substr(from, last_end_ - from);
    return e;
  }

  LimitExpr condition() {
    const std::size_t from = start_;
    LimitExpr value = logical("or");
    if (!take("if")) return value;
    LimitExpr test = logical("or");
    demand("else");
    LimitExpr other = condition();
    return made(Kind::condition, "", {std::move(value), std::move(test), std::move(other)}, from);
  }

  LimitExpr logical(std::string_view word) {
    const std::size_t from = start_;
    std::vector<LimitExpr> args{operand_of(word)};
    while (take(word)) args.push_back(operand_of(word));
    if (args.size() == 1) return std::move(args.front());
    return made(Kind::logical, std::string(word), std::move(args), from);
  }
  LimitExpr operand_of(std::string_view word) { return word == "or" ? logical("and") : negation(); }

  LimitExpr negation() {
    const std::size_t from = start_;
    if (!take("not")) return comparison();
    LimitExpr arg = negation();
    return made(Kind::unary, "not", {std::move(arg)}, from);
  }

  std::string comparison_op() {
    for (const std::string_view op : {"==", "!=", "<=", ">=", "<", ">", "in"})
      if (take(op)) return std::string(op);
    if (take("is")) return take("not") ? "is not" : "is";
    if (token_ == "not") {
      next();
      demand("in");
      return "not in";
    }
    return "";
  }

  LimitExpr comparison() {
    const std::size_t from = start_;
    std::vector<LimitExpr> args{sum()};
    std::vector<std::string> ops;
    for (std::string op = comparison_op(); !op.empty(); op = comparison_op()) {
      ops.push_back(op);
      args.push_back(sum());
    }
    if (ops.empty()) return std::move(args.front());
    LimitExpr e = made(Kind::compare, "", std::move(args), from);
    e.ops = std::move(ops);
    return e;
  }

  LimitExpr sum() {
    const std::size_t from = start_;
    LimitExpr left = product();
    while (token_ == "+" || token_ == "-") {
      const std::string op(token_);
      next();
      LimitExpr right = product();
      left = made(Kind::binary, op, {std::move(left), std::move(right)}, from);
    }
    return left;
  }

  LimitExpr product() {
    const std::size_t from = start_;
    LimitExpr left = negative();
    while (token_ == "*" || token_ == "/" || token_ == "//" || token_ == "%") {
      const std::string op(token_);
      next();
      LimitExpr right = negative();
      left = made(Kind::binary, op, {std::move(left), std::move(right)}, from);
    }
    return left;
  }

  LimitExpr negative() {
    const std::size_t from = start_;
    if (!take("-")) return access();
    LimitExpr arg = negative();
    return made(Kind::unary, "-", {std::move(arg)}, from);
  }

  LimitExpr access() {
    const std::size_t from = start_;
    LimitExpr e = atom();
    for (;;) {
      if (take(".")) {
        const std::string name(token_);
        next();
        e = made(Kind::attribute, name, {std::move(e)}, from);
      } else if (take("[")) {
        LimitExpr low = token_ == ":" ? LimitExpr() : condition();
        if (take(":")) {
          LimitExpr high = token_ == "]" ? LimitExpr() : condition();
          demand("]");
          e = made(Kind::slice, "", {std::move(e), std::move(low), std::move(high)}, from);
        } else {
          demand("]");
          e = made(Kind::subscript, "", {std::move(e), std::move(low)}, from);
        }
      } else {
        return e;
      }
    }
  }

  std::vector<LimitExpr> items(std::string_view close) {
    std::vector<LimitExpr> args;
    while (!take(close)) {
      args.push_back(condition());
      if (!take(",") && token_ != close) fail(cat("lacks '", close, "'"));
    }
    return args;
  }

  LimitExpr atom() {
    const std::size_t from = start_;
    if (token_.empty()) fail("lacks a value");
    if (take("(")) {
      if (take(")")) return made(Kind::list, "", {}, from);
      LimitExpr first = condition();
      if (take(")")) return first;
      demand(",");
      std::vector<LimitExpr> args = items(")");
      args.insert(args.begin(), std::move(first));
      return made(Kind::list, "", std::move(args), from);
    }
    if (take("[")) {
      std::vector<LimitExpr> args = items("]");
      return made(Kind::list, "", std::move(args), from);
    }
    const std::string token(token_);
    if (token.front() == '"') {
      next();
      return made(Kind::string, token.substr(1, token.size() - 2), {}, from);
    }
    if (std::isdigit(static_cast<unsigned char>(token.front())) != 0) {
      next();
      return made(Kind::number, token, {}, from);
    }
    if (!is_word(token.front())) fail("has no value");
    next();
    if (!take("(")) return made(Kind::name, token, {}, from);
    std::vector<LimitExpr> args = items(")");
    return made(Kind::call, token, std::move(args), from);
  }

  std::string_view text_, token_;
  std::size_t start_ = 0, end_ = 0, last_end_ = 0;
};

bool is_constant(const LimitExpr& e) {
  return e.kind == Kind::number || (e.kind == Kind::unary && e.args[0].kind == Kind::number);
}

}  // namespace

bool LimitExpr::is_path() const {
  switch (kind) {
    case Kind::name:
      return text != "True" && text != "False" && text != "None";
    case Kind::attribute:
      return args[0].is_path();
    case Kind::subscript:
      return args[0].is_path() && is_constant(args[1]);
    case Kind::slice:
      return args[0].is_path();
    default:
      return false;
  }
}

LimitExpr parse_limit(std::string_view text) { return Parser(text).whole(); }

}  // namespace tk
