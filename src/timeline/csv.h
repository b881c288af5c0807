// CSV as RFC 4180 has it, scanned 64 bytes a step: commas, line ends (LF, CRLF), quotes, BOM.
#pragma once

#include <cstdint>
#include <filesystem>
#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "timeline/input.h"

namespace tk {

// One row: the text and where its cells end. A cell keeps its quotes; see unquoted().
struct CsvRow {
  const char* text = nullptr;           // of the whole file
  std::uint64_t begin = 0, end = 0;     // offsets of the row and of its line end
  const std::uint64_t* ends = nullptr;  // offset of the separator behind each of the wanted cells
  std::size_t cells = 0;                // of the row, wanted or not
  bool complete = true;  // a line end follows; false only for the last row of a file without one

  std::string_view cell(std::size_t i) const {  // one of the wanted
    const std::uint64_t from = i ? ends[i - 1] + 1 : begin;
    std::uint64_t to = ends[i];
    if (i + 1 == cells && to > from && text[to - 1] == '\r') --to;
    return {text + from, static_cast<std::size_t>(to - from)};
  }
};

// Calls `row` for every row that is not empty, from `offset` on. Returns false, with the place in
// *damage, at a zero byte (no text holds one) and if a quote was left open at the end (it is the
// row's offset then, and the last row is not reported). Of a row
// the first `wanted` cells can be looked at; the others are counted.
bool scan_csv(const Buffer& file, std::uint64_t offset,
              const std::function<void(const CsvRow&)>& row, std::uint64_t* damage = nullptr,
              std::size_t wanted = SIZE_MAX);

// What scan_csv found at that place, in words.
std::string_view csv_damage(const Buffer& file, std::uint64_t offset);

// The first row that is not empty: its cells' ends are put into `ends`. False if there is none.
bool first_csv_row(const Buffer& file, std::uint64_t offset, CsvRow& row,
                   std::vector<std::uint64_t>& ends);

// The offset behind a UTF-8 BOM.
std::uint64_t skip_bom(const Buffer& file);

// The cell's value: outer quotes taken off, doubled quotes made single. `scratch` may be used.
std::string_view unquoted(std::string_view cell, std::string& scratch);

// A small table, whole in memory, for the other files of a profile. Throws TK0904 if the file has
// no header row or an open quote.
struct CsvTable {
  std::vector<std::string> header;
  std::vector<std::vector<std::string>> rows;  // as many cells as the header
  std::size_t bad_rows = 0;                    // of another length, left out

  int column(std::string_view name) const;  // -1: absent
  static CsvTable read(const std::filesystem::path& path);
};

// 1-based line of an offset.
std::size_t line_of(const Buffer& file, std::uint64_t offset);

}  // namespace tk
