#include "timeline/find.h"

#include <algorithm>
#include <cstring>
#include <map>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/input.h"
#include "timeline/kernel_csv.h"

namespace tk {

namespace fs = std::filesystem;

namespace {

constexpr int deepest = 8;
constexpr std::size_t most_entries = 50000;

std::string base_name(const fs::path& path) {  // without .gz
  std::string name = path.filename().string();
  if (name.ends_with(".gz")) name.resize(name.size() - 3);
  return name;
}

bool is_kernel_table(const fs::path& path) { return !kernel_header(csv_header(path)).kind.empty(); }

// A list of trace events, by the first kilobytes.
bool is_trace(const fs::path& path) {
  auto stream = ByteStream::open(path);
  std::string head(8192, '\0');
  head.resize(stream->read(head.data(), head.size()));
  const std::size_t first = head.find_first_not_of(" \t\r\n\xEF\xBB\xBF");
  if (first == head.npos || (head[first] != '[' && head[first] != '{')) return false;
  return head.find("\"ph\"") != head.npos || head.find("\"traceEvents\"") != head.npos;
}

// rank_0_ascend_pt, rank0_ascend_pt, x_rank3_ascend_pt, rank2, device_1 ...
std::optional<int> rank_in(const std::string& name, std::string_view word) {
  const std::size_t at = name.rfind(word);
  if (at == name.npos) return {};
  std::size_t i = at + word.size();
  if (i < name.size() && (name[i] == '_' || name[i] == '-')) ++i;
  std::size_t end = i;
  while (end < name.size() && name[end] >= '0' && name[end] <= '9') ++end;
  if (end == i || end - i > 6) return {};
  return std::stoi(name.substr(i, end - i));
}

std::string stage_in(const fs::path& path) {
  std::string stage;
  for (const fs::path& part : path) {
    std::string name = part.string();
    for (char& c : name) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
    const bool prefill = name.find("prefill") != name.npos,
               decode = name.find("decode") != name.npos;
    if (prefill != decode) stage = prefill ? "prefill" : "decode";
  }
  return stage;
}

struct Walk {
  std::map<fs::path, std::vector<fs::path>> files;  // by folder
  std::size_t entries = 0;

  void visit(const fs::path& folder, int depth) {
    std::error_code error;
    std::vector<fs::path> below;
    for (fs::directory_iterator it(folder, fs::directory_options::skip_permission_denied, error),
         end;
         !error && it != end; it.increment(error)) {
      if (++entries > most_entries) return;
      std::error_code ignored;
      if (it->is_directory(ignored) && !it->is_symlink(ignored))
        below.push_back(it->path());
      else if (it->is_regular_file(ignored))
        files[folder].push_back(it->path());
    }
    if (error)
      throw UserError("TK0901", cat("cannot read folder ", folder.string(), ": ", error.message()));
    std::sort(below.begin(), below.end());
    if (depth < deepest)
      for (const fs::path& b : below) visit(b, depth + 1);
  }
};

// The folder a person would name: above ASCEND_PROFILER_OUTPUT and the like.
fs::path root_of(const fs::path& folder, const fs::path& given) {
  for (fs::path p = folder; !p.empty() && p != p.root_path(); p = p.parent_path()) {
    const std::string name = p.filename().string();
    if (name.ends_with("_ascend_pt") || name.starts_with("PROF_")) return p;
    if (p == given) break;
  }
  return folder.filename() == "ASCEND_PROFILER_OUTPUT" ? folder.parent_path() : folder;
}

void side_files(ProfileFiles& p) {
  auto in = [&](const char* name) { return file_or_gz(p.folder / name); };
  p.step_trace = in("step_trace_time.csv");
  p.communication = in("communication.json");
  p.communication_matrix = in("communication_matrix.json");
  p.op_statistic = in("op_statistic.csv");
  p.api_statistic = in("api_statistic.csv");
  p.operator_details = in("operator_details.csv");
  std::error_code ignored;
  for (const fs::path& where : {p.folder, p.folder.parent_path()}) {
    if (where.empty()) continue;
    std::vector<fs::path> found;
    for (fs::directory_iterator it(where, ignored), end; !ignored && it != end;
         it.increment(ignored)) {
      const std::string name = it->path().filename().string();
      if (name.starts_with("profiler_info") && name.ends_with(".json")) found.push_back(it->path());
    }
    std::sort(found.begin(), found.end());
    if (p.info.empty() && !found.empty()) p.info = found.front();
    if (p.metadata.empty()) p.metadata = file_or_gz(where / "profiler_metadata.json");
  }
  // The folder's name says the rank; where it does not, profiler_info_<rank>.json does.
  if (!p.rank)
    for (const fs::path& part : {p.folder, p.folder.parent_path(), p.root})
      if (!p.rank) p.rank = rank_in(part.filename().string(), "rank");
  if (!p.rank && !p.info.empty()) p.rank = rank_in(p.info.stem().string(), "info");
}

ProfileFiles from_file(const fs::path& path) {
  ProfileFiles p;
  p.layout = "file";
  p.root = path;
  p.folder = path.has_parent_path() ? path.parent_path() : fs::path(".");
  if (is_kernel_table(path)) {
    p.kernels = path;
    p.trace = file_or_gz(p.folder / "trace_view.json");
  } else if (is_trace(path)) {
    p.trace = path;
  } else {
    const auto names = csv_header(path);
    std::string first;
    for (std::size_t i = 0; i < names.size() && i < 8; ++i)
      first += cat(i ? ", " : "", names[i].substr(0, 40));
    throw UserError("TK0910", "the file is neither a kernel table nor a trace")
        .at(path.string())
        .note(cat("first row: ", first.substr(0, 300)))
        .help(
            "give kernel_details.csv, op_summary_*.csv, trace_view.json or the folder that holds "
            "them");
  }
  side_files(p);
  p.stage = stage_in(path);
  return p;
}

}  // namespace

std::vector<ProfileFiles> find_profiles(const fs::path& path) {
  std::error_code error;
  const fs::file_status status = fs::status(path, error);
  if (status.type() == fs::file_type::not_found)
    throw UserError("TK0910", cat("there is no ", path.string())).help("check the path");
  if (status.type() == fs::file_type::regular) return {from_file(path)};
  if (status.type() != fs::file_type::directory)
    throw UserError("TK0910", cat(path.string(), " is neither a folder nor a file"));
  Walk walk;
  walk.visit(path, 0);
  std::vector<ProfileFiles> found;
  for (auto& [folder, files] : walk.files) {
    // Our own output, and parts cut out of a profile, are no profiles.
    if (folder.filename() == "splits" || folder.parent_path().filename() == "splits") continue;
    std::sort(files.begin(), files.end());
    std::vector<fs::path> kernels, summaries, renamed, traces, msprof;
    for (const fs::path& f : files) {
      const std::string name = base_name(f);
      if (name == "kernel_details.csv")
        kernels.push_back(f);
      else if (name.starts_with("op_summary") && name.ends_with(".csv"))
        summaries.push_back(f);
      else if (name == "trace_view.json")
        traces.push_back(f);
      else if (name.starts_with("msprof") && name.ends_with(".json"))
        msprof.push_back(f);
    }
    if (kernels.empty() && summaries.empty())
      for (const fs::path& f : files)
        if (base_name(f).ends_with(".csv") && is_kernel_table(f)) renamed.push_back(f);
    if (traces.empty()) traces = msprof;
    const bool has_table = !(kernels.empty() && summaries.empty() && renamed.empty());
    if (traces.empty())
      for (const fs::path& f : files)
        if (base_name(f).ends_with(".json") && base_name(f).find("trace") != std::string::npos &&
            is_trace(f))
          traces.push_back(f);
    // Older msprof: device_<id>/summary holds the table, device_<id>/timeline the trace.
    if (has_table && traces.empty() && folder.filename() == "summary")
      for (const fs::path& f : walk.files[folder.parent_path() / "timeline"])
        if (base_name(f).starts_with("msprof")) traces.push_back(f);
    if (!has_table && traces.empty()) continue;
    if (!has_table && folder.filename() == "timeline" &&
        walk.files.contains(folder.parent_path() / "summary"))
      continue;
    std::vector<fs::path>& tables = !kernels.empty()     ? kernels
                                    : !summaries.empty() ? summaries
                                                         : renamed;
    for (std::size_t i = 0; i < std::max<std::size_t>(1, tables.size()); ++i) {
      ProfileFiles p;
      p.folder = folder;
      p.root = root_of(folder, path);
      if (!tables.empty()) p.kernels = tables[i];
      if (tables.size() <= 1 && !traces.empty()) p.trace = traces.front();
      const bool msprof_place = folder.filename() == "mindstudio_profiler_output" ||
                                folder.filename() == "summary" || !summaries.empty();
      p.layout = msprof_place ? "msprof" : "torch_npu";
      side_files(p);
      if (!p.rank && msprof_place)
        for (fs::path f = folder; !f.empty() && f != f.root_path() && !p.rank; f = f.parent_path())
          p.rank = rank_in(f.filename().string(), "device");
      p.stage = stage_in(p.folder);
      found.push_back(std::move(p));
    }
  }
  // The new place of msprof wins over the old one of the same collection; torch_npu's output wins
  // over the PROF_* folder it was made from.
  auto covered = [&](const ProfileFiles& p) {
    return std::any_of(found.begin(), found.end(), [&](const ProfileFiles& q) {
      if (&p == &q || p.folder == q.folder) return false;
      if (p.folder.filename() == "summary" && q.folder.filename() == "mindstudio_profiler_output")
        return p.root == q.root;
      if (p.layout == "msprof" && q.folder.filename() == "ASCEND_PROFILER_OUTPUT") {
        const std::string inner = p.folder.string(), outer = q.folder.parent_path().string() + "/";
        return inner.starts_with(outer);
      }
      return false;
    });
  };
  std::vector<ProfileFiles> kept;
  for (const ProfileFiles& p : found)
    if (!covered(p)) kept.push_back(p);
  if (kept.empty())
    throw UserError("TK0910", cat("no profile in ", path.string()))
        .note(
            "looked for *_ascend_pt/ASCEND_PROFILER_OUTPUT/kernel_details.csv, "
            "PROF_*/mindstudio_profiler_output/op_summary_*.csv, PROF_*/device_*/summary, tables "
            "with "
            "the columns Name, Start Time(us), Duration(us), and trace_view.json or msprof_*.json, "
            "each also with .gz")
        .help("`tokamak profile --check DIR` says what a collection lacks");
  return kept;
}

std::string describe(const ProfileFiles& p) {
  std::string s = p.rank ? cat("rank ", *p.rank) : std::string("rank unknown");
  if (!p.stage.empty()) s += cat(", ", p.stage);
  return cat(s, ": ", (p.kernels.empty() ? p.trace : p.kernels).string());
}

}  // namespace tk
