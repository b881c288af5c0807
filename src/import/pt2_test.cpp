#include "import/pt2.h"

#include <gtest/gtest.h>

#include "import/pt2_loc.h"
#include "import/pt2_test_util.h"

namespace tk {
namespace {

bool has(const std::string& text, std::string_view part) {
  return text.find(part) != std::string::npos;
}

// y = silu(x)
CaptureText plain() {
  CaptureText c;
  c.unary("torch.ops.aten.silu.default", "x", "y");
  c.output("y");
  return c;
}

TEST(Pt2, NodesHaveTheirPlace) {
  EXPECT_EQ(plain().print(),
            "graph @main(%x: f32[B, S, 4]) {\n"
            "  range B 1 16\n"
            "  range S 1 9223372036854775807\n"
            "  %0 = aten.silu(%x)  @\"layer\" Layer (model.py:7)\n"
            "  return %0\n"
            "}\n");
}

TEST(Pt2, Frames) {
  EXPECT_EQ(
      innermost_frame("File \"a/b.py\", line 3, in f\n  x\n  File \"torch/nn/functional.py\", "
                      "line 8, in g\n")
          .file,
      "b.py");
  EXPECT_EQ(innermost_frame("").line, 0);
  EXPECT_EQ(innermost_module("A,a,m.A;B,a.b,m.x.B").path, "a.b");
  EXPECT_EQ(innermost_module("A,a,m.A;B,a.b,m.x.B").type, "B");
  EXPECT_EQ(innermost_module("_empty_nn_module_stack_from_metadata_hook,x").path, "");
}

TEST(Pt2, WrapperIsTheOnlyChild) {
  WrapperFinder wrapped;
  for (const char* p : {"", "model", "model.layers.0"}) wrapped.add_module(p);
  wrapped.add_weight("model.lm_head.weight");
  EXPECT_EQ(wrapped.prefix(), "model.");
  WrapperFinder plain_model;
  for (const char* p : {"", "model.layers.0", "lm_head"}) plain_model.add_module(p);
  EXPECT_EQ(plain_model.prefix(), "");
}

TEST(Pt2, SizesBecomeNumbersInAttributes) {
  CaptureText c;
  c.number("n", "Mul(Integer(2), Symbol('s1', positive=True, integer=True))");
  c.node("_operator.mul",
         {arg("a", R"({"as_int": 2})"), arg("b", R"({"as_sym_int": {"as_int": 3}})")},
         {R"({"as_sym_int": {"as_name": "n"}})"});
  c.value("y", {symbol("s0"), expr("Mul(Integer(2), Symbol('s1', positive=True, integer=True))"),
                size(2)});
  c.node("torch.ops.aten.view.default",
         {arg("self", tensor("x")),
          arg("size", R"({"as_sym_ints": [{"as_int": -1}, {"as_name": "n"}, {"as_int": 2}]})")},
         {tensor("y")});
  c.output("y");
  EXPECT_TRUE(has(c.print(), "aten.view(%x) {size=[-1, 2*S, 2]}")) << c.print();
}

TEST(Pt2, GuardsMakeSizesEqual) {
  CaptureText c;
  c.input("m", {symbol("s7"), size(4)});
  c.guards = R"(["L['m'].size()[0] == L['x'].size()[1]", "L['x'].size()[0] <= 9",)"
             R"x( "5 < L['x'].size()[1]", "Eq(s0, 1)"])x";
  c.unary("torch.ops.aten.silu.default", "x", "a");
  c.value("y", {symbol("s0"), symbol("s1"), size(4)});
  c.node("torch.ops.aten.add.Tensor", {arg("self", tensor("a")), arg("other", tensor("m"))},
         {tensor("y")});
  c.output("y");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "%m: f32[S, 4]")) << text;
  EXPECT_TRUE(has(text, "range B 1 9\n")) << text;
  EXPECT_TRUE(has(text, "range S 6 ")) << text;
}

TEST(Pt2, NamesBandSAreKeptFree) {
  CaptureText c = plain();
  c.input("z", {symbol("S")});
  EXPECT_TRUE(has(c.print(), "%x: f32[B, s1, 4], %z: f32[S]")) << c.print();
}

TEST(Pt2, InfinityIsText) {
  CaptureText c;
  c.value("y", {symbol("s0"), symbol("s1"), size(4)});
  c.node("torch.ops.aten.clamp.default",
         {arg("self", tensor("x")), arg("min", R"({"as_float": "-Infinity"})"),
          arg("max", R"({"as_none": true})")},
         {tensor("y")});
  c.output("y");
  EXPECT_TRUE(has(c.print(), "{min=-inf}")) << c.print();
}

// One size of parts, and a number where others have a tensor.
TEST(Pt2, NumbersStayNumbers) {
  CaptureText c;
  c.value("p", {symbol("s0"), symbol("s1"), size(4)});
  c.node("torch.ops.aten.pow.Scalar",
         {arg("self", R"({"as_float": 10000.0})"), arg("exponent", tensor("x"))}, {tensor("p")});
  c.value("a", {symbol("s0"), symbol("s1"), size(2)});
  c.value("b", {symbol("s0"), symbol("s1"), size(2)});
  c.node("torch.ops.aten.split.Tensor",
         {arg("self", tensor("p")), arg("split_size", R"({"as_int": 2})"),
          arg("dim", R"({"as_int": 2})")},
         {cat(R"({"as_tensors": [)", named("a"), ", ", named("b"), "]}")});
  c.output("b");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "aten.pow(none, %x) {self=10000.0}")) << text;
  EXPECT_TRUE(has(text, "aten.split(%0) {split_size=2, dim=2}")) << text;
}

TEST(Pt2, AssertsAreDropped) {
  CaptureText c = plain();
  c.node("torch.ops.aten._assert_tensor_metadata.default", {arg("a", tensor("y"))}, {});
  EXPECT_FALSE(has(c.print(), "assert"));
}

TEST(Pt2, ListsOfTensors) {
  CaptureText c;
  c.value("a", {symbol("s0"), symbol("s1"), size(2)});
  c.value("b", {symbol("s0"), symbol("s1"), size(2)});
  c.node("torch.ops.aten.chunk.default",
         {arg("self", tensor("x")), arg("chunks", R"({"as_int": 2})"),
          arg("dim", R"({"as_int": -1})")},
         {cat(R"({"as_tensors": [)", named("a"), ", ", named("b"), "]}")});
  c.node("_operator.getitem",
         {arg("a", cat(R"({"as_tensors": [)", named("a"), ", ", named("b"), "]}")),
          arg("b", R"({"as_int": 1})")},
         {tensor("g")});
  c.value("y", {symbol("s0"), symbol("s1"), size(4)});
  c.node("torch.ops.aten.cat.default",
         {arg("tensors", cat(R"({"as_tensors": [)", named("g"), ", ", named("a"), "]}")),
          arg("dim", R"({"as_int": 2})")},
         {tensor("y")});
  c.output("y");
  EXPECT_TRUE(has(c.print(), "%0, %1 = aten.chunk(%x)")) << c.print();
  EXPECT_TRUE(has(c.print(), "aten.cat(%1, %0)")) << c.print();
}

TEST(Pt2, GraphsOfModesAreInlined) {
  CaptureText c;
  const std::string body =
      cat(R"({"inputs": [)", tensor("arg0"), R"(], "outputs": [)", tensor("r"),
          R"(], "nodes": [{"target": "torch.ops.aten.cos.default", "inputs": [)",
          arg("self", tensor("arg0")), R"(], "outputs": [)", tensor("r"),
          R"(], "metadata": {}}], "tensor_values": {"r": {"dtype": 7, "sizes": [)",
          join({symbol("s0"), symbol("s1"), size(4)}), R"(]}}, "sym_int_values": {}})");
  c.value("y", {symbol("s0"), symbol("s1"), size(4)});
  c.node("torch.ops.higher_order.wrap_with_set_grad_enabled",
         {arg("enabled", R"({"as_bool": false})"),
          arg("body", cat(R"({"as_graph": {"name": "sub", "graph": )", body, "}}")),
          arg("args", tensor("x"))},
         {tensor("y")});
  c.output("y");
  EXPECT_TRUE(has(c.print(), "%0 = aten.cos(%x)")) << c.print();
}

TEST(Pt2, AutocastIsNotSupported) {
  CaptureText c = plain();
  c.node("torch.ops.higher_order.wrap_with_autocast",
         {arg("", R"({"as_string": "cpu"})"), arg("", R"({"as_bool": true})"),
          arg("", R"({"as_graph": {"name": "sub", "graph": {"nodes": []}}})")},
         {tensor("z")});
  EXPECT_TRUE(has(c.error(), "wrap_with_autocast (autocast that is switched on): 1 time"))
      << c.error();
}

TEST(Pt2, WeightsHaveNamesThatCanBePrinted) {
  CaptureText c = plain();
  c.weight("v", "a\\nb", {size(1)});
  EXPECT_TRUE(has(c.error(), "TK0205")) << c.error();
  CaptureText twice = plain();
  twice.weight("v", "layer.weight", {size(1)});
  EXPECT_TRUE(has(twice.error(), "two inputs are the weight 'layer.weight'")) << twice.error();
}

TEST(Pt2, UnknownOperatorsComeAllAtOnce) {
  CaptureText c = plain();
  c.unary("torch.ops.aten.fancy.default", "y", "a");
  c.unary("torch.ops.aten.fancy.default", "a", "b");
  c.unary("torch.ops.other.strange_.default", "b", "d");
  const std::string e = c.error();
  EXPECT_TRUE(has(e, "error[TK0210]: 2 operators")) << e;
  EXPECT_TRUE(has(e, "aten.fancy.default: 2 times, first at model.py:7 in layer")) << e;
  EXPECT_TRUE(has(e, "other.strange_.default: 1 time")) << e;
}

TEST(Pt2, UnknownArgumentsAndSizesFromDataAreUnknownToo) {
  CaptureText c = plain();
  c.node("torch.ops.aten.silu.default", {arg("self", tensor("y")), arg("mode", R"({"as_int": 1})")},
         {tensor("z")});
  c.node("torch.ops.aten.item.default", {arg("self", tensor("y"))},
         {R"({"as_sym_int": {"as_name": "u0"}})"});
  const std::string e = c.error();
  EXPECT_TRUE(has(e, "aten.silu.default with the argument 'mode': 1 time")) << e;
  EXPECT_TRUE(has(e, "aten.item.default (a size that depends on data)")) << e;
}

TEST(Pt2, UnknownOperatorsCanBeLookedAt) {
  CaptureText c;
  c.unary("torch.ops.aten.fancy.default", "x", "y");
  c.output("y");
  const ImportOptions options{.allow_unknown = true, .output = {}};
  const std::string text = c.print(options);
  EXPECT_TRUE(has(text, R"(%0 = tk.opaque(%x) {target="aten.fancy.default", dtypes="f32", )"
                        R"(ranks=[3], dims=[B, S, 4]})"))
      << text;
  EXPECT_EQ(print(parse_graph(text)), text);
}

TEST(Pt2, TypesAreGuarded) {
  CaptureText c;
  c.value("y", {symbol("s0"), symbol("s1"), size(5)});
  c.node("torch.ops.aten.silu.default", {arg("self", tensor("x"))}, {tensor("y")});
  c.output("y");
  const std::string e = c.error();
  EXPECT_TRUE(has(e,
                  "error[TK0213]: 'y' is f32[B, S, 4] by the rules of aten.silu, but the capture "
                  "says f32[B, S, 5]"))
      << e;
  EXPECT_TRUE(has(e, "layer (model.py:7)")) << e;
}

// %x is [B, S, 4]. A table of 4 rows is cut to B of them; the capture knows that B stays within.
TEST(Pt2, ASliceThatRangesKeepWithinItsTableIsNarrow) {
  CaptureText c;
  c.number("n", "Symbol('s0', positive=True, integer=True)");
  c.node("torch.ops.aten.sym_size.int", {arg("self", tensor("x")), arg("dim", R"({"as_int": 0})")},
         {R"({"as_sym_int": {"as_name": "n"}})"});
  c.value("y", {symbol("s0"), symbol("s1"), symbol("s0")});
  c.node("torch.ops.aten.slice.Tensor",
         {arg("self", tensor("x")), arg("dim", R"({"as_int": 2})"),
          arg("start", R"({"as_int": 0})"), arg("end", R"({"as_sym_int": {"as_name": "n"}})")},
         {tensor("y")});
  c.output("y");
  const std::string text = c.print();
  EXPECT_TRUE(has(text, "aten.narrow(%x) {dim=2, start=0, length=B}")) << text;
}

TEST(Pt2, OneSpellingOfASizeIsAsGoodAsAnother) {
  CaptureText c;
  c.value("y", {symbol("s0"), expr("Max(Integer(0), Symbol('s1', positive=True, integer=True))"),
                size(4)});
  c.node("torch.ops.aten.silu.default", {arg("self", tensor("x"))}, {tensor("y")});
  c.output("y");
  EXPECT_EQ(c.error(), "no error");
}

TEST(Pt2, OperatorsRefuseWithTheirPlace) {
  CaptureText c;
  c.value("y", {symbol("s0"), size(7)});
  c.node("torch.ops.aten.view.default",
         {arg("self", tensor("x")), arg("size", R"({"as_ints": [3, 7]})")}, {tensor("y")});
  c.output("y");
  EXPECT_TRUE(has(c.error(), "TK0312")) << c.error();
  EXPECT_TRUE(has(c.error(), "layer (model.py:7)")) << c.error();
}

TEST(Pt2, Outputs) {
  CaptureText c = plain();
  c.output("x");
  const std::string e = c.error();
  EXPECT_TRUE(has(e, "TK0207")) << e;
  EXPECT_TRUE(has(e, "found 2; the results are:\n    y: f32[B, S, 4]\n    x: f32[B, S, 4]")) << e;
  EXPECT_EQ(c.error({.allow_unknown = false, .output = "y"}), "no error");
  EXPECT_TRUE(has(c.error({.allow_unknown = false, .output = "q"}), "there is no result 'q'"));
  CaptureText none;
  EXPECT_TRUE(has(none.error(), "the results are: none"));
}

TEST(Pt2, Signatures) {
  CaptureText mutated = plain();
  mutated.output_specs.push_back(
      R"({"buffer_mutation": {"arg": {"name": "y"}, "buffer_name": "cache.k"}})");
  EXPECT_TRUE(has(mutated.error(), "TK0206")) << mutated.error();
  EXPECT_TRUE(has(mutated.error(), "the new value of the buffer 'cache.k'")) << mutated.error();
  CaptureText custom = plain();
  custom.input_specs.push_back(R"({"custom_obj": {"arg": {"name": "o"}}})");
  EXPECT_TRUE(has(custom.error(), "of kind 'custom_obj'")) << custom.error();
  CaptureText number = plain();
  number.input_specs.push_back(R"({"user_input": {"arg": {"as_sym_int": {"as_name": "n"}}}})");
  EXPECT_TRUE(has(number.error(), "not a tensor")) << number.error();
}

TEST(Pt2, BrokenGraphs) {
  CaptureText c = plain();
  c.unary("torch.ops.aten.silu.default", "nowhere", "z");
  EXPECT_TRUE(has(c.error(), "TK0205")) << c.error();
  EXPECT_TRUE(has(c.error(), "'nowhere' is used before it is defined")) << c.error();
  CaptureText twice = plain();
  twice.unary("torch.ops.aten.silu.default", "x", "y");
  EXPECT_TRUE(has(twice.error(), "'y' is defined twice")) << twice.error();
  CaptureText cycle;
  cycle.unary("torch.ops.aten.silu.default", "y", "z");
  cycle.unary("torch.ops.aten.silu.default", "z", "y");
  cycle.output("y");
  EXPECT_TRUE(has(cycle.error(), "'y' is used before it is defined")) << cycle.error();
  CaptureText missing;
  missing.node("torch.ops.aten.silu.default", {}, {tensor("x2")});
  EXPECT_TRUE(has(missing.error(), "aten.silu needs the tensor 'self'")) << missing.error();
  CaptureText no_type;
  no_type.node("torch.ops.aten.silu.default", {arg("self", tensor("x"))}, {tensor("x2")});
  EXPECT_TRUE(has(no_type.error(), "'x2' has no entry in tensor_values")) << no_type.error();
}

TEST(Pt2, BrokenTypes) {
  auto with = [](std::vector<std::string> sizes, int dtype = 7) {
    CaptureText c = plain();
    c.input("z", sizes, dtype);
    return c.error();
  };
  EXPECT_TRUE(has(with({size(-1)}), "TK0204")) << with({size(-1)});
  EXPECT_TRUE(has(with({size(-1)}), "negative")) << with({size(-1)});
  EXPECT_TRUE(has(with(std::vector<std::string>(9, size(1))), "more than 8 axes"));
  EXPECT_TRUE(has(with({size(1LL << 40), size(1LL << 40)}), "too large"));
  EXPECT_TRUE(has(with({size(1)}, 99), "element type 99")) << with({size(1)}, 99);
  EXPECT_TRUE(has(with({expr("Add(")}), "TK0203"));
  EXPECT_TRUE(has(with({R"({"as_int": 1e99})"}), "TK0111"));
  CaptureText range = plain();
  range.range_constraints = R"({"s0": {"min_val": 5, "max_val": 2}})";
  EXPECT_TRUE(has(range.error(), "no possible value")) << range.error();
}

TEST(Pt2, Versions) {
  CaptureText c = plain();
  c.version = R"({"major": 9, "minor": 1})";
  EXPECT_TRUE(has(c.error(), "error[TK0202]: the capture has schema version 9; supported is 8"))
      << c.error();
}

TEST(Pt2, ArgumentsOfOtherKinds) {
  auto clamped_at = [](std::string_view min) {
    CaptureText c;
    c.value("y", {symbol("s0"), symbol("s1"), size(4)});
    c.node("torch.sym_sqrt", {}, {R"({"as_sym_float": {"as_name": "f"}})"});
    c.node("torch.ops.aten.clamp.default", {arg("self", tensor("x")), arg("min", min)},
           {tensor("y")});
    c.output("y");
    return c;
  };
  CaptureText undefined = clamped_at(R"({"as_float": 0.5})");
  EXPECT_TRUE(has(undefined.error(), "error[TK0205]: the number 'f' has no entry"))
      << undefined.error();
  CaptureText kind = clamped_at(R"({"as_complex": {"real": 1.0, "imag": 0.0}})");
  kind.floats.push_back(R"("f": {"as_float": 0.25})");
  EXPECT_TRUE(has(kind.error(), "error[TK0212]: an argument of kind as_complex")) << kind.error();
  const char* by_name = R"({"as_sym_float": {"as_name": "f"}})";
  CaptureText known = clamped_at(by_name);
  known.floats.push_back(R"("f": {"as_float": 0.25})");
  EXPECT_TRUE(has(known.print(), "{min=0.25}")) << known.print();
  CaptureText formula = clamped_at(by_name);
  formula.floats.push_back(R"x("f": {"as_expr": {"expr_str": "sqrt(x)"}})x");
  EXPECT_TRUE(has(formula.error(), "error[TK0212]: the number at")) << formula.error();
  EXPECT_TRUE(has(formula.error(), "layer (model.py:7)")) << formula.error();
}

}  // namespace
}  // namespace tk
