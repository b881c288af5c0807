// The part of the CSV reader that is compiled once per instruction set.
#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "timeline/csv_scan.cpp"
#include "timeline/csv_scan.h"

#include <hwy/foreach_target.h>
#include <hwy/highway.h>

HWY_BEFORE_NAMESPACE();
namespace tk {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Bit i of the result: byte i of the 64 at `p` equals what.
template <class D, class V>
HWY_INLINE std::uint64_t mask64(D d, const std::uint8_t* p, V what) {
  constexpr std::size_t n = hn::MaxLanes(D());
  std::uint64_t mask = 0;
  for (std::size_t i = 0; i < 64; i += n) {
    std::uint8_t bits[8] = {};
    hn::StoreMaskBits(d, hn::Eq(hn::LoadU(d, p + i), what), bits);
    std::uint64_t part;
    hwy::CopyBytes<8>(bits, &part);
    mask |= part << (i % 64);
  }
  return mask;
}

std::size_t Separators(const char* text, std::uint64_t from, std::uint64_t to, CsvScanState& state,
                       std::uint64_t* out) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const auto comma = hn::Set(d, ','), line = hn::Set(d, '\n'), quote = hn::Set(d, '"');
  std::size_t n = 0;
  for (std::uint64_t at = from; at < to; at += 64) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(text) + at;
    const std::uint64_t quotes = mask64(d, p, quote);
    std::uint64_t found = mask64(d, p, comma) | mask64(d, p, line);
    if (quotes | state.inside) {
      std::uint64_t in = quotes;  // prefix xor: 1 from an opening quote up to its closing one
      in ^= in << 1;
      in ^= in << 2;
      in ^= in << 4;
      in ^= in << 8;
      in ^= in << 16;
      in ^= in << 32;
      in ^= state.inside;
      state.inside = static_cast<std::uint64_t>(static_cast<std::int64_t>(in) >> 63);
      found &= ~in;
    }
    if (to - at < 64) found &= (std::uint64_t{1} << (to - at)) - 1;
    while (found) {
      out[n++] = at + static_cast<std::uint64_t>(__builtin_ctzll(found));
      found &= found - 1;
    }
  }
  return n;
}

}  // namespace HWY_NAMESPACE
}  // namespace tk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk {
HWY_EXPORT(Separators);
std::size_t csv_separators(const char* text, std::uint64_t from, std::uint64_t to,
                           CsvScanState& state, std::uint64_t* out) {
  return HWY_DYNAMIC_DISPATCH(Separators)(text, from, to, state, out);
}
}  // namespace tk
#endif
