#include "import/safetensors_dtype.h"

#include "base/error.h"

namespace tk {
namespace {

struct Name {
  DType dtype;
  std::string_view name;
};
constexpr Name names[] = {{DType::f64, "F64"},      {DType::f32, "F32"}, {DType::f16, "F16"},
                          {DType::bf16, "BF16"},    {DType::i64, "I64"}, {DType::i32, "I32"},
                          {DType::i16, "I16"},      {DType::i8, "I8"},   {DType::u8, "U8"},
                          {DType::boolean, "BOOL"}, {DType::c64, "C64"}};

}  // namespace

bool dtype_of_safetensors(std::string_view name, DType* out) {
  for (const Name& known : names)
    if (known.name == name) {
      *out = known.dtype;
      return true;
    }
  return false;
}

std::string_view safetensors_name(DType dtype) {
  for (const Name& known : names)
    if (known.dtype == dtype) return known.name;
  TK_CHECK(false, name_of(dtype));
}

std::string safetensors_dtypes() {
  std::string out;
  for (const Name& known : names) out += cat(out.empty() ? "" : ", ", known.name);
  return out;
}

}  // namespace tk
