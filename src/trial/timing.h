// Two alternatives timed against each other on this machine, in turn, until their difference is
// larger than its noise or the budget is spent.
#pragma once

#include <functional>
#include <string>

#include "trial/ledger.h"

namespace tk {

struct TimingOptions {
  double budget_s = 1.5;
  int min_rounds = 9;
  int max_rounds = 101;
  double sample_s = 0.004;  // a sample is the shortest of the runs that fit, at least three
};

// Each function does one unit of work (a decode step, a prefill).
Comparison time_in_turn(const std::string& metric, const std::function<void()>& before,
                        const std::function<void()>& after, const TimingOptions& options = {});

// The median of `values` and a 95 % interval of it, from order statistics. At least one value.
struct MedianInterval {
  double median, low, high;
};
MedianInterval median_interval(std::vector<double> values);

}  // namespace tk
