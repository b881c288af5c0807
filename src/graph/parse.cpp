// The reader of the text form. One statement a line; grammar in docs/text-form.md.
#include <charconv>
#include <unordered_map>

#include "base/error.h"
#include "graph/graph.h"

namespace tk {
namespace {

class Reader {
 public:
  Reader(std::string_view text, std::string_view file) : text_(text), file_(file) {}

  Graph graph() {
    next_line();
    header();
    while (next_line()) {
      if (take("}")) return std::move(graph_);
      statement();
    }
    wrong("'}' at the end of the graph");
  }

 private:
  [[noreturn]] void wrong(std::string_view expected) const {
    throw UserError("TK0310", cat("expected ", expected, ", found '", rest_.substr(0, 60), "'"))
        .at(file_, line_);
  }

  // The next line that is not empty or a comment; false at the end.
  bool next_line() {
    while (!text_.empty()) {
      const std::size_t end = text_.find('\n');
      rest_ = text_.substr(0, end);
      text_ = end == std::string_view::npos ? std::string_view() : text_.substr(end + 1);
      ++line_;
      space();
      if (!rest_.empty() && !rest_.starts_with("//")) return true;
    }
    rest_ = {};
    return false;
  }

  void space() {
    while (!rest_.empty() && (rest_.front() == ' ' || rest_.front() == '\r'))
      rest_.remove_prefix(1);
  }
  bool take(std::string_view word) {
    space();
    if (!rest_.starts_with(word)) return false;
    rest_.remove_prefix(word.size());
    return true;
  }
  void need(std::string_view word) {
    if (!take(word)) wrong(cat("'", word, "'"));
  }
  std::string_view word(std::string_view what) {
    space();
    std::size_t n = 0;
    while (n < rest_.size() && (std::isalnum(static_cast<unsigned char>(rest_[n])) != 0 ||
                                rest_[n] == '_' || rest_[n] == '.'))
      ++n;
    if (n == 0) wrong(what);
    const std::string_view w = rest_.substr(0, n);
    rest_.remove_prefix(n);
    return w;
  }
  std::string quoted() {
    need("\"");
    const std::size_t end = rest_.find('"');
    if (end == std::string_view::npos) wrong("a closing '\"'");
    std::string s(rest_.substr(0, end));
    rest_.remove_prefix(end + 1);
    return s;
  }
  std::int64_t integer() {
    const std::string_view w = word("a number");
    std::int64_t v = 0;
    auto [end, error] = std::from_chars(w.data(), w.data() + w.size(), v);
    if (error != std::errc() || end != w.data() + w.size()) wrong("a number");
    return v;
  }
  // Everything up to the closing bracket that matches the one just taken.
  std::string_view until(char open, char close) {
    int depth = 1;
    bool in_string = false;
    for (std::size_t i = 0; i < rest_.size(); ++i) {
      if (rest_[i] == '"' && (i == 0 || rest_[i - 1] != '\\')) in_string = !in_string;
      if (in_string) continue;
      if (rest_[i] == open) ++depth;
      if (rest_[i] == close && --depth == 0) {
        const std::string_view inside = rest_.substr(0, i);
        rest_.remove_prefix(i + 1);
        return inside;
      }
    }
    wrong(cat("'", std::string(1, close), "'"));
  }

  Type type() {
    Type t;
    const std::string_view name = word("a dtype");
    if (!parse_dtype(name, &t.dtype)) wrong(cat("a dtype instead of '", name, "'"));
    need("[");
    const Attr dims = parse_attr(cat("[", until('[', ']'), "]"));
    if (const auto* list = std::get_if<SymDims>(&dims)) {
      t.shape = *list;
    } else {
      wrong("integer dims");
    }
    if (t.shape.size() > max_rank) wrong(cat("at most ", max_rank, " dims"));
    return t;
  }

  void define(std::string_view name, Value* value) {
    if (!values_.emplace(std::string(name), value).second)
      throw UserError("TK0310", cat("%", name, " is defined twice")).at(file_, line_);
  }
  Value* use() {
    if (take("none")) return nullptr;
    need("%");
    const std::string_view name = word("a value");
    auto it = values_.find(std::string(name));
    if (it == values_.end())
      throw UserError("TK0310", cat("%", name, " is not defined")).at(file_, line_);
    return it->second;
  }

  void header() {
    need("graph");
    need("@");
    graph_.name = word("a name");
    need("(");
    if (take(")")) {
      need("{");
      return;
    }
    do {
      need("%");
      const std::string_view name = word("a name");
      need(":");
      define(name, graph_.add_input(name, type()));
    } while (take(","));
    need(")");
    need("{");
  }

  void statement() {
    if (take("return ")) {
      do graph_.add_output(use());
      while (take(","));
      return;
    }
    if (take("range ")) {
      const std::string symbol(word("a symbol"));
      const std::int64_t low = integer();
      graph_.ranges[symbol] = {low, integer()};
      return;
    }
    const bool weight = take("weight ");
    if (weight || take("state ")) {
      need("%");
      const std::string_view name = word("a name");
      need(":");
      Type t = type();
      const std::string full = quoted();
      define(name, weight ? graph_.add_weight(full, t) : graph_.add_state(full, t));
      return;
    }
    node();
  }

  void node() {
    std::vector<std::string_view> results;
    do {
      need("%");
      results.push_back(word("a value"));
    } while (take(","));
    need("=");
    const std::string_view op_name = word("an operator");
    const OpDef* op = find_op(op_name);
    if (op == nullptr) {
      std::vector<std::string_view> names;
      for (const OpDef* o : all_ops()) names.push_back(o->name);
      const std::string near = nearest(op_name, names);
      UserError error("TK0310", cat("there is no operator '", op_name, "'"));
      if (!near.empty())
        throw std::move(error).at(file_, line_).help(cat("did you mean ", near, "?"));
      throw std::move(error).at(file_, line_);
    }
    need("(");
    std::vector<Value*> inputs;
    if (!take(")")) {
      do inputs.push_back(use());
      while (take(","));
      need(")");
    }
    Attrs attrs;
    if (take("{")) {
      std::string_view inside = until('{', '}');
      const std::string_view saved = rest_;
      rest_ = inside;
      do {
        const std::string key(word("an attribute"));
        need("=");
        attrs.set(key, parse_attr(value_text()));
      } while (take(","));
      rest_ = saved;
    }
    Loc loc;
    bool placed = false;
    if (take("@")) {
      loc.module = quoted();
      placed = true;
    }
    space();
    if (!rest_.empty() && rest_.front() != '(' && !rest_.starts_with("//"))
      loc.module_type = word("a module type");
    if (take("(")) {
      const std::string_view inside = until('(', ')');
      const std::size_t colon = inside.rfind(':');
      if (colon == std::string_view::npos) wrong("file:line");
      loc.file = inside.substr(0, colon);
      std::from_chars(inside.data() + colon + 1, inside.data() + inside.size(), loc.line);
      placed = true;
    }
    check_call(*op, inputs, attrs);
    Node* n = nullptr;
    try {
      n = graph_.insert(nullptr, *op, std::move(inputs), std::move(attrs),
                        placed ? graph_.loc(std::move(loc)) : nullptr);
    } catch (UserError& error) {
      throw std::move(error).at(file_, line_);
    }
    if (n->outputs.size() != results.size())
      throw UserError("TK0310",
                      cat(op_name, " has ", n->outputs.size(), " results, not ", results.size()))
          .at(file_, line_);
    for (std::size_t i = 0; i < results.size(); ++i)
      define(results[i], n->out(static_cast<int>(i)));
  }

  // One value of an attribute list: up to a comma outside brackets and strings.
  std::string_view value_text() {
    int depth = 0;
    bool in_string = false;
    std::size_t i = 0;
    for (; i < rest_.size(); ++i) {
      const char c = rest_[i];
      if (c == '"' && (i == 0 || rest_[i - 1] != '\\')) in_string = !in_string;
      if (in_string) continue;
      if (c == '[' || c == '(') ++depth;
      if (c == ']' || c == ')') --depth;
      if (c == ',' && depth == 0) break;
    }
    const std::string_view value = rest_.substr(0, i);
    rest_.remove_prefix(i);
    return value;
  }

  void check_call(const OpDef& op, const std::vector<Value*>& inputs, const Attrs& attrs) const {
    const Schema& schema = op.parsed();
    auto fail = [&](const std::string& what) {
      throw UserError("TK0312", cat(op.name, " ", what))
          .at(file_, line_)
          .note(cat("its schema is ", op.schema));
    };
    if (!schema.variadic() && inputs.size() > schema.tensors.size())
      fail(cat("takes at most ", schema.tensors.size(), " tensors, got ", inputs.size()));
    for (std::size_t i = 0; i < schema.tensors.size(); ++i)
      if ((i >= inputs.size() || inputs[i] == nullptr) && !schema.tensors[i].optional &&
          !schema.tensors[i].list)
        fail(cat("needs the tensor '", schema.tensors[i].name, "'"));
    for (const auto& [key, value] : attrs)
      if (schema.find_attr(key) == nullptr) fail(cat("has no attribute '", key, "'"));
    for (const Schema::Arg& arg : schema.attrs)
      if (!arg.has_default && !arg.optional && attrs.find(arg.name) == nullptr)
        fail(cat("needs the attribute '", arg.name, "'"));
  }

  std::string_view text_, file_, rest_;
  int line_ = 0;
  Graph graph_;
  std::unordered_map<std::string, Value*> values_;
};

}  // namespace

Graph parse_graph(std::string_view text, std::string_view file) {
  return Reader(text, file).graph();
}

}  // namespace tk
