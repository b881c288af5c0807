// Runs side by side (BD-160..162): history.html from metrics.json files, and HISTORY.md.
#pragma once

#include <filesystem>
#include <map>
#include <string>
#include <vector>

namespace tk {

struct RunRow {
  double median = 0, mean = 0, p95 = 0, max = 0, std = 0;  // ms
  std::vector<std::string> outliers;                       // "main#17"
};

// One run: what metrics.json and overview.json say of it.
struct Run {
  std::string label, origin;
  std::filesystem::path folder;
  std::vector<std::pair<std::string, std::string>> order;  // (type, sub-item), TOTAL last per type
  std::map<std::pair<std::string, std::string>, RunRow> rows;
};

// Throws TK0920: unreadable, no metrics.json or overview.json, or of another form.
Run read_run(const std::filesystem::path& folder);

// All runs below `runs`, oldest first.
std::vector<Run> read_runs(const std::filesystem::path& runs);

// Throws TK0920 for equal labels and an unknown baseline. An empty baseline is the first run.
std::string history_page(const std::vector<Run>& runs, const std::string& baseline,
                         const std::string& metric);

// Largest changes of `run` against `base`, as lines for people (at most n).
std::vector<std::string> largest_changes(const Run& base, const Run& run, const std::string& metric,
                                         std::size_t n);

// Appends a section to HISTORY.md; makes the file if there is none. The text before it is kept.
void append_history(const std::filesystem::path& file, const std::string& label,
                    const std::string& body);
// Takes the section of `label` out and leaves a line about it. Throws TK0920 if there is none.
void withdraw_history(const std::filesystem::path& file, const std::string& label,
                      const std::string& reason);

}  // namespace tk
