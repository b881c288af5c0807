#include "timeline/csv.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>

#include "timeline/decimal.h"

namespace tk {
namespace {

Buffer buffer_of(std::string_view text) {
  Buffer b{allocate_bytes(text.size() + buffer_padding), text.size()};
  std::memcpy(b.data.get(), text.data(), text.size());
  std::memset(b.data.get() + text.size(), 0, buffer_padding);
  return b;
}

std::vector<std::vector<std::string>> rows_of(std::string_view text, bool* closed = nullptr) {
  const Buffer b = buffer_of(text);
  std::vector<std::vector<std::string>> out;
  std::string scratch;
  const bool ok = scan_csv(b, skip_bom(b), [&](const CsvRow& row) {
    out.emplace_back();
    for (std::size_t i = 0; i < row.cells; ++i)
      out.back().emplace_back(unquoted(row.cell(i), scratch));
  });
  if (closed) *closed = ok;
  return out;
}

TEST(Csv, QuotesCommasLinesAndDoubledQuotes) {
  const auto rows = rows_of("a,\"b,c\",\"d\ne\",\"\"\"1,2;3\"\"\"\n1,2,3,4\n");
  ASSERT_EQ(rows.size(), 2u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"a", "b,c", "d\ne", "\"1,2;3\""}));
  EXPECT_EQ(rows[1], (std::vector<std::string>{"1", "2", "3", "4"}));
}

TEST(Csv, BomCrlfEmptyLinesAndNoLineEnd) {
  const auto rows = rows_of("\xEF\xBB\xBFx,y\r\n\r\n1,2\r\n\n3,4");
  ASSERT_EQ(rows.size(), 3u);
  EXPECT_EQ(rows[0], (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(rows[2], (std::vector<std::string>{"3", "4"}));
}

TEST(Csv, OpenQuoteIsTold) {
  bool closed = true;
  EXPECT_EQ(rows_of("a,b\n1,\"2\n3,4\n", &closed).size(), 1u);
  EXPECT_FALSE(closed);
}

// A plain state machine, byte by byte, as the judge of the vector code.
std::vector<std::vector<std::string>> slow_rows(std::string_view text) {
  std::vector<std::vector<std::string>> out;
  std::vector<std::string> row(1);
  bool inside = false, any = false;
  auto end_row = [&] {
    if (!row.back().empty() && row.back().back() == '\r') row.back().pop_back();
    if (row.size() > 1 || !row[0].empty()) out.push_back(row);
    row.assign(1, "");
    any = false;
  };
  for (char c : text) {
    any = true;
    if (c == '"') inside = !inside;
    if (!inside && c == ',')
      row.emplace_back();
    else if (!inside && c == '\n')
      end_row();
    else
      row.back() += c;
  }
  if (any && !inside) end_row();
  return out;
}

TEST(Csv, EqualsTheSlowReaderOnRandomText) {
  std::mt19937 random(7);
  for (int round = 0; round < 300; ++round) {
    std::string text;
    const int n = static_cast<int>(random() % 700);
    for (int i = 0; i < n; ++i) text += "aaab,,\n\"\"\r"[random() % 10];
    const Buffer b = buffer_of(text);
    std::vector<std::vector<std::string>> fast;
    scan_csv(b, 0, [&](const CsvRow& row) {
      fast.emplace_back();
      for (std::size_t i = 0; i < row.cells; ++i) fast.back().emplace_back(row.cell(i));
    });
    EXPECT_EQ(fast, slow_rows(text)) << "round " << round;
  }
}

TEST(Decimal, ExactNanoseconds) {  // BD-13
  EXPECT_EQ(decimal_us_to_ns("1764246877073569.640\t"), 1764246877073569640);
  EXPECT_EQ(*decimal_us_to_ns("1764246877073569.660") - *decimal_us_to_ns("1764246877073569.640"),
            20);
  EXPECT_EQ(decimal_us_to_ns("0.0005"), 1);
  EXPECT_EQ(decimal_us_to_ns("0.0004999"), 0);
  EXPECT_EQ(decimal_us_to_ns("12"), 12000);
  EXPECT_EQ(decimal_us_to_ns("1.5e3"), 1500000);
  EXPECT_EQ(decimal_us_to_ns("-2.5"), -2500);
  EXPECT_EQ(decimal_us_to_ns("0.60003125"), 600);
  for (const char* bad :
       {"", "N/A", ".", "1.2.3", "12x", "1e", "99999999999999999999", "nan", "inf"})
    EXPECT_FALSE(decimal_us_to_ns(bad)) << bad;
}

TEST(Decimal, MissingIsNotZero) {  // KD-3
  for (const char* t : {"", "N/A", "na", "None", "NULL", " \t"}) EXPECT_TRUE(is_missing(t)) << t;
  EXPECT_FALSE(is_missing("0"));
}

}  // namespace
}  // namespace tk
