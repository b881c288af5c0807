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

void Separators(const char* text, std::uint64_t from, std::uint64_t to, std::uint64_t wanted,
                CsvScanState& state, CsvScanOut& out) {
  const hn::CappedTag<std::uint8_t, 64> d;
  const auto comma = hn::Set(d, ','), line = hn::Set(d, '\n'), quote = hn::Set(d, '"');
  std::uint64_t* ends = out.ends + out.n_ends;
  CsvScanRow* rows = out.rows + out.n_rows;
  std::uint64_t cells = state.cells;
  for (std::uint64_t at = from; at < to; at += 64) {
    const auto* p = reinterpret_cast<const std::uint8_t*>(text) + at;
    const std::uint64_t quotes = mask64(d, p, quote);
    const std::uint64_t lines = mask64(d, p, line);
    std::uint64_t found = mask64(d, p, comma) | lines;
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
      std::uint64_t bit;
      if (cells < wanted) {
        bit = found & (~found + 1);
        found ^= bit;
        ++cells;
      } else {  // only counted, up to the line end
        const std::uint64_t last = found & lines;
        if (last == 0) {
          cells += hwy::PopCount(found);
          break;
        }
        bit = last & (~last + 1);
        cells += hwy::PopCount(found & (bit - 1)) + 1;
        found &= ~(bit | (bit - 1));
      }
      *ends++ = at + hwy::Num0BitsBelowLS1Bit_Nonzero64(bit);
      if (bit & lines) {
        *rows++ = {static_cast<std::size_t>(ends - out.ends), cells};
        cells = 0;
      }
    }
  }
  state.cells = cells;
  out.n_ends = static_cast<std::size_t>(ends - out.ends);
  out.n_rows = static_cast<std::size_t>(rows - out.rows);
}

}  // namespace HWY_NAMESPACE
}  // namespace tk
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk {
HWY_EXPORT(Separators);
void csv_separators(const char* text, std::uint64_t from, std::uint64_t to, std::uint64_t wanted,
                    CsvScanState& state, CsvScanOut& out) {
  HWY_DYNAMIC_DISPATCH(Separators)(text, from, to, wanted, state, out);
}
}  // namespace tk
#endif
