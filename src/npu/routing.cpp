#include "npu/routing.h"

#include <algorithm>
#include <cmath>

namespace tk {
namespace {

std::vector<double> shares(std::int64_t n, double zipf) {
  std::vector<double> p(static_cast<std::size_t>(n));
  double sum = 0;
  for (std::size_t i = 0; i < p.size(); ++i)
    sum += p[i] = std::pow(static_cast<double>(i + 1), -zipf);
  for (double& v : p) v /= sum;
  return p;
}

// The mean of the largest of n standard normal variables, by its limit for many (Gumbel); 1.52 of 8
// where 1.42 is exact, 2.64 of 128 where 2.59 is.
double expected_maximum(double n) {
  const double most = std::sqrt(2 * std::log(n));
  return most + (0.5772 - (std::log(std::log(n)) + std::log(4 * 3.14159265)) / 2) / most;
}

}  // namespace

Spread spread(std::int64_t experts, std::int64_t ranks, std::int64_t rows, double zipf, bool even,
              std::int64_t rank) {
  const std::vector<double> p = shares(experts, zipf);
  // Expert i lies on rank i mod ranks, so rank 0 has the most wanted one.
  const auto first = static_cast<std::size_t>(rank);
  double mine = 0;
  for (std::size_t i = first; i < p.size(); i += static_cast<std::size_t>(ranks)) mine += p[i];
  double got = mine * static_cast<double>(rows);
  if (!even && ranks > 1 && rank == 0)
    got += std::sqrt(got) * expected_maximum(static_cast<double>(ranks));
  got = std::min(got, static_cast<double>(rows));
  double hit = 0;
  for (std::size_t i = first; i < p.size(); i += static_cast<std::size_t>(ranks))
    hit += 1 - std::pow(1 - std::min(1.0, p[i] / mine), got);
  return {std::max<std::int64_t>(1, std::llround(got)),
          std::max<std::int64_t>(1, std::llround(hit))};
}

std::vector<std::int64_t> routed_bytes(std::int64_t ranks, std::int64_t bytes, double zipf,
                                       bool back, double to_first) {
  const auto n = static_cast<std::size_t>(ranks);
  std::vector<double> p = shares(ranks, zipf);
  for (double& v : p) v *= 1 - to_first;
  p[0] += to_first;
  std::vector<std::int64_t> out(n * n);
  for (std::size_t i = 0; i < n; ++i)
    for (std::size_t j = 0; j < n; ++j)
      out[back ? j * n + i : i * n + j] = std::llround(p[j] * static_cast<double>(bytes));
  return out;
}

}  // namespace tk
