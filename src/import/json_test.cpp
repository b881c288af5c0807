#include "import/json.h"

#include <gtest/gtest.h>

namespace tk {
namespace {

// The text of the error that `f` throws; empty when it throws none.
template <typename F>
std::string error_of(F f) {
  try {
    f();
  } catch (const UserError& e) {
    return e.what();
  }
  return "";
}

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

TEST(Json, ReadsEveryKind) {
  const json::Document doc = json::parse(
      R"({"s": "a\u00e9\n", "i": -7, "d": 2.5, "big": 18446744073709551615,
          "t": true, "f": false, "n": null, "a": [1, [2], {}, "x"], "o": {"k": []}})",
      "x.json");
  const json::Value root = doc.root();
  EXPECT_EQ(root["s"].string(), "a\xc3\xa9\n");
  EXPECT_EQ(root["i"].integer(), -7);
  EXPECT_EQ(root["i"].number(), -7.0);
  EXPECT_EQ(root["d"].number(), 2.5);
  EXPECT_EQ(root["big"].number(), 18446744073709551615.0);
  EXPECT_TRUE(root["t"].boolean());
  EXPECT_FALSE(root["f"].boolean());
  EXPECT_TRUE(root["n"].is_null());
  EXPECT_FALSE(root.find("n").has_value());
  EXPECT_FALSE(root.find("absent").has_value());
  EXPECT_EQ(root["a"].size(), 4U);
  EXPECT_EQ(root.size(), 9U);
  EXPECT_EQ(root["o"]["k"].size(), 0U);
  std::string names;
  for (const json::Member& m : root.members()) names += cat(m.name, ",");
  EXPECT_EQ(names, "s,i,d,big,t,f,n,a,o,");
  EXPECT_EQ(json::integer_or(root, "i", 1), -7);
  EXPECT_EQ(json::integer_or(root, "n", 1), 1);
  EXPECT_EQ(json::string_or(root, "absent", "z"), "z");
  EXPECT_EQ(json::number_or(root, "d", 1), 2.5);
  EXPECT_TRUE(json::boolean_or(root, "absent", true));
}

TEST(Json, ListsOfOneType) {
  const json::Document doc = json::parse(R"([[1, 2, 3], ["a", "b"]])", "x.json");
  std::vector<json::Value> lists;
  for (const json::Value& v : doc.root().elements()) lists.push_back(v);
  EXPECT_EQ(json::integers(lists[0]), (std::vector<std::int64_t>{1, 2, 3}));
  EXPECT_EQ(json::strings(lists[1]), (std::vector<std::string>{"a", "b"}));
}

TEST(Json, WrongTypeNamesThePath) {
  const json::Document doc =
      json::parse(R"({"graph": {"nodes": [{"target": "x"}, {"target": 3}]}})", "m.json");
  const std::string text = error_of([&] {
    for (const json::Value& node : doc.root()["graph"]["nodes"].elements()) node["target"].string();
  });
  EXPECT_TRUE(has(text, "TK0111")) << text;
  EXPECT_TRUE(has(text, "graph.nodes[1].target should be a string, and is 3")) << text;
  EXPECT_TRUE(has(text, "m.json")) << text;
}

TEST(Json, MissingMemberSuggestsAnother) {
  const json::Document doc = json::parse(R"({"hidden_sizes": 3})", "config.json");
  const std::string text = error_of([&] { doc.root()["hidden_size"]; });
  EXPECT_TRUE(has(text, "the top level has no member 'hidden_size'")) << text;
  EXPECT_TRUE(has(text, "there is 'hidden_sizes'")) << text;
}

TEST(Json, NumbersAreNotIntegersByChance) {
  const json::Document doc = json::parse(R"({"a": 2.0, "b": 9223372036854775808})", "x.json");
  EXPECT_TRUE(has(error_of([&] { doc.root()["a"].integer(); }), "a should be an integer"));
  EXPECT_TRUE(has(error_of([&] { doc.root()["b"].integer(); }), "b should be an integer"));
}

TEST(Json, SyntaxErrorsGiveLineAndColumn) {
  const std::string text = error_of([] { json::parse("{\"a\": 1,\n  \"b\": tru}", "x.json"); });
  EXPECT_TRUE(has(text, "TK0110")) << text;
  EXPECT_TRUE(has(text, "line 2 column 8")) << text;
  for (const char* bad : {"", " ", "{", "[1,", "\"abc", "{\"a\" 1}", "{\"a\": 1}}", "[1 2]", "nul",
                          "\"\xff\"", "[1e999]", "\"\\ud800\"", "1 2", "[\"a\nb\"]"})
    EXPECT_TRUE(has(error_of([&] { json::parse(bad, "x.json"); }), "TK0110")) << bad;
}

TEST(Json, BadUtf8GivesItsPlace) {
  const std::string text =
      error_of([] { json::parse("{\"a\": \"fine\",\n\"b\": \"\xc3(\"}", "x.json"); });
  EXPECT_TRUE(has(text, "line 2")) << text;
}

TEST(Json, DepthIsLimited) {
  const std::string deep(100000, '[');
  EXPECT_TRUE(has(error_of([&] { json::parse(deep + std::string(100000, ']'), "x.json"); }),
                  "nested deeper than"));
  json::parse(std::string(400, '[') + std::string(400, ']'), "x.json");
}

TEST(Json, TheTextMayGoAway) {
  auto text = std::make_unique<std::string>(R"(["a long enough string to live on the heap"])");
  const json::Document doc = json::parse(*text, "x.json");
  text.reset();
  for (const json::Value& v : doc.root().elements())
    EXPECT_EQ(v.string(), "a long enough string to live on the heap");
}

}  // namespace
}  // namespace tk
