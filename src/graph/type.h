// The type of a value: element type and symbolic shape. Attributes of nodes.
#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/dtype.h"
#include "base/sym.h"
#include "base/tensor.h"

namespace tk {

using SymDims = std::vector<Sym>;

struct Type {
  DType dtype = DType::f32;
  SymDims shape;

  int rank() const { return static_cast<int>(shape.size()); }
  const Sym& dim(int i) const;  // negative i counts from the end
  Sym numel() const;
  std::string str() const;  // "f32[B, S, 64]"
  friend bool operator==(const Type&, const Type&) = default;
};

Dims concrete(const SymDims& shape, const SymEnv& env);
std::string str(const SymDims& shape);  // "[B, S, 64]"

using Attr = std::variant<bool, Sym, double, std::string, DType, SymDims, std::vector<double>>;
bool operator==(const Attr& a, const Attr& b);
std::string str(const Attr& attr);  // as the text form has it
// A literal of the text form: true, 3, B*S, 1e-06, "text", f32, [1, S], [0.5, 1.0]. Throws TK0310.
Attr parse_attr(std::string_view text);

// Named attributes in insertion order; few, so a flat list.
class Attrs {
 public:
  Attrs() = default;
  Attrs(std::initializer_list<std::pair<std::string, Attr>> items) : items_(items) {}
  const Attr* find(std::string_view name) const;
  void set(std::string_view name, Attr value);
  void erase(std::string_view name);
  auto begin() const { return items_.begin(); }
  auto end() const { return items_.end(); }
  bool empty() const { return items_.empty(); }
  friend bool operator==(const Attrs& a, const Attrs& b);  // whatever the order

 private:
  std::vector<std::pair<std::string, Attr>> items_;
};

}  // namespace tk
