#include "timeline/step_ops.h"

#include <algorithm>
#include <map>
#include <unordered_map>

#include "base/error.h"

namespace tk {

namespace {

bool hccl_type(std::string_view type) {
  std::string t(type);
  for (char& c : t) c = static_cast<char>(std::tolower(static_cast<unsigned char>(c)));
  return t.starts_with("hcom") || t.find("hccl") != t.npos;
}

}  // namespace

std::string collective_group(std::string_view name) {
  const std::size_t at = name.find("__");
  if (at == name.npos) return {};
  std::string_view rest = name.substr(at + 2);
  return std::string(rest.substr(0, rest.find('_')));
}

std::string StepOps::stream_name(std::int32_t stream) const {
  if (stream >= 0) return std::to_string(stream);
  const auto i = static_cast<std::size_t>(-1 - stream);
  return i < group_names.size() ? group_names[i] : "comm";
}

std::vector<std::vector<std::uint32_t>> kernels_by_step(const Timeline& t) {
  std::vector<std::vector<std::uint32_t>> out(t.steps.size());
  for (std::uint32_t i = 0; i < t.kernels.size(); ++i)
    if (t.kernels[i].step >= 0) out[static_cast<std::size_t>(t.kernels[i].step)].push_back(i);
  for (auto& v : out) {
    auto by_row = [&](std::uint32_t a, std::uint32_t b) {
      return t.kernels[a].row < t.kernels[b].row;
    };
    if (!std::is_sorted(v.begin(), v.end(), by_row)) std::sort(v.begin(), v.end(), by_row);
  }
  return out;
}

StepOps step_ops(const Timeline& t, std::int32_t step, const std::vector<std::uint32_t>& kernels,
                 bool keep_ai_cpu) {
  StepOps s;
  s.step = step;
  struct Summary {
    Ns start, end;
    std::uint32_t op;
    std::int32_t stream = no_stream;
  };
  std::map<StringId, std::vector<Summary>> summaries;
  std::unordered_map<StringId, bool> hccl;
  auto is_hccl = [&](StringId type) {
    const auto [it, fresh] = hccl.try_emplace(type, false);
    if (fresh) it->second = hccl_type(t.text(type));
    return it->second;
  };
  const StringId fragment_name = t.strings.find("AivKernel");
  for (std::uint32_t i : kernels) {
    const Kernel& k = t.kernels[i];
    if (k.core != Core::communication || k.has_task || !is_hccl(k.type)) continue;
    if (fragment_name && k.name == fragment_name) continue;
    summaries[k.type].push_back({k.start, k.end(), i});
    ++s.summaries;
  }
  for (auto& [type, v] : summaries)
    std::sort(v.begin(), v.end(),
              [](const Summary& a, const Summary& b) { return a.start < b.start; });
  // The summary that holds a start, with 1 ns either way; the latest that began.
  auto holder = [&](const Kernel& k) -> Summary* {
    const auto it = summaries.find(k.type);
    if (it == summaries.end()) return nullptr;
    auto& v = it->second;
    auto after = std::upper_bound(v.begin(), v.end(), k.start + 1,
                                  [](Ns at, const Summary& x) { return at < x.start; });
    for (int look = 0; after != v.begin() && look < 64; ++look) {
      --after;
      if (k.start <= after->end + 1) return &*after;
    }
    return nullptr;
  };
  std::vector<bool> drop(kernels.size());
  for (std::size_t n = 0; n < kernels.size(); ++n) {
    const Kernel& k = t.kernels[kernels[n]];
    if (k.core == Core::ai_cpu && !keep_ai_cpu) {
      ++s.ai_cpu_dropped;
      drop[n] = true;
      continue;
    }
    if (!k.has_task || summaries.empty() || !is_hccl(k.type)) continue;
    Summary* h = holder(k);
    if (!h) continue;
    const bool fragment = k.core == Core::communication && fragment_name && k.name == fragment_name;
    const bool twin = k.start == h->start && k.duration == h->end - h->start;
    if (!fragment && !twin) continue;
    (fragment ? s.fragments_dropped : s.duplicates_dropped)++;
    if (h->stream == no_stream) h->stream = k.stream;
    drop[n] = true;
  }
  std::unordered_map<std::uint32_t, std::int32_t> summary_stream;
  for (const auto& [type, v] : summaries)
    for (const Summary& x : v) summary_stream.emplace(x.op, x.stream);
  std::map<std::string, std::int32_t> groups;
  for (std::size_t n = 0; n < kernels.size(); ++n) {
    if (drop[n]) continue;
    const std::uint32_t i = kernels[n];
    const Kernel& k = t.kernels[i];
    std::int32_t stream = k.stream;
    if (const auto it = summary_stream.find(i); it != summary_stream.end()) stream = it->second;
    if (stream == no_stream) {
      const std::string group =
          k.core == Core::communication ? collective_group(t.text(k.name)) : "";
      std::string name = k.core == Core::communication
                             ? cat("comm", group.empty() ? "" : ":", group)
                             : std::string("no stream");
      const auto [it, fresh] = groups.try_emplace(
          name, static_cast<std::int32_t>(-1 - static_cast<int>(s.group_names.size())));
      if (fresh) s.group_names.push_back(name);
      stream = it->second;
    }
    s.ops.push_back(i);
    s.streams.push_back(stream);
  }
  return s;
}

}  // namespace tk
