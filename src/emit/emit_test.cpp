#include "emit/emit.h"

#include <gtest/gtest.h>

#include "base/error.h"
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
