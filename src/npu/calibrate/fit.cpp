#include "npu/calibrate/fit.h"

#include <fmt/format.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <nlohmann/json.hpp>
#include <random>

#include "base/error.h"
#include "npu/simulation.h"

namespace tk {
namespace {

using Matrix = std::vector<std::vector<double>>;

// Sizes of the fit. Residuals are of logarithms.
constexpr double most_noise = 0.1;  // of a median time, at first; then what is left over
constexpr double least_noise = 0.002;
constexpr double family_spread = 0.7;  // of a constant about its default: a factor of 2
// For derivatives: far at first, as a rate that another one hides now has no slope nearby.
constexpr double far_nudge = 0.3, nudge = 0.02;
constexpr int far_rounds = 3;
constexpr int rounds = 20;
constexpr std::uint32_t halvings = 10;

struct Column {
  std::string name;
  double was = 0, spread = 0;
  bool share = false;  // at most 1
};

// The costs with the constants of `columns` at exp(x) times what they were.
CostFile moved_costs(CostFile costs, const std::vector<Column>& columns,
                     const std::vector<double>& x) {
  for (std::size_t j = 0; j < columns.size(); ++j) {
    double value = columns[j].was * std::exp(x[j]);
    if (columns[j].share) value = std::min(value, 1.0);
    const auto it = std::find_if(costs.numbers.all.begin(), costs.numbers.all.end(),
                                 [&](const Fact& f) { return f.name == columns[j].name; });
    TK_CHECK(it != costs.numbers.all.end(), "a column is one of the constants");
    it->value = value;
  }
  return costs;
}

std::vector<double> residuals(const std::vector<const Sample*>& samples, const DeviceFile& device,
                              const CostFile& costs) {
  std::vector<double> r;
  r.reserve(samples.size());
  for (const Sample* s : samples) r.push_back(std::log(predicted_us(*s, device, costs) / s->us));
  return r;
}

Matrix derivatives(const std::vector<const Sample*>& samples, const DeviceFile& device,
                   const CostFile& start, const std::vector<Column>& columns,
                   const std::vector<double>& x, const std::vector<double>& at, double by) {
  Matrix j(samples.size(), std::vector<double>(columns.size(), 0));
  for (std::size_t c = 0; c < columns.size(); ++c) {
    std::vector<double> y = x;
    y[c] += columns[c].share ? -by : by;
    const std::vector<double> r = residuals(samples, device, moved_costs(start, columns, y));
    for (std::size_t i = 0; i < samples.size(); ++i) j[i][c] = (r[i] - at[i]) / (y[c] - x[c]);
  }
  return j;
}

// The inverse of a symmetric positive matrix, by Gauss-Jordan.
Matrix inverse(Matrix a) {
  const std::size_t n = a.size();
  Matrix b(n, std::vector<double>(n, 0));
  for (std::size_t i = 0; i < n; ++i) b[i][i] = 1;
  for (std::size_t i = 0; i < n; ++i) {
    const double d = a[i][i];
    TK_CHECK(d > 0, "the normal matrix is positive");
    for (std::size_t k = 0; k < n; ++k) {
      a[i][k] /= d;
      b[i][k] /= d;
    }
    for (std::size_t r = 0; r < n; ++r) {
      if (r == i || a[r][i] == 0) continue;
      const double f = a[r][i];
      for (std::size_t k = 0; k < n; ++k) {
        a[r][k] -= f * a[i][k];
        b[r][k] -= f * b[i][k];
      }
    }
  }
  return b;
}

struct Fit {
  std::vector<Column> columns;
  std::vector<double> x, error;  // error: standard error of x
  Matrix slopes;                 // of the samples
  std::vector<double> left_out;  // residual of each sample as if it had not been there
  CostFile costs;
};

// Far residuals count less: a sample of a cold cache is not to bend all others.
double weight(double residual, double noise) {
  return std::min(1.0, 1.5 * noise / std::max(1e-9, std::abs(residual)));
}

double median(std::vector<double> v) {
  if (v.empty()) return 0;
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}

// A kernel that was seen once says little: it may have been the first. A type with many shapes does
// not outvote the others.
std::vector<double> trust(const std::vector<const Sample*>& samples) {
  std::map<std::string, double> shapes;
  for (const Sample* s : samples) ++shapes[s->type];
  std::vector<double> out;
  out.reserve(samples.size());
  for (const Sample* s : samples)
    out.push_back(s->count / (s->count + 4.0) / std::sqrt(shapes[s->type]));
  return out;
}

double noise_of(std::vector<double> residuals) {
  for (double& r : residuals) r = std::abs(r);
  return std::clamp(1.48 * median(std::move(residuals)), least_noise, most_noise);
}

Fit fitted(const std::vector<const Sample*>& samples, const DeviceFile& device,
           const CostFile& start, std::vector<Column> columns) {
  Fit f;
  f.columns = std::move(columns);
  const std::size_t n = f.columns.size();
  f.x.assign(n, 0);
  Matrix cover;
  std::vector<double> r;
  double noise = most_noise;
  const std::vector<double> trusted = trust(samples);
  for (int round = 0; round < rounds; ++round) {
    r = residuals(samples, device, moved_costs(start, f.columns, f.x));
    f.slopes = derivatives(samples, device, start, f.columns, f.x, r,
                           round < far_rounds ? far_nudge : nudge);
    if (round > 2) noise = noise_of(r);
    Matrix a(n, std::vector<double>(n, 0));
    std::vector<double> g(n, 0);
    for (std::size_t c = 0; c < n; ++c) {
      const double ridge = noise * noise / (f.columns[c].spread * f.columns[c].spread);
      a[c][c] = ridge;
      g[c] = ridge * f.x[c];
    }
    for (std::size_t i = 0; i < samples.size(); ++i) {
      const double w = weight(r[i], noise) * trusted[i];
      for (std::size_t c = 0; c < n; ++c) {
        if (f.slopes[i][c] == 0) continue;
        g[c] += w * f.slopes[i][c] * r[i];
        for (std::size_t d = 0; d < n; ++d) a[c][d] += w * f.slopes[i][c] * f.slopes[i][d];
      }
    }
    cover = inverse(a);
    double largest = 0;
    for (std::size_t c = 0; c < n; ++c) {
      double step = 0;
      for (std::size_t d = 0; d < n; ++d) step -= cover[c][d] * g[d];
      step = std::clamp(step, -0.5, 0.5);
      f.x[c] += step;
      if (f.columns[c].share) f.x[c] = std::min(f.x[c], std::log(1 / f.columns[c].was));
      largest = std::max(largest, std::abs(step));
    }
    if (round > 5 && largest < 1e-4) break;
  }
  f.costs = moved_costs(start, f.columns, f.x);
  r = residuals(samples, device, f.costs);
  f.left_out = r;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    double h = 0;
    for (std::size_t c = 0; c < n; ++c)
      for (std::size_t d = 0; d < n; ++d) h += f.slopes[i][c] * cover[c][d] * f.slopes[i][d];
    f.left_out[i] = r[i] / std::max(0.05, 1 - weight(r[i], noise) * trusted[i] * h);
  }
  double square = 0;
  for (const double v : r) square += v * v;
  const double sigma = std::sqrt(square / static_cast<double>(std::max<std::size_t>(1, r.size())));
  for (std::size_t c = 0; c < n; ++c) f.error.push_back(sigma * std::sqrt(cover[c][c]));
  return f;
}

FitError error_of(const std::vector<const Sample*>& samples,
                  const std::vector<double>& log_residuals) {
  FitError e;
  e.shapes = log_residuals.size();
  std::vector<double> shapes;
  std::vector<double> kernels;
  for (std::size_t i = 0; i < samples.size(); ++i) {
    shapes.push_back(std::abs(std::exp(log_residuals[i]) - 1));
    kernels.insert(kernels.end(), static_cast<std::size_t>(samples[i]->count), shapes.back());
  }
  e.kernel_median = median(std::move(kernels));
  std::sort(shapes.begin(), shapes.end());
  e.median = shapes[shapes.size() / 2];
  e.p90 = shapes[static_cast<std::size_t>(std::ceil(0.9 * static_cast<double>(shapes.size()))) - 1];
  return e;
}

// Constants that any sample depends on.
std::vector<Column> columns_for(const std::vector<const Sample*>& samples, const DeviceFile& device,
                                const CostFile& start) {
  std::vector<Column> all;
  for (const Fact& f : start.numbers.all)
    if (f.value > 0)
      all.push_back({f.name, f.value, family_spread,
                     f.name.ends_with("_share") || f.name.ends_with("_efficiency")});
  const std::vector<double> zero(all.size(), 0);
  const std::vector<double> r = residuals(samples, device, start);
  const Matrix slopes = derivatives(samples, device, start, all, zero, r, far_nudge);
  std::vector<Column> out;
  for (std::size_t c = 0; c < all.size(); ++c)
    if (std::any_of(slopes.begin(), slopes.end(),
                    [&](const std::vector<double>& row) { return std::abs(row[c]) > 1e-3; }))
      out.push_back(all[c]);
  return out;
}

// Whether the samples that a constant decides are better told, each by a fit without it.
bool helps(const Fit& f, std::size_t column, const std::vector<double>& before) {
  std::vector<double> with;
  std::vector<double> without;
  for (std::size_t i = 0; i < before.size(); ++i) {
    if (std::abs(f.slopes[i][column]) < 0.05) continue;
    with.push_back(std::abs(f.left_out[i]));
    without.push_back(std::abs(before[i]));
  }
  return with.size() >= 2 && median(with) < median(without);
}

Fit validated(const std::vector<const Sample*>& samples, const DeviceFile& device,
              const CostFile& start, std::vector<std::string>* refused) {
  std::vector<Column> columns = columns_for(samples, device, start);
  const std::vector<double> before = residuals(samples, device, start);
  for (;;) {
    Fit f = fitted(samples, device, start, columns);
    std::vector<Column> kept;
    for (std::size_t c = 0; c < f.columns.size(); ++c) {
      if (helps(f, c, before))
        kept.push_back(f.columns[c]);
      else if (refused != nullptr)
        refused->push_back(f.columns[c].name);
    }
    if (kept.size() == f.columns.size()) return f;
    columns = std::move(kept);
  }
}

// The same order on any machine.
std::vector<const Sample*> shuffled(std::vector<const Sample*> v, std::uint32_t seed) {
  std::mt19937 random(seed);
  for (std::size_t i = v.size(); i > 1; --i) std::swap(v[i - 1], v[random() % i]);
  return v;
}

// The costs with what the samples took over what the constants say (near.h).
CostFile with_measured(const std::vector<const Sample*>& samples, const DeviceFile& device,
                       CostFile costs) {
  costs.measured.clear();
  std::vector<NearKernel> measured;
  for (const Sample* s : samples) {
    const double alone = predicted_us(*s, device, costs);
    measured.push_back(point_of(s->work, alone));
    measured.back().factor = s->us / alone;
    measured.back().count = s->count;
  }
  costs.measured = std::move(measured);
  return costs;
}

}  // namespace

double predicted_us(const Sample& s, const DeviceFile& device, const CostFile& costs) {
  return alone_us(calibrated_launch(s.work, s.moved, device, costs), s.moved, device, costs);
}

Calibration calibrate(const std::vector<Sample>& samples, const DeviceFile& device,
                      const CostFile& start) {
  if (samples.size() < 4)
    throw UserError("TK1432", cat("there are ", samples.size(),
                                  " shapes whose work is known; 4 are needed to fit anything"))
        .help("profile a step with matrix products and vector kernels, with record_shapes=True");
  std::vector<const Sample*> all;
  all.reserve(samples.size());
  for (const Sample& s : samples) all.push_back(&s);
  Calibration out;
  const std::vector<double> before = residuals(all, device, start);
  out.before = error_of(all, before);

  // Half of the shapes from the other half, both ways, for several ways to halve them.
  using Tested = std::pair<std::vector<const Sample*>, std::vector<double>>;
  std::map<std::string, Tested> by_type;
  Tested held;
  for (std::uint32_t split = 0; split < halvings; ++split) {
    Tested both;
    const std::vector<const Sample*> order = shuffled(all, split);
    for (const std::size_t half : {0U, 1U}) {
      std::vector<const Sample*> fit_on;
      std::vector<const Sample*> test;
      for (std::size_t i = 0; i < order.size(); ++i)
        (i % 2 == half ? fit_on : test).push_back(order[i]);
      const CostFile costs =
          with_measured(fit_on, device, validated(fit_on, device, start, nullptr).costs);
      const std::vector<double> r = residuals(test, device, costs);
      for (std::size_t i = 0; i < test.size(); ++i) {
        for (Tested* t : {&both, &held, &by_type[test[i]->type]}) {
          t->first.push_back(test[i]);
          t->second.push_back(r[i]);
        }
      }
    }
    const FitError e = error_of(both.first, both.second);
    out.lowest = split == 0 ? e.median : std::min(out.lowest, e.median);
    out.highest = std::max(out.highest, e.median);
  }
  out.held_out = error_of(held.first, held.second);
  for (auto& [type, t] : by_type) {
    out.by_type.emplace_back(type, error_of(t.first, t.second));
    out.by_type.back().second.shapes /= halvings;
  }
  out.held_out.shapes /= halvings;

  const Fit f = validated(all, device, start, &out.refused);
  out.costs = with_measured(all, device, f.costs);
  out.after = error_of(all, residuals(all, device, out.costs));
  for (std::size_t c = 0; c < f.columns.size(); ++c) {
    FittedConstant k;
    k.name = f.columns[c].name;
    k.was = f.columns[c].was;
    k.value = out.costs.numbers.at(k.name);
    k.relative_error = f.error[c];
    double low = 1e300;
    double high = 0;
    for (std::size_t i = 0; i < all.size(); ++i) {
      if (std::abs(f.slopes[i][c]) < 0.05) continue;
      ++k.shapes;
      low = std::min(low, all[i]->us);
      high = std::max(high, all[i]->us);
    }
    if (k.shapes > 0) k.range = fmt::format("{:.1f} to {:.1f} us", low, high);
    out.constants.push_back(std::move(k));
  }
  return out;
}

namespace {

nlohmann::ordered_json measured_json(const std::vector<NearKernel>& measured) {
  nlohmann::ordered_json out = nlohmann::ordered_json::array();
  for (const NearKernel& k : measured)
    out.push_back({{"type", k.type},
                   {"family", k.family},
                   {"dtype", k.dtype},
                   {"layout", k.layout},
                   {"cube", k.cube},
                   {"mnk", k.mnk},
                   {"read", k.read},
                   {"write", k.write},
                   {"alone_us", k.alone_us},
                   {"factor", k.factor},
                   {"count", k.count}});
  return out;
}

}  // namespace

std::string cost_json(const Calibration& c, const std::string& source) {
  nlohmann::ordered_json j;
  j["name"] = "cost";
  j["doc"] = cat("Calibrated from ", source, "; constants without a fit are the built-in ones.");
  j["held_out"] = {
      {"shapes", c.held_out.shapes}, {"median_error", c.held_out.median},
      {"lowest_median", c.lowest},   {"highest_median", c.highest},
      {"p90_error", c.held_out.p90}, {"median_error_of_kernels", c.held_out.kernel_median}};
  for (const Fact& f : c.costs.numbers.all) {
    nlohmann::ordered_json& n = j["numbers"][f.name];
    n = {{"value", f.value}, {"unit", f.unit}, {"source", f.source}, {"certainty", f.certainty}};
    if (!f.others.empty()) n["others"] = f.others;
    for (const FittedConstant& k : c.constants) {
      if (k.name != f.name) continue;
      n["source"] = fmt::format("calibrated from {}: {} shapes of {}, standard error {:.0f} %",
                                source, k.shapes, k.range, 100 * k.relative_error);
      n["certainty"] = "measured";
      n["others"] = {fmt::format("{:.6g} before the calibration", k.was)};
    }
  }
  // What is measured is relative to the constants above.
  j["measured"] = measured_json(c.costs.measured);
  return j.dump(1) + "\n";
}

std::string calibration_text(const Calibration& c, const ProfileSamples& p) {
  std::string out = fmt::format(
      "{} kernels, {} shapes with known work ({} first of a step and {} outliers left out)\n",
      p.kernels, p.samples.size(), p.first, p.outliers);
  if (!p.left_out.empty()) {
    out += "without a rule ";
    for (const auto& [type, n] : p.left_out) out += fmt::format(" {} ({})", type, n);
    out += '\n';
  }
  out += fmt::format("{:<36} {:>10} {:>10} {:>7} {:>7}  {}\n", "constant", "before", "now", "error",
                     "shapes", "times");
  for (const FittedConstant& k : c.constants)
    out += fmt::format("{:<36} {:>10.4g} {:>10.4g} {:>5.0f} % {:>7}  {}\n", k.name, k.was, k.value,
                       100 * k.relative_error, k.shapes, k.range);
  for (const std::string& name : c.refused)
    out += fmt::format("{:<36} stays: no better on shapes left out\n", name);
  out += fmt::format("{:<36} {:>10} {:>10}\n", "held out, by type", "median", "shapes");
  for (const auto& [type, e] : c.by_type)
    out += fmt::format("  {:<34} {:>8.1f} % {:>10}\n", type, 100 * e.median, e.shapes);
  const auto line = [&](const char* what, const FitError& e) {
    out += fmt::format(
        "{:<36} median {:.1f} % of {} shapes (of kernels {:.1f} %), 9 of 10 at most "
        "{:.1f} %\n",
        what, 100 * e.median, e.shapes, 100 * e.kernel_median, 100 * e.p90);
  };
  line("error before", c.before);
  line("error of the fit", c.after);
  line("error held out (half from half)", c.held_out);
  out += fmt::format("{:<36} {:.1f} to {:.1f} %\n",
                     fmt::format("  medians of {} random halvings", halvings), 100 * c.lowest,
                     100 * c.highest);
  return out;
}

}  // namespace tk
