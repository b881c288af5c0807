#include "timeline/artifacts.h"

#include <fmt/format.h>

#include <algorithm>
#include <fstream>
#include <map>
#include <nlohmann/json.hpp>

#include "base/error.h"
#include "timeline/decimal.h"

namespace tk {

using nlohmann::json;

void write_output(const std::filesystem::path& path, std::string_view text) {
  std::filesystem::path part = path;
  part += ".part";
  std::ofstream out(part, std::ios::binary | std::ios::trunc);
  out << text;
  out.close();
  std::error_code failed;
  if (out) std::filesystem::rename(part, path, failed);
  if (out && !failed) return;
  std::error_code ignored;
  std::filesystem::remove(part, ignored);
  throw UserError("TK0103", cat("cannot write ", path.string()))
      .help("check the permissions and the space of the disk");
}

std::string json_text(const json& value) {
  return value.dump(1, ' ', false, json::error_handler_t::replace) + "\n";
}

void write_json(const std::filesystem::path& path, const json& value) {
  std::filesystem::create_directories(path.parent_path());
  write_output(path, json_text(value));
}

void append_json_text(std::string& out, std::string_view text) {
  out += '"';
  for (char c : text) {
    switch (c) {
      case '"':
        out += "\\\"";
        break;
      case '\\':
        out += "\\\\";
        break;
      case '\n':
        out += "\\n";
        break;
      case '\r':
        out += "\\r";
        break;
      case '\t':
        out += "\\t";
        break;
      default:
        if (static_cast<unsigned char>(c) < 0x20)
          out += fmt::format("\\u{:04x}", static_cast<unsigned char>(c));
        else
          out += c;
    }
  }
  out += '"';
}

namespace {

void head(std::string& out, const Timeline& t, const StepOps& ops, const StepSummary& step) {
  std::map<std::string_view, std::size_t> types;
  Ns sum = 0;
  for (std::uint32_t i : ops.ops) {
    ++types[t.text(t.kernels[i].type)];
    sum += t.kernels[i].duration;
  }
  out += "{\"step_id\": ";
  append_json_text(out, step.name);
  out += cat(", \"total_duration_us\": ", ns_to_us(sum), ", \"kernel_count\": ", ops.size(),
             ", \"kernel_types_count\": ", types.size(), ",\n\"kernel_types\": {");
  bool first = true;
  for (const auto& [type, n] : types) {
    if (!first) out += ", ";
    first = false;
    append_json_text(out, type);
    out += cat(": ", n);
  }
  out +=
      cat("},\n\"communication_filter\": {\"mode\": "
          "\"drop_task_fragments_keep_collective_summary\", \"task_fragments_dropped\": ",
          ops.fragments_dropped, ", \"summary_rows_kept\": ", ops.summaries,
          ", \"duplicate_rows_dropped\": ", ops.duplicates_dropped,
          "},\n\"ai_cpu_dropped\": ", ops.ai_cpu_dropped, ",\n\"base_us\": \"", t.absolute_us(0),
          "\",\n");
}

// "Start Time(us)" -> start_time_us (BD-19).
std::string key_of(std::string_view column) {
  std::string s;
  for (std::size_t i = 0; i < column.size(); ++i) {
    if (column.substr(i).starts_with("(us)")) {
      s += "_us";
      i += 3;
    } else if (column.substr(i).starts_with("(%)")) {
      s += "_pct";
      i += 2;
    } else if (column[i] == ' ') {
      s += '_';
    } else if (column[i] != '(' && column[i] != ')') {
      s += static_cast<char>(std::tolower(static_cast<unsigned char>(column[i])));
    }
  }
  return s;
}

// A number that reads back as it stands: no leading zeros or plus, no more digits than a double.
bool is_json_number(std::string_view text) {
  std::size_t i = !text.empty() && text[0] == '-';
  auto digits = [&] {
    const std::size_t first = i;
    while (i < text.size() && text[i] >= '0' && text[i] <= '9') ++i;
    return i - first;
  };
  const std::size_t first = i, whole = digits();
  if (text.size() >= 18 || whole == 0 || (whole > 1 && text[first] == '0')) return false;
  if (i < text.size() && text[i] == '.' && (++i, digits() == 0)) return false;
  if (i < text.size() && (text[i] == 'e' || text[i] == 'E')) {
    ++i;
    if (i < text.size() && (text[i] == '-' || text[i] == '+')) ++i;
    if (digits() == 0) return false;
  }
  return i == text.size();
}

// BD-90. What is not told is null.
void append_theory(std::string& out, const Kernel& k, const KernelTheory& x) {
  auto number = [&](const char* key, double v) {
    out += cat(", \"", key, "\": ");
    if (v < 0)
      out += "null";
    else
      fmt::format_to(std::back_inserter(out), "{}", v);
  };
  number("theoretical_operator_time_us", x.us);
  number("theoretical_compute_time_us", x.compute_us);
  number("theoretical_memory_time_us", x.memory_us);
  number("fixed_overhead_us", x.overhead_us);
  number("duration_over_theoretical", x.us > 0 ? static_cast<double>(k.duration) / 1e3 / x.us : -1);
  out += cat(", \"bound_type\": ", x.bound.empty() ? "null" : cat('"', x.bound, '"'),
             ", \"theory_supported\": ", x.supported() ? "true" : "false");
}

}  // namespace

std::string raw_ops_text(const Timeline& t, const StepOps& ops, const StepSummary& step) {
  std::string out;
  out.reserve(ops.size() * 360 + 4096);
  head(out, t, ops, step);
  out += "\"operators\": [";
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    fmt::format_to(std::back_inserter(out),
                   "{}\n{{\"index\": {}, \"org_index\": {}, \"original_name\": ", i ? "," : "", i,
                   k.row);
    append_json_text(out, t.text(k.name));
    out += ", \"normalized_name\": ";
    append_json_text(out, t.text(k.type));
    // Start is exact in us from base_us; absolute times do not fit a double.
    fmt::format_to(std::back_inserter(out),
                   ", \"duration_us\": {}, \"start_time_us\": {}, \"stream_id\": ",
                   ns_to_us(k.duration), ns_to_us(k.start));
    append_json_text(out, ops.stream_name(ops.streams[i]));
    out += ", \"task_type\": ";
    append_json_text(out, t.text(k.core_text));
    out += ", \"accelerator_core\": ";
    append_json_text(out, k.core_text ? t.text(k.core_text) : std::string_view());
    out += ", \"input_shapes\": ";
    append_json_text(out, t.text(k.in_shapes));
    out += ", \"output_shapes\": ";
    append_json_text(out, t.text(k.out_shapes));
    out += '}';
  }
  out += "\n]}\n";
  return out;
}

std::string raw_ops_details_text(const Timeline& t, const StepOps& ops, const StepSummary& step,
                                 const Theory& theory) {
  std::string out;
  head(out, t, ops, step);
  if (!theory.kind.empty())
    out +=
        cat("\"theoretical_perf_source\": ",
            theory_source_json(theory).dump(-1, ' ', false, json::error_handler_t::replace), ",\n");
  if (!t.table) {
    out += "\"csv_columns\": [], \"operators\": []}\n";
    return out;
  }
  out.reserve(ops.size() * 1400 + 8192);
  std::vector<std::string> keys;
  out += "\"csv_columns\": [";
  for (std::size_t c = 0; c < t.table->columns.size(); ++c) {
    if (c) out += ", ";
    append_json_text(out, t.table->columns[c]);
    std::string key;
    append_json_text(key, key_of(t.table->columns[c]));
    keys.push_back(key);
  }
  const int start = t.table->column("Start Time(us)"), duration = t.table->column("Duration(us)");
  out += "],\n\"operators\": [";
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    fmt::format_to(std::back_inserter(out),
                   "{}\n{{\"index\": {}, \"org_index\": {}, \"normalized_name\": ", i ? "," : "", i,
                   k.row);
    append_json_text(out, t.text(k.type));
    const std::vector<std::string> cells = t.table->cells(k.row);
    for (std::size_t c = 0; c < cells.size(); ++c) {
      out += ", ";
      out += keys[c];
      out += ": ";
      const int column = static_cast<int>(c);
      if (column == start)
        out += ns_to_us(k.start);
      else if (column == duration)
        out += ns_to_us(k.duration);
      else if (is_missing(cells[c]))
        out += "null";
      else if (is_json_number(cells[c]))
        out += cells[c];
      else
        append_json_text(out, cells[c]);
    }
    if (start >= 0) {
      out += ", \"start_time_us_raw\": ";
      append_json_text(out, cells[static_cast<std::size_t>(start)]);
    }
    if (duration >= 0) {
      out += ", \"duration_us_raw\": ";
      append_json_text(out, cells[static_cast<std::size_t>(duration)]);
    }
    if (!theory.kind.empty()) append_theory(out, k, theory.ops[i]);
    out += '}';
  }
  out += "\n]}\n";
  return out;
}

}  // namespace tk
