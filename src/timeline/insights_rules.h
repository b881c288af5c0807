// The rules that judge findings (BD-139). Each sets confidence, reason, summary and origin.
#pragma once

#include <string>
#include <string_view>

#include "timeline/insights.h"

namespace tk {

// ratio: share of instances with a bubble above 5 % of TOTAL; share: median % of TOTAL.
void judge_persistent_bubble(Insight& x, double ratio, double share, const std::string& cause);
// One instance against the median of its kind, ns.
void judge_instance(Insight& x, double value, double median, double total, bool edge,
                    const std::string& what);
void judge_vector(Insight& x, bool crosses_components, std::size_t clusters);
void judge_movement(Insight& x, const std::string& kind, std::size_t cancelling,
                    const std::string& component_type);

// Two neighbours of one family undo each other: a transpose and its inverse, a cast there and back.
bool cancels(std::string_view family, std::string_view in_shapes, std::string_view out_shapes,
             std::string_view next_out_shapes, std::string_view in_types,
             std::string_view next_out_types);

}  // namespace tk
