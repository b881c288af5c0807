// The commands. Each parses its own flags, does its work through the libraries, and returns the
// exit code: 0 done, 1 the answer is no, 2 bad usage or input (thrown as UserError), 3 our bug.
#pragma once

#include <string>
#include <string_view>

namespace CLI {
class App;
}

namespace tk::cli {

// Each adds its subcommand with help and an example; the callback stores the exit code.
void add_optimize(CLI::App& app, int* exit_code);
void add_run(CLI::App& app, int* exit_code);
void add_bench(CLI::App& app, int* exit_code);
void add_inspect(CLI::App& app, int* exit_code);
void add_check(CLI::App& app, int* exit_code);
void add_emit(CLI::App& app, int* exit_code);
void add_ops(CLI::App& app, int* exit_code);
void add_simulate(CLI::App& app, int* exit_code);

// argv[0] is lint or diagnose: starts Python with all arguments, in place of this process. Throws
// TK1104, TK1105.
int python_command(int argc, char** argv);

// A line on stderr, overwritten by the next on a terminal; one line each in a log.
class Progress {
 public:
  explicit Progress(bool quiet);
  ~Progress();
  void operator()(const std::string& line);

 private:
  bool quiet_, terminal_;
  bool pending_ = false;
};

// "30s", "5m", "1h" or seconds. Throws TK0701.
double parse_duration(std::string_view text);
std::string human_bytes(double bytes);  // "1.5 GiB"
std::string human_count(double count);  // "134.5 M"

}  // namespace tk::cli
