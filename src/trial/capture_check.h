// A captured decode step against the same step launched operator by operator: equal to the bit over
// a prefill, steps of several batches and a request that joins, and no graph is made while serving
// (GM-50, GM-60).
#pragma once

#include <cstdint>
#include <string>

#include "cpu/runner.h"
#include "trial/numerics.h"

namespace tk {

struct CaptureCheck {
  bool done = false;
  std::string detail;  // why it was not done
  std::int64_t prefills = 0, steps = 0;
  ErrorStats error;                // of all logits
  bool same_bits = true;           // of all logits
  std::string first_difference;    // "decode step 5, sequence 2"
  std::int64_t predicted = 0;      // graphs: one for each padded batch and width of the block table
  std::int64_t at_warm_up = 0;     // that were made
  std::int64_t while_serving = 0;  // that were made after that
  double warm_up_s = 0;            // median of making one; the step it then runs is taken off
};

// The same tokens through both. `replay` must be new: what it makes is counted. Not done when a
// sequence may not have the 14 tokens that this takes, or fewer than 3 may run together.
CaptureCheck check_capture(Runner* op_by_op, Runner* replay);

}  // namespace tk
