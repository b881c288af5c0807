// A Plan of the simulator as a JSON file: to keep what was lowered, change it by hand and time it
// again (VN-01).
#pragma once

#include <string>

#include "npu/sim/simulate.h"

namespace tk {

// Fields are those of sim/plan.h; times in us, events by number, accesses as [address, bytes,
// "r" or "w"]. What is a default is left out.
std::string plan_to_json(const sim::Plan& plan);

// `file` names it in errors. Throws TK1454 for what is no such file; whether the Plan can run is
// found out by sim::simulate.
sim::Plan plan_from_json(const std::string& text, const std::string& file);

// One run of such a Plan: total, streams, and the launches in the order of their starts.
std::string plan_run_text(const sim::Plan& plan, const sim::Result& result);
std::string plan_run_json(const sim::Plan& plan, const sim::Result& result);

}  // namespace tk
