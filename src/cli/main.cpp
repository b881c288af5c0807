// tokamak: the command line. The only place that catches.
#include <CLI/CLI.hpp>
#include <algorithm>
#include <cstdio>
#include <exception>
#include <new>
#include <string>
#include <string_view>
#include <vector>

#include "base/error.h"
#include "cli/cli.h"
#include "cli/profile_graph.h"
#include "npu/calibrate/microbench.h"
#include "timeline/command.h"
#include "timeline/emit_profiling.h"

namespace {

constexpr int answer_is_no = 1;
constexpr int bad_usage = 2;
constexpr int our_bug = 3;

// Where a command is wanted and another word stands, the word is named: CLI11 says only that one is
// required.
void check_command(const CLI::App* app, int argc, char** argv) {
  std::string path = "tokamak";
  for (int i = 1; app->get_require_subcommand_min() > 0 && i < argc && argv[i][0] != '-'; ++i) {
    std::vector<std::string> names;
    const CLI::App* next = nullptr;
    for (const CLI::App* c : app->get_subcommands([](const CLI::App*) { return true; })) {
      names.push_back(c->get_name());
      if (names.back() == argv[i]) next = c;
    }
    if (next == nullptr) {
      tk::UserError error("TK1511", tk::cat(path, " has no command '", argv[i], "'"));
      const std::string near = tk::nearest(argv[i], names);
      if (!near.empty()) throw std::move(error).help(tk::cat("did you mean ", near, "?"));
      std::string all;
      for (const std::string& name : names) all += tk::cat(all.empty() ? "" : ", ", name);
      throw std::move(error).help(tk::cat("the commands are ", all));
    }
    path += tk::cat(" ", argv[i]);
    app = next;
  }
}

int run(int argc, char** argv) {
  // profile parses its own arguments: it stands alone.
  if (argc > 1 && std::string_view(argv[1]) == "profile")
    return tk::profile_command(argc - 1, argv + 1, tk::cli::model_kernels);
  if (argc > 1 && (std::string_view(argv[1]) == "lint" || std::string_view(argv[1]) == "diagnose"))
    return tk::cli::python_command(argc - 1, argv + 1);
  if (argc > 1 && std::string_view(argv[1]) == "bench" &&
      std::any_of(argv, argv + argc,
                  [](const char* a) { return std::string_view(a).starts_with("--read-log"); }))
    return tk::cli::python_command(argc - 1, argv + 1);
  if (argc > 2 && std::string_view(argv[1]) == "emit" && std::string_view(argv[2]) == "profiling")
    // Whether a project profiles itself is a question about its Python.
    return std::any_of(argv + 3, argv + argc,
                       [](std::string_view a) { return a.starts_with("--project"); })
               ? tk::cli::python_command(argc - 2, argv + 2)
               : tk::emit_profiling_command(argc - 2, argv + 2);
  if (argc > 2 && std::string_view(argv[1]) == "emit" && std::string_view(argv[2]) == "microbench")
    return tk::emit_microbench_command(argc - 2, argv + 2);
  CLI::App app("Makes a PyTorch LLM run fast, and proves that it still is the same model.",
               "tokamak");
  app.set_version_flag("--version", std::string("tokamak ") + TK_VERSION);
  app.require_subcommand(1);
  app.fallthrough(false);
  app.get_formatter()->column_width(34);
  int exit_code = 0;
  tk::cli::add_optimize(app, &exit_code);
  tk::cli::add_run(app, &exit_code);
  tk::cli::add_bench(app, &exit_code);
  tk::cli::add_inspect(app, &exit_code);
  tk::cli::add_check(app, &exit_code);
  tk::cli::add_emit(app, &exit_code);
  tk::cli::add_ops(app, &exit_code);
  tk::cli::add_simulate(app, &exit_code);
  app.add_subcommand("profile",
                     "Break a profile of a real NPU down by module (tokamak profile --help)");
  app.add_subcommand("lint", "Hazards of graph mode in Python sources (tokamak lint --help)");
  app.add_subcommand("diagnose",
                     "Why a run fails or recompiles, from logs or by stages "
                     "(tokamak diagnose --help)");
  check_command(&app, argc, argv);
  try {
    app.parse(argc, argv);
  } catch (const CLI::ParseError& e) {
    const int code = app.exit(e);
    return code == 0 ? 0 : bad_usage;
  }
  return exit_code;
}

}  // namespace

int main(int argc, char** argv) {
  try {
    return run(argc, argv);
  } catch (const tk::UserError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    // That a Plan hangs is what its simulation found (VN-32, VN-74).
    return e.code() == "TK1402" || e.code() == "TK1403" ? answer_is_no : bad_usage;
  } catch (const tk::InternalError& e) {
    std::fprintf(stderr, "%s\n", e.what());
    return our_bug;
  } catch (const std::bad_alloc&) {
    std::fprintf(stderr, "error[TK0500]: out of memory\n");
    return bad_usage;
  } catch (const std::exception& e) {
    std::fprintf(stderr,
                 "internal error: %s\n  this is a bug in Tokamak; please report it with the "
                 "command and its input\n",
                 e.what());
    return our_bug;
  }
}
