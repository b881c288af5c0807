#include "base/tensor.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <random>

#include "base/error.h"

namespace tk {
namespace {

// The value of 16-bit float bits from their definition, in double.
double decode(std::uint16_t bits, int exponent_bits) {
  const int mantissa_bits = 15 - exponent_bits;
  const int exponent = (bits >> mantissa_bits) & ((1 << exponent_bits) - 1);
  const int mantissa = bits & ((1 << mantissa_bits) - 1);
  const int bias = (1 << (exponent_bits - 1)) - 1;
  const double sign = (bits & 0x8000) != 0 ? -1 : 1;
  if (exponent == (1 << exponent_bits) - 1)
    return mantissa != 0 ? std::numeric_limits<double>::quiet_NaN()
                         : sign * std::numeric_limits<double>::infinity();
  if (exponent == 0) return sign * std::ldexp(mantissa, 1 - bias - mantissa_bits);
  return sign * std::ldexp(mantissa + (1 << mantissa_bits), exponent - bias - mantissa_bits);
}

// Every value of the format, the midpoints between neighbours, and a hair to either side of them:
// this is all that rounding to nearest even can get wrong.
template <typename Half>
void check_format(int exponent_bits, Half (*encode)(float)) {
  const auto infinity =
      static_cast<std::uint16_t>(((1 << exponent_bits) - 1) << (15 - exponent_bits));
  for (std::uint32_t u = 0; u < 0x10000; ++u) {
    const auto bits = static_cast<std::uint16_t>(u);
    const float value = to_float(Half{bits});
    const double expected = decode(bits, exponent_bits);
    if (std::isnan(expected)) {
      ASSERT_TRUE(std::isnan(value)) << bits;
      ASSERT_TRUE(std::isnan(to_float(encode(value)))) << bits;
      continue;
    }
    ASSERT_EQ(static_cast<double>(value), expected) << bits;
    ASSERT_EQ(encode(value).bits, bits);
    if ((bits & 0x7fff) + 1 >= infinity) continue;
    const auto next = static_cast<std::uint16_t>(bits + 1);  // one away from zero
    const auto middle = static_cast<float>((expected + decode(next, exponent_bits)) / 2);
    const auto even = (bits & 1) != 0 ? next : bits;
    const float outward = std::signbit(value) ? -INFINITY : INFINITY;
    ASSERT_EQ(encode(middle).bits, even) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, outward)).bits, next) << bits;
    ASSERT_EQ(encode(std::nextafter(middle, -outward)).bits, bits) << bits;
  }
}

TEST(Half, EveryF16AndItsNeighbours) { check_format<f16>(5, to_f16); }
TEST(Half, EveryBf16AndItsNeighbours) { check_format<bf16>(8, to_bf16); }

TEST(Half, TooLargeIsInfinite) {
  EXPECT_EQ(to_f16(65519.0F).bits, 0x7bff);  // rounds down to the largest
  EXPECT_EQ(to_f16(65520.0F).bits, 0x7c00);  // the midpoint goes to even: infinity
  EXPECT_EQ(to_f16(-1e9F).bits, 0xfc00);
  EXPECT_EQ(to_bf16(std::numeric_limits<float>::max()).bits, 0x7f80);
  EXPECT_EQ(to_f16(INFINITY).bits, 0x7c00);
  EXPECT_EQ(to_bf16(-INFINITY).bits, 0xff80);
}

TEST(DType, NamesRoundTrip) {
  for (int i = 0; i < n_dtypes; ++i) {
    const auto d = static_cast<DType>(i);
    DType back = DType::f32;
    EXPECT_TRUE(parse_dtype(name_of(d), &back));
    EXPECT_EQ(back, d);
  }
  DType out = DType::f32;
  EXPECT_FALSE(parse_dtype("float", &out));
}

TEST(DType, PromotionIsPyTorchs) {
  using enum DType;
  struct Case {
    DType a, b, result;
  };
  for (const Case& c :
       {Case{f32, bf16, f32}, Case{f16, bf16, f32}, Case{bf16, i64, bf16}, Case{boolean, i8, i8},
        Case{u8, i8, i16}, Case{u8, i16, i16}, Case{i32, i64, i64}, Case{f64, f16, f64},
        Case{c64, f32, c64}, Case{boolean, u8, u8}, Case{boolean, f16, f16}}) {
    EXPECT_EQ(promote(c.a, c.b), c.result) << name_of(c.a) << " " << name_of(c.b);
    EXPECT_EQ(promote(c.b, c.a), c.result) << name_of(c.b) << " " << name_of(c.a);
  }
}

TEST(Dims, EditingAndPrinting) {
  Dims d{2, 3};
  d.push_back(4);
  d.insert(0, 1);
  EXPECT_EQ(d, (Dims{1, 2, 3, 4}));
  d.erase(1);
  EXPECT_EQ(d, (Dims{1, 3, 4}));
  EXPECT_EQ(d.at(-1), 4);
  EXPECT_EQ(d.numel(), 12);
  EXPECT_EQ(d.str(), "[1, 3, 4]");
  EXPECT_EQ(Dims{}.numel(), 1);
  EXPECT_FALSE(Dims{1} == (Dims{1, 1}));
  EXPECT_EQ(contiguous_strides({2, 3, 4}), (Dims{12, 4, 1}));
}

TEST(Dims, MoreThanEightAxesIsAnError) {  // TK0301
  Dims d{1, 1, 1, 1, 1, 1, 1, 1};
  for (const bool push : {true, false}) try {
      if (push)
        d.push_back(1);
      else
        Dims(std::vector<std::int64_t>(9, 1));
      FAIL();
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK0301");
    }
}

TEST(Dims, ASizeBeyond64BitsIsAnErrorNotAWrap) {  // TK0304
  const std::int64_t big = std::int64_t{1} << 32;
  try {
    (void)Dims{big, big}.numel();
    FAIL();
  } catch (const UserError& e) {
    EXPECT_EQ(e.code(), "TK0304");
  }
  EXPECT_EQ((Dims{big, 0, big}.numel()), 0);
}

TEST(Tensor, TooLargeOrNegativeIsOutOfMemory) {  // TK0500
  for (const Dims& shape :
       {Dims{std::int64_t{1} << 60}, Dims{(std::int64_t{1} << 62) + 1}, Dims{-1}, Dims{4, -2}})
    try {
      Tensor::empty(DType::f32, shape);
      FAIL() << shape.str();
    } catch (const UserError& e) {
      EXPECT_EQ(e.code(), "TK0500") << shape.str();
    }
}

TEST(Tensor, IsAlignedAndZeroed) {
  for (std::int64_t n : {0, 1, 17, 1000}) {
    const Tensor t = Tensor::zeros(DType::bf16, {n});
    EXPECT_EQ(reinterpret_cast<std::uintptr_t>(t.data) % 64, 0U);
    for (std::int64_t i = 0; i < n; ++i) EXPECT_EQ(element(t, i), 0);
  }
  EXPECT_EQ(element(Tensor::scalar(DType::i32, 7), 0), 7);
  EXPECT_TRUE(Tensor::scalar(DType::i32, 7).contiguous());
}

// A view of `storage` with permuted, sliced, stepped or expanded axes, at random.
TensorView random_view(std::mt19937* random, const Dims& shape, Tensor* storage, DType dtype,
                       bool may_expand) {
  auto pick = [&](int n) {
    return static_cast<std::int64_t>((*random)() % static_cast<unsigned>(n));
  };
  TensorView v;
  v.dtype = dtype;
  v.shape = shape;
  v.strides = contiguous_strides(shape);
  std::vector<int> order;
  for (int i = 0; i < shape.size(); ++i)
    order.insert(order.begin() + pick(static_cast<int>(order.size()) + 1), i);
  std::int64_t step = 1 + pick(3);
  for (const int axis : order) {
    if (may_expand && pick(5) == 0) {
      v.strides[axis] = 0;
      continue;
    }
    v.strides[axis] = step;
    step *= shape[axis] + pick(3);
  }
  *storage = Tensor::zeros(dtype, {std::max<std::int64_t>(step * 4, 1)});
  v.data = storage->data;
  return v;
}

TEST(Tensor, CopyIntoAnyStridesAndDtypes) {
  std::mt19937 random(7);
  for (int round = 0; round < 800; ++round) {
    SCOPED_TRACE(round);
    Dims shape;
    for (auto rank = random() % 5; rank > 0; --rank)
      shape.push_back(static_cast<std::int64_t>(random() % 5));
    const auto from = static_cast<DType>(random() % n_dtypes);
    const auto to = static_cast<DType>(random() % n_dtypes);
    Tensor a_storage;
    Tensor b_storage;
    const TensorView a = random_view(&random, shape, &a_storage, from, true);
    const TensorView b = random_view(&random, shape, &b_storage, to, false);
    for (std::int64_t i = 0; i < a.numel(); ++i)
      set_element(a, i, static_cast<double>(random() % 100));
    copy_into(b, a);
    for (std::int64_t i = 0; i < a.numel(); ++i) {
      const double expected = to == DType::boolean ? element(a, i) != 0 : element(a, i);
      ASSERT_EQ(element(b, i), expected) << name_of(from) << " to " << name_of(to);
    }
    const Tensor c = contiguous(a);
    EXPECT_TRUE(c.contiguous());
    for (std::int64_t i = 0; i < a.numel(); ++i) ASSERT_EQ(element(c, i), element(a, i));
  }
}

TEST(Tensor, CopyKeepsAll64BitsAndTruncatesFloats) {
  const std::int64_t big = (std::int64_t{1} << 53) + 1;
  const Tensor ids = Tensor::ids(std::vector<std::int64_t>{big, -1});
  const Tensor wide = contiguous(ids);
  EXPECT_EQ(wide.as<std::int64_t>()[0], big);
  const Tensor truncated = to_dtype(Tensor::of({2.9F, -2.9F}), DType::i64);
  EXPECT_EQ(element(truncated, 0), 2);
  EXPECT_EQ(element(truncated, 1), -2);
}

}  // namespace
}  // namespace tk
