#include "npu/calibrate/samples.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <tuple>

#include "base/error.h"
#include "timeline/operands.h"
#include "timeline/roles.h"

namespace tk {
namespace {

constexpr std::size_t least_kernels = 50;
constexpr std::int64_t most_size = std::int64_t{1} << 40;

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

double largest(const std::vector<ShapeOperand>& v) {
  double most = 0;
  for (const ShapeOperand& o : v) most = std::max(most, o.bytes);
  return most;
}

bool product_work(const std::vector<ShapeOperand>& in, const std::vector<ShapeOperand>& out,
                  Sample* s) {
  if (operations_of(in, out[0]) == 0) return false;
  const double batch = batch_of(in, out[0]);
  const double a = in[0].elements / batch;
  const double b = in[1].elements / batch;
  const double c = out[0].elements / batch;
  Product p;
  p.groups = std::llround(batch);
  p.k = std::llround(std::sqrt(a * b / c));
  p.m = std::llround(std::sqrt(a * c / b));
  p.n = std::llround(std::sqrt(b * c / a));
  if (p.k < 1 || p.m < 1 || p.n < 1 || std::max({p.k, p.m, p.n}) > most_size) return false;
  // Padded or blocked operands do not multiply out.
  if (std::abs(static_cast<double>(p.m) * static_cast<double>(p.n) / c - 1) > 0.01) return false;
  s->work.family = Family::matmul;
  s->work.bits = static_cast<int>(std::lround(in[0].bytes / in[0].elements * 8));
  s->work.products = {p};
  s->cold_bytes = in[1].bytes;
  s->warm_bytes = sum_bytes(in) - in[1].bytes + sum_bytes(out);
  return true;
}

// One query against contiguous keys and values of full length.
bool attention_work(const std::vector<ShapeOperand>& in, const std::vector<ShapeOperand>& out,
                    Sample* s) {
  if (in.size() < 3) return false;
  const std::vector<std::int64_t>& q = in[0].dims;
  const std::vector<std::int64_t>& k = in[1].dims;
  if (q.size() != 4 || k.size() != 4 || q[0] != k[0] || q[3] != k[3] || k[1] < 1 || q[0] < 1)
    return false;  // a paged cache does not say how long sequences are
  Product p;
  p.groups = q[0] * k[1];
  p.m = std::max<std::int64_t>(1, q[1] / k[1]) * q[2];
  p.k = q[3];
  p.n = 2 * k[2];  // scores and sums
  if (p.m < 1 || p.k < 1 || p.n < 1) return false;
  s->work.family = Family::attention;
  s->work.products = {p};
  s->work.vector_bytes = 20.0 * static_cast<double>(q[0]) * static_cast<double>(q[1] * q[2]) *
                         static_cast<double>(k[2]);
  s->cold_bytes = in[1].bytes + in[2].bytes;
  s->warm_bytes = in[0].bytes + sum_bytes(out);
  return true;
}

bool vector_work(Role role, std::string_view type, const std::vector<ShapeOperand>& in,
                 const std::vector<ShapeOperand>& out, Sample* s) {
  const double elements = [&] {
    double most = 0;
    for (const ShapeOperand& o : out) most = std::max(most, o.elements);
    return most;
  }();
  double passes = 1;
  double moved = sum_bytes(in) + sum_bytes(out);
  s->work.family = Family::pointwise;
  switch (role) {
    case Role::norm:
      s->work.family = Family::norm;
      passes = 4;
      break;
    case Role::rope:
      s->work.family = Family::rope;
      passes = 4;
      break;
    case Role::activation:
      passes = 8;
      break;
    case Role::quant:
      s->work.family = Family::quant;
      passes = 2;
      break;
    case Role::cache_write:
      s->work.family = Family::cache;
      [[fallthrough]];
    case Role::elementwise:
    case Role::move:
      if (has(type, "Scatter") || has(type, "Cache") || has(type, "IndexPut")) {
        // Rows are written into a large operand: all but the largest is touched, twice.
        moved = 2 * (sum_bytes(in) - largest(in));
        passes = 0;
      } else if (has(type, "Gather") || has(type, "Index") || has(type, "Slice") ||
                 has(type, "Split") || has(type, "Embedding")) {
        s->work.family =
            has(type, "Gather") || has(type, "Index") ? Family::gather : Family::pointwise;
        moved = 2 * sum_bytes(out);
        passes = 0;
      }
      break;
    default:
      return false;
  }
  s->work.vector_bytes = elements * 4 * passes;
  s->warm_bytes = moved;
  return true;
}

}  // namespace

bool work_of(const KernelRow& row, Core core, double l2_bytes, Sample* s) {
  s->type = row.type;
  s->shapes = cat(row.in_shapes, " -> ", row.out_shapes);
  s->core = core_name(core);
  s->work.type = row.type;
  std::vector<ShapeOperand> in;
  std::vector<ShapeOperand> out;
  if (core == Core::ai_cpu || is_communication(core) ||
      !operands_of(row.in_shapes, row.in_types, in) ||
      !operands_of(row.out_shapes, row.out_types, out) || in.empty() || out.empty())
    return false;
  const bool cube = core == Core::ai_core || core == Core::mix_aic;
  const Role role = role_of(row.type, row.type, core);
  if (!(role == Role::matmul      ? product_work(in, out, s)
        : role == Role::attention ? attention_work(in, out, s)
        : cube                    ? false
                                  : vector_work(role, row.type, in, out, s)))
    return false;
  // What does not fit into half of L2 does not stay there.
  if (s->warm_bytes > l2_bytes / 2) {
    const double written = std::min(s->warm_bytes, sum_bytes(out));
    s->cold_bytes += s->warm_bytes - written;
    s->cold_writes = written;
    s->warm_bytes = 0;
  }
  // Its bytes decide how many blocks a vector kernel is worth.
  s->work.operands = {
      {0, std::llround(std::min(s->cold_bytes + s->cold_writes + s->warm_bytes, 1e15)), false}};
  return true;
}

ProfileSamples samples_of(const Timeline& t, const std::string& where, double l2_bytes) {
  const auto refuse = [&](const std::string& what) {
    return UserError("TK1430", cat(where, " cannot be calibrated from: ", what))
        .help("profile with Level1 or Level2 and record_shapes=True, at least one whole step");
  };
  if (t.origin.kind == "cpu") throw refuse("it was recorded on a CPU");
  const int types_column = t.table ? t.table->column("Output Data Types") : -1;
  if (!t.has_shapes || !t.has_type || !t.table || types_column < 0)
    throw refuse("its kernels have no types and shapes (Level0)");
  if (t.kernels.size() < least_kernels)
    throw refuse(cat("it has ", t.kernels.size(), " kernels, and ", least_kernels, " are needed"));
  ProfileSamples out;
  out.kernels = t.kernels.size();
  if (!t.trace.frequency.empty()) out.mhz = t.trace.frequency.front().second;

  struct Alike {
    std::vector<double> us;
    std::uint32_t row = 0;
    const Kernel* kernel = nullptr;
  };
  std::map<std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>,
           Alike>
      groups;
  std::map<std::tuple<StringId, StringId, StringId, std::int32_t>, int> seen;
  std::map<std::tuple<StringId, StringId, StringId, std::int32_t>, int> total;
  const auto of_step = [](const Kernel& k) {
    return std::make_tuple(k.type, k.in_shapes, k.in_types, k.step);
  };
  for (const Kernel& k : t.kernels) ++total[of_step(k)];
  for (const Kernel& k : t.kernels) {
    if (k.core == Core::ai_core || k.core == Core::mix_aic)
      out.cubes = std::max(out.cubes, k.blocks);
    // The first one of a step finds cold caches; where there are few it is all there is.
    if (total[of_step(k)] >= 3 && seen[of_step(k)]++ == 0) {
      ++out.first;
      continue;
    }
    Alike& a =
        groups[{t.text(k.type), t.text(k.in_shapes), t.text(k.in_types), t.text(k.out_shapes)}];
    a.us.push_back(static_cast<double>(k.duration) / 1e3);
    a.kernel = &k;
  }
  for (auto& [key, alike] : groups) {
    const Kernel& k = *alike.kernel;
    Sample s;
    s.type = t.text(k.type);
    std::string types = t.table->cell(k.row, types_column);
    if (types.empty() || types == "N/A") {  // not written by a simulation: as the first input
      types.clear();
      const std::string_view first = t.text(k.in_types);
      const auto n = std::count(t.text(k.out_shapes).begin(), t.text(k.out_shapes).end(), ';');
      for (std::ptrdiff_t i = 0; i <= n; ++i)
        types += cat(i > 0 ? ";" : "", first.substr(0, first.find(';')));
    }
    const KernelRow row{s.type, std::string(t.text(k.in_shapes)), std::string(t.text(k.in_types)),
                        std::string(t.text(k.out_shapes)), types};
    if (!work_of(row, k.core, l2_bytes, &s)) {
      out.left_out[s.type] += alike.us.size();
      continue;
    }
    std::sort(alike.us.begin(), alike.us.end());
    const auto quantile = [&](double q) {
      return alike.us[static_cast<std::size_t>(q * static_cast<double>(alike.us.size() - 1))];
    };
    const double low = quantile(0.25);
    const double high = quantile(0.75);
    std::vector<double> kept;
    for (const double v : alike.us)
      if (v >= low - 1.5 * (high - low) && v <= high + 1.5 * (high - low)) kept.push_back(v);
    out.outliers += alike.us.size() - kept.size();
    s.us = kept[kept.size() / 2];
    s.count = static_cast<int>(kept.size());
    if (s.us > 0) out.samples.push_back(std::move(s));
  }
  return out;
}

ProfileSamples joined_samples(std::vector<ProfileSamples> all,
                              const std::vector<std::string>& where) {
  ProfileSamples out = std::move(all.front());
  for (std::size_t i = 1; i < all.size(); ++i) {
    ProfileSamples& p = all[i];
    const bool same = (p.cubes == out.cubes || p.cubes == 0 || out.cubes == 0) &&
                      (p.mhz == 0 || out.mhz == 0 || std::abs(p.mhz / out.mhz - 1) < 0.01);
    if (!same)
      throw UserError("TK1431", cat("the profiles are of different devices: ", where[0], " uses ",
                                    out.cubes, " cube cores at ", out.mhz, " MHz, ", where[i], " ",
                                    p.cubes, " at ", p.mhz))
          .help("calibrate from profiles of one kind of device");
    out.kernels += p.kernels;
    out.first += p.first;
    out.outliers += p.outliers;
    out.cubes = std::max(out.cubes, p.cubes);
    out.mhz = std::max(out.mhz, p.mhz);
    for (const auto& [type, n] : p.left_out) out.left_out[type] += n;
    for (Sample& s : p.samples) {
      const auto same_shape =
          std::find_if(out.samples.begin(), out.samples.end(),
                       [&](const Sample& x) { return x.type == s.type && x.shapes == s.shapes; });
      if (same_shape == out.samples.end()) {
        out.samples.push_back(std::move(s));
        continue;
      }
      // The mean of the medians, weighed by their number.
      const double n = same_shape->count + s.count;
      same_shape->us = (same_shape->us * same_shape->count + s.us * s.count) / n;
      same_shape->count += s.count;
    }
  }
  std::stable_sort(out.samples.begin(), out.samples.end(), [](const Sample& a, const Sample& b) {
    return std::tie(a.type, a.shapes) < std::tie(b.type, b.shapes);
  });
  return out;
}

}  // namespace tk
