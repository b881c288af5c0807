// The whole behaviour is compared with the tokenizers package in tests/python/test_tokenizer.py;
// here is what needs no Python, and what only we do.
#include "import/tokenizer.h"

#include <gtest/gtest.h>

#include <chrono>
#include <cstdlib>

#include "base/error.h"
#include "base/file.h"

namespace tk {
namespace {

using Ids = std::vector<std::int64_t>;

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

// A tokenizer.json whose parts are `parts`, over a small vocabulary.
std::string file_of(std::string_view parts, std::string_view model = "") {
  return cat(R"({"model": {"type": "BPE", "vocab": {"<unk>": 0, "a": 1, "b": 2, "c": 3, "ab": 4,
      "abc": 5, " ": 6, "▁": 7, "▁a": 8, "<0xC3>": 9, "<0xA9>": 10, "x y": 11},
      "merges": [["a", "b"], ["ab", "c"], ["▁", "a"]])",
             model, "}", parts, "}");
}
Tokenizer made(std::string_view parts, std::string_view model = "") {
  return Tokenizer::parse(file_of(parts, model), "t.json");
}
std::string parse_error(std::string_view parts, std::string_view model = "") {
  return error_of([&] { made(parts, model); });
}

TEST(Tokenizer, MergesTheBestRankFirst) {
  EXPECT_EQ(made("").encode("abc"), (Ids{5}));
  EXPECT_EQ(made("").encode("abab"), (Ids{4, 4}));
  EXPECT_EQ(made("").encode("bcab"), (Ids{2, 3, 4}));
  EXPECT_EQ(made("").encode(""), Ids{});
}

TEST(Tokenizer, MergesMayBeTextAndMayBeIgnored) {
  const Tokenizer old = Tokenizer::parse(
      R"({"model": {"vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["#version: 0.2", "a b"]}})",
      "t.json");
  EXPECT_EQ(old.encode("ab"), (Ids{2}));
  EXPECT_EQ(made("", R"(, "ignore_merges": true)").encode("x y"), (Ids{11}));
}

TEST(Tokenizer, UnknownCharacters) {
  EXPECT_EQ(made("").encode("a?b"), (Ids{4}));  // without an unknown token they are dropped
  EXPECT_EQ(made("", R"(, "unk_token": "<unk>")").encode("a??b"), (Ids{1, 0, 0, 2}));
  EXPECT_EQ(made("", R"(, "unk_token": "<unk>", "fuse_unk": true)").encode("a??b"), (Ids{1, 0, 2}));
  EXPECT_EQ(made("", R"(, "byte_fallback": true)").encode("a\xc3\xa9"), (Ids{1, 9, 10}));
}

TEST(Tokenizer, AddedTokens) {
  const Tokenizer t = made(R"(, "added_tokens": [
      {"id": 12, "content": "<s>", "special": true},
      {"id": 13, "content": "<s>b", "special": true},
      {"id": 14, "content": "[l]", "lstrip": true, "normalized": false},
      {"id": 15, "content": "[w]", "single_word": true, "normalized": false},
      {"id": 1, "content": "a", "normalized": false}])");
  EXPECT_EQ(t.encode("<s>bb<s>"), (Ids{13, 2, 12}));  // the longest at the leftmost place
  EXPECT_EQ(t.encode("b  [l] b"), (Ids{2, 14, 6, 2}));
  EXPECT_EQ(t.encode("b[w]"), (Ids{2}));
  EXPECT_EQ(t.encode("b [w]"), (Ids{2, 6, 15}));
  EXPECT_EQ(t.size(), 16);
  EXPECT_EQ(t.id_of("<s>"), 12);
  EXPECT_TRUE(t.is_special(12));
  EXPECT_FALSE(t.is_special(14));
  const Ids ids{12, 2, 14};
  EXPECT_EQ(t.decode(ids), "b [l]");
  EXPECT_EQ(t.decode(ids, false), "<s> b [l]");
}

constexpr std::string_view llama = R"(, "normalizer": {"type": "Sequence", "normalizers": [
      {"type": "Prepend", "prepend": "▁"},
      {"type": "Replace", "pattern": {"String": " "}, "content": "▁"}]},
    "post_processor": {"type": "TemplateProcessing", "single": [
      {"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
      "special_tokens": {"<s>": {"id": "<s>", "ids": [0], "tokens": ["<s>"]}}},
    "decoder": {"type": "Sequence", "decoders": [
      {"type": "Replace", "pattern": {"String": "▁"}, "content": " "}, {"type": "ByteFallback"},
      {"type": "Fuse"}, {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})";
constexpr std::string_view fallback = R"(, "byte_fallback": true)";

TEST(Tokenizer, SentencePieceStyle) {
  const Tokenizer t = made(llama, fallback);
  EXPECT_EQ(t.encode("a a"), (Ids{0, 8, 8}));
  EXPECT_EQ(t.encode("a a", false), (Ids{8, 8}));
  EXPECT_EQ(t.decode(Ids{8, 8, 9, 10}), "a a\xc3\xa9");
}

TEST(Tokenizer, StreamHoldsBackWhatIsNoCharacterYet) {
  const Tokenizer t = made(llama, fallback);
  TokenStream stream(t);
  EXPECT_EQ(stream.push(8), "a");
  EXPECT_EQ(stream.push(9), "");
  EXPECT_EQ(stream.push(10), "\xc3\xa9");
  EXPECT_EQ(stream.push(8), " a");
  EXPECT_EQ(stream.push(1000), "");  // not in the vocabulary
  EXPECT_EQ(stream.push(9), "");
  EXPECT_EQ(stream.finish(), "\xef\xbf\xbd");
  // Endless bytes that are no text come out too.
  std::string text;
  for (int i = 0; i < 1000; ++i) text += stream.push(9);
  text += stream.finish();
  EXPECT_EQ(text.size(), 3000U);
}

constexpr std::string_view bytes_of_latin = R"(, "pre_tokenizer": {"type": "ByteLevel",
    "add_prefix_space": false}, "decoder": {"type": "ByteLevel"})";

TEST(Tokenizer, BytesThatAreNotUtf8AreReplaced) {
  const Tokenizer t = Tokenizer::parse(
      cat(R"({"model": {"type": "BPE", "vocab": {"ï": 0, "¿": 1, "½": 2, "a": 3}, "merges": []})",
          bytes_of_latin, "}"),
      "t.json");
  EXPECT_EQ(t.encode("a\xff"), (Ids{3, 0, 1, 2}));
  EXPECT_EQ(t.encode("\xe4\xb8"), (Ids{0, 1, 2}));  // a cut character is one
  EXPECT_EQ(t.decode(Ids{3, 0, 1}), "a\xef\xbf\xbd");
}

TEST(Tokenizer, OtherKindsAreNamedWithWhatStillWorks) {
  const std::string text = error_of(
      [] { Tokenizer::parse(R"({"model": {"type": "WordPiece", "vocab": {}}})", "t.json"); });
  EXPECT_TRUE(has(text, "TK0601") && has(text, "WordPiece") && has(text, "--ids")) << text;
  for (const char* part :
       {R"("normalizer": {"type": "Precompiled", "precompiled_charsmap": ""})",
        R"("pre_tokenizer": {"type": "BertPreTokenizer"})", R"("decoder": {"type": "CTC"})",
        R"("post_processor": {"type": "Other"})",
        R"("pre_tokenizer": {"type": "Sequence", "pretokenizers": [{"type": "UnicodeScripts"}]})"})
    EXPECT_TRUE(has(parse_error(cat(", ", part)), "TK0601")) << part;
  EXPECT_TRUE(has(parse_error("", R"(, "dropout": 0.1)"), "TK0601"));
}

TEST(Tokenizer, ContradictionsAreErrors) {
  auto model = [](std::string_view text) {
    return error_of([&] { Tokenizer::parse(cat(R"({"model": )", text, "}"), "t.json"); });
  };
  EXPECT_TRUE(has(model(R"({"vocab": {"a": 0}, "merges": [["a", "b"]]})"), "model.merges[0]"));
  EXPECT_TRUE(has(model(R"({"vocab": {"a": 0}, "merges": [["a", "a"]]})"), "TK0602"));
  EXPECT_TRUE(has(model(R"({"vocab": {"a": -1}, "merges": []})"), "TK0602"));
  EXPECT_TRUE(has(model(R"({"vocab": {"a": 4294967296}, "merges": []})"), "TK0602"));
  EXPECT_TRUE(has(model(R"({"vocab": {"a": 0}, "merges": ["a"]})"), "TK0111"));
  EXPECT_TRUE(has(model(R"({"vocab": {"a": 0}, "merges": [], "unk_token": "u"})"), "TK0602"));
  auto pattern = [](std::string_view text) {
    return parse_error(cat(R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated",
                             "pattern": {"Regex": ")",
                           text, "\"}}"));
  };
  EXPECT_EQ(pattern("a+"), "");
  for (const char* bad : {"(a", "[a", "a\\\\", "[a[b]]", "[a&&b]", "(?<=a+)b"})
    EXPECT_TRUE(has(pattern(bad), "TK0602")) << bad;
}

TEST(Tokenizer, RunawaysAreErrors) {
  std::string doubling;
  for (int i = 0; i < 40; ++i)
    doubling += cat(i > 0 ? "," : "",
                    R"({"type": "Replace", "pattern": {"String": "a"}, "content": "aa"})");
  const Tokenizer grows =
      made(cat(R"(, "normalizer": {"type": "Sequence", "normalizers": [)", doubling, "]}"));
  EXPECT_TRUE(has(error_of([&] { grows.encode("a"); }), "TK0603"));
  const Tokenizer backtracks = made(
      R"(, "pre_tokenizer": {"type": "Split", "behavior": "Isolated", "pattern": {"Regex": "(a|aa)+$"}})");
  EXPECT_TRUE(has(error_of([&] { backtracks.encode(std::string(80, 'a') + "c"); }), "TK0603"));
}

TEST(Tokenizer, LongWordsTakeNoQuadraticTime) {
  const Tokenizer t = made(llama, fallback);
  std::string text;
  for (unsigned i = 0; i < 300000; ++i) text += "abc"[i * i % 3];
  const auto start = std::chrono::steady_clock::now();
  const Ids ids = t.encode(text, false);
  const std::chrono::duration<double> took = std::chrono::steady_clock::now() - start;
  EXPECT_GT(ids.size(), 100000U);
  EXPECT_LT(took.count(), 5.0);        // quadratic would be minutes
  EXPECT_TRUE(t.decode(ids) == text);  // not EXPECT_EQ: it would print both
}

TEST(Tokenizer, EndOfSequenceIds) {
  const std::filesystem::path folder = std::filesystem::path(::testing::TempDir()) / "tk_eos";
  std::filesystem::create_directories(folder);
  const Tokenizer t = made("");
  EXPECT_EQ(eos_ids(folder, t), Ids{});
  write_file(folder / "tokenizer_config.json", R"({"eos_token": {"content": "abc"}})");
  EXPECT_EQ(eos_ids(folder, t), (Ids{5}));
  write_file(folder / "config.json", R"({"eos_token_id": 7})");
  EXPECT_EQ(eos_ids(folder, t), (Ids{7}));
  write_file(folder / "generation_config.json", R"({"eos_token_id": [1, 2]})");
  EXPECT_EQ(eos_ids(folder, t), (Ids{1, 2}));
  std::filesystem::remove_all(folder);
}

TEST(Tokenizer, TheStoriesModel) {
  const char* set = std::getenv("TOKAMAK_SHARED");
  const std::filesystem::path shared = set != nullptr ? set : TK_SOURCE_DIR "/../shared";
  const auto folder = shared / "models/stories260k/hf";
  if (!std::filesystem::exists(folder)) GTEST_SKIP() << "no " << folder;
  const Tokenizer t = Tokenizer::from_file(folder);
  EXPECT_EQ(t.size(), 512);
  const std::string text = "Once upon a time, there was a little girl named Lily. \xf0\x9f\x98\x80";
  const Ids ids = t.encode(text);
  EXPECT_EQ(ids.front(), 1);
  EXPECT_EQ(t.decode(ids), text);
  EXPECT_EQ(eos_ids(folder, t), (Ids{2}));
}

}  // namespace
}  // namespace tk
