// Simulated steps as what the ledger holds of measured ones.
#pragma once

#include <string>

#include "npu/clock.h"
#include "trial/ledger.h"

namespace tk {

// Both steps in one graph; the interval of the ratio is what the model can tell apart
// (npu/clock.h).
Comparison predicted_comparison(const std::string& metric, const Simulation& before,
                                const Simulation& after);

// The decode step of the result as it was simulated: its kernels, bytes, band and bandwidth.
void record_prediction(const Simulation& step, Ledger* ledger);

}  // namespace tk
