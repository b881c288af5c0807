// What a module holds: parameters, children, caches, and the weights that are worked out once.
#pragma once

#include <functional>
#include <string>
#include <vector>

#include "emit/module_text.h"

namespace tk::emit {

struct Parameters {
  std::vector<std::string> init;   // statements of __init__
  std::vector<std::string> cache;  // of init_cache
  std::vector<std::string> folds;  // of process_weights_after_loading
};

// Names the folded values of both phases on the way.
Parameters parameters_of(const Source& source, Region& prefill, Region& decode,
                         const std::function<Construction(const std::string&)>& construct);

}  // namespace tk::emit
