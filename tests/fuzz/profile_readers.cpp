#include "profile_readers.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <nlohmann/json.hpp>
#include <string>
#include <vector>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/decimal.h"
#include "timeline/kernel_csv.h"
#include "timeline/trace_json.h"

namespace tk::fuzz {
namespace {

namespace fs = std::filesystem;

// The readers take files.
class File {
 public:
  explicit File(std::string_view text)
      : path(fs::temp_directory_path() / cat("tk_fuzz_profile_", getpid())) {
    std::ofstream(path, std::ios::binary) << text;
  }
  ~File() {
    std::error_code ignored;
    fs::remove(path, ignored);
  }
  const fs::path path;
};

// Rows that are not empty, each as its cells with their quotes.
std::vector<std::vector<std::string>> rows_of(std::string_view text) {
  if (text.starts_with("\xEF\xBB\xBF")) text.remove_prefix(3);
  std::vector<std::vector<std::string>> rows;
  std::vector<std::string> row(1);
  bool inside = false, any = false;
  auto close = [&] {
    if (!row.back().empty() && row.back().back() == '\r') row.back().pop_back();
    if (row.size() > 1 || !row[0].empty()) rows.push_back(row);
    row.assign(1, {});
    any = false;
  };
  for (const char c : text) {
    if (c == '"') inside = !inside;
    any = true;
    if (c == '\n' && !inside)
      close();
    else if (c == ',' && !inside)
      row.emplace_back();
    else
      row.back() += c;
  }
  if (any && !inside) close();
  return rows;
}

}  // namespace

void read_kernel_table(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const File file(text);
  Timeline t;
  read_kernel_csv(file.path, {false}, t);
  const auto rows = rows_of(text);
  TK_CHECK(rows.size() == t.rows_in_file + 1, rows.size(), " rows, ", t.rows_in_file, " were read");
  const int start = t.table->column("Start Time(us)"), duration = t.table->column("Duration(us)"),
            name = t.table->column("Name");
  std::string scratch;
  auto value = [&](const Kernel& k, int column) {
    return trimmed(unquoted(rows.at(k.row + 1).at(static_cast<std::size_t>(column)), scratch));
  };
  for (const Kernel& k : t.kernels) {
    TK_CHECK(rows.at(k.row + 1).size() == rows[0].size(), "row ", k.row);
    TK_CHECK(decimal_us_to_ns(value(k, start)) == t.base_ns + k.start, "start of row ", k.row);
    TK_CHECK(decimal_us_to_ns(value(k, duration)) == k.duration, "duration of row ", k.row);
    const std::string expected = is_missing(value(k, name)) ? "" : valid_utf8(value(k, name));
    TK_CHECK(t.text(k.name) == expected, "name of row ", k.row);
  }
}

void read_trace_file(std::span<const std::byte> bytes) {
  const std::string_view text(reinterpret_cast<const char*>(bytes.data()), bytes.size());
  const File file(text);
  const TraceRead one = read_trace(file.path, {false, 0, 1});
  const TraceRead two = read_trace(file.path, {false, 0, 2});
  TK_CHECK(
      one.trace.events == two.trace.events && one.trace.device.size() == two.trace.device.size(),
      "one thread and two differ");
  const auto json = nlohmann::json::parse(text, nullptr, false);
  if (json.is_array())
    TK_CHECK(json.size() == one.trace.events, json.size(), " events, ", one.trace.events,
             " were read");
}

}  // namespace tk::fuzz
