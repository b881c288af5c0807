// For tests: which error was thrown.
#pragma once

#include <string>
#include <utility>

#include "base/error.h"

namespace tk {

// The code of the UserError that f() throws; "none" without one.
template <typename F>
std::string code_of(F&& f) {
  try {
    std::forward<F>(f)();
  } catch (const UserError& e) {
    return std::string(e.code());
  }
  return "none";
}

}  // namespace tk
