// Mutates the files of a profile and reads them: every result must be a Timeline or a UserError.
//   timeline_fuzz FOLDER [rounds] [seed]     FOLDER holds kernel_details.csv and/or trace_view.json
// Run it in the asan preset. The seed of a round is printed if it fails.
#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <fstream>
#include <iostream>
#include <random>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "timeline/analysis.h"
#include "timeline/artifacts.h"
#include "timeline/check.h"
#include "timeline/insights.h"
#include "timeline/page/page.h"
#include "timeline/split.h"

namespace fs = std::filesystem;

namespace {

using Random = std::mt19937_64;

const char* const fragments[] = {"\"",
                                 ",",
                                 "\n",
                                 "\r\n",
                                 "N/A",
                                 "{",
                                 "}",
                                 "[",
                                 "]",
                                 "\\",
                                 "\\u0000",
                                 ":",
                                 "-1",
                                 "1e309",
                                 "99999999999999999999",
                                 "nan",
                                 "\xFF\xFE",
                                 "\xEF\xBB\xBF",
                                 "\t",
                                 "null",
                                 "\"ph\": \"X\"",
                                 "0.0000000001",
                                 "4294967295",
                                 ";;",
                                 ""};

// One change: of bytes, of stretches, of the end, of fields.
void mutate(std::string& s, Random& random) {
  if (s.empty()) return;
  auto at = [&] { return static_cast<std::size_t>(random() % s.size()); };
  switch (random() % 9) {
    case 0:
      s[at()] = static_cast<char>(random());
      break;
    case 1:
      s[at()] ^= static_cast<char>(1 << (random() % 8));
      break;
    case 2:
      s.resize(at());
      break;
    case 3:
      s.insert(at(), fragments[random() % std::size(fragments)]);
      break;
    case 4: {
      const std::size_t from = at();
      s.erase(from, random() % 200);
      break;
    }
    case 5: {
      const std::size_t from = at();
      s.insert(at(), s.substr(from, random() % 400));
      break;
    }
    case 6: {  // a digit run becomes something else
      const std::size_t from = s.find_first_of("0123456789", at());
      if (from == s.npos) break;
      const std::size_t to = std::min(s.find_first_not_of("0123456789", from), s.size());
      s.replace(from, to - from, fragments[random() % std::size(fragments)]);
      break;
    }
    case 7: {  // a whole line twice, or gone
      const std::size_t from = s.rfind('\n', at());
      if (from == s.npos) break;
      const std::size_t to = s.find('\n', from + 1);
      if (to == s.npos) break;
      if (random() % 2)
        s.insert(from, s.substr(from, to - from));
      else
        s.erase(from, to - from);
      break;
    }
    case 8: {  // the header: two columns change places
      const std::size_t line = std::min(s.find('\n'), s.size());
      const std::size_t a = s.find(','), b = s.find(',', a + 1);
      if (b < line && random() % 4 == 0)
        s.replace(0, b, s.substr(a + 1, b - a - 1) + "," + s.substr(0, a));
      break;
    }
  }
}

}  // namespace

int main(int argc, char** argv) {
  if (argc < 2) {
    std::fprintf(stderr, "usage: timeline_fuzz FOLDER [rounds] [seed]\n");
    return 2;
  }
  const long rounds = argc > 2 ? std::atol(argv[2]) : 200;
  const std::uint64_t seed = argc > 3 ? std::strtoull(argv[3], nullptr, 10) : 1;
  std::vector<std::pair<std::string, std::string>> seeds;  // name, text
  for (const auto& entry : fs::directory_iterator(argv[1]))
    if (entry.is_regular_file() && entry.file_size() < (4 << 20))
      seeds.emplace_back(entry.path().filename().string(), tk::read_file(entry.path()));
  std::sort(seeds.begin(), seeds.end());
  const fs::path work = fs::temp_directory_path() / tk::cat("tk_fuzz_", seed);
  long read = 0, refused = 0;
  for (long round = 0; round < rounds; ++round) {
    Random random(seed * 1000003 + static_cast<std::uint64_t>(round));
    fs::remove_all(work);
    fs::create_directories(work);
    const std::size_t chosen = random() % std::max<std::size_t>(1, seeds.size());
    for (std::size_t i = 0; i < seeds.size(); ++i) {
      std::string text = seeds[i].second;
      if (i == chosen)
        for (std::uint64_t n = 1 + random() % 6; n > 0; --n) mutate(text, random);
      std::ofstream(work / seeds[i].first, std::ios::binary) << text;
    }
    tk::ProfileOptions options;
    options.path = work.string();
    options.allow_truncated = random() % 2;
    try {
      for (const tk::ProfileFiles& f : tk::find_profiles(work)) {
        const auto a = tk::analyse(f, options);
        (void)tk::raw_ops_text(a->timeline, a->ops, a->step());
        (void)tk::raw_ops_details_text(a->timeline, a->ops, a->step(), a->theory);
        const tk::PageInput in{
            a->timeline, a->ops,   a->structure, a->overview, a->metrics ? &*a->metrics : nullptr,
            {},          a->label, a->stage,     a->rank,     a->choice.origin,
            "",          "",       a->warnings,  false};
        if (tk::profile_page(in).empty()) return 1;
        if (a->metrics)
          (void)tk::find_insights({a->timeline, a->ops, a->structure, *a->metrics, *a->gaps,
                                   a->roles, "", "", a->theory, a->alignment});
        if (a->structure.found) tk::write_splits(work / "run", a->timeline, a->ops, a->structure);
      }
      (void)tk::check_profile(options);
      ++read;
    } catch (const tk::UserError& e) {
      ++refused;
      if (e.message().empty()) return 1;
    } catch (const std::exception& e) {
      std::fprintf(stderr, "round %ld of seed %llu: %s\nfiles are in %s\n", round,
                   static_cast<unsigned long long>(seed), e.what(), work.c_str());
      return 1;
    }
  }
  fs::remove_all(work);
  std::printf("%ld rounds: %ld read, %ld refused with a message\n", rounds, read, refused);
  return 0;
}
