#include "ops/npu/attend.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

float dot(const float* a, const float* b, std::int64_t n) {
  float sum = 0;
  for (std::int64_t i = 0; i < n; ++i) sum += a[i] * b[i];
  return sum;
}

// Keys and values of one request and kv head, as f32.
struct Rows {
  std::vector<float> keys, values;
};

Rows load_rows(const Attention& a, std::int64_t b, std::int64_t g) {
  const std::int64_t n = a.kv_lens[static_cast<std::size_t>(b)];
  const std::int64_t width = a.key.dim + a.key_rope.dim;
  Rows r{std::vector<float>(static_cast<std::size_t>(n * width)),
         std::vector<float>(static_cast<std::size_t>(n * a.value.dim))};
  for (std::int64_t j = 0; j < n; ++j) {
    float* key = r.keys.data() + j * width;
    a.key.read(b, j, g, key);
    if (a.key_rope.dim > 0) a.key_rope.read(b, j, g, key + a.key.dim);
    a.value.read(b, j, g, r.values.data() + j * a.value.dim);
  }
  return r;
}

// Scores become exp(score - max) unless nothing is seen; returns max and sum.
std::pair<float, float> exponentials(std::vector<float>* scores, const float* sink) {
  float top = sink != nullptr ? *sink : -INFINITY;
  for (const float s : *scores) top = std::max(top, s);
  if (top == -INFINITY) {
    std::fill(scores->begin(), scores->end(), 0.0F);
    return {top, 0.0F};
  }
  float sum = sink != nullptr ? std::exp(*sink - top) : 0;
  for (float& s : *scores) sum += s = std::exp(s - top);
  return {top, sum};
}

void write_one(const RowMap& map, std::int64_t b, std::int64_t i, std::int64_t h, float value) {
  if (!map.present()) return;
  const std::vector<float> row(static_cast<std::size_t>(map.data.shape.back()), value);
  map.write(map.offset(b, i, h), map.data.shape.back(), row.data());
}

void attend_head(const Attention& a, std::int64_t b, std::int64_t h, const Rows& rows) {
  const std::int64_t n_keys = a.kv_lens[static_cast<std::size_t>(b)];
  const std::int64_t width = a.key.dim + a.key_rope.dim;
  std::vector<float> query(static_cast<std::size_t>(width));
  std::vector<float> scores(static_cast<std::size_t>(n_keys));
  std::vector<float> result(static_cast<std::size_t>(a.value.dim));
  float sink = 0;
  if (a.sinks.data != nullptr) read_row(a.sinks, h * a.sinks.strides[0], 1, 1, &sink);
  for (std::int64_t i = 0; i < a.q_lens[static_cast<std::size_t>(b)]; ++i) {
    a.query.read(b, i, h, query.data());
    if (a.query_rope.dim > 0) a.query_rope.read(b, i, h, query.data() + a.query.dim);
    for (std::int64_t j = 0; j < n_keys; ++j)
      scores[static_cast<std::size_t>(j)] =
          dot(query.data(), rows.keys.data() + j * width, width) * a.scale;
    if (a.bias) a.bias(b, h, i, &scores);
    const bool blind =
        std::all_of(scores.begin(), scores.end(), [](float s) { return s == -INFINITY; });
    const auto [top, sum] = exponentials(&scores, a.sinks.data != nullptr ? &sink : nullptr);
    std::fill(result.begin(), result.end(), 0.0F);
    for (std::int64_t j = 0; j < n_keys && !blind; ++j) {
      const float p = scores[static_cast<std::size_t>(j)] / sum;
      if (p == 0) continue;
      const float* v = rows.values.data() + j * a.value.dim;
      for (std::int64_t d = 0; d < a.value.dim; ++d)
        result[static_cast<std::size_t>(d)] += p * v[d];
    }
    a.out(b, h, i, result.data());
    write_one(a.lse, b, i, h, sum == 0 ? INFINITY : top + std::log(sum));
    write_one(a.max, b, i, h, top);
    write_one(a.sum, b, i, h, sum);
  }
}

}  // namespace

std::int64_t RowMap::offset(std::int64_t b, std::int64_t p, std::int64_t h) const {
  if (block == 0) {
    const std::int64_t start = first.empty() ? 0 : first[static_cast<std::size_t>(b)];
    return b * request + (start + p) * position + h * head;
  }
  const std::int64_t column = p / block;
  if (column >= table.shape[1])
    throw UserError("TK0506", cat("position ", p, " of request ", b,
                                  " is beyond its block table of ", table.shape[1], " blocks"));
  const std::int64_t id =
      table.as<std::int32_t>()[b * table.strides[0] + column * table.strides[1]];
  if (id < 0 || id >= data.shape[0])
    throw UserError("TK0506", cat("block ", id, " of request ", b, " is outside the cache of ",
                                  data.shape[0], " blocks"));
  return id * request + p % block * position + h * head;
}

void RowMap::read(std::int64_t offset, std::int64_t n, float* out) const {
  if (lane == 0) return read_row(data, offset, element, n, out);
  for (std::int64_t d = 0; d < n; d += lane)
    read_row(data, offset + d / lane * lane_step, element, std::min(lane, n - d), out + d);
}

void RowMap::write(std::int64_t offset, std::int64_t n, const float* in) const {
  if (lane == 0) return write_row(data, offset, element, n, in);
  for (std::int64_t d = 0; d < n; d += lane)
    write_row(data, offset + d / lane * lane_step, element, std::min(lane, n - d), in + d);
}

RowMap row_map(const TensorView& t, std::string_view axes, std::int64_t heads) {
  RowMap m{.data = t, .element = 0};
  TK_CHECK(static_cast<int>(axes.size()) == t.rank(), axes, " of ", t.shape.str());
  for (int i = 0; i < t.rank(); ++i) {
    const std::int64_t step = t.strides[i];
    switch (axes[static_cast<std::size_t>(i)]) {
      case 'B':
        m.request = step;
        break;
      case 'S':
      case 'T':
        m.position = step;
        break;
      case 'N':
        m.head = step;
        break;
      case 'D':
        m.element = step;
        break;
      case 'H':
        m.head = t.shape[i] / heads * step;
        m.element = step;
        break;
      case 'G':
        m.lane_step = step;
        break;
      case 'L':
        m.lane = t.shape[i];
        m.element = step;
        break;
      default:
        TK_CHECK(axes[static_cast<std::size_t>(i)] == '1', "axes ", axes);
    }
  }
  return m;
}

void AttentionOperand::read(std::int64_t b, std::int64_t p, std::int64_t h, float* out) const {
  x.read(x.offset(b, p, h), dim, out);
  std::vector<float> factor;
  if (offset.present() || scale.present()) factor.resize(static_cast<std::size_t>(dim));
  if (offset.present()) {
    offset.read(offset.offset(b, p, h), dim, factor.data());
    for (std::int64_t d = 0; d < dim; ++d) out[d] += factor[static_cast<std::size_t>(d)];
  }
  if (scale.present()) {
    scale.read(scale.offset(b, p, h), dim, factor.data());
    for (std::int64_t d = 0; d < dim; ++d) out[d] *= factor[static_cast<std::size_t>(d)];
  }
}

void attend(const Attention& a) {
  const auto requests = static_cast<std::int64_t>(a.q_lens.size());
  const std::int64_t group = a.heads / a.kv_heads;
  std::int64_t work = 0;
  for (std::size_t b = 0; b < a.q_lens.size(); ++b)
    work += a.q_lens[b] * a.kv_lens[b] * a.heads * (a.key.dim + a.key_rope.dim + a.value.dim);
  parallel(requests * a.kv_heads, work, [&](std::int64_t begin, std::int64_t end) {
    for (std::int64_t job = begin; job < end; ++job) {
      const std::int64_t b = job / a.kv_heads;
      const std::int64_t g = job % a.kv_heads;
      if (a.q_lens[static_cast<std::size_t>(b)] == 0) continue;
      const Rows rows = load_rows(a, b, g);
      for (std::int64_t h = g * group; h < (g + 1) * group; ++h) attend_head(a, b, h, rows);
    }
  });
}

std::vector<std::int64_t> lengths(const EvalArgs& args, const TensorView& t, bool totals,
                                  std::int64_t limit, std::string_view what) {
  std::vector<std::int64_t> out;
  std::int64_t last = 0;
  for (std::int64_t i = 0; i < t.shape[0]; ++i) {
    const std::int64_t at = i * t.strides[0];
    const std::int64_t v =
        t.dtype == DType::i32 ? t.as<std::int32_t>()[at] : t.as<std::int64_t>()[at];
    if (v < last || v > limit)
      throw UserError("TK0505",
                      cat(args.op().name, " needs ", what, totals ? " as running totals" : "",
                          " within ", last, "..", limit, ", got ", v, " at ", i));
    out.push_back(v - last);
    if (totals) last = v;
  }
  return out;
}

std::vector<std::int64_t> starts_of(const std::vector<std::int64_t>& lens) {
  std::vector<std::int64_t> starts;
  std::int64_t at = 0;
  for (const std::int64_t n : lens) {
    starts.push_back(at);
    at += n;
  }
  return starts;
}

}  // namespace tk::ops
