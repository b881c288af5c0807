// What a kernel should take (BD §9): from operator_analysis.csv, or computed from shapes and a
// device's rates. A kernel that cannot be told has none; nothing is guessed.
#pragma once

#include <filesystem>
#include <nlohmann/json_fwd.hpp>
#include <optional>
#include <string>
#include <vector>

#include "timeline/roles.h"
#include "timeline/step_ops.h"

namespace tk {

struct KernelTheory {
  double us = -1;  // theoretical_operator_time_us; below 0: not supported
  double compute_us = -1, memory_us = -1, overhead_us = -1;
  std::string_view bound;  // compute, memory; empty: not said
  bool supported() const { return us >= 0; }
};

// Which stream's theory stands for a sub-item (theory_stream_decisions.json).
struct TheoryDecision {
  std::string type, item, stream, note, reason;
  std::optional<std::string> phase;
  std::optional<int> layer;
};

struct Theory {
  std::string kind;    // operator_analysis_csv, computed; empty: off
  std::string source;  // the file, or the device's rates in words
  std::vector<KernelTheory> ops;
  std::size_t matched = 0, supported = 0;
  std::vector<std::uint32_t> missing_rows;  // of the kernel table
  std::string decisions_path;
  std::vector<TheoryDecision> decisions;
  double review_ratio = 0.8;
  std::vector<std::string> warnings;
};

// Merges by the column org_index, or by data row (BD-90). Throws TK0923 for another table, two rows
// of one org_index, and TK0904.
Theory read_theory(const std::filesystem::path& path, const Timeline& t, const StepOps& ops);

// max(operations / cube rate, bytes / memory rate) + the shortest head of the kernel's kind, for
// matrix multiplications and kernels that read and write each operand once. Nothing for attention
// (the length of the cache is not in a profile), experts (which ones are hit is not), collectives.
// Off, with a reason in `warnings`, for anything but a real NPU.
Theory compute_theory(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles);

// Throws TK0923 with the number of the entry.
std::vector<TheoryDecision> read_theory_decisions(const std::filesystem::path& path);

// One sub-item of one instance, stream by stream (BD-91).
struct TheoryStream {
  std::int32_t stream = 0;
  std::size_t ops = 0, supported = 0;
  Ns busy = 0;  // union of its kernels
  double sum_us = 0;
  std::vector<Role> roles;  // of its kernels, in order, each once
};
struct TheoryCandidate {
  std::vector<TheoryStream> streams;  // longest union first
  std::size_t selected = 0;
  std::optional<double> us;
  bool review = false, decided = false;
  std::size_t unsupported = 0;
  std::string note, warning;
};
TheoryCandidate theory_of(const Timeline& t, const StepOps& ops, const Theory& theory,
                          const std::vector<std::uint32_t>& members, const std::string& type,
                          const std::string& item, const std::string& phase, int layer);

nlohmann::json theory_source_json(const Theory& theory);

}  // namespace tk
