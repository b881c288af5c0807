#include "import/functional.h"

#include <gtest/gtest.h>

#include "import/pt2_test_util.h"

namespace tk {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

const std::string scalar_one = R"({"as_int": 1})";

std::string slice_arg(std::string_view from, int start, int end) {
  return join({arg("self", tensor(from)), arg("dim", R"({"as_int": 2})"),
               arg("start", cat(R"({"as_int": )", start, "}")),
               arg("end", cat(R"({"as_int": )", end, "}"))});
}

// k = empty_like(x); a and b are its halves; h = halves of x.
CaptureText halves() {
  CaptureText c;
  c.unary("torch.ops.aten.empty_like.default", "x", "k");
  for (const auto& [name, from, start] :
       {std::tuple("a", "k", 0), std::tuple("b", "k", 2), std::tuple("h", "x", 2)}) {
    c.value(name, {symbol("s0"), symbol("s1"), size(2)});
    c.node("torch.ops.aten.slice.Tensor", {slice_arg(from, start, start + 2)}, {tensor(name)});
  }
  return c;
}

void copy(CaptureText* c, std::string_view to, std::string_view from, std::string_view result) {
  c->value(result, {symbol("s0"), symbol("s1"), size(2)});
  c->node("torch.ops.aten.copy_.default", {arg("self", tensor(to)), arg("src", tensor(from))},
          {tensor(result)});
}

TEST(Functional, AWriteThroughASliceReachesTheBase) {
  CaptureText c = halves();
  copy(&c, "a", "h", "r0");
  copy(&c, "b", "h", "r1");
  c.unary("torch.ops.aten.silu.default", "k", "y");
  c.output("y");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "%2 = aten.slice_scatter(%0, %1) {dim=2, start=0, end=2}")) << text;
  EXPECT_TRUE(has(text, "%3 = aten.slice_scatter(%2, %1) {dim=2, start=2, end=4}")) << text;
  EXPECT_TRUE(has(text, "aten.silu(%3)")) << text;
}

TEST(Functional, AnotherViewSeesTheWrite) {
  CaptureText c = halves();
  c.node("torch.ops.aten.zero_.default", {arg("self", tensor("k"))}, {});
  c.value("y", {symbol("s0"), symbol("s1"), size(2)});
  c.node("torch.ops.aten.silu.default", {arg("self", tensor("b"))}, {tensor("y")});
  c.output("y");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "%1 = aten.zeros_like(%0)")) << text;
  EXPECT_TRUE(has(text, "%2 = aten.slice(%1) {dim=2, start=2, end=4}")) << text;
  EXPECT_TRUE(has(text, "aten.silu(%2)")) << text;
}

TEST(Functional, EachKindOfView) {
  CaptureText c;
  c.unary("torch.ops.aten.cos.default", "x", "k");
  c.value("t", {size(4), symbol("s1"), symbol("s0")});
  c.node("torch.ops.aten.permute.default",
         {arg("self", tensor("k")), arg("dims", R"({"as_ints": [2, 1, 0]})")}, {tensor("t")});
  c.value("row", {symbol("s1"), symbol("s0")});
  c.node(
      "torch.ops.aten.select.int",
      {arg("self", tensor("t")), arg("dim", R"({"as_int": 0})"), arg("index", R"({"as_int": 3})")},
      {tensor("row")});
  c.value("column", {symbol("s1"), symbol("s0"), size(1)});
  c.node("torch.ops.aten.unsqueeze.default",
         {arg("self", tensor("row")), arg("dim", R"({"as_int": -1})")}, {tensor("column")});
  c.value("r", {symbol("s1"), symbol("s0"), size(1)});
  c.node("torch.ops.aten.mul_.Tensor",
         {arg("self", tensor("column")), arg("other", R"({"as_float": 2.0})")}, {tensor("r")});
  c.unary("torch.ops.aten.silu.default", "k", "y");
  c.output("y");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "aten.mul(%3) {other=2.0}")) << text;
  EXPECT_TRUE(has(text, "%5 = aten.reshape(%4) {shape=[S, B]}")) << text;
  EXPECT_TRUE(has(text, "%6 = aten.select_scatter(%1, %5) {dim=0, index=3}")) << text;
  EXPECT_TRUE(has(text, "%7 = aten.permute(%6) {dims=[2, 1, 0]}")) << text;
  EXPECT_TRUE(has(text, "aten.silu(%7)")) << text;
}

TEST(Functional, TheResultHasTheTypeOfTheMemory) {
  CaptureText c;
  c.value("k", {symbol("s0"), symbol("s1"), size(4)}, 13);  // bf16
  c.node("torch.ops.aten.to.dtype",
         {arg("self", tensor("x")), arg("dtype", R"({"as_scalar_type": 13})")}, {tensor("k")});
  c.value("r", {symbol("s0"), symbol("s1"), size(4)}, 13);
  c.node("torch.ops.aten.add_.Tensor", {arg("self", tensor("k")), arg("other", tensor("x"))},
         {tensor("r")});
  c.output("r");
  EXPECT_TRUE(has(c.print(), "%2 = aten.to(%1) {dtype=bf16}")) << c.print();
}

TEST(Functional, WeightsAndInputsAreNotWritten) {
  CaptureText c;
  c.node("torch.ops.aten.add_.Tensor",
         {arg("self", tensor("x")), arg("other", R"({"as_float": 1.0})")}, {});
  EXPECT_TRUE(has(c.error(), "error[TK0220]: the capture changes the input 'x' in place"))
      << c.error();
  CaptureText w;
  w.value("v", {size(4), size(4)});
  w.node("torch.ops.aten.t.default", {arg("self", tensor("w"))}, {tensor("v")});
  w.node("torch.ops.aten.zero_.default", {arg("self", tensor("v"))}, {});
  EXPECT_TRUE(has(w.error(), "changes the weight 'layer.weight' in place")) << w.error();
  EXPECT_TRUE(has(w.error(), "layer (model.py:7)")) << w.error();
}

TEST(Functional, AViewThatCannotBeWrittenThrough) {
  CaptureText c;
  c.unary("torch.ops.aten.cos.default", "x", "k");
  c.value("d", {symbol("s0"), symbol("s1"), size(2), size(2)});
  c.node("torch.ops.aten.unfold.default",
         {arg("self", tensor("k")), arg("dimension", R"({"as_int": 2})"),
          arg("size", R"({"as_int": 2})"), arg("step", R"({"as_int": 2})")},
         {tensor("d")});
  c.node("torch.ops.aten.zero_.default", {arg("self", tensor("d"))}, {});
  EXPECT_TRUE(has(c.error(), "TK0221")) << c.error();
  EXPECT_TRUE(has(c.error(), "a view made by aten.unfold")) << c.error();
}

// reshape is a view or a copy, as strides have it.
TEST(Functional, AViewThatMayBeACopy) {
  CaptureText c;
  c.unary("torch.ops.aten.cos.default", "x", "k");
  c.value("d", {symbol("s0"), symbol("s1"), size(2), size(2)});
  c.node("torch.ops.aten.reshape.default",
         {arg("self", tensor("k")), arg("shape", R"({"as_ints": [-1, 1, 2, 2]})")}, {tensor("d")});
  c.values.back() =
      cat(R"("d": {"dtype": 7, "sizes": [)",
          join({expr("Mul(Symbol('s0'), Symbol('s1'))"), size(1), size(2), size(2)}), "]}");
  c.value("r", {});
  c.values.back() =
      cat(R"("r": {"dtype": 7, "sizes": [)",
          join({expr("Mul(Symbol('s0'), Symbol('s1'))"), size(1), size(2), size(2)}), "]}");
  c.node("torch.ops.aten.add_.Tensor",
         {arg("self", tensor("d")), arg("other", R"({"as_float": 1.0})")}, {tensor("r")});
  CaptureText own = c;  // whoever uses the view alone is not concerned
  own.output("r");
  EXPECT_EQ(own.error({.allow_unknown = false, .output = "r"}), "no error");
  c.unary("torch.ops.aten.silu.default", "k", "y");
  c.output("y");
  EXPECT_TRUE(has(c.error(), "TK0221")) << c.error();
  EXPECT_TRUE(has(c.error(), "whether 'k' sees the change depends on strides")) << c.error();
}

}  // namespace
}  // namespace tk
