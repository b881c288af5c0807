#include "cli/find_package.h"

#include <algorithm>
#include <cstdlib>
#include <fstream>
#include <vector>

namespace tk::cli {
namespace {

namespace fs = std::filesystem;

std::string variable(const char* name) {
  const char* value = std::getenv(name);
  return value == nullptr ? "" : value;
}

std::vector<std::string> parts(const std::string& paths) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start <= paths.size();) {
    const std::size_t end = std::min(paths.find(':', start), paths.size());
    if (end > start) out.push_back(paths.substr(start, end - start));
    start = end + 1;
  }
  return out;
}

bool is_there(const fs::path& p) {
  std::error_code error;
  return fs::exists(p, error);
}

fs::path on_path(const std::string& python) {
  if (python.find('/') != std::string::npos) return python;
  for (const std::string& folder : parts(variable("PATH")))
    if (is_there(fs::path(folder) / python)) return fs::path(folder) / python;
  return {};
}

// In prefix/lib/python3.11 (of any version where `version` is empty), or where Debian has it.
fs::path below(const fs::path& prefix, const std::string& version, const std::string& package) {
  std::error_code error;
  for (const auto& entry : fs::directory_iterator(prefix / "lib", error)) {
    const std::string name = entry.path().filename().string();
    if (name.rfind("python3", 0) != 0) continue;
    if (!version.empty() && name != version && name != "python3") continue;
    for (const char* folder : {"site-packages", "dist-packages"})
      if (is_there(entry.path() / folder / package)) return entry.path() / folder / package;
  }
  return {};
}

bool is_closed(const fs::path& environment) {  // an environment that does not see the system
  std::ifstream settings(environment / "pyvenv.cfg");
  if (!settings) return false;
  for (std::string line; std::getline(settings, line);)
    if (line.rfind("include-system-site-packages", 0) == 0)
      return line.find("true") == std::string::npos;
  return true;
}

}  // namespace

fs::path find_package(const std::string& package, const std::string& python) {
  for (const std::string& folder : parts(variable("PYTHONPATH")))
    if (is_there(fs::path(folder) / package)) return fs::path(folder) / package;
  const fs::path found = on_path(python);
  if (found.empty()) return {};
  std::error_code error;
  const fs::path real = fs::canonical(found, error);
  const std::string name = real.filename().string();
  const std::string version = name.rfind("python3.", 0) == 0 ? name : "";
  const fs::path environment = fs::absolute(found, error).parent_path().parent_path();
  if (fs::path p = below(environment, version, package); !p.empty() || is_closed(environment))
    return p;
  std::vector<fs::path> prefixes = {real.parent_path().parent_path(), "/usr/local"};
  if (const std::string home = variable("HOME"); !home.empty())
    prefixes.push_back(fs::path(home) / ".local");
  for (const fs::path& prefix : prefixes)
    if (fs::path p = below(prefix, version, package); !p.empty()) return p;
  return {};
}

}  // namespace tk::cli
