// Shape rules with symbols.
#include "ops/infer.h"

#include <gtest/gtest.h>

#include "base/error.h"
#include "graph/graph.h"

namespace tk::ops {
namespace {

Sym sym(std::string_view text) { return Sym::parse(text); }
SymDims dims(std::string_view text) { return std::get<SymDims>(parse_attr(text)); }

// The results' types of a call, e.g. "f32[B, S]"; the code of the error.
std::string infer(std::string_view op, const std::vector<std::string>& shapes, const Attrs& attrs,
                  DType dtype = DType::f32) {
  std::vector<Value> values(shapes.size());
  std::vector<Value*> inputs;
  for (std::size_t i = 0; i < shapes.size(); ++i) {
    values[i].type = {dtype, dims(shapes[i])};
    inputs.push_back(&values[i]);
  }
  const OpDef* def = find_op(op);
  if (def == nullptr) return "no operator";
  std::string out;
  try {
    for (const Type& t : def->infer(Args(*def, inputs, attrs)))
      out += cat(out.empty() ? "" : " ", t.str());
  } catch (const UserError& e) {
    return e.code();
  }
  return out;
}

TEST(Infer, LowerBounds) {
  EXPECT_EQ(lower_bound(sym("2*S + 3")), 5);
  EXPECT_EQ(lower_bound(sym("B*S - 4")), -3);
  EXPECT_EQ(lower_bound(Sym(7)), 7);
  EXPECT_EQ(lower_bound(sym("S - B")), std::nullopt);
  EXPECT_EQ(lower_bound(sym("floordiv(S, 2)")), std::nullopt);
  EXPECT_EQ(smaller(1, sym("S")).str(), "1");
  EXPECT_EQ(smaller(2, sym("S")).str(), "min(2, S)");
  EXPECT_EQ(larger(sym("S - 1"), 0).str(), "S - 1");
}

TEST(Infer, Slices) {
  const auto slice = [](const Attrs& attrs) { return infer("aten.slice", {"[B, S, 64]"}, attrs); };
  EXPECT_EQ(slice({}), "f32[B, S, 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"end", Sym(INT64_MAX)}}), "f32[B, S, 64]");
  EXPECT_EQ(slice({{"dim", Sym(2)}, {"end", Sym(32)}}), "f32[B, S, 32]");
  EXPECT_EQ(slice({{"dim", Sym(-1)}, {"start", Sym(32)}, {"end", Sym(INT64_MAX)}}),
            "f32[B, S, 32]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"end", Sym(-1)}}), "f32[B, S - 1, 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"start", Sym(-1)}}), "f32[B, 1, 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"end", Sym(1)}}), "f32[B, 1, 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"end", sym("S")}}), "f32[B, S, 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"start", sym("S - 1")}}), "f32[B, 1, 64]");
  EXPECT_EQ(slice({{"dim", Sym(2)}, {"step", Sym(2)}}), "f32[B, S, 32]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"step", Sym(2)}}), "f32[B, floordiv(S + 1, 2), 64]");
  EXPECT_EQ(slice({{"dim", Sym(1)}, {"end", Sym(3)}}), "f32[B, min(3, S), 64]");
}

TEST(Infer, Views) {
  const auto view = [](std::string_view size) {
    return infer("aten.view", {"[B, S, 12]"}, {{"size", dims(size)}});
  };
  EXPECT_EQ(view("[B, S, 3, 4]"), "f32[B, S, 3, 4]");
  EXPECT_EQ(view("[-1, 12]"), "f32[B*S, 12]");
  EXPECT_EQ(view("[B, -1]"), "f32[B, 12*S]");
  EXPECT_EQ(view("[B, S, -1, 4]"), "f32[B, S, 3, 4]");
  EXPECT_EQ(view("[B*S*12]"), "f32[12*B*S]");
  EXPECT_EQ(view("[S, B, 6]"), "TK0312");
  EXPECT_EQ(view("[B, 12]"), "TK0312");
  EXPECT_EQ(view("[-1, -1]"), "TK0312");
  EXPECT_EQ(infer("aten.flatten", {"[B, S, 3, 4]"}, {{"start_dim", Sym(2)}}), "f32[B, S, 12]");
  EXPECT_EQ(infer("aten.unflatten", {"[B, 12]"}, {{"dim", Sym(1)}, {"sizes", dims("[-1, 4]")}}),
            "f32[B, 3, 4]");
  EXPECT_EQ(infer("aten.squeeze", {"[B, 1, 4]"}, {}), "f32[B, 4]");
  EXPECT_EQ(infer("aten.expand", {"[B, 1, 4]"}, {{"size", dims("[-1, S, 4]")}}), "f32[B, S, 4]");
}

TEST(Infer, Broadcasts) {
  EXPECT_EQ(infer("aten.add", {"[B, 1, S]", "[S, 1]"}, {}), "f32[B, S, S]");
  EXPECT_EQ(infer("aten.add", {"[B, S]", "[T]"}, {}), "TK0312");
  // A size that is a formula may be equal; the plainer one is taken.
  EXPECT_EQ(infer("aten.add", {"[B, S]", "[9 - min(9, max(0, 9 - S))]"}, {}), "f32[B, S]");
  EXPECT_EQ(infer("aten.matmul", {"[B, 1, S, 8]", "[3, 8, T]"}, {}), "f32[B, 3, S, T]");
  EXPECT_EQ(infer("aten.linear", {"[B, S, 8]", "[16, 8]"}, {}), "f32[B, S, 16]");
}

TEST(Infer, Sizes) {
  EXPECT_EQ(infer("aten.cat", {"[B, S, 4]", "[B, 2, 4]"}, {{"dim", Sym(1)}}), "f32[B, S + 2, 4]");
  EXPECT_EQ(infer("aten.arange", {}, {{"end", sym("S + 1")}}), "i64[S + 1]");
  EXPECT_EQ(infer("aten.arange", {}, {{"end", sym("S")}, {"start", Sym(2)}}), "i64[S - 2]");
  EXPECT_EQ(infer("aten.chunk", {"[B, 2*S]"}, {{"chunks", Sym(2)}, {"dim", Sym(1)}}),
            "f32[B, S] f32[B, S]");
  EXPECT_EQ(infer("aten.chunk", {"[B, S]"}, {{"chunks", Sym(2)}, {"dim", Sym(1)}}), "TK0312");
  EXPECT_EQ(infer("aten.split", {"[B, 5]"}, {{"split_size", Sym(2)}, {"dim", Sym(1)}}),
            "f32[B, 2] f32[B, 2] f32[B, 1]");
  EXPECT_EQ(infer("aten.unbind", {"[B, S]"}, {}), "TK0312");
  EXPECT_EQ(infer("aten.diff", {"[B, S]", "[B, 1]"}, {}), "f32[B, S]");
  EXPECT_EQ(infer("aten.repeat_interleave", {"[B, S]"}, {{"repeats", Sym(2)}, {"dim", Sym(0)}}),
            "f32[2*B, S]");
  EXPECT_EQ(infer("aten.sum", {"[B, S, 4]"}, {{"dim", dims("[-1]")}, {"keepdim", true}}),
            "f32[B, S, 1]");
  EXPECT_EQ(
      infer("aten.unfold", {"[B, S]"}, {{"dimension", Sym(1)}, {"size", Sym(3)}, {"step", Sym(1)}}),
      "f32[B, S - 2, 3]");
}

// torch.result_type
TEST(Infer, Promotion) {
  const auto result = [](DType axes, std::optional<DType> scalar, std::optional<Attr> number) {
    Promotion p;
    p.tensor(axes, 1);
    if (scalar) p.tensor(*scalar, 0);
    if (number) p.number(*number);
    return std::string(name_of(p.result()));
  };
  EXPECT_EQ(result(DType::bf16, DType::f32, {}), "bf16");
  EXPECT_EQ(result(DType::i64, DType::f16, {}), "f16");
  EXPECT_EQ(result(DType::i32, DType::i64, {}), "i32");
  EXPECT_EQ(result(DType::boolean, {}, Attr(Sym(1))), "i64");
  EXPECT_EQ(result(DType::i64, {}, Attr(1.5)), "f32");
  EXPECT_EQ(result(DType::f16, {}, Attr(1.5)), "f16");
  EXPECT_EQ(result(DType::boolean, {}, Attr(true)), "bool");
  EXPECT_EQ(result(DType::f64, DType::f32, Attr(2.0)), "f64");
}

}  // namespace
}  // namespace tk::ops
