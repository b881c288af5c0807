#include "emit/emit.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "emit/config_sizes.h"
#include "emit/python_text.h"
#include "emit/regions.h"

namespace tk::emit {
namespace {

Model model_of(std::string_view body) {
  const std::string text =
      "graph @m(%input_ids: i64[T], %position_ids: i64[T], %logit_rows: i64[R]) {\n" +
      std::string(body) + "}\n";
  Model m;
  m.name = "toy";
  m.prefill = parse_graph(text);
  m.decode = parse_graph(text);
  return m;
}

std::string modeling(const Model& m) { return write_model(m, {}).files.at(0).text; }

TEST(Emit, LayersOfOneStructureAreALoopAndWhatDiffersIsAnArgument) {
  const std::string text = modeling(model_of(R"(
    weight %e: f32[16, 4] "model.embed_tokens.weight"
    weight %a: f32[4, 4] "model.layers.0.mlp.proj.weight"
    weight %b: f32[4, 4] "model.layers.1.mlp.proj.weight"
    weight %h: f32[16, 4] "lm_head.weight"
    %0 = aten.embedding(%e, %input_ids)  @"model.embed_tokens" Embedding
    %1 = aten.linear(%0, %a)  @"model.layers.0.mlp.proj" Linear
    %2 = aten.mul(%1) {other=2.0}  @"model.layers.0.mlp" ToyMLP (toy.py:3)
    %3 = aten.linear(%2, %b)  @"model.layers.1.mlp.proj" Linear
    %4 = aten.mul(%3) {other=3.0}  @"model.layers.1.mlp" ToyMLP (toy.py:3)
    %5 = aten.index_select(%4, %logit_rows) {dim=0}
    %6 = aten.linear(%5, %h)  @"lm_head" Linear
    return %6
)"));
  EXPECT_NE(text.find("# toy.py:3\nclass ToyMLP(nn.Module):\n    def __init__(self, other):"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("for layer in self.layers:"), std::string::npos) << text;
  EXPECT_NE(text.find("for other in (2.0, 3.0)"), std::string::npos) << text;
  EXPECT_NE(text.find("self.lm_head(hidden_states[forward_metadata.logit_rows])"),
            std::string::npos)
      << text;
}

// What the first layer takes is an expression: it is named before the loop, not repeated in it.
TEST(Emit, ALoopCarriesWhatTheLayerBeforeGave) {
  const std::string text = modeling(model_of(R"(
    weight %e: f32[16, 4] "model.embed_tokens.weight"
    weight %p: f32[16, 4] "model.positions.weight"
    weight %a: f32[4, 4] "model.layers.0.mlp.proj.weight"
    weight %b: f32[4, 4] "model.layers.1.mlp.proj.weight"
    weight %h: f32[16, 4] "lm_head.weight"
    %0 = aten.embedding(%e, %input_ids)  @"model.embed_tokens" Embedding
    %1 = aten.embedding(%p, %position_ids)  @"model.positions" Embedding
    %2 = aten.add(%0, %1)  @"model" ToyModel
    %3 = aten.linear(%2, %a)  @"model.layers.0.mlp.proj" Linear
    %4 = aten.mul(%3) {other=2.0}  @"model.layers.0.mlp" ToyMLP (toy.py:3)
    %5 = aten.linear(%4, %b)  @"model.layers.1.mlp.proj" Linear
    %6 = aten.mul(%5) {other=2.0}  @"model.layers.1.mlp" ToyMLP (toy.py:3)
    %7 = aten.index_select(%6, %logit_rows) {dim=0}
    %8 = aten.linear(%7, %h)  @"lm_head" Linear
    return %8
)"));
  const std::size_t loop = text.find("for layer in self.layers:");
  ASSERT_NE(loop, std::string::npos) << text;
  const std::string body = text.substr(loop, text.find("return", loop) - loop);
  EXPECT_EQ(body.find(" + "), std::string::npos) << text;
}

TEST(Emit, AnOperatorWithoutAFormIsNamed) {
  try {
    modeling(model_of(R"(
    weight %e: f32[16, 4] "model.embed_tokens.weight"
    %0 = aten.embedding(%e, %input_ids)  @"model.embed_tokens" Embedding
    %1 = tk.opaque(%0) {target="my.op", dtypes="f32", ranks=[2], dims=[4, 4]}  @"model.own"
    %2 = aten.linear(%1, %e)  @"lm_head" Linear
    return %2
)"));
    FAIL() << "was written";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1202");
  }
}

constexpr std::string_view two_experts = R"(
    weight %e: f32[16, 4] "model.embed_tokens.weight"
    weight %a: f32[2, 6, 4] "model.layers.0.mlp.experts.gate_up_proj"
    weight %h: f32[16, 4] "lm_head.weight"
    %0 = aten.embedding(%e, %input_ids)  @"model.embed_tokens" Embedding
    %1 = aten.select(%a) {dim=0, index=1}  @"model.layers.0.mlp.experts" ToyExperts
    %2 = aten.linear(%0, %1)  @"model.layers.0.mlp.experts" ToyExperts
    %3 = aten.slice(%2) {dim=1, start=0, end=4}  @"model.layers.0.mlp.experts" ToyExperts
    %4 = aten.index_select(%3, %logit_rows) {dim=0}
    %5 = aten.linear(%4, %h)  @"lm_head" Linear
    return %5
)";

TEST(Emit, TheCheckpointsOwnNamesAreATable) {
  Model m = model_of(two_experts);
  EXPECT_EQ(modeling(m).find("PLACES"), std::string::npos);
  m.config.checkpoint_text =
      R"({"places": {"model.layers.*.moe.experts.*.w3.weight":
          ["model.layers.*.mlp.experts.gate_up_proj", 1, 2]},
          "unused": ["model.layers.1."], "unplaced": []})";
  const std::string text = modeling(m);
  EXPECT_NE(text.find("\"model.layers.*.moe.experts.*.w3.weight\": ("), std::string::npos) << text;
  EXPECT_NE(text.find("UNUSED = (\"model.layers.1.\",)"), std::string::npos) << text;
}

TEST(Emit, ACheckpointThatIsConvertedIsRefused) {
  Model m = model_of(two_experts);
  m.config.checkpoint_text = R"({"places": {}, "unused": [], "unplaced": ["a.*.c_attn.weight"]})";
  try {
    modeling(m);
    FAIL() << "was written";
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK1213");
  }
}

// Numbers that config.json has are its fields, where the argument says which.
TEST(Emit, ArgumentsAreFieldsOfTheConfig) {
  const ConfigNumbers numbers = config_numbers(R"({"head_dim": 8, "num_attention_heads": 4})");
  const ConfigReals reals = config_reals(R"({"rms_norm_eps": 1e-05})");
  EXPECT_EQ(config_value(numbers, reals, "epsilon", "1e-05")->expression, "config.rms_norm_eps");
  EXPECT_EQ(config_value(numbers, reals, "num_heads", "4")->attribute, "num_heads");
  EXPECT_EQ(config_value(numbers, reals, "scale", "0.3535533905932738")->expression,
            "config.head_dim**-0.5");
  EXPECT_FALSE(config_value(numbers, reals, "num_heads", "8"));
  EXPECT_FALSE(config_value(numbers, reals, "size", "8"));
  EXPECT_FALSE(config_value(numbers, reals, "scale", "None"));
}

TEST(Emit, Names) {
  EXPECT_EQ(python_name("Qwen3-8B"), "qwen3_8b");
  EXPECT_EQ(python_name("4-bit"), "m_4_bit");
  EXPECT_THROW(python_name("--"), UserError);
  EXPECT_EQ(camel("qwen3_moe"), "Qwen3Moe");
  EXPECT_EQ(parent_path("model.layers.0.mlp"), "model.layers.0");
  EXPECT_EQ(parent_path("model.layers.0"), "model");
  EXPECT_EQ(layer_of("model.layers.11.mlp.gate"), "model.layers.11");
  EXPECT_EQ(layer_of("model.norm"), "");
}

TEST(Emit, LongStatementsAreBrokenAtTheirWidestBracket) {
  const std::string call = "y = f(" + std::string(60, 'a') + ", " + std::string(60, 'b') + ")[0]";
  const std::string text = wrapped(call, 4);
  EXPECT_EQ(text, "    y = f(\n        " + std::string(60, 'a') + ",\n        " +
                      std::string(60, 'b') + ",\n    )[0]\n");
}

}  // namespace
}  // namespace tk::emit
