// The sites of the NPU's fusion tree, as data (sites.def).
#pragma once

#include <span>
#include <string_view>

#include "graph/rewrite.h"

namespace tk {

struct FusionSite {
  std::string_view id;         // "FS-N02"
  std::string_view component;  // "norm", "attention.core", "moe.route"
  std::string_view phase;      // "prefill", "decode", "both"
  std::string_view operators;  // of torch_npu, apart by spaces
  std::string_view needs;      // changes that come first: "P-KV-PAGED P-PHASE"
  std::string_view targets;    // "a2 a3": where the recipes use it
};

std::span<const FusionSite> fusion_sites();
const FusionSite* find_fusion_site(std::string_view id);
bool has_word(std::string_view list, std::string_view word);  // apart by spaces

// A document that does not name the device does not hold up what is used there: such a verdict
// becomes adaptable, with a note.
void settle(const FusionSite& site, Target target, Verdict* verdict);

}  // namespace tk
