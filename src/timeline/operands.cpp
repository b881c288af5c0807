#include "timeline/operands.h"

#include <algorithm>
#include <cmath>

#include "timeline/decimal.h"

namespace tk {
namespace {

double bytes_of(std::string_view type) {
  struct Size {
    std::string_view name;
    double bytes;
  };
  constexpr Size sizes[] = {{"DT_BF16", 2}, {"BF16", 2},   {"FLOAT16", 2}, {"FLOAT", 4},
                            {"INT8", 1},    {"UINT8", 1},  {"INT16", 2},   {"INT32", 4},
                            {"INT64", 8},   {"UINT32", 4}, {"UINT64", 8},  {"BOOL", 1},
                            {"DOUBLE", 8},  {"INT4", 0.5}};
  for (const Size& s : sizes)
    if (s.name == type) return s.bytes;
  return 0;
}

}  // namespace

bool operands_of(std::string_view shapes, std::string_view types, std::vector<ShapeOperand>& out) {
  out.clear();
  if (shapes.empty()) return false;
  for (;;) {
    const std::size_t at = shapes.find(';'), type_at = types.find(';');
    std::string_view shape = shapes.substr(0, at);
    ShapeOperand o;
    const double size = bytes_of(trimmed(types.substr(0, type_at)));
    if (size == 0) return false;
    while (!shape.empty()) {
      const std::size_t comma = shape.find(',');
      const auto n = decimal_int(shape.substr(0, comma));
      if (!n || *n < 0 || *n > (std::int64_t{1} << 40)) return false;
      o.dims.push_back(*n);
      o.elements *= static_cast<double>(*n);
      shape = comma == shape.npos ? std::string_view() : shape.substr(comma + 1);
    }
    o.bytes = o.elements * size;
    out.push_back(std::move(o));
    if (at == shapes.npos) return type_at == types.npos;
    if (type_at == types.npos) return false;
    shapes.remove_prefix(at + 1);
    types.remove_prefix(type_at + 1);
  }
}

double sum_bytes(const std::vector<ShapeOperand>& v) {
  double sum = 0;
  for (const ShapeOperand& o : v) sum += o.bytes;
  return sum;
}

double batch_of(const std::vector<ShapeOperand>& in, const ShapeOperand& out) {
  const ShapeOperand &a = in[0], &b = in[1];
  if (a.dims.size() != 3 || b.dims.size() != 3 || out.dims.size() != 3) return 1;
  // Which axis is the batch differs by operator; it is one that all three have.
  double batch = 1;
  for (const std::int64_t d : b.dims)
    if (std::count(a.dims.begin(), a.dims.end(), d) &&
        std::count(out.dims.begin(), out.dims.end(), d))
      batch = std::max(batch, static_cast<double>(d));
  return batch > 1 ? batch : 0;
}

double operations_of(const std::vector<ShapeOperand>& in, const ShapeOperand& out) {
  if (in.size() < 2) return 0;
  const ShapeOperand &a = in[0], &b = in[1];
  if (a.elements <= 0 || b.elements <= 0 || out.elements <= 0) return 0;
  const double batch = batch_of(in, out);
  return batch == 0 ? 0 : 2 * std::sqrt(a.elements * b.elements * out.elements / batch);
}

}  // namespace tk
