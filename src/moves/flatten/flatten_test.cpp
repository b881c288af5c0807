// The token-locality proof, masks by evaluation, and what flatten refuses.
#include "moves/flatten/flatten.h"

#include <gtest/gtest.h>

#include <random>

#include "base/error.h"
#include "moves/flatten/layout.h"

namespace tk {
namespace {

// A captured attention of one head over H = 4, with the lines that make the mask (%m).
std::string capture(const std::string& mask, const std::string& before = "",
                    const std::string& x = "%x") {
  return "graph @main(%input_ids: i64[B, S], %position_ids: i64[B, S]) {\n"
         "  weight %e: f32[16, 4] \"embed\"\n"
         "  weight %w: f32[16, 4] \"head\"\n"
         "  %x = aten.embedding(%e, %input_ids)  @\"model.embed\" (m.py:1)\n" +
         before + "  %q = aten.reshape(" + x + ") {shape=[B, 1, S, 4]}\n" + mask +
         "  %a = aten.scaled_dot_product_attention(%q, %q, %q, %m) {scale=0.5}  @\"model.attn\" "
         "(m.py:9)\n"
         "  %r = aten.reshape(%a) {shape=[B, S, 4]}\n"
         "  %y = aten.linear(%r, %w)\n"
         "  return %y\n}\n";
}

// Query and key numbers as [S, 1] and [1, S].
const std::string numbers =
    "  %i = aten.arange() {end=S, dtype=i64}\n"
    "  %qi = aten.reshape(%i) {shape=[S, 1]}\n"
    "  %ki = aten.reshape(%i) {shape=[1, S]}\n";
const std::string causal = numbers + "  %m = aten.le(%ki, %qi)\n";

CachedModel flat(const std::string& text) { return flatten(parse_graph(text), nullptr); }

// The message of what flatten throws.
std::string refused(const std::string& text) {
  try {
    flat(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "nothing was thrown";
}

MaskFacts mask_of(const std::string& mask) { return flat(capture(mask)).cache.layers.at(0).mask; }

TEST(Flatten, TokensSideBySide) {
  const CachedModel m = flat(capture(causal));
  verify(m.graph, "flatten");
  EXPECT_EQ(m.graph.outputs()[0]->type.str(), "f32[T, 16]");
  ASSERT_EQ(m.cache.layers.size(), 1U);
  EXPECT_EQ(m.cache.layers[0].kind, "MHA");
  EXPECT_EQ(m.cache.bytes_per_token(), 2 * 4 * 4);
  // Nothing of [B, S] is left (KV-15), and the mask's arithmetic is gone.
  const std::string text = print(m.graph);
  EXPECT_EQ(text.find("[B, S"), std::string::npos) << text;
  EXPECT_EQ(text.find("aten.le"), std::string::npos) << text;
  EXPECT_NE(text.find("tk.cache_write"), std::string::npos);
}

TEST(Flatten, MasksByEvaluation) {  // KV-03, KV-55
  EXPECT_EQ(mask_of(causal), (MaskFacts{"causal", 0}));
  const std::string in_window =
      "  %lo = aten.sub(%qi) {other=WINDOW}\n  %near = aten.gt(%ki, %lo)\n"
      "  %past = aten.le(%ki, %qi)\n  %m = aten.bitwise_and(%near, %past)\n";
  for (const std::int64_t w : {1, 2, 8, 31, 33, 512, 4096}) {
    std::string text = numbers + in_window;
    text.replace(text.find("WINDOW"), 6, std::to_string(w));
    EXPECT_EQ(mask_of(text), (MaskFacts{"window", w}));
  }
  // One key more, by >= instead of >.
  EXPECT_EQ(
      mask_of(numbers + "  %lo = aten.sub(%qi) {other=1024}\n  %near = aten.ge(%ki, %lo)\n"
                        "  %past = aten.le(%ki, %qi)\n  %m = aten.bitwise_and(%near, %past)\n"),
      (MaskFacts{"window", 1025}));
  for (const std::int64_t c : {4, 8192}) {
    std::string text = numbers +
                       "  %qc = aten.floor_divide(%qi) {other=CHUNK}\n  %kc = "
                       "aten.floor_divide(%ki) {other=CHUNK}\n"
                       "  %same = aten.eq(%qc, %kc)\n  %past = aten.le(%ki, %qi)\n"
                       "  %m = aten.bitwise_and(%same, %past)\n";
    for (int i = 0; i < 2; ++i) text.replace(text.find("CHUNK"), 5, std::to_string(c));
    EXPECT_EQ(mask_of(text), (MaskFacts{"chunk", c}));
  }
  // Written as numbers that are added to the scores.
  EXPECT_EQ(
      mask_of(numbers +
              "  %p = aten.le(%ki, %qi)\n  %z = aten.full() {size=[], fill_value=0.0, dtype=f32}\n"
              "  %n = aten.full() {size=[], fill_value=-3.4e+38, dtype=f32}\n  %m = aten.where(%p, "
              "%z, %n)\n"),
      (MaskFacts{"causal", 0}));
}

TEST(Flatten, UnknownMaskIsNamed) {
  const std::string bias = refused(capture(
      numbers +
      "  %d = aten.sub(%ki, %qi)\n  %m = aten.to(%d) {dtype=f32}  @\"model.alibi\" (m.py:5)\n"));
  EXPECT_NE(bias.find("TK0402"), std::string::npos) << bias;
  EXPECT_NE(bias.find("m.py:5"), std::string::npos) << bias;
  const std::string odd =
      refused(capture(numbers + "  %s = aten.add(%qi, %ki)\n  %rem = aten.remainder(%s) {other=2}\n"
                                "  %m = aten.eq(%rem) {other=0}\n"));
  EXPECT_NE(odd.find("TK0402"), std::string::npos) << odd;
}

TEST(Flatten, AttentionToTheFutureIsRefused) {
  const std::string text = refused(capture(numbers + "  %m = aten.ge(%ki) {other=0}\n"));
  EXPECT_NE(text.find("TK0404"), std::string::npos) << text;
  std::string bidirectional = capture("");
  bidirectional.replace(bidirectional.find(", %m)"), 5, ")");
  EXPECT_NE(refused(bidirectional).find("TK0404"), std::string::npos) << refused(bidirectional);
}

// KV-15: what mixes tokens outside attention is named with its place.
TEST(Flatten, MixingIsNamed) {
  const auto mixed = [&](const std::string& line) {
    return refused(capture(causal, line + "  @\"model.layers.0.mixer\" (mixer.py:123)\n", "%x2"));
  };
  for (const std::string line :
       {"  %x2 = aten.cumsum(%x) {dim=1}", "  %x2 = aten.softmax(%x) {dim=1}",
        "  %x2 = aten.flip(%x) {dims=[1]}"}) {
    const std::string text = mixed(line);
    EXPECT_NE(text.find("TK0401"), std::string::npos) << text;
    EXPECT_NE(text.find("over tokens"), std::string::npos) << text;
    EXPECT_NE(text.find("mixer.py:123"), std::string::npos) << text;
    EXPECT_NE(text.find("model.layers.0.mixer"), std::string::npos) << text;
  }
  EXPECT_NE(mixed("  %x2 = aten.cumsum(%x) {dim=0}").find("over the batch"), std::string::npos);
}

TEST(Flatten, InputsAndOptions) {
  std::string extra = capture(causal);
  extra.replace(extra.find(") {\n"), 4, ", %mask: f32[B, S]) {\n");
  extra.replace(extra.find("  return %y"), 11,
                "  %y2 = aten.sum(%mask)\n  %y3 = aten.add(%y, %y2)\n  return %y3");
  EXPECT_NE(refused(extra).find("TK0406"), std::string::npos) << refused(extra);
  std::string fixed = capture(causal);
  for (std::size_t at; (at = fixed.find(", S")) != std::string::npos;) fixed.replace(at, 3, ", 8");
  for (std::size_t at; (at = fixed.find("=S")) != std::string::npos;) fixed.replace(at, 2, "=8");
  for (std::size_t at; (at = fixed.find("[S, 1]")) != std::string::npos;)
    fixed.replace(at, 6, "[8, 1]");
  EXPECT_NE(refused(fixed).find("TK0406"), std::string::npos) << refused(fixed);
  FlattenOptions options;
  options.block_size = 0;
  try {
    flatten(parse_graph(capture(causal)), nullptr, options);
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0407");
  }
}

// Allowed by the proof, but lost when sequences are packed: sequences taken by their number.
TEST(Flatten, IndexOfTheBatch) {
  const std::string text = refused(
      capture(causal,
              "  %bi = aten.arange() {end=B, dtype=i64}\n  %b1 = aten.reshape(%bi) {shape=[B, 1]}\n"
              "  %si = aten.arange() {end=S, dtype=i64}\n  %s1 = aten.reshape(%si) {shape=[1, S]}\n"
              "  %x2 = aten.index(%x, %b1, %s1)\n",
              "%x2"));
  EXPECT_NE(text.find("TK0405"), std::string::npos) << text;
}

TEST(Flatten, CountingTokensGivesPositions) {
  const CachedModel m =
      flat(capture(causal,
                   "  %c = aten.arange() {end=S, dtype=i64}\n  %f = aten.to(%c) {dtype=f32}\n"
                   "  %f2 = aten.reshape(%f) {shape=[S, 1]}\n  %x2 = aten.add(%x, %f2)\n",
                   "%x2"));
  EXPECT_EQ(print(m.graph).find("aten.arange"), std::string::npos);
  EXPECT_FALSE(m.graph.find_input("position_ids")->uses.empty());
}

// Layers that use the same keys and values write them once.
TEST(Flatten, SharedKeysAreCachedOnce) {
  std::string text = capture(causal);
  text.replace(text.find("  %r = "), 7,
               "  %q2 = aten.mul(%a) {other=2.0}\n"
               "  %a2 = aten.scaled_dot_product_attention(%q2, %q, %q, %m) {scale=0.5}\n  %r = ");
  text.replace(text.find("aten.reshape(%a)"), 16, "aten.reshape(%a2)");
  const CachedModel m = flat(text);
  EXPECT_EQ(m.cache.layers.size(), 2U);
  EXPECT_EQ(m.cache.entries.size(), 2U);
}

TEST(Layout, ReshapeKeepsTheOrderOfElements) {
  std::mt19937 random(5);
  const Sym b = Sym::symbol("B");
  const Sym s = Sym::symbol("S");
  const Layout start{
      {{Tag::batch, b, nullptr}}, {{Tag::token, s, nullptr}}, {{Tag::plain, Sym(24), nullptr}}};
  const auto merged_rows = reshaped(start, {b * s, Sym(24)});
  ASSERT_TRUE(merged_rows);
  EXPECT_EQ(str(*merged_rows), "[batch*token, 24]");
  EXPECT_EQ(str(*reshaped(*merged_rows, {b, s, Sym(4), Sym(6)})), "[batch, token, 4, 6]");
  EXPECT_FALSE(reshaped(start, {s, b, Sym(24)}));
  EXPECT_FALSE(reshaped(start, {b, Sym(24), s}));
  EXPECT_FALSE(reshaped(start, {b * Sym(2), s, Sym(12)}));
  // Splitting the plain axis any way and back is the identity.
  for (int round = 0; round < 200; ++round) {
    const std::int64_t factors[] = {1, 2, 3, 4, 6, 8, 12, 24};
    const std::int64_t f = factors[random() % 8];
    const auto split = reshaped(start, {b, s, Sym(f), Sym(24 / f)});
    ASSERT_TRUE(split);
    EXPECT_EQ(*reshaped(*split, {b, s, Sym(24)}), start);
  }
}

}  // namespace
}  // namespace tk
