#include "timeline/kernel_csv.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <unordered_map>
#include <unordered_set>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/decimal.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

// Other spellings of a column: msprof's op_summary, and older versions.
struct Alias {
  std::string_view seen, ours;
};
constexpr Alias aliases[] = {
    {"Op Name", "Name"},
    {"OP Type", "Type"},
    {"Op Type", "Type"},
    {"Task Type", "Accelerator Core"},
    {"Task Start Time(us)", "Start Time(us)"},
    {"Task Duration(us)", "Duration(us)"},
    {"Task Wait Time(us)", "Wait Time(us)"},
    {"Block Dim", "Block Num"},
    {"Mix Block Dim", "Mix Block Num"},
    {"Device ID", "Device_id"},
    {"Device Id", "Device_id"},
    {"Step ID", "Step Id"},
    {"Stream Id", "Stream ID"},
    {"Task Id", "Task ID"},
};

// A column that only this metrics group has.
struct Group {
  std::string_view column, metrics;
};
constexpr Group groups[] = {
    {"aic_mac_ratio", "PipeUtilization"},
    {"aiv_vec_ratio", "PipeUtilization"},
    {"aic_mac_fp16_ratio", "ArithmeticUtilization"},
    {"aic_l1_read_bw", "Memory"},
    {"aic_l0a_read_bw", "MemoryL0"},
    {"aiv_ub_read_bw_vector", "MemoryUB"},
    {"aic_ub_read_bw_scalar", "MemoryUB"},
    {"aiv_vec_bankgroup_cflt_ratio", "ResourceConflictRatio"},
    {"aic_write_cache_hit", "L2Cache"},
    {"aic_read_main_memory_datas", "MemoryAccess"},
    {"aiv_read_main_memory_datas", "MemoryAccess"},
};

enum Field {
  f_step,
  f_device,
  f_task,
  f_stream,
  f_name,
  f_type,
  f_core,
  f_start,
  f_duration,
  f_wait,
  f_blocks,
  f_in_shapes,
  f_in_types,
  f_out_shapes,
  f_module,
  n_fields
};
constexpr std::array<std::string_view, n_fields> field_columns = {
    "Step Id",   "Device_id",        "Task ID",          "Stream ID",     "Name",
    "Type",      "Accelerator Core", "Start Time(us)",   "Duration(us)",  "Wait Time(us)",
    "Block Num", "Input Shapes",     "Input Data Types", "Output Shapes", "Module"};

std::vector<std::string> row_texts(const CsvRow& row) {
  std::vector<std::string> out(row.cells);
  std::string scratch;
  for (std::size_t i = 0; i < row.cells; ++i)
    out[i] = valid_utf8(trimmed(unquoted(row.cell(i), scratch)));
  return out;
}

std::string list_of(const std::vector<std::string>& names) {
  std::string out;
  for (const std::string& n : names) out += cat(out.empty() ? "" : ", ", n.substr(0, 60));
  std::erase(out, '\0');
  return out;
}

// Fills a Timeline row by row.
class KernelReader {
 public:
  KernelReader(const fs::path& path, const KernelCsvOptions& options, Timeline& t)
      : path_(path), options_(options), t_(t), table_(std::make_shared<KernelTable>()) {}

  void read() {
    table_->path = path_.string();
    table_->file = map_whole(path_);
    const Buffer& text = table_->file;
    // The header first: it says which cells of a row are looked at.
    CsvRow first;
    std::vector<std::uint64_t> ends;
    if (!first_csv_row(text, skip_bom(text), first, ends))
      throw UserError("TK0905", text.size == 0 ? "the file is empty" : "the file has no header row")
          .at(path_.string())
          .help("collect again; `tokamak profile --check` says how");
    header(first);
    const std::size_t wanted =
        static_cast<std::size_t>(*std::max_element(at_.begin(), at_.end())) + 1;
    std::uint64_t damage = 0;
    bool whole = true;
    if (first.complete)
      whole = scan_csv(text, first.end + 1, [&](const CsvRow& row) { take(row); }, &damage, wanted);
    if (!whole) cut(damage, std::string(csv_damage(text, damage)));
    table_->row_begin.push_back(end_);
    finish();
  }

 private:
  std::string separator_hint() const {
    for (const std::string& name : table_->header)
      if (name.find('\0') != name.npos) return "; the file is UTF-16: save it as UTF-8";
    if (table_->header.size() != 1) return {};
    const std::string& line = table_->header.front();
    for (const char* by : {";", "\t"})
      if (line.find(by) != line.npos)
        return "; the cells are not separated by commas: save it as CSV with commas";
    return {};
  }

  [[noreturn]] void bad_header(const KernelHeader& header) {
    throw UserError("TK0905",
                    cat("this is no kernel table: column", header.missing.size() > 1 ? "s " : " ",
                        list_of(header.missing), " missing"))
        .at(path_.string(), 1)
        .note(cat("columns found: ", list_of(table_->header).substr(0, 600), separator_hint()))
        .help(
            "give a folder of the Ascend PyTorch Profiler or of msprof, or its kernel_details.csv "
            "or op_summary_*.csv");
  }

  void cut(std::uint64_t offset, const std::string& why) {
    const auto line = line_of(table_->file, offset);
    if (!options_.allow_truncated)
      throw UserError("TK0906", cat("the file is cut or damaged: ", why))
          .at(path_.string(), static_cast<int>(line))
          .help("copy the file again; --allow-truncated reads the rows before it");
    t_.notes.push_back(cat(path_.filename().string(), ":", line, ": cut: ", why,
                           "; the rows before it were read (--allow-truncated)"));
    cut_ = true;
    end_ = std::max<std::uint64_t>(end_, offset);
  }

  void header(const CsvRow& row) {
    table_->header = row_texts(row);
    const KernelHeader h = kernel_header(table_->header);
    table_->columns = h.columns;
    if (!h.missing.empty()) bad_header(h);
    table_->header_line = std::string(row.text + row.begin, row.end - row.begin);
    while (!table_->header_line.empty() && table_->header_line.back() == '\r')
      table_->header_line.pop_back();
    at_.fill(-1);
    for (int f = 0; f < n_fields; ++f) at_[f] = table_->column(field_columns[f]);
    header_start_ = row.cell(static_cast<std::size_t>(at_[f_start]));
    t_.has_step_column = at_[f_step] >= 0;
    t_.has_device_column = at_[f_device] >= 0;
    if (t_.info.metrics.empty()) t_.info.metrics = h.metrics == "none" ? "" : h.metrics;
    const std::uint64_t header_bytes = row.end - row.begin + 1;
    const std::size_t guess = table_->file.size / std::max<std::uint64_t>(header_bytes / 3, 64);
    t_.kernels.reserve(std::min<std::size_t>(guess, 1 << 22));
    table_->row_begin.reserve(std::min<std::size_t>(guess, 1 << 22));
    prefer_large_pages(t_.kernels.data(), t_.kernels.capacity() * sizeof(Kernel));
    prefer_large_pages(table_->row_begin.data(),
                       table_->row_begin.capacity() * sizeof(std::uint64_t));
  }

  StringId intern(std::string_view cell) {
    if (cell.empty()) return 0;
    const char last = cell.back();
    if (cell.front() == '"' || last == '"' || last == '\t' || last == ' ' || cell.front() == ' ')
      cell = trimmed(unquoted(cell, scratch_));
    if (cell.size() <= 4 && is_missing(cell)) return 0;
    return t_.strings.add(cell);
  }

  struct Identity {
    StringId name = 0, type = 0, core_text = 0;
    Core core = Core::unknown;
  };
  Identity identity_of(const CsvRow& row) {
    Identity i;
    i.name = intern(cell(row, f_name));
    const StringId type = intern(cell(row, f_type));
    if (type) t_.has_type = true;
    i.type = normalize(type, i.name);
    i.core_text = intern(cell(row, f_core));
    i.core = core_from(t_.text(i.core_text));
    return i;
  }
  struct Shapes {
    StringId in = 0, in_types = 0, out = 0;
  };
  Shapes shapes_of(const CsvRow& row) {
    return {intern(cell(row, f_in_shapes)), intern(cell(row, f_in_types)),
            intern(cell(row, f_out_shapes))};
  }

  // What neighbouring columns say together, by the bytes of all of them: the same few combinations
  // stand in thousands of rows. Where the columns are not neighbours or hardly repeat, each row is
  // looked at by itself.
  template <class T, T (KernelReader::*make)(const CsvRow&), Field... fields>
  class Together {
   public:
    const T& of(const CsvRow& row, KernelReader& r) {
      if (first_ < 0) {
        const int places[] = {r.at_[fields]...};
        first_ = *std::min_element(std::begin(places), std::end(places));
        last_ = *std::max_element(std::begin(places), std::end(places));
        near_ = first_ >= 0 && last_ - first_ < 5;
        first_ = std::max(first_, 0);
      }
      if (!near_ || texts_.size() > (1u << 16)) return one_ = (r.*make)(row);
      const std::string_view from = row.cell(static_cast<std::size_t>(first_)),
                             to = row.cell(static_cast<std::size_t>(last_));
      const StringId id =
          texts_.add({from.data(), static_cast<std::size_t>(to.data() + to.size() - from.data())});
      if (id >= made_.size()) made_.push_back((r.*make)(row));
      return made_[id];
    }

   private:
    int first_ = -1, last_ = -1;
    bool near_ = false;
    StringPool texts_;
    std::vector<T> made_ = {T{}};  // by id; 0 is the empty text
    T one_{};
  };

  std::string_view cell(const CsvRow& row, Field f) const {
    return at_[f] < 0 ? std::string_view() : row.cell(static_cast<std::size_t>(at_[f]));
  }

  void drop(const CsvRow& row) {
    ++t_.rows_dropped;
    if (t_.dropped_lines.size() < 20) t_.dropped_lines.push_back(line_of(table_->file, row.begin));
  }

  void take(const CsvRow& row) {
    if (cut_) return;
    if (row.cells != table_->header.size()) {
      if (!row.complete && row.cells < table_->header.size())
        return cut(row.begin,
                   cat("the last row has ", row.cells, " of ", table_->header.size(), " cells"));
      table_->row_begin.push_back(row.begin);
      end_ = row.end + 1;
      ++wrong_length_;
      return drop(row);
    }
    const auto index = static_cast<std::uint32_t>(table_->row_begin.size());
    table_->row_begin.push_back(row.begin);
    end_ = row.end + (row.complete ? 1 : 0);
    if (!row.complete && std::max(at_[f_start], at_[f_duration]) + 1 == static_cast<int>(row.cells))
      return cut(row.begin, "no line end after the last row, whose last cell is a time");
    if (!row.complete)
      t_.notes.push_back(cat(path_.filename().string(),
                             ": no line end after the last row; its last "
                             "cell may be cut"));
    const auto start = decimal_us_to_ns(cell(row, f_start));
    const auto duration = decimal_us_to_ns(cell(row, f_duration));
    constexpr Ns far = Ns{1} << 62;  // ends must not overflow
    if (!start || !duration || *start < 0 || *duration < 0 || *start >= far || *duration >= far) {
      const std::string_view whole(row.text + row.begin, row.end - row.begin);
      if (whole.find_first_not_of(", \t\r") == whole.npos) return;  // empty: no loss
      if (cell(row, f_start) == header_start_)
        throw UserError("TK0906", "the header stands here a second time: two tables in one file")
            .at(path_.string(), static_cast<int>(line_of(table_->file, row.begin)))
            .help("take the profiler's own files one by one");
      return drop(row);
    }
    Kernel k;
    k.row = index;
    if (t_.kernels.empty()) t_.base_ns = *start;
    k.start = *start - t_.base_ns;
    k.duration = *duration;
    lowest_ = std::min(lowest_, k.start);
    sorted_ = sorted_ && (t_.kernels.empty() || k.start >= t_.kernels.back().start);
    const Identity& identity = identities_.of(row, *this);
    k.name = identity.name;
    k.type = identity.type;
    k.core_text = identity.core_text;
    k.core = identity.core;
    if (const auto v = small_int(cell(row, f_stream))) {
      k.stream = static_cast<std::int32_t>(*v);
      k.has_task = t_.has_stream = true;
    }
    if (const auto v = small_int(cell(row, f_task))) {
      k.task = *v;
      k.has_task = true;
    }
    if (const auto v = small_int(cell(row, f_device))) k.device = static_cast<std::int32_t>(*v);
    if (const auto v = small_int(cell(row, f_blocks)); v && *v >= 0)
      k.blocks = static_cast<std::uint32_t>(*v);
    if (const auto v = decimal_us_to_ns(cell(row, f_wait)); v && *v >= 0) k.wait_file = *v;
    const Shapes& shapes = shapes_.of(row, *this);
    k.in_shapes = shapes.in;
    k.in_types = shapes.in_types;
    k.out_shapes = shapes.out;
    k.module = intern(cell(row, f_module));
    if (k.in_shapes) t_.has_shapes = true;
    const std::string_view step = trimmed(cell(row, f_step));
    k.step = step_of(t_.has_step_column ? step : "-");
    t_.kernels.push_back(k);
  }

  static std::optional<std::int64_t> small_int(std::string_view text) {
    if (text.empty() || text[0] == 'N') return {};
    if (text.size() <= 9) {  // the usual form
      std::int64_t value = 0;
      std::size_t i = 0;
      while (i < text.size() && text[i] >= '0' && text[i] <= '9')
        value = value * 10 + (text[i++] - '0');
      if (i == text.size()) return value;
    }
    const auto v = decimal_int(text);
    if (v && (*v < -1 || *v > INT32_MAX)) return {};
    return v;
  }

  StringId normalize(StringId type, StringId name) {
    if (type && t_.text(type) != "0") return type;
    const auto [it, fresh] = normalized_.try_emplace(name, 0);
    if (fresh) it->second = t_.strings.add(normalized_name({}, t_.text(name)));
    return it->second;
  }

  std::int32_t step_of(std::string_view text) {
    if (is_missing(text) && text != "-") return -1;
    if (text == last_step_text_) return last_step_;
    const auto [it, fresh] =
        step_index_.try_emplace(std::string(text), static_cast<std::int32_t>(t_.steps.size()));
    if (fresh) t_.steps.push_back(std::string(text));
    last_step_text_ = it->first;
    return last_step_ = it->second;
  }

  // Steps in the order of their numbers, times from the first start, kernels by time.
  void finish() {
    t_.rows_in_file = table_->row_begin.size() - 1;
    const auto name = path_.filename().string();
    if (t_.kernels.empty())
      throw UserError("TK0907", t_.rows_dropped
                                    ? cat("none of the ", t_.rows_dropped, " rows can be read")
                                    : std::string("the table has a header and no rows"))
          .at(path_.string())
          .help(t_.rows_dropped
                    ? "the file is damaged, or its columns are under wrong names; take the "
                      "profiler's own"
                    : "nothing was collected: see `tokamak profile --check`, item PF-43");
    if (t_.rows_dropped * 100 > t_.rows_in_file) {
      const bool length = wrong_length_ * 2 > t_.rows_dropped;
      throw UserError(
          "TK0907",
          cat(t_.rows_dropped, " of ", t_.rows_in_file, " rows cannot be read, more than 1 %: ",
              length ? cat("another number of cells than the ", table_->header.size(), " columns")
                     : std::string("no valid Start Time or Duration")))
          .at(path_.string(), static_cast<int>(t_.dropped_lines.front()))
          .help("the file is damaged, edited or mixed from several; take the profiler's own");
    }
    if (t_.rows_dropped)
      t_.notes.push_back(cat(name, ": ", t_.rows_dropped, " of ", t_.rows_in_file,
                             " rows dropped (first at line ", t_.dropped_lines.front(),
                             "): ", "no valid time, or another number of cells"));
    settle_steps(name);
    sort_steps();
    if (lowest_ < 0) {
      t_.base_ns += lowest_;
      for (Kernel& k : t_.kernels) k.start -= lowest_;
    }
    if (!sorted_) sort_kernels();
    drop_twins();
    if (t_.strings.repaired())
      t_.notes.push_back(
          cat(name, ": ", t_.strings.repaired(), " texts are no UTF-8; the bytes were replaced"));
    t_.table = table_;
  }

  // Kernels outside of every step are left out (BD-14), unless all are.
  void settle_steps(const std::string& name) {
    const auto outside = static_cast<std::size_t>(std::count_if(
        t_.kernels.begin(), t_.kernels.end(), [](const Kernel& k) { return k.step < 0; }));
    if (outside == t_.kernels.size()) {
      t_.has_step_column = false;
      t_.steps = {"-"};
      for (Kernel& k : t_.kernels) k.step = 0;
      t_.notes.push_back(cat(name, ": every Step Id is empty: all rows are one step"));
    } else if (outside) {
      t_.notes.push_back(cat(name, ": ", outside, " of ", t_.kernels.size(),
                             " kernels have no Step Id and are left out"));
    } else if (!t_.has_step_column) {
      t_.notes.push_back(cat(name, " has no Step Id column: all rows are one step"));
    }
  }

  // A row that is another's copy, byte for byte, is the same kernel. Collectives stand twice by
  // rights (BD-16) and are counted later.
  void drop_twins() {
    auto& kernels = t_.kernels;
    std::vector<std::size_t> twins;  // places, ascending
    std::unordered_set<std::string_view> lines;
    for (std::size_t from = 0, to = 0; from < kernels.size(); from = to) {
      for (to = from + 1; to < kernels.size() && kernels[to].start == kernels[from].start;) ++to;
      if (to - from == 1) continue;
      lines.clear();
      for (std::size_t i = from; i < to; ++i)
        if (!is_communication(kernels[i].core) &&
            !lines.insert(table_->line(kernels[i].row)).second)
          twins.push_back(i);
    }
    if (twins.empty()) return;
    const std::string found =
        cat(twins.size(), " of ", kernels.size(), " rows are copies of others");
    if (twins.size() * 100 > kernels.size())
      throw UserError("TK0907", cat(found, ", more than 1 %"))
          .at(path_.string(), static_cast<int>(line_of(
                                  table_->file, table_->row_begin[kernels[twins.front()].row])))
          .help(
              "the table was put together from several, or written twice; take the profiler's own");
    t_.notes.push_back(cat(path_.filename().string(), ": ", found, "; each was counted once"));
    std::size_t next = 0, to = 0;
    for (std::size_t i = 0; i < kernels.size(); ++i)
      if (next < twins.size() && twins[next] == i)
        ++next;
      else
        kernels[to++] = kernels[i];
    kernels.resize(to);
  }

  // By start, then row. Keys are sorted, as a kernel is six times as large, and the kernels follow
  // them cycle by cycle.
  void sort_kernels() {
    std::vector<std::pair<Ns, std::uint32_t>> keys;
    keys.reserve(t_.kernels.size());
    for (std::uint32_t i = 0; i < t_.kernels.size(); ++i) keys.emplace_back(t_.kernels[i].start, i);
    std::sort(keys.begin(), keys.end());
    for (std::uint32_t i = 0; i < keys.size(); ++i) {
      if (keys[i].second == i) continue;
      const Kernel first = t_.kernels[i];
      std::uint32_t to = i;
      for (std::uint32_t from; (from = keys[to].second) != i; to = from) {
        t_.kernels[to] = t_.kernels[from];
        keys[to].second = to;
      }
      t_.kernels[to] = first;
      keys[to].second = to;
    }
  }

  void sort_steps() {
    const std::size_t n = t_.steps.size();
    std::vector<std::int32_t> order(n), rank(n);
    for (std::size_t i = 0; i < n; ++i) order[i] = static_cast<std::int32_t>(i);
    std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
      const auto x = decimal_int(t_.steps[static_cast<std::size_t>(a)]);
      const auto y = decimal_int(t_.steps[static_cast<std::size_t>(b)]);
      if (x && y) return *x < *y;
      if (x || y) return x.has_value();
      return t_.steps[static_cast<std::size_t>(a)] < t_.steps[static_cast<std::size_t>(b)];
    });
    std::vector<std::string> names(n);
    for (std::size_t i = 0; i < n; ++i) {
      rank[static_cast<std::size_t>(order[i])] = static_cast<std::int32_t>(i);
      names[i] = t_.steps[static_cast<std::size_t>(order[i])];
    }
    t_.steps = std::move(names);
    if (std::is_sorted(rank.begin(), rank.end())) return;
    for (Kernel& k : t_.kernels)
      if (k.step >= 0) k.step = rank[static_cast<std::size_t>(k.step)];
  }

  fs::path path_;
  KernelCsvOptions options_;
  Timeline& t_;
  std::shared_ptr<KernelTable> table_;
  std::array<int, n_fields> at_{};
  std::unordered_map<StringId, StringId> normalized_;
  std::unordered_map<std::string, std::int32_t> step_index_;
  std::string_view last_step_text_;
  std::int32_t last_step_ = -1;
  Together<Identity, &KernelReader::identity_of, f_name, f_type, f_core> identities_;
  Together<Shapes, &KernelReader::shapes_of, f_in_shapes, f_in_types, f_out_shapes> shapes_;
  std::string_view header_start_;  // the header's cell of that column, as written
  Ns lowest_ = 0;                  // from the first row's start
  bool sorted_ = true;
  std::string scratch_;
  std::uint64_t end_ = 0;
  std::size_t wrong_length_ = 0;
  bool cut_ = false;
};

}  // namespace

KernelHeader kernel_header(const std::vector<std::string>& names) {
  KernelHeader h;
  bool renamed = false;
  for (const std::string& name : names) {
    std::string ours = name;
    for (const Alias& a : aliases)
      if (name == a.seen) {
        ours = a.ours;
        renamed = renamed || name == "Op Name" || name == "OP Type" || name == "Task Type";
      }
    h.columns.push_back(ours);
  }
  // A file that has both spellings keeps the first; the second becomes a column of its own.
  for (std::size_t i = 0; i < h.columns.size(); ++i)
    for (std::size_t j = 0; j < i; ++j)
      if (h.columns[i] == h.columns[j]) h.columns[i] = cat(names[i], " (", i + 1, ")");
  auto has = [&](std::string_view c) {
    return std::find(h.columns.begin(), h.columns.end(), c) != h.columns.end();
  };
  for (std::string_view need : {"Name", "Start Time(us)", "Duration(us)"})
    if (!has(need)) h.missing.emplace_back(need);
  h.level0 = !has("Stream ID");
  if (h.missing.empty()) h.kind = renamed ? "op_summary" : "kernel_details";
  h.metrics = "none";
  for (const Group& g : groups)
    for (const std::string& c : h.columns)
      if (c.starts_with(g.column) && h.metrics == "none") h.metrics = g.metrics;
  return h;
}

std::vector<std::string> csv_header(const fs::path& path) {
  auto stream = ByteStream::open(path);
  Buffer head{allocate_bytes((64 << 10) + buffer_padding), 0};
  head.size = stream->read(head.data.get(), 64 << 10);
  std::memset(head.data.get() + head.size, 0, buffer_padding);
  std::vector<std::string> names;
  scan_csv(head, skip_bom(head), [&](const CsvRow& row) {
    if (names.empty()) names = row_texts(row);
  });
  return names;
}

void read_kernel_csv(const fs::path& path, const KernelCsvOptions& options, Timeline& timeline) {
  KernelReader(path, options, timeline).read();
}

}  // namespace tk
