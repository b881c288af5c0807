// The arguments of a library signature, in its order.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tk::emit {

struct LibraryArg {
  std::string kind, name;
  bool required = false, keyword = false;
};

// Of "npu_x(Tensor a, *, int b=1) -> Tensor".
std::vector<LibraryArg> library_args(std::string_view signature);

}  // namespace tk::emit
