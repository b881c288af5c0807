// Numbers as profilers write them: decimal microseconds with three digits, a TAB behind, N/A where
// nothing was collected.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

namespace tk {

// Without blanks, TABs and line ends around it, and without one pair of double quotes.
std::string_view trimmed(std::string_view text);

// N/A, NA, NONE, NULL and the empty cell (KD-3): not collected, which is not 0.
bool is_missing(std::string_view text);

// Microseconds in decimal (an exponent is allowed) to ns, rounded half up; nothing if the text is
// no number or does not fit. Never through a double: 16 digits of us do not fit one (BD-13).
std::optional<std::int64_t> decimal_us_to_ns(std::string_view text);

std::optional<std::int64_t> decimal_int(std::string_view text);
std::optional<double> decimal_double(std::string_view text);  // finite

// ns as decimal us with three digits: 1234567 -> "1234.567".
std::string ns_to_us(std::int64_t ns);
// For people: "12.3 µs" below a millisecond, "1.234 ms" above (BD-101).
std::string show_ns(double ns);

}  // namespace tk
