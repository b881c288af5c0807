#include "timeline/csv.h"

#include <algorithm>
#include <cstring>

#include "base/error.h"
#include "timeline/csv_scan.h"
#include "timeline/decimal.h"
#include "timeline/strings.h"

namespace tk {

std::uint64_t skip_bom(const Buffer& file) {
  return file.size >= 3 && std::memcmp(file.data.get(), "\xEF\xBB\xBF", 3) == 0 ? 3 : 0;
}

bool scan_csv(const Buffer& file, std::uint64_t offset,
              const std::function<void(const CsvRow&)>& row, std::uint64_t* damage,
              std::size_t wanted) {
  constexpr std::uint64_t block = 64 << 10;
  const char* text = file.data.get();
  CsvScanState state;
  std::vector<std::uint64_t> ends(block + 64);
  std::vector<CsvScanRow> rows(block + 64);
  std::size_t n = 0;  // separators of the row that is not complete yet
  CsvRow current{text, offset, offset, nullptr, 0, true};
  for (std::uint64_t at = offset; at < file.size;) {
    const std::uint64_t to = std::min<std::uint64_t>(file.size, at + block);
    if (const void* zero = std::memchr(text + at, 0, to - at)) {
      if (damage) *damage = static_cast<std::uint64_t>(static_cast<const char*>(zero) - text);
      return false;
    }
    if (ends.size() < n + (to - at)) ends.resize(n + (to - at));
    CsvScanOut out{ends.data(), n, rows.data(), 0};
    csv_separators(text, at, to, wanted, state, out);
    at = to;
    std::size_t first = 0;  // of the current row
    for (std::size_t i = 0; i < out.n_rows; ++i) {
      current.ends = ends.data() + first;
      first = rows[i].ends;
      current.end = ends[first - 1];
      current.cells = rows[i].cells;
      const std::uint64_t length = current.end - current.begin;
      if (length > 1 || (length == 1 && text[current.begin] != '\r')) row(current);
      current.begin = current.end + 1;
    }
    n = out.n_ends - first;
    std::copy(ends.begin() + static_cast<std::ptrdiff_t>(first),
              ends.begin() + static_cast<std::ptrdiff_t>(out.n_ends), ends.begin());
  }
  if (state.inside) {
    if (damage) *damage = current.begin;
    return false;
  }
  const bool only_cr = file.size - current.begin == 1 && text[current.begin] == '\r';
  if (current.begin < file.size && !only_cr) {
    if (ends.size() < n + 1) ends.resize(n + 1);
    ends[n] = file.size;
    current.ends = ends.data();
    current.end = file.size;
    current.cells = state.cells + 1;
    current.complete = false;
    row(current);
  }
  return true;
}

std::string_view csv_damage(const Buffer& file, std::uint64_t offset) {
  return file.data[offset] == '\0' ? "zero bytes stand here"
                                   : "a quote opened here is never closed";
}

bool first_csv_row(const Buffer& file, std::uint64_t offset, CsvRow& row,
                   std::vector<std::uint64_t>& ends) {
  const char* text = file.data.get();
  row = {text, offset, offset, nullptr, 0, true};
  ends.clear();
  bool inside = false;
  for (std::uint64_t i = offset; i <= file.size; ++i) {
    const bool end_of_file = i == file.size;
    if (end_of_file && inside) return false;
    const char c = end_of_file ? '\n' : text[i];
    if (c == '"') inside = !inside;
    if (inside || (c != ',' && c != '\n')) continue;
    ends.push_back(i);
    if (c == ',') continue;
    const std::uint64_t length = i - row.begin;
    if (length > 1 || (length == 1 && text[row.begin] != '\r')) {
      row.ends = ends.data();
      row.cells = ends.size();
      row.end = i;
      row.complete = !end_of_file;
      return true;
    }
    ends.clear();
    row.begin = i + 1;
  }
  return false;
}

std::string_view unquoted(std::string_view cell, std::string& scratch) {
  while (!cell.empty() && (cell.back() == ' ' || cell.back() == '\t')) cell.remove_suffix(1);
  while (!cell.empty() && (cell.front() == ' ' || cell.front() == '\t')) cell.remove_prefix(1);
  if (cell.size() < 2 || cell.front() != '"' || cell.back() != '"') return cell;
  cell = cell.substr(1, cell.size() - 2);
  if (cell.find('"') == cell.npos) return cell;
  // Quotes within quotes, as shapes are written: """1,1024;1024""" is "1,1024;1024".
  if (cell.size() >= 4 && cell.starts_with("\"\"") && cell.ends_with("\"\"") &&
      cell.substr(2, cell.size() - 4).find('"') == cell.npos)
    return cell.substr(1, cell.size() - 2);
  scratch.clear();
  for (std::size_t i = 0; i < cell.size(); ++i) {
    scratch += cell[i];
    if (cell[i] == '"' && i + 1 < cell.size() && cell[i + 1] == '"') ++i;
  }
  return scratch;
}

std::size_t line_of(const Buffer& file, std::uint64_t offset) {
  const char* text = file.data.get();
  return 1 + static_cast<std::size_t>(
                 std::count(text, text + std::min<std::uint64_t>(offset, file.size), '\n'));
}

int CsvTable::column(std::string_view name) const {
  const auto it = std::find(header.begin(), header.end(), name);
  return it == header.end() ? -1 : static_cast<int>(it - header.begin());
}

CsvTable CsvTable::read(const std::filesystem::path& path) {
  const Buffer file = read_whole(path, std::uint64_t{512} << 20);
  CsvTable table;
  std::string scratch;
  std::uint64_t damage = 0;
  const bool whole = scan_csv(
      file, skip_bom(file),
      [&](const CsvRow& row) {
        if (!table.header.empty() && row.cells != table.header.size()) {
          ++table.bad_rows;
          return;
        }
        std::vector<std::string> cells(row.cells);
        for (std::size_t i = 0; i < row.cells; ++i)
          cells[i] = valid_utf8(trimmed(unquoted(row.cell(i), scratch)));
        if (table.header.empty())
          table.header = std::move(cells);
        else
          table.rows.push_back(std::move(cells));
      },
      &damage);
  if (!whole)
    throw UserError("TK0904", cat(csv_damage(file, damage), "; the file is cut or damaged"))
        .at(path.string(), static_cast<int>(line_of(file, damage)));
  if (table.header.empty()) throw UserError("TK0904", "the file is empty").at(path.string());
  return table;
}

}  // namespace tk
