// Values of attributes as Python literals.
#include <fmt/format.h>

#include <cmath>

#include "base/error.h"
#include "emit/express.h"

namespace tk::emit {

std::string torch_dtype(DType dtype) {
  switch (dtype) {
    case DType::f32:
      return "torch.float32";
    case DType::f16:
      return "torch.float16";
    case DType::bf16:
      return "torch.bfloat16";
    case DType::f64:
      return "torch.float64";
    case DType::i64:
      return "torch.int64";
    case DType::i32:
      return "torch.int32";
    case DType::i16:
      return "torch.int16";
    case DType::i8:
      return "torch.int8";
    case DType::u8:
      return "torch.uint8";
    case DType::boolean:
      return "torch.bool";
    case DType::c64:
      return "torch.complex64";
  }
  return "torch.float32";
}

std::string python(double value) {
  if (std::isnan(value)) return "float(\"nan\")";
  if (std::isinf(value)) return value > 0 ? "float(\"inf\")" : "float(\"-inf\")";
  std::string text = fmt::format("{}", value);
  if (text.find_first_of(".en") == std::string::npos) text += ".0";
  return text;
}

std::string python(const Attr& attr) {
  if (const bool* b = std::get_if<bool>(&attr)) return *b ? "True" : "False";
  if (const double* d = std::get_if<double>(&attr)) return python(*d);
  if (const DType* t = std::get_if<DType>(&attr)) return torch_dtype(*t);
  if (const auto* list = std::get_if<std::vector<double>>(&attr)) {
    std::string text;
    for (const double d : *list) text += cat(text.empty() ? "" : ", ", python(d));
    return "[" + text + "]";
  }
  return str(attr);
}

}  // namespace tk::emit
