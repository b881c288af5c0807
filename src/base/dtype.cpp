#include "base/dtype.h"

#include <array>

#include "base/error.h"

namespace tk {
namespace {

struct Info {
  std::string_view name;
  std::size_t size;
};
constexpr std::array<Info, n_dtypes> infos{{{"f32", 4},
                                            {"f16", 2},
                                            {"bf16", 2},
                                            {"f64", 8},
                                            {"i64", 8},
                                            {"i32", 4},
                                            {"i16", 2},
                                            {"i8", 1},
                                            {"u8", 1},
                                            {"bool", 1},
                                            {"c64", 8}}};
const Info& info(DType dtype) { return infos.at(static_cast<std::size_t>(dtype)); }

// Rank within a category, as torch.promote_types orders them.
int category(DType d) {
  if (d == DType::boolean) return 0;
  if (is_integral(d)) return 1;
  return d == DType::c64 ? 3 : 2;
}

}  // namespace

std::size_t size_of(DType dtype) { return info(dtype).size; }
std::string_view name_of(DType dtype) { return info(dtype).name; }

bool is_float(DType d) {
  return d == DType::f32 || d == DType::f16 || d == DType::bf16 || d == DType::f64;
}
bool is_integral(DType d) { return !is_float(d) && d != DType::c64; }

bool parse_dtype(std::string_view name, DType* out) {
  for (int i = 0; i < n_dtypes; ++i)
    if (infos[static_cast<std::size_t>(i)].name == name) {
      *out = static_cast<DType>(i);
      return true;
    }
  return false;
}

DType promote(DType a, DType b) {
  if (a == b) return a;
  if (category(a) != category(b)) return category(a) > category(b) ? a : b;
  if (category(a) == 2) {
    if (a == DType::f64 || b == DType::f64) return DType::f64;
    return DType::f32;  // f16 with bf16, or either with f32
  }
  // u8 with i8 is i16; otherwise the wider wins.
  if (size_of(a) == size_of(b)) return DType::i16;
  DType wide = size_of(a) > size_of(b) ? a : b;
  return wide;
}

float to_float(f16 x) {
  const std::uint32_t sign = (x.bits & 0x8000U) << 16;
  std::uint32_t exponent = (x.bits >> 10) & 0x1fU;
  std::uint32_t mantissa = x.bits & 0x3ffU;
  if (exponent == 0x1f) return std::bit_cast<float>(sign | 0x7f800000U | (mantissa << 13));
  if (exponent == 0) {
    if (mantissa == 0) return std::bit_cast<float>(sign);
    exponent = 1;
    while ((mantissa & 0x400U) == 0) {
      mantissa <<= 1;
      --exponent;
    }
    mantissa &= 0x3ffU;
  }
  return std::bit_cast<float>(sign | ((exponent + 112) << 23) | (mantissa << 13));
}

f16 to_f16(float value) {
  const auto u = std::bit_cast<std::uint32_t>(value);
  const auto sign = static_cast<std::uint16_t>((u >> 16) & 0x8000U);
  const std::uint32_t a = u & 0x7fffffffU;
  if (a > 0x7f800000U) return {static_cast<std::uint16_t>(sign | 0x7e00U)};
  if (a >= 0x47800000U) return {static_cast<std::uint16_t>(sign | 0x7c00U)};
  if (a < 0x38800000U) {  // subnormal or zero: add a magic number so that the hardware rounds
    const float magic = std::bit_cast<float>(0x3f000000U);
    const float sum = std::bit_cast<float>(a) + magic;
    return {static_cast<std::uint16_t>(sign | (std::bit_cast<std::uint32_t>(sum) - 0x3f000000U))};
  }
  const std::uint32_t rounded = a + 0xfffU + ((a >> 13) & 1U) - (112U << 23);
  return {static_cast<std::uint16_t>(sign | (rounded >> 13))};
}

}  // namespace tk
