#include "npu/near.h"

#include <algorithm>
#include <cmath>

namespace tk {
namespace {

// How fast a kernel stops being near. Chosen for the smallest error of halves told from halves over
// the three public profiles of docs/virtual-npu.md together.
constexpr double of_time = 7.5, of_read = 0.2, of_write = 0.5, of_size = 1;  // a factor of e
constexpr double of_dtype = 1.25, of_layout = 1;
constexpr double least_bytes = 5120;                         // below it a kernel is all head
constexpr double family_share = 0.01, engine_share = 0.002;  // against the same type
constexpr double far_share = 0.003;                          // of the same type at any size
constexpr double prior_weight = 0.008;                       // of the constants alone
constexpr double trusted = 5;                                // kernels, for half of the full weight

double differs(const std::string& a, const std::string& b) {
  return !a.empty() && !b.empty() && a != b ? 1 : 0;
}

double weight(const NearKernel& a, const NearKernel& b) {
  const double alike = a.type == b.type       ? 1
                       : a.family == b.family ? family_share
                       : a.cube == b.cube     ? engine_share
                                              : 0;
  if (alike == 0) return 0;
  double square = 0;
  const auto far = [&](double x, double y, double scale) {
    const double d = scale * std::log(x / y);
    square += d * d;
  };
  far(a.alone_us, b.alone_us, of_time);
  far(a.read + least_bytes, b.read + least_bytes, of_read);
  far(a.write + least_bytes, b.write + least_bytes, of_write);
  for (std::size_t i = 0; i < 3; ++i)
    if (a.mnk[i] > 0 && b.mnk[i] > 0) far(a.mnk[i], b.mnk[i], of_size);
  const double distance = std::sqrt(square) + of_dtype * differs(a.dtype, b.dtype) +
                          of_layout * differs(a.layout, b.layout);
  return alike * (std::exp(-distance) + far_share) * b.count / (b.count + trusted);
}

}  // namespace

double near_factor(const NearKernel& k, const std::vector<NearKernel>& measured) {
  std::vector<std::pair<double, double>> at = {{0, prior_weight}};  // logarithm, weight
  double total = prior_weight;
  for (const NearKernel& m : measured) {
    const double w = weight(k, m);
    if (w <= 0) continue;
    at.emplace_back(std::log(m.factor), w);
    total += w;
  }
  std::sort(at.begin(), at.end());
  // Half of the weight is below, between two of them in proportion.
  double below = 0;
  double last = at.front().first;
  double last_at = 0;
  for (const auto& [value, w] : at) {
    const double middle = below + w / 2;
    if (middle >= total / 2) {
      const double share = middle > last_at ? (total / 2 - last_at) / (middle - last_at) : 1;
      return std::exp(last + (value - last) * std::clamp(share, 0.0, 1.0));
    }
    last = value;
    last_at = middle;
    below += w;
  }
  return std::exp(last);
}

}  // namespace tk
