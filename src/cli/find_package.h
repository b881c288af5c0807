// Where a Python package is installed, without starting Python.
#pragma once

#include <filesystem>
#include <string>

namespace tk::cli {

// The folder of `package` as `python` (a path, or a name on PATH) would import it: in PYTHONPATH,
// in the packages of the interpreter's environment, or of the system and the user behind it; empty
// where there is none. Packages that a .pth file points at are not found.
std::filesystem::path find_package(const std::string& package, const std::string& python);

}  // namespace tk::cli
