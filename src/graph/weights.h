// The data of weights, by the checkpoint's name. Tensors are views of mapped files where possible.
#pragma once

#include <map>
#include <string>

#include "base/tensor.h"

namespace tk {

using Weights = std::map<std::string, Tensor, std::less<>>;

}  // namespace tk
