// fuzz_readers: mutants of good files through every reader.
//
//   fuzz_readers [--reader NAME] [--n 2000] [--from 0] [--seed 1] [--keep DIR]
//
// A reader may refuse a mutant with a UserError. Another exception, a crash, more than 10 s for one
// mutant, or memory that grows from the first tenth to the end of the run is a failure, exit 1.
// Input I of a reader depends on the seed and I alone: `--from I --n 1` repeats it, `--keep DIR`
// writes it.
#include <malloc.h>
#include <unistd.h>

#include <chrono>
#include <csignal>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <fstream>
#include <functional>
#include <iostream>

#include "base/error.h"
#include "base/file.h"
#include "mutate.h"
#include "readers.h"

// AddressSanitizer holds freed memory back, up to 256 MiB as a rule: that would hide growth, or
// look like it.
extern "C" const char* __asan_default_options();
extern "C" const char* __asan_default_options() { return "quarantine_size_mb=8"; }

namespace tk::fuzz {
namespace {

constexpr int most_seconds = 10;        // for one input
constexpr double most_growth_mib = 64;  // of resident memory between a tenth of a run and its end

struct Options {
  std::string reader, keep;
  std::uint64_t n = 2000, from = 0, seed = 1;
};

// For the handlers, which may not do much: what to say when the process ends in the middle.
char now_reading[256];

extern "C" void on_signal(int signal) {
  const char* what = signal == SIGALRM ? "HANG: " : "CRASH: ";
  (void)!write(2, what, std::strlen(what));
  (void)!write(2, now_reading, std::strlen(now_reading));
  std::_Exit(1);
}

double resident_mib() {
  malloc_trim(0);
  std::ifstream file("/proc/self/statm");
  long pages = 0;
  file >> pages >> pages;
  return static_cast<double>(pages) * static_cast<double>(sysconf(_SC_PAGESIZE)) / (1 << 20);
}

struct Tally {
  std::uint64_t accepted = 0, refused = 0, failed = 0;
  double slowest = 0;
  std::uint64_t slowest_index = 0;
};

// One input, in memory of exactly its size: AddressSanitizer sees a byte too far.
void read_one(const Reader& reader, const std::string& text, std::uint64_t index, Tally& tally) {
  const std::unique_ptr<std::byte[]> bytes(new std::byte[text.size()]);
  if (!text.empty()) std::memcpy(bytes.get(), text.data(), text.size());
  const auto start = std::chrono::steady_clock::now();
  alarm(most_seconds);
  try {
    reader.read({bytes.get(), text.size()});
    ++tally.accepted;
  } catch (const UserError&) {
    ++tally.refused;
  } catch (const std::exception& e) {
    ++tally.failed;
    std::cerr << "FAILED: " << now_reading << e.what() << '\n';
  }
  alarm(0);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  if (took.count() > tally.slowest) {
    tally.slowest = took.count();
    tally.slowest_index = index;
  }
}

bool run(const Reader& reader, const Options& options) {
  std::vector<std::string> seeds;
  for (const std::string& name : reader.seeds)
    seeds.push_back(read_file(std::filesystem::path(TK_FUZZ_SEEDS) / name));
  for (const std::string& seed : seeds) {  // a seed that is refused tests nothing
    std::snprintf(now_reading, sizeof now_reading, "%s, a seed\n", reader.name.c_str());
    reader.read(std::as_bytes(std::span(seed)));
  }
  Tally tally;
  double early = 0;
  for (std::uint64_t i = options.from; i < options.from + options.n; ++i) {
    std::snprintf(now_reading, sizeof now_reading, "--reader %s --from %llu --n 1 --seed %llu\n",
                  reader.name.c_str(), static_cast<unsigned long long>(i),
                  static_cast<unsigned long long>(options.seed));
    Random random(options.seed * 0x100000001b3ULL ^ i * 0x9e3779b97f4a7c15ULL);
    const std::string text = mutated(seeds, random);
    if (!options.keep.empty())
      write_file(std::filesystem::path(options.keep) / cat(reader.name, "-", i), text);
    read_one(reader, text, i, tally);
    if (i - options.from == options.n / 10) early = resident_mib();
  }
  const double growth = resident_mib() - early;
  std::printf(
      "%-18s %8llu inputs: %llu accepted, %llu refused, %llu failed; slowest %.3f s (%llu); "
      "memory %+.1f MiB\n",
      reader.name.c_str(), static_cast<unsigned long long>(options.n),
      static_cast<unsigned long long>(tally.accepted),
      static_cast<unsigned long long>(tally.refused), static_cast<unsigned long long>(tally.failed),
      tally.slowest, static_cast<unsigned long long>(tally.slowest_index), growth);
  std::fflush(stdout);
  if (growth > most_growth_mib) std::cerr << "FAILED: memory grows\n";
  return tally.failed == 0 && growth <= most_growth_mib;
}

int main(int argc, char** argv) {
  Options options;
  for (int i = 1; i + 1 < argc; i += 2) {
    const std::string_view flag = argv[i];
    const char* value = argv[i + 1];
    if (flag == "--reader")
      options.reader = value;
    else if (flag == "--keep")
      options.keep = value;
    else if (flag == "--n")
      options.n = std::strtoull(value, nullptr, 10);
    else if (flag == "--from")
      options.from = std::strtoull(value, nullptr, 10);
    else if (flag == "--seed")
      options.seed = std::strtoull(value, nullptr, 10);
    else
      return std::cerr << "no flag " << flag << '\n', 2;
  }
  for (int signal : {SIGALRM, SIGABRT}) std::signal(signal, on_signal);
  bool good = true, any = false;
  for (const Reader& reader : readers()) {
    if (!options.reader.empty() && reader.name != options.reader) continue;
    any = true;
    good = run(reader, options) && good;
  }
  if (!any) return std::cerr << "no reader " << options.reader << '\n', 2;
  return good ? 0 : 1;
}

}  // namespace
}  // namespace tk::fuzz

int main(int argc, char** argv) {
  try {
    return tk::fuzz::main(argc, argv);
  } catch (const std::exception& e) {
    std::cerr << e.what() << '\n';
    return 1;
  }
}
