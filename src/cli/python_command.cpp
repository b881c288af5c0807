// tokamak lint, diagnose, bench --read-log, emit profiling --project: written in Python (only
// CPython parses Python rightly; what is diagnosed runs there). This finds the interpreter and
// becomes it.
#include <unistd.h>

#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <filesystem>
#include <vector>

#include "base/error.h"
#include "cli/cli.h"

namespace tk::cli {
namespace {

namespace fs = std::filesystem;

// Reading needs nothing but the standard library of Python 3.8. argv[1] is the folder of the
// package, argv[2] the command.
constexpr const char* program =
    "import sys\n"
    "if sys.version_info < (3, 8):\n"
    "    sys.stderr.write('error[TK1104]: %s is Python %d.%d; %s needs 3.8\\n"
    "  help: set TOKAMAK_PYTHON to a newer one\\n'\n"
    "                     % ((sys.executable,) + tuple(sys.version_info[:2]) + (sys.argv[2],)))\n"
    "    sys.exit(2)\n"
    "sys.path.insert(0, sys.argv.pop(1))\n"
    "import importlib\n"
    "sys.exit(importlib.import_module('tokamak.%s.command' % sys.argv.pop(1)).main())\n";

bool is_program(const fs::path& p) { return !fs::is_directory(p) && access(p.c_str(), X_OK) == 0; }

fs::path own_folder() {
  std::error_code failed;
  return fs::read_symlink("/proc/self/exe", failed).parent_path();
}

// The folder that holds the package `tokamak`: of the checkout that this was built in, or beside.
fs::path package_folder() {
  const std::vector<fs::path> candidates = {own_folder() / "../../python", TK_PYTHON_DIR,
                                            own_folder() / "../share/tokamak/python"};
  for (const fs::path& c : candidates)
    if (fs::exists(c / "tokamak/lint/command.py")) return fs::weakly_canonical(c);
  throw UserError("TK1105", "the Python package of tokamak is not there")
      .note(cat("looked in ", fs::weakly_canonical(candidates[0]).string(), " and ",
                candidates[1].string()))
      .help("keep the folder python of the checkout, or build again where it is");
}

fs::path python_on_path() {
  const char* path = std::getenv("PATH");
  std::string_view rest = path == nullptr ? "" : path;
  while (!rest.empty()) {
    const std::size_t end = rest.find(':');
    const fs::path candidate = fs::path(rest.substr(0, end)) / "python3";
    if (is_program(candidate)) return candidate;
    rest = end == std::string_view::npos ? "" : rest.substr(end + 1);
  }
  return {};
}

// $TOKAMAK_PYTHON, then .venv beside the package, then python3 on PATH.
fs::path interpreter(const fs::path& package) {
  if (const char* named = std::getenv("TOKAMAK_PYTHON"); named != nullptr && *named != '\0') {
    if (is_program(named)) return named;
    throw UserError("TK1104", cat("TOKAMAK_PYTHON is ", named, ", which is not a program"))
        .help("set it to a Python interpreter, or unset it");
  }
  const fs::path beside = package.parent_path() / ".venv/bin/python";
  if (is_program(beside)) return beside;
  if (fs::path found = python_on_path(); !found.empty()) return found;
  throw UserError("TK1104",
                  cat("there is no Python: neither ", beside.string(), " nor python3 on PATH"))
      .help("install python3 (3.8 or newer), or set TOKAMAK_PYTHON");
}

}  // namespace

int python_command(int argc, char** argv) {
  const std::string package = package_folder().string();
  const std::string python = interpreter(package).string();
  std::vector<char*> args = {const_cast<char*>(python.c_str()), const_cast<char*>("-c"),
                             const_cast<char*>(program), const_cast<char*>(package.c_str())};
  for (int i = 0; i < argc; ++i) args.push_back(argv[i]);
  args.push_back(nullptr);
  // What is written in Python may call this program again.
  std::error_code failed;
  setenv("TOKAMAK_BIN", fs::read_symlink("/proc/self/exe", failed).c_str(), 0);
  execv(python.c_str(), args.data());
  throw UserError("TK1104", cat("cannot start ", python, ": ", std::strerror(errno)))
      .help("set TOKAMAK_PYTHON to a Python interpreter (3.8 or newer)");
}

}  // namespace tk::cli
