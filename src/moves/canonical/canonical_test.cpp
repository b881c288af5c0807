// Golden tests: each case of the .tk files beside this is a graph, "// expect" and the graph that
// must come out, or "// expect unchanged". Cases are split by "// -----".
// TK_UPDATE=1 rewrites the expected graphs; look at the diff before you commit it.
#include "moves/canonical/canonical.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <sstream>

#include "base/file.h"

namespace tk {
namespace {

namespace fs = std::filesystem;

const fs::path folder = fs::path(TK_SOURCE_DIR) / "src/moves/canonical";
constexpr std::string_view divider = "// -----\n";
constexpr std::string_view expect = "// expect";

std::vector<std::string> cases_of(const std::string& text) {
  std::vector<std::string> out;
  for (std::size_t start = 0; start != std::string::npos;) {
    const std::size_t end = text.find(divider, start);
    out.push_back(text.substr(start, end - start));
    start = end == std::string::npos ? end : end + divider.size();
  }
  return out;
}

// The text without comment lines.
std::string graph_text(std::string_view text) {
  std::istringstream in{std::string(text)};
  std::string out;
  for (std::string line; std::getline(in, line);)
    if (!line.starts_with("//")) out += line + "\n";
  return out;
}

class Golden : public testing::TestWithParam<std::string> {};

TEST_P(Golden, Canonical) {
  const fs::path path = folder / GetParam();
  const std::string text = read_file(path);
  const bool update = std::getenv("TK_UPDATE") != nullptr;
  std::string updated;
  for (const std::string& c : cases_of(text)) {
    const std::size_t at = c.find(expect);
    ASSERT_NE(at, std::string::npos) << c;
    const std::size_t line_end = c.find('\n', at);
    const bool unchanged = c.compare(at, line_end - at, "// expect unchanged") == 0;
    const std::string before = graph_text(unchanged ? c : c.substr(0, at));
    SCOPED_TRACE(before);
    Graph g = parse_graph(before, path.string());
    const std::string plain = print(g);
    EXPECT_EQ(print(parse_graph(plain)), plain);
    canonicalize(g);
    verify(g, "canonical");
    const std::string after = print(g);
    if (update) {
      updated += updated.empty() ? "" : std::string(divider);
      updated += unchanged ? c : c.substr(0, line_end + 1) + after;
    } else if (unchanged) {
      EXPECT_EQ(after, plain);
    } else {
      EXPECT_EQ(after, print(parse_graph(graph_text(c.substr(at)), path.string())));
    }
    // It settles, and its text says all there is.
    canonicalize(g);
    EXPECT_EQ(print(g), after);
    EXPECT_EQ(print(parse_graph(after)), after);
  }
  if (update) std::ofstream(path) << updated;
}

std::vector<std::string> files() {
  std::vector<std::string> out;
  for (const auto& entry : fs::directory_iterator(folder))
    if (entry.path().extension() == ".tk") out.push_back(entry.path().filename().string());
  std::sort(out.begin(), out.end());
  return out;
}

INSTANTIATE_TEST_SUITE_P(Files, Golden, testing::ValuesIn(files()), [](const auto& info) {
  return info.param.substr(0, info.param.find('.'));
});

}  // namespace
}  // namespace tk
