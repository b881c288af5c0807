#include "timeline/timeline.h"

#include <algorithm>
#include <array>

#include "base/error.h"
#include "timeline/csv.h"
#include "timeline/decimal.h"
#include "timeline/strings.h"

namespace tk {

namespace {

struct CoreName {
  std::string_view text;
  Core core;
};
// KD "Accelerator Core", and the task types of msprof and trace_view.
constexpr CoreName core_names[] = {
    {"AI_CORE", Core::ai_core},
    {"AI_VECTOR_CORE", Core::ai_vector},
    {"MIX_AIC", Core::mix_aic},
    {"MIX_AIV", Core::mix_aiv},
    {"AI_CPU", Core::ai_cpu},
    {"AICPU", Core::ai_cpu},
    {"COMMUNICATION", Core::communication},
    {"HCCL", Core::communication},
    {"DSA_SQE", Core::dsa},
    {"AIV_SQE", Core::ai_vector},
    {"KERNEL_AICORE", Core::ai_core},
    {"KERNEL_AIVEC", Core::ai_vector},
    {"KERNEL_AICPU", Core::ai_cpu},
    {"DVPP", Core::other},
    {"FFTS_PLUS", Core::other},
    {"DATA_MEMORY", Core::other},
    {"PCIE_DMA_SQE", Core::other},
    {"SDMA", Core::other},
    {"WRITE_BACK", Core::other},
    {"INVALID", Core::other},
};

bool all_digits(std::string_view s) {
  return !s.empty() && s.find_first_not_of("0123456789") == s.npos;
}

}  // namespace

std::string_view core_name(Core core) {
  switch (core) {
    case Core::ai_core:
      return "AI_CORE";
    case Core::ai_vector:
      return "AI_VECTOR_CORE";
    case Core::mix_aic:
      return "MIX_AIC";
    case Core::mix_aiv:
      return "MIX_AIV";
    case Core::ai_cpu:
      return "AI_CPU";
    case Core::communication:
      return "COMMUNICATION";
    case Core::dsa:
      return "DSA_SQE";
    case Core::other:
      return "OTHER";
    case Core::unknown:
      break;
  }
  return "UNKNOWN";
}

Core core_from(std::string_view text) {
  for (const CoreName& c : core_names)
    if (c.text == text) return c.core;
  return Core::unknown;
}

std::string normalized_name(std::string_view type, std::string_view name) {
  if (!is_missing(type) && type != "0") return std::string(type);
  if (name.find('/') != name.npos || name.find('_') == name.npos) return std::string(name);
  std::vector<std::string_view> parts;
  for (std::string_view rest = name;;) {
    const std::size_t at = rest.find('_');
    parts.push_back(rest.substr(0, at));
    if (at == rest.npos) break;
    rest.remove_prefix(at + 1);
  }
  while (parts.size() > 1 && (all_digits(parts.back()) || parts.back().empty())) parts.pop_back();
  if (parts.size() > 1 && !parts.back().empty() && parts.back()[0] >= 'A' && parts.back()[0] <= 'Z')
    return std::string(parts.back());
  std::string joined(parts[0]);
  for (std::size_t i = 1; i < parts.size(); ++i) joined += cat('_', parts[i]);
  return joined;
}

std::string Timeline::absolute_us(Ns start) const { return ns_to_us(base_ns + start); }

std::string_view KernelTable::line(std::uint32_t row) const {
  TK_CHECK(row + 1 < row_begin.size(), "row ", row);
  std::string_view text(file.data.get() + row_begin[row], row_begin[row + 1] - row_begin[row]);
  while (!text.empty() && (text.back() == '\n' || text.back() == '\r')) text.remove_suffix(1);
  return text;
}

std::vector<std::string> KernelTable::cells(std::uint32_t row) const {
  std::vector<std::string> out;
  out.reserve(columns.size());
  std::string scratch;
  const std::string_view text = line(row);
  const bool good = is_utf8(text);
  std::size_t from = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      if (text[i] == '"') inside = !inside;
      if (inside || text[i] != ',') continue;
    }
    const std::string_view cell = trimmed(unquoted(text.substr(from, i - from), scratch));
    out.push_back(good ? std::string(cell) : valid_utf8(cell));
    from = i + 1;
  }
  out.resize(columns.size());
  return out;
}

std::string KernelTable::cell(std::uint32_t row, int column) const {
  const std::string_view text = line(row);
  std::size_t from = 0;
  bool inside = false;
  for (std::size_t i = 0; i <= text.size(); ++i) {
    if (i < text.size()) {
      if (text[i] == '"') inside = !inside;
      if (inside || text[i] != ',') continue;
    }
    if (column-- == 0) {
      std::string scratch;
      return valid_utf8(trimmed(unquoted(text.substr(from, i - from), scratch)));
    }
    from = i + 1;
  }
  return {};
}

int KernelTable::column(std::string_view name) const {
  const auto it = std::find(columns.begin(), columns.end(), name);
  return it == columns.end() ? -1 : static_cast<int>(it - columns.begin());
}

}  // namespace tk
