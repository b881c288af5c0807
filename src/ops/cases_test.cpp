// Every aten operator against PyTorch: runs tests/data/ops/cases.txt (see make_cases.py there).
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <fstream>
#include <set>
#include <sstream>

#include "base/error.h"
#include "base/file.h"
#include "ops/interpret.h"

namespace tk {
namespace {

struct Input {
  std::string name;
  Tensor tensor;  // no data: None
};

struct Case {
  std::string target;  // aten.add.Tensor
  int line = 0;
  bool symbolic = false, shape_only = false;
  std::vector<Input> inputs;
  Attrs attrs;
  std::vector<Tensor> results;

  std::string op() const { return target.substr(0, target.rfind('.')); }
};

const std::string& blob() {
  static const std::string bytes = [] {
    std::ifstream in(TK_SOURCE_DIR "/tests/data/ops/cases.bin", std::ios::binary);
    return std::string(std::istreambuf_iterator<char>(in), {});
  }();
  return bytes;
}

Dims dims_of(std::string_view text) { return concrete(std::get<SymDims>(parse_attr(text)), {}); }

// Takes the text up to and with `end` off the front.
std::string_view take(std::string_view* text, std::string_view end) {
  const std::size_t at = text->find(end);
  TK_CHECK(at != std::string_view::npos, "no '", end, "' in ", *text);
  std::string_view out = text->substr(0, at);
  text->remove_prefix(at + end.size());
  return out;
}

DType dtype_of(std::string_view name) {
  DType dtype{};
  TK_CHECK(parse_dtype(name, &dtype), "dtype ", name);
  return dtype;
}

// name f32 [2, 3] strides [3, 1] at 0 of 24; a copy of the memory, so that a write is noticed.
Input parse_input(std::string_view text) {
  Input in;
  in.name = take(&text, " ");
  if (text == "none") return in;
  const DType dtype = dtype_of(take(&text, " "));
  const Dims shape = dims_of(cat(take(&text, "]"), "]"));
  take(&text, "strides ");
  const Dims strides = dims_of(cat(take(&text, "]"), "]"));
  take(&text, "at ");
  const auto at = std::stoul(std::string(take(&text, " of ")));
  const auto n = std::stoul(std::string(text));
  const auto elements = static_cast<std::int64_t>(n / size_of(dtype));
  in.tensor = Tensor::empty(dtype, {elements});
  std::memcpy(in.tensor.data, blob().data() + at, n);
  in.tensor.shape = shape;
  in.tensor.strides = strides;
  return in;
}

Tensor parse_result(std::string_view text) {
  const DType dtype = dtype_of(take(&text, " "));
  Tensor t = Tensor::empty(dtype, dims_of(cat(take(&text, "]"), "]")));
  take(&text, "at ");
  std::memcpy(t.data, blob().data() + std::stoul(std::string(text)),
              static_cast<std::size_t>(t.bytes()));
  return t;
}

std::vector<Case> read_cases() {
  std::ifstream file(TK_SOURCE_DIR "/tests/data/ops/cases.txt");
  std::vector<Case> cases;
  std::string line;
  for (int number = 1; std::getline(file, line); ++number) {
    std::string_view text = line;
    const std::string_view kind = take(&text, " ");
    if (kind == "case") {
      Case c;
      std::istringstream words{std::string(text)};
      words >> c.target;
      for (std::string flag; words >> flag;) {
        c.symbolic |= flag == "symbolic";
        c.shape_only |= flag == "shape_only";
      }
      c.line = number;
      cases.push_back(std::move(c));
    } else if (kind == "in") {
      cases.back().inputs.push_back(parse_input(text));
    } else if (kind == "attr") {
      const std::string_view name = take(&text, " ");
      cases.back().attrs.set(name, parse_attr(text));
    } else {
      cases.back().results.push_back(parse_result(text));
    }
  }
  return cases;
}

const std::vector<Case>& all_cases() {
  static const std::vector<Case> cases = read_cases();
  return cases;
}

// The inputs in the order of the schema.
std::vector<Tensor> ordered(const OpDef& op, const Case& c) {
  const Schema& schema = op.parsed();
  std::vector<Tensor> out(schema.tensors.size());
  if (schema.variadic()) out.pop_back();
  for (const Input& in : c.inputs) {
    const int at = schema.tensor_index(in.name);
    TK_CHECK(at >= 0, c.target, " has no tensor ", in.name);
    if (schema.tensors[static_cast<std::size_t>(at)].list) {
      out.push_back(in.tensor);
    } else {
      out[static_cast<std::size_t>(at)] = in.tensor;
    }
  }
  return out;
}

// The error that rounding may make: a few units in the last place, of the result or of 1.
double tolerance(DType dtype, double expected) {
  const double size = std::max(std::abs(expected), 1.0);
  switch (dtype) {
    case DType::f32:
    case DType::c64:
      return 1e-5 * size;
    case DType::f64:
      return 1e-12 * size;
    case DType::f16:
      return 0x1p-10 * size;
    case DType::bf16:
      return 0x1p-7 * size;
    default:
      return 0;
  }
}

std::string compare(const TensorView& got, const TensorView& want) {
  if (got.dtype != want.dtype) return cat("dtype ", name_of(got.dtype));
  if (!(got.shape == want.shape)) return cat("shape ", got.shape.str());
  TensorView a = got;
  TensorView b = want;
  if (a.dtype == DType::c64) {
    for (TensorView* t : {&a, &b}) {
      t->dtype = DType::f32;
      for (auto& s : t->strides) s *= 2;
      t->shape.push_back(2);
      t->strides.push_back(1);
    }
  }
  for (std::int64_t i = 0; i < a.numel(); ++i) {
    const double x = element(a, i);
    const double y = element(b, i);
    if (x == y || (std::isnan(x) && std::isnan(y))) continue;
    if (std::isnan(x) != std::isnan(y) || !(std::abs(x - y) <= tolerance(got.dtype, y)))
      return cat("element ", i, " is ", x, ", expected ", y);
  }
  return "";
}

TEST(OpCases, EqualPyTorch) {
  ASSERT_FALSE(all_cases().empty());
  for (const Case& c : all_cases()) {
    SCOPED_TRACE(cat("cases.txt:", c.line, " ", c.target));
    const OpDef* op = find_op(c.op());
    ASSERT_NE(op, nullptr);
    try {
      const std::vector<Tensor> inputs = ordered(*op, c);
      std::vector<Tensor> before;
      for (const Tensor& t : inputs) before.push_back(t.data != nullptr ? contiguous(t) : t);
      const std::vector<Tensor> out = evaluate(*op, inputs, c.attrs);
      EXPECT_EQ(out.size(), c.results.size());
      for (std::size_t i = 0; i < std::min(out.size(), c.results.size()); ++i) {
        if (c.shape_only) {
          EXPECT_EQ(out[i].shape.str(), c.results[i].shape.str());
        } else {
          EXPECT_EQ(compare(out[i], c.results[i]), "") << "result " << i;
        }
      }
      for (std::size_t i = 0; i < inputs.size(); ++i) {
        if (inputs[i].data == nullptr) continue;
        const auto n = static_cast<std::size_t>(before[i].bytes());
        EXPECT_EQ(std::memcmp(contiguous(inputs[i]).data, before[i].data, n), 0)
            << "input " << i << " was changed";
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

// A view gives what eval gives.
TEST(OpCases, ViewsEqualCopies) {
  for (const Case& c : all_cases()) {
    const OpDef* op = find_op(c.op());
    if (op == nullptr || op->view == nullptr || op->eval == nullptr) continue;
    SCOPED_TRACE(cat("cases.txt:", c.line, " ", c.target));
    static std::map<const OpDef*, OpDef> all_copying;  // schemas are cached by address
    OpDef& copying = all_copying.emplace(op, *op).first->second;
    copying.view = nullptr;
    try {
      const std::vector<Tensor> out = evaluate(copying, ordered(*op, c), c.attrs);
      for (std::size_t i = 0; i < std::min(out.size(), c.results.size()); ++i)
        EXPECT_EQ(compare(out[i], c.results[i]), "") << "result " << i;
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
}

Sym symbol_of(std::int64_t v) {
  return v == 5 ? Sym::symbol("B") : v == 7 ? Sym::symbol("S") : Sym(v);
}

// Sizes 5 and 7 as symbols: inference gives what it gives for the numbers.
TEST(OpCases, InferWithSymbols) {
  const SymEnv env{{"B", 5}, {"S", 7}};
  int n = 0;
  for (const Case& c : all_cases()) {
    if (!c.symbolic) continue;
    ++n;
    SCOPED_TRACE(cat("cases.txt:", c.line, " ", c.target));
    const OpDef* op = find_op(c.op());
    ASSERT_NE(op, nullptr);
    std::vector<std::unique_ptr<Value>> values;
    std::vector<Value*> inputs;
    for (const Tensor& t : ordered(*op, c)) {
      values.push_back(t.data != nullptr ? std::make_unique<Value>() : nullptr);
      inputs.push_back(values.back().get());
      if (t.data == nullptr) continue;
      values.back()->type.dtype = t.dtype;
      for (std::int64_t d : t.shape) values.back()->type.shape.push_back(symbol_of(d));
    }
    Attrs attrs;
    for (const auto& [key, value] : c.attrs) {
      const SymDims* list = std::get_if<SymDims>(&value);
      if (list != nullptr && (key == "size" || key == "shape")) {
        SymDims sizes;
        for (const Sym& s : *list) sizes.push_back(symbol_of(s.value()));
        attrs.set(key, sizes);
      } else if (key == "end" && std::holds_alternative<Sym>(value)) {
        attrs.set(key, symbol_of(std::get<Sym>(value).value()));
      } else {
        attrs.set(key, value);
      }
    }
    try {
      const std::vector<Type> types = op->infer(Args(*op, inputs, attrs));
      ASSERT_EQ(types.size(), c.results.size());
      for (std::size_t i = 0; i < types.size(); ++i) {
        EXPECT_EQ(types[i].dtype, c.results[i].dtype);
        EXPECT_EQ(concrete(types[i].shape, env).str(), c.results[i].shape.str()) << types[i].str();
      }
    } catch (const std::exception& e) {
      ADD_FAILURE() << e.what();
    }
  }
  EXPECT_GT(n, 80);
}

// Each aten operator has at least three cases.
TEST(OpCases, CoverEveryOperator) {
  std::map<std::string, int, std::less<>> counts;
  for (const Case& c : all_cases())
    if (const OpDef* op = find_op(c.op())) ++counts[std::string(op->name)];
  for (const OpDef* op : all_ops()) {
    if (!op->name.starts_with("aten.")) continue;
    EXPECT_GE(counts[std::string(op->name)], 3) << op->name;
  }
}

}  // namespace
}  // namespace tk
