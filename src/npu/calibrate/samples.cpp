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
constexpr std::size_t least_for_outliers = 4;
constexpr std::int64_t most_size = std::int64_t{1} << 40;

using Operands = std::vector<ShapeOperand>;

bool is_cold(const std::vector<char>& cold, std::size_t operand, bool otherwise) {
  return operand < cold.size() ? cold[operand] != 0 : otherwise;
}

bool has(std::string_view text, std::string_view part) {
  return text.find(part) != std::string_view::npos;
}

double largest(const Operands& v) {
  double most = 0;
  for (const ShapeOperand& o : v) most = std::max(most, o.bytes);
  return most;
}

// What is likely to be in L2, from the order of kernels. A profile has no addresses, so a tensor is
// told by its size and type: one that a kernel wrote since L2 was last filled anew is in it,
// weights and states are not. What is small does not matter.
class Residency {
 public:
  explicit Residency(double l2_bytes) : l2_(l2_bytes) {}
  bool cold(const ShapeOperand& o) const {
    if (o.bytes <= small) return false;
    const auto it = written_.find({o.elements, o.bytes});
    return it == written_.end() || moved_ - it->second + o.bytes > l2_;
  }
  void run(const Operands& in, const Operands& out, bool writes_all) {
    // What is larger than half of L2 streams past (VN-40).
    for (const ShapeOperand& o : in) moved_ += std::min(o.bytes, l2_ / 2);
    for (const ShapeOperand& o : out) {
      moved_ += std::min(o.bytes, l2_);
      if (writes_all) written_[{o.elements, o.bytes}] = moved_;
    }
  }

 private:
  static constexpr double small = 1e5;
  std::map<std::pair<double, double>, double> written_;
  double l2_, moved_ = 0;
};

// "nt": which axis of the operands the product sums over, the last one of A and the first of B
// being plain; "nz": a blocked B.
std::string layout_of(const Product& p, const Operands& in) {
  const auto last = [](const ShapeOperand& o) { return o.dims.empty() ? 1 : o.dims.back(); };
  std::string out = last(in[0]) == p.k ? "n" : "t";
  if (in[1].dims.size() > 3) return out + "z";
  return out + (last(in[1]) == p.n ? "n" : "t");
}

bool product_work(const Operands& in, const Operands& out, const std::vector<char>& cold,
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
  s->work.layout = layout_of(p, in);
  s->moved.warm = sum_bytes(out);
  for (std::size_t i = 0; i < in.size(); ++i)
    (is_cold(cold, i, i == 1) ? s->moved.cold : s->moved.warm) += in[i].bytes;
  return true;
}

// One query against contiguous keys and values of full length.
bool attention_work(const Operands& in, const Operands& out, const std::vector<char>& cold,
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
  s->moved.warm = sum_bytes(out);
  for (std::size_t i = 0; i < 3; ++i)
    (is_cold(cold, i, i > 0) ? s->moved.cold : s->moved.warm) += in[i].bytes;
  return true;
}

// Writes rows into a large operand: its output is not new.
bool writes_rows(std::string_view type) {
  return has(type, "Scatter") || has(type, "Cache") || has(type, "IndexPut");
}

bool vector_work(Role role, std::string_view type, const Operands& in, const Operands& out,
                 const std::vector<char>& cold, Sample* s) {
  const double elements = [&] {
    double most = 0;
    for (const ShapeOperand& o : out) most = std::max(most, o.elements);
    return most;
  }();
  double passes = 1;
  double read = 0;
  double cold_read = 0;
  for (std::size_t i = 0; i < in.size(); ++i)
    (is_cold(cold, i, false) ? cold_read : read) += in[i].bytes;
  double written = sum_bytes(out);
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
      if (writes_rows(type)) {
        // All but the largest operand is touched, twice.
        read = written = sum_bytes(in) - largest(in);
        cold_read = passes = 0;
      } else if (has(type, "Gather") || has(type, "Index") || has(type, "Slice") ||
                 has(type, "Split") || has(type, "Embedding")) {
        s->work.family =
            has(type, "Gather") || has(type, "Index") ? Family::gather : Family::pointwise;
        read = is_cold(cold, 0, false) ? 0 : written;
        cold_read = written - read;
        passes = 0;
      } else if (movement_family(type) == "fill") {
        read = cold_read = 0;
      }
      break;
    default:
      return false;
  }
  s->work.vector_bytes = elements * 4 * passes;
  // A stream of cold bytes pushes out what it writes.
  s->moved = {cold_read, std::min(written, cold_read), read};
  s->moved.warm += written - s->moved.cold_writes;
  s->work.operands = {{0, std::llround(read + cold_read), false}, {0, std::llround(written), true}};
  return true;
}

}  // namespace

bool work_of(const KernelRow& row, Core core, double l2_bytes, const std::vector<char>& cold,
             Sample* s) {
  s->type = row.type;
  s->shapes = cat(row.in_shapes, " -> ", row.out_shapes);
  s->core = core_name(core);
  s->work.type = row.type;
  s->work.in_types = row.in_types;
  s->moved = {};
  Operands in;
  Operands out;
  if (core == Core::ai_cpu || is_communication(core) ||
      !operands_of(row.in_shapes, row.in_types, in) ||
      !operands_of(row.out_shapes, row.out_types, out) || in.empty() || out.empty())
    return false;
  if (has(row.in_formats, "NC1HWC0") || has(row.in_formats, "FRACTAL") ||
      has(row.out_formats, "NC1HWC0") || has(row.out_formats, "FRACTAL"))
    s->work.layout = cat(row.in_formats, " ", row.out_formats);
  s->work.operands = {{0, std::llround(std::min(sum_bytes(in), 1e15)), false},
                      {0, std::llround(std::min(sum_bytes(out), 1e15)), true}};
  const bool cube = core == Core::ai_core || core == Core::mix_aic;
  const Role role = role_of(row.type, row.type, core);
  if (!(role == Role::matmul      ? product_work(in, out, cold, s)
        : role == Role::attention ? attention_work(in, out, cold, s)
        : cube                    ? false
                                  : vector_work(role, row.type, in, out, cold, s)))
    return false;
  Moved& m = s->moved;
  if (m.warm > l2_bytes / 2) {
    const double written = std::min(m.warm, sum_bytes(out));
    m = {m.cold + m.warm - written, m.cold_writes + written, 0};
  }
  return true;
}

ProfileSamples samples_of(const Timeline& t, const std::string& where, double l2_bytes) {
  const auto refuse = [&](const std::string& what) {
    return UserError("TK1430", cat(where, " cannot be calibrated from: ", what))
        .help("profile with Level1 or Level2 and record_shapes=True, at least one whole step");
  };
  if (t.origin.kind == "cpu") throw refuse("it was recorded on a CPU");
  if (t.origin.kind == "simulated")
    throw refuse(cat("it was simulated (", t.origin.detail, "), not measured on an NPU"));
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
    std::vector<std::size_t> cold;  // of each input: kernels that found it so
    const Kernel* kernel = nullptr;
    KernelRow row;
    Operands in, out;
  };
  const int formats[] = {t.table->column("Input Formats"), t.table->column("Output Formats")};
  std::map<std::tuple<std::string_view, std::string_view, std::string_view, std::string_view>,
           Alike>
      groups;
  std::map<std::tuple<StringId, StringId, StringId, std::int32_t>, int> seen;
  std::map<std::tuple<StringId, StringId, StringId, std::int32_t>, int> total;
  const auto of_step = [](const Kernel& k) {
    return std::make_tuple(k.type, k.in_shapes, k.in_types, k.step);
  };
  for (const Kernel& k : t.kernels) ++total[of_step(k)];
  const auto row_of = [&](const Kernel& k) {
    std::string types = t.table->cell(k.row, types_column);
    if (types.empty() || types == "N/A") {  // not written by a simulation: as the first input
      types.clear();
      const std::string_view first = t.text(k.in_types);
      const auto n = std::count(t.text(k.out_shapes).begin(), t.text(k.out_shapes).end(), ';');
      for (std::ptrdiff_t i = 0; i <= n; ++i)
        types += cat(i > 0 ? ";" : "", first.substr(0, first.find(';')));
    }
    const auto format = [&](int column) {
      const std::string cell = column < 0 ? "" : t.table->cell(k.row, column);
      return cell == "N/A" ? "" : cell;
    };
    return KernelRow{std::string(t.text(k.type)),
                     std::string(t.text(k.in_shapes)),
                     std::string(t.text(k.in_types)),
                     std::string(t.text(k.out_shapes)),
                     types,
                     format(formats[0]),
                     format(formats[1])};
  };
  std::vector<const Kernel*> ordered;
  ordered.reserve(t.kernels.size());
  for (const Kernel& k : t.kernels) ordered.push_back(&k);
  std::stable_sort(ordered.begin(), ordered.end(),
                   [](const Kernel* a, const Kernel* b) { return a->start < b->start; });
  std::map<std::int32_t, Residency> l2;  // by device
  for (const Kernel* one : ordered) {
    const Kernel& k = *one;
    if (k.core == Core::ai_core || k.core == Core::mix_aic)
      out.cubes = std::max(out.cubes, k.blocks);
    Alike& a =
        groups[{t.text(k.type), t.text(k.in_shapes), t.text(k.in_types), t.text(k.out_shapes)}];
    if (a.kernel == nullptr) {
      a.kernel = &k;
      a.row = row_of(k);
      if (!operands_of(a.row.in_shapes, a.row.in_types, a.in) ||
          !operands_of(a.row.out_shapes, a.row.out_types, a.out)) {
        a.in.clear();
        a.out.clear();
      }
      a.cold.resize(a.in.size());
    }
    Residency& residency = l2.emplace(k.device, Residency(l2_bytes)).first->second;
    std::vector<char> cold;
    cold.reserve(a.in.size());
    for (const ShapeOperand& o : a.in) cold.push_back(residency.cold(o) ? 1 : 0);
    residency.run(a.in, a.out, !writes_rows(a.row.type));
    // The first one of a step finds cold caches; where there are few it is all there is.
    if (total[of_step(k)] >= 3 && seen[of_step(k)]++ == 0) {
      ++out.first;
      continue;
    }
    a.us.push_back(static_cast<double>(k.duration) / 1e3);
    for (std::size_t i = 0; i < cold.size(); ++i) a.cold[i] += cold[i] != 0 ? 1 : 0;
  }
  for (auto& [key, alike] : groups) {
    if (alike.us.empty()) continue;
    Sample s;
    std::vector<char> cold;
    cold.reserve(alike.cold.size());
    for (const std::size_t n : alike.cold) cold.push_back(2 * n > alike.us.size() ? 1 : 0);
    if (!work_of(alike.row, alike.kernel->core, l2_bytes, cold, &s)) {
      out.left_out[alike.row.type] += alike.us.size();
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
      if (alike.us.size() < least_for_outliers ||
          (v >= low - 1.5 * (high - low) && v <= high + 1.5 * (high - low)))
        kept.push_back(v);
    out.outliers += alike.us.size() - kept.size();
    s.us = (kept[kept.size() / 2] + kept[(kept.size() - 1) / 2]) / 2;
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
