#include "timeline/page/page_data.h"

#include <zlib.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <nlohmann/json.hpp>
#include <thread>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/page/html.h"
#include "timeline/roles.h"

namespace tk {

using nlohmann::json;

namespace {

std::string base64(const std::string& bytes) {
  static constexpr char digits[] =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  out.reserve((bytes.size() + 2) / 3 * 4);
  for (std::size_t i = 0; i < bytes.size(); i += 3) {
    std::uint32_t v = 0;
    for (std::size_t j = 0; j < 3; ++j)
      v = v << 8 | (i + j < bytes.size() ? static_cast<unsigned char>(bytes[i + j]) : 0u);
    for (int j = 0; j < 4; ++j)
      out += i + static_cast<std::size_t>(j) > bytes.size() ? '=' : digits[v >> (18 - 6 * j) & 63];
  }
  return out;
}

std::string deflated(const std::string& bytes) {
  uLongf size = compressBound(bytes.size());
  std::string out(size, '\0');
  const int level = bytes.size() > (1 << 20) ? 3 : 6;
  TK_CHECK(compress2(reinterpret_cast<Bytef*>(out.data()), &size,
                     reinterpret_cast<const Bytef*>(bytes.data()), bytes.size(), level) == Z_OK);
  out.resize(size);
  return out;
}

template <class T>
void append(std::string& out, const std::vector<T>& v) {
  const std::size_t from = out.size();
  out.resize(from + v.size() * sizeof(T));
  std::memcpy(out.data() + from, v.data(), v.size() * sizeof(T));
}

std::string block(const std::string& id, const std::string& bytes) {
  return cat("<script type=\"application/x-deflate\" id=\"", id, "\">", base64(deflated(bytes)),
             "</script>\n");
}

}  // namespace

std::string page_data(const PageInput& in) {
  const Timeline& t = in.timeline;
  const std::size_t n = in.ops.size();
  const StepSummary& step = in.overview.steps[in.overview.step];
  std::map<StringId, std::uint32_t> used;
  json texts = json::array();
  auto text_id = [&](StringId id) {
    const auto [it, fresh] = used.try_emplace(id, static_cast<std::uint32_t>(used.size()));
    if (fresh) texts.push_back(std::string(t.text(id)));
    return it->second;
  };
  std::vector<double> start(n), duration(n);
  std::vector<std::uint32_t> name(n), type(n), core(n), row(n), in_shapes(n), out_shapes(n);
  std::vector<std::int32_t> owner(n), track(n);
  std::vector<std::uint8_t> role(n);
  // Tracks: the busiest stream first, collectives last.
  std::vector<std::int32_t> streams;
  for (const TimeShare& s : in.overview.by_stream)
    for (std::size_t i = 0; i < n; ++i)
      if (in.ops.stream_name(in.ops.streams[i]) == s.name) {
        streams.push_back(in.ops.streams[i]);
        break;
      }
  std::stable_sort(streams.begin(), streams.end(),
                   [](std::int32_t a, std::int32_t b) { return (a < 0) < (b < 0); });
  std::map<std::int32_t, std::int32_t> track_of;
  json tracks = json::array();
  for (std::int32_t s : streams) {
    track_of.emplace(s, static_cast<std::int32_t>(track_of.size()));
    tracks.push_back(s >= 0 ? cat("Stream ", s) : in.ops.stream_name(s));
  }
  std::vector<std::uint32_t> order(n);
  for (std::uint32_t i = 0; i < n; ++i) order[i] = i;
  const auto roles = roles_of(t);
  for (std::size_t i = 0; i < n; ++i) {
    const Kernel& k = t.kernels[in.ops.ops[i]];
    start[i] = static_cast<double>(k.start - step.first);
    duration[i] = static_cast<double>(k.duration);
    name[i] = text_id(k.name);
    type[i] = text_id(k.type);
    core[i] = text_id(k.core_text);
    in_shapes[i] = text_id(k.in_shapes);
    out_shapes[i] = text_id(k.out_shapes);
    row[i] = k.row;
    owner[i] = in.structure.found ? in.structure.owner[i] : -1;
    track[i] = track_of[in.ops.streams[i]];
    role[i] = static_cast<std::uint8_t>(roles[k.type]);
  }
  json data;
  data["n"] = n;
  data["texts"] = std::move(texts);
  data["tracks"] = std::move(tracks);
  data["base_us"] = t.absolute_us(step.first);
  data["span"] = static_cast<double>(step.last - step.first);
  json role_names = json::array();
  for (std::size_t r = 0; r < static_cast<std::size_t>(Role::count); ++r)
    role_names.push_back(role_name(static_cast<Role>(r)));
  data["roles"] = std::move(role_names);
  json components = json::array();
  for (const Component& c : in.structure.components) {
    Ns from = INT64_MAX, to = INT64_MIN;
    for (std::uint32_t op : c.ops) {
      if (std::find(c.displaced.begin(), c.displaced.end(), op) != c.displaced.end()) continue;
      const Kernel& k = t.kernels[in.ops.ops[op]];
      from = std::min(from, k.start);
      to = std::max(to, k.end());
    }
    if (from == INT64_MAX) from = to = step.first;
    components.push_back({c.type, c.phase, c.layer, from - step.first, to - step.first});
  }
  data["components"] = std::move(components);
  json gaps = json::array();
  for (const Gap& g : in.overview.gaps)
    if (g.length() >= 500)
      gaps.push_back({g.from - step.first, g.to - step.first, static_cast<int>(g.kind)});
  data["gaps"] = std::move(gaps);
  json sections = json::array();
  if (in.metrics)
    for (const Section& s : in.metrics->sections) {
      json items = json::array();
      for (const SubItem& item : s.items) {
        if (item.bubble) continue;
        json by_instance = json::array();
        for (std::size_t i = 0; i < s.instances.size(); ++i) by_instance.push_back(json::array());
        for (const OpRecord& r : item.records) by_instance[r.instance].push_back(r.op);
        json slow = json::array(), counts = json::array();
        for (const KernelOutlier& o : item.kernel_outliers)
          slow.push_back({o.instance, std::string(t.text(o.op)), o.occurrence, o.baseline});
        for (const CountAnomaly& a : item.count_anomalies)
          counts.push_back({a.instance, std::string(t.text(a.op)), a.count, a.usual});
        items.push_back({{"ops", std::move(by_instance)},
                         {"slow", std::move(slow)},
                         {"counts", std::move(counts)}});
      }
      sections.push_back(std::move(items));
    }
  data["sections"] = std::move(sections);
  std::vector<std::string> columns;
  if (t.table) columns = t.table->columns;
  data["columns"] = columns;
  // Each array is a multiple of its item's size behind the start: the doubles first.
  std::string numbers;
  append(numbers, start);
  append(numbers, duration);
  for (const auto* v : {&name, &type, &core, &in_shapes, &out_shapes, &row}) append(numbers, *v);
  append(numbers, owner);
  append(numbers, track);
  append(numbers, role);
  std::string out =
      cat("<script type=\"application/json\" id=\"tk-data\">",
          script_safe(data.dump(-1, ' ', false, json::error_handler_t::replace)), "</script>\n");
  out += block("tk-numbers", numbers);
  if (!columns.empty()) {
    std::vector<std::string> text(columns.size());
    for (std::size_t i = 0; i < n; ++i) {
      std::vector<std::string> cells = t.table->cells(t.kernels[in.ops.ops[i]].row);
      for (std::size_t c = 0; c < columns.size(); ++c) {
        for (char& x : cells[c])
          if (x == '\n' || x == '\r') x = ' ';
        text[c] += cells[c];
        text[c] += '\n';
      }
    }
    std::vector<std::string> blocks(columns.size());
    auto pack = [&](std::size_t first) {
      for (std::size_t c = first; c < columns.size(); c += 2)
        blocks[c] = block(cat("tk-col-", c), text[c]);
    };
    std::thread other(pack, 1);
    pack(0);
    other.join();
    for (const std::string& b : blocks) out += b;
  }
  return out;
}

}  // namespace tk
