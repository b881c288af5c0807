// What the checkpoint calls otherwise than the model, and what it holds in parts.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "emit/classes.h"

namespace tk::emit {

struct CheckpointPlace {
  std::string weight;                // "model.layers.*.mlp.experts.gate_up_proj": * is a number
  std::int64_t part = 0, parts = 1;  // along the first axis, of an expert's where there is one
};

struct CheckpointNames {
  std::map<std::string, CheckpointPlace> places;  // by the checkpoint's name
  std::vector<std::string> unused;                // beginnings of names that the model has not
};

// From the capture's checkpoint.json; without one, experts that are held one by one are expected
// under the usual names. Throws TK1213 (a weight is converted in a way that has no form here) and
// what reading JSON throws.
CheckpointNames checkpoint_names(const Source& source);

}  // namespace tk::emit
