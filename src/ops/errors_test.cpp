// What operators refuse, and how they say so: bad calls, bad indices, hostile numbers.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "base/error.h"
#include "ops/interpret.h"

namespace tk {
namespace {

constexpr std::int64_t least = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t most = std::numeric_limits<std::int64_t>::max();

Tensor f32(const Dims& shape) { return Tensor::zeros(DType::f32, shape); }
Tensor ids(std::vector<std::int64_t> v) { return Tensor::ids(v); }

struct Call {
  std::string op;
  std::vector<Tensor> inputs;
  Attrs attrs;
  std::string code, text;  // text: part of the message
};

void expect_errors(const std::vector<Call>& calls) {
  for (const Call& c : calls) {
    SCOPED_TRACE(c.op);
    const OpDef* op = find_op(c.op);
    ASSERT_NE(op, nullptr);
    try {
      evaluate(*op, c.inputs, c.attrs);
      ADD_FAILURE() << "no error";
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), c.code) << e.what();
      EXPECT_NE(std::string(e.what()).find(c.text), std::string::npos) << e.what();
    }
  }
}

TEST(OpErrors, IndicesOutOfRange) {
  const Tensor x = f32({3, 4});
  expect_errors({
      {"aten.embedding", {x, ids({3})}, {}, "TK0501", "index 3 is out of range for a size of 3"},
      {"aten.embedding", {x, ids({-1})}, {}, "TK0501", "index -1"},
      {"aten.index", {x, ids({-4})}, {}, "TK0501", "index -4"},
      {"aten.index", {x, Tensor(), ids({4})}, {}, "TK0501", "size of 4"},
      {"aten.index_select", {x, ids({least})}, {{"dim", Sym(0)}}, "TK0501", ""},
      {"aten.gather", {x, Tensor::zeros(DType::i64, {3, 4})}, {{"dim", Sym(2)}}, "TK0312", "dim"},
      {"aten.index_put", {x, f32({}), ids({3})}, {}, "TK0501", ""},
      {"aten.index_add", {x, ids({7}), f32({1, 4})}, {{"dim", Sym(0)}}, "TK0501", ""},
      {"aten.index_copy", {x, ids({most}), f32({1, 4})}, {{"dim", Sym(0)}}, "TK0501", ""},
      {"aten.one_hot", {ids({0, 2})}, {{"num_classes", Sym(2)}}, "TK0501", ""},
      {"aten.bincount", {ids({5})}, {{"minlength", Sym(5)}}, "TK0501", ""},
      {"aten.as_strided", {x}, {{"size", SymDims{4, 4}}, {"stride", SymDims{4, 1}}}, "TK0501", ""},
      {"aten.as_strided",
       {x},
       {{"size", SymDims{3, 3}}, {"stride", SymDims{most, most}}},
       "TK0501",
       ""},
      {"aten._grouped_mm", {x, f32({2, 4, 5}), ids({2, 4})}, {}, "TK0501", "end of a group"},
      {"aten._grouped_mm", {x, f32({2, 4, 5}), ids({2, 1})}, {}, "TK0501", "end of a group"},
  });
  Tensor line = ids({0, 1, 9, 0});
  line.shape = {1, 4};
  line.strides = {4, 1};
  expect_errors({
      {"aten.gather", {x, line}, {{"dim", Sym(0)}}, "TK0501", "index 9"},
      {"aten.scatter", {x, line}, {{"dim", Sym(0)}, {"value", Sym(1)}}, "TK0501", "index 9"},
      {"aten.scatter_add", {x, line, f32({1, 4})}, {{"dim", Sym(1)}}, "TK0501", "index 9"},
      {"aten.take_along_dim", {x, line}, {{"dim", Sym(0)}}, "TK0501", "index 9"},
  });
}

TEST(OpErrors, ShapesAndTypesThatDoNotFit) {
  const Tensor x = f32({3, 4});
  const Tensor y = f32({5});
  const Tensor half = Tensor::zeros(DType::bf16, {4, 4});
  const Tensor mask = Tensor::zeros(DType::boolean, {3, 4});
  expect_errors({
      {"aten.add", {x, y}, {}, "TK0312", "shapes that broadcast, got [3, 4] and [5]"},
      {"aten.matmul", {x, x}, {}, "TK0312", "the inner dims to be equal, got 4 and 3"},
      {"aten.linear", {x, half}, {}, "TK0312", "one dtype"},
      {"aten.linear", {x, f32({2, 4}), y}, {}, "TK0312", "bias"},
      {"aten.mm", {y, x}, {}, "TK0312", "rank 2"},
      {"aten.view", {x}, {{"size", SymDims{5, -1}}}, "TK0312", "12 elements"},
      {"aten.view", {x}, {{"size", SymDims{-1, -1}}}, "TK0312", "at most one size of -1"},
      {"aten.view", {x}, {{"size", SymDims{3, 5}}}, "TK0312", "from 12 elements"},
      {"aten.view", {x}, {{"size", SymDims{-2, 6}}}, "TK0312", "not negative"},
      {"aten.view", {x}, {{"size", SymDims{0, -1}}}, "TK0312", ""},
      {"aten.expand", {x}, {{"size", SymDims{3, 5}}}, "TK0312", "broadcasts to [3, 5]"},
      {"aten.expand", {x}, {{"size", SymDims{4}}}, "TK0312", "at least 2 sizes"},
      {"aten.transpose", {x}, {{"dim0", Sym(0)}, {"dim1", Sym(2)}}, "TK0312", "from -2 to 1"},
      {"aten.permute", {x}, {{"dims", SymDims{0, 0}}}, "TK0312", "different dims"},
      {"aten.permute", {x}, {{"dims", SymDims{0}}}, "TK0312", "needs 2 dims"},
      {"aten.cat", {x, y}, {}, "TK0312", "differ in dim 0 only"},
      {"aten.cat", {}, {}, "TK0312", ""},
      {"aten.stack", {x, y}, {}, "TK0312", "one shape"},
      {"aten.split_with_sizes", {x}, {{"split_sizes", SymDims{1, 1}}}, "TK0312", "sum to 3"},
      {"aten.split", {x}, {{"split_size", Sym(0)}}, "TK0312", "positive"},
      {"aten.chunk", {x}, {{"chunks", Sym(0)}}, "TK0312", "0 chunks"},
      {"aten.index", {x, mask}, {}, "TK0312", "depend on values"},
      {"aten.index", {x, f32({2})}, {}, "TK0312", "integers"},
      {"aten.select", {x}, {{"dim", Sym(0)}, {"index", Sym(3)}}, "TK0312", "below 3"},
      {"aten.slice", {x}, {{"step", Sym(0)}}, "TK0312", "positive step"},
      {"aten.narrow", {x}, {{"dim", Sym(0)}, {"start", Sym(2)}, {"length", Sym(2)}}, "TK0312", ""},
      {"aten.squeeze", {x}, {{"dim", Sym(2)}}, "TK0312", ""},
      {"aten.mean", {Tensor::zeros(DType::i64, {2})}, {}, "TK0312", "floating-point"},
      {"aten.amax", {f32({0})}, {}, "TK0312", "an element"},
      {"aten.softmax", {ids({1})}, {{"dim", Sym(0)}}, "TK0312", ""},
      {"aten.layer_norm", {x}, {{"normalized_shape", SymDims{5}}}, "TK0312", "ends in [5]"},
      {"aten.layer_norm", {x, y}, {{"normalized_shape", SymDims{4}}}, "TK0312", "shape [4]"},
      {"aten.topk", {x}, {{"k", Sym(5)}}, "TK0312", "k within 4, got 5"},
      {"aten.dropout", {x}, {{"p", 0.1}, {"train", true}}, "TK0312", "inference"},
      {"aten.masked_fill", {x, x}, {{"value", 1.0}}, "TK0312", "bool"},
      {"aten.bitwise_and", {x}, {{"other", Sym(1)}}, "TK0312", "integers or bool"},
      {"aten.div", {x}, {{"other", Sym(2)}, {"rounding_mode", std::string("up")}}, "TK0312", "up"},
      {"aten.gelu", {x}, {{"approximate", std::string("fast")}}, "TK0312", "fast"},
      {"aten.view_as_complex", {x}, {}, "TK0312", "pairs"},
      {"aten.pad",
       {x},
       {{"pad", SymDims{1, 1}}, {"mode", std::string("reflect")}},
       "TK0312",
       "reflect"},
      {"aten.constant_pad_nd", {x}, {{"pad", SymDims{-3, -3}}}, "TK0312", ""},
      {"aten.one_hot", {ids({0})}, {}, "TK0312", "num_classes"},
      {"aten.bincount", {ids({0})}, {}, "TK0312", "minlength"},
      {"aten.einsum", {x}, {{"equation", std::string("ij,jk->ik")}}, "TK0312", "1 tensors"},
      {"aten.einsum", {x}, {{"equation", std::string("i->i")}}, "TK0312", "rank 2"},
      {"aten.einsum", {x}, {{"equation", std::string("ij->ik")}}, "TK0312", "none of the operands"},
      {"aten.einsum", {x}, {{"equation", std::string("i1->i")}}, "TK0312", "letters"},
      {"aten.scaled_dot_product_attention", {x, x, f32({4, 4})}, {}, "TK0312", "lengths"},
      {"aten.scaled_dot_product_attention", {x, x, x, x}, {}, "TK0312", "a mask"},
      {"aten.conv1d", {f32({1, 3, 5}), f32({2, 2, 3})}, {}, "TK0312", "channels"},
      {"aten.conv1d", {f32({1, 3, 2}), f32({2, 3, 3})}, {}, "TK0312", "kernel"},
      {"aten.batch_norm",
       {f32({2, 3}), Tensor(), Tensor(), f32({3}), f32({3})},
       {{"training", true}, {"momentum", 0.1}, {"eps", 1e-5}},
       "TK0312",
       "inference"},
      {"aten._grouped_mm", {x, f32({2, 4, 5})}, {}, "TK0312", "offs"},
  });
}

TEST(OpErrors, Values) {
  const Tensor x = ids({1, 2});
  expect_errors({
      {"aten.floor_divide", {x}, {{"other", Sym(0)}}, "TK0505", "by zero"},
      {"aten.remainder", {x}, {{"other", Sym(0)}}, "TK0505", "by zero"},
      {"aten.fmod", {x}, {{"other", Sym(0)}}, "TK0505", "by zero"},
      {"aten.div", {x}, {{"other", Sym(0)}, {"rounding_mode", std::string("floor")}}, "TK0505", ""},
  });
}

// Numbers that a broken file may hold: an error or a right result, never a crash or a hang.
TEST(OpErrors, HostileNumbers) {
  const Tensor x = f32({3, 4});
  expect_errors({
      {"aten.arange", {}, {{"end", Sym(most)}}, "TK0500", ""},
      {"aten.arange", {}, {{"end", Sym(most)}, {"start", Sym(least)}}, "TK0304", ""},
      {"aten.arange", {}, {{"end", NAN}}, "TK0312", ""},
      {"aten.arange", {}, {{"end", 1.0}, {"step", 0.0}}, "TK0312", ""},
      {"aten.arange", {}, {{"end", Sym(5)}, {"step", Sym(0)}}, "TK0312", "not 0"},
      {"aten.zeros", {}, {{"size", SymDims{most, most}}}, "TK0304", ""},
      {"aten.zeros", {}, {{"size", SymDims{std::int64_t{1} << 55}}}, "TK0500", ""},
      {"aten.zeros", {}, {{"size", SymDims{-1}}}, "TK0312", "not negative"},
      {"aten.unsqueeze", {f32({1, 1, 1, 1, 1, 1, 1, 1})}, {{"dim", Sym(0)}}, "TK0301", ""},
      {"aten.repeat", {x}, {{"repeats", SymDims{most, 2}}}, "TK0304", ""},
      {"aten.constant_pad_nd", {x}, {{"pad", SymDims{most, most}}}, "TK0304", ""},
      {"aten.split", {f32({200001})}, {{"split_size", Sym(1)}}, "TK0312", "too many parts"},
      {"aten.unbind", {f32({200001})}, {}, "TK0312", "too many parts"},
      {"aten.triu", {x}, {{"diagonal", Sym(most)}}, "TK0312", "diagonal"},
      {"aten.select", {x}, {{"dim", Sym(least)}, {"index", Sym(0)}}, "TK0312", ""},
  });
  const auto run = [](std::string_view op, const Tensor& t, const Attrs& attrs) {
    return evaluate(*find_op(op), std::vector{t}, attrs)[0];
  };
  EXPECT_EQ(run("aten.slice", x, {{"start", Sym(least)}, {"end", Sym(most)}}).shape.str(),
            "[3, 4]");
  EXPECT_EQ(run("aten.slice", x, {{"start", Sym(most)}}).shape.str(), "[0, 4]");
  EXPECT_EQ(run("aten.slice", x, {{"step", Sym(1000000)}}).shape.str(), "[1, 4]");
  EXPECT_EQ(run("aten.diagonal", x, {{"offset", Sym(100)}}).shape.str(), "[0]");
  EXPECT_EQ(run("aten.roll", x, {{"shifts", SymDims{least}}, {"dims", SymDims{1}}}).shape.str(),
            "[3, 4]");
  const Tensor i = ids({least, -1, most});
  EXPECT_EQ(element(run("aten.abs", i, {}), 1), 1);
  EXPECT_EQ(element(run("aten.floor_divide", i, {{"other", Sym(-1)}}), 1), 1);
  EXPECT_EQ(element(run("aten.remainder", i, {{"other", Sym(-1)}}), 0), 0);
  EXPECT_EQ(element(run("aten.mul", i, {{"other", Sym(most)}}), 1), static_cast<double>(-most));
  EXPECT_EQ(run("aten.cumsum", i, {{"dim", Sym(0)}}).shape.str(), "[3]");
}

}  // namespace
}  // namespace tk
