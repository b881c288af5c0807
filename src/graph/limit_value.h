// Values of the language of limits: what an expression or a part of one is.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "graph/graph.h"

namespace tk::limit {

struct None {};
struct Unknown {};
struct TensorRef {
  const Type* type;
  const TensorView* data;  // null: contents are not known
};
struct Val;
using List = std::vector<Val>;
struct Val {
  std::variant<None, Unknown, bool, Sym, double, std::string, DType, std::shared_ptr<List>,
               TensorRef>
      v;
  template <typename T>
  const T* get() const {
    return std::get_if<T>(&v);
  }
  bool unknown() const { return std::holds_alternative<Unknown>(v); }
  bool none() const { return std::holds_alternative<None>(v); }
};

Val list_of(List items);
Val integer(std::int64_t i);
Val of_attr(const Attr* attr);
std::string text_of(const Val& v);
std::optional<DType> dtype_named(std::string_view name);
bool is_fact(std::string_view name);
Val contents(const TensorRef& t);
std::shared_ptr<List> items_of(const Val& v);
std::optional<double> number(const Val& v);
std::optional<int> order(const Val& a, const Val& b);
std::optional<bool> equal(const Val& a, const Val& b);

}  // namespace tk::limit
