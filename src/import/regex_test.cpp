#include "import/regex.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/error.h"

namespace tk {
namespace {

// The matches in [brackets], the rest as it is.
std::string marked(std::string_view pattern, std::string_view text) {
  std::string out;
  Regex::compile(pattern, "x").split(text, [&](Span span) {
    const std::string_view part = text.substr(span.begin, span.end - span.begin);
    out += span.is_match ? cat("[", part, "]") : std::string(part);
  });
  return out;
}

TEST(Regex, FollowsOniguruma) {
  EXPECT_EQ(marked(R"(\p{N}{1,3})", "a1234"), "a[123][4]");
  EXPECT_EQ(marked(R"(\p{N}{1,3}+)", "a1234"), "a[1234]");  // not possessive: repeated
  EXPECT_EQ(marked(R"((?:ab){2}+c)", "ababababc"), "[ababababc]");
  EXPECT_EQ(marked(R"(\x{61}+)", "aab"), "[aa]b");
  EXPECT_EQ(marked(R"(\u0061+)", "aab"), "[aa]b");
  EXPECT_EQ(marked("^a|b$", "a\nab\nb"), "[a]\n[a][b]\n[b]");  // at every line
  EXPECT_EQ(marked("a.b", "a\nb"), "a\nb");
  EXPECT_EQ(marked("(?m:a.b)", "a\nb"), "[a\nb]");
  EXPECT_EQ(marked(R"(\h+)", "xyzaf09g"), "xyz[af09]g");
  EXPECT_EQ(marked(R"(\v)", "a\x0b\n"), "a[\x0b]\n");
  EXPECT_EQ(marked(R"([^\S\n]+)", "a \t\nb"), "a[ \t]\nb");
  EXPECT_EQ(marked("[[:alpha:]]+", "ab1\xc3\xa9"), "[ab]1[\xc3\xa9]");
  EXPECT_EQ(marked(R"(\s)", "\xe1\xa0\x8e\xc2\xa0"), "\xe1\xa0\x8e[\xc2\xa0]");  // U+180E is none
  EXPECT_EQ(marked(R"(\w)", "\xc2\xbd"), "[\xc2\xbd]");  // one half, alone and
  EXPECT_EQ(marked(R"([\w])", "\xc2\xbd"), "\xc2\xbd");  // not in a class
  EXPECT_EQ(marked("(?i:'s)", "'S'\xc5\xbf"), "['S]['\xc5\xbf]");
}

TEST(Regex, EmptyMatches) {
  EXPECT_EQ(marked("x*", "axb"), "[]a[x]b[]");
  EXPECT_EQ(marked("", "ab"), "[]a[]b[]");
  EXPECT_EQ(marked("a", ""), "");
}

TEST(Regex, LongTexts) {
  const std::string spaces(1000000, ' ');
  EXPECT_EQ(marked(R"(\s*[\r\n]+|\s+(?!\S)|\s+)", spaces), cat("[", spaces, "]"));
}

}  // namespace
}  // namespace tk
