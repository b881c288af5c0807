// Element types, with PyTorch's names, and conversions of the 16-bit floats.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tk {

enum class DType : std::uint8_t { f32, f16, bf16, f64, i64, i32, i16, i8, u8, boolean, c64 };
constexpr int n_dtypes = 11;

std::size_t size_of(DType dtype);                     // bytes per element
std::string_view name_of(DType dtype);                // "f32", "bf16", "bool", ...
bool is_float(DType dtype);                           // f32, f16, bf16, f64
bool is_integral(DType dtype);                        // including bool
bool parse_dtype(std::string_view name, DType* out);  // the names of name_of
DType promote(DType a, DType b);                      // torch.promote_types

// bf16 and f16 travel as their bits; arithmetic is in f32, rounding to nearest even.
struct bf16 {
  std::uint16_t bits;
};
struct f16 {
  std::uint16_t bits;
};

inline float to_float(bf16 x) {
  return std::bit_cast<float>(static_cast<std::uint32_t>(x.bits) << 16);
}
inline bf16 to_bf16(float x) {
  auto u = std::bit_cast<std::uint32_t>(x);
  if ((u & 0x7fffffffU) > 0x7f800000U) return {static_cast<std::uint16_t>((u >> 16) | 0x40U)};
  u += 0x7fffU + ((u >> 16) & 1U);
  return {static_cast<std::uint16_t>(u >> 16)};
}
float to_float(f16 x);
f16 to_f16(float x);

}  // namespace tk
