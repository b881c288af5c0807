#include "base/sym.h"

#include <gtest/gtest.h>

#include <limits>
#include <random>

#include "base/error_test_util.h"

namespace tk {
namespace {

constexpr std::int64_t biggest = std::numeric_limits<std::int64_t>::max();
constexpr std::int64_t smallest = std::numeric_limits<std::int64_t>::min();

// A random expression together with its value at a point, worked out without Sym.
struct Sample {
  Sym sym;
  std::int64_t value;
};

std::int64_t python_floordiv(std::int64_t a, std::int64_t b) {
  std::int64_t q = a / b;
  if (q * b != a && ((a < 0) != (b < 0))) --q;
  return q;
}

// Dims are at least 1, and so are the symbols here: exact division relies on it.
const SymEnv point{{"B", 3}, {"S", 7}, {"s70", 12}};

class Random {
 public:
  explicit Random(unsigned seed) : engine_(seed) {}
  std::int64_t below(std::int64_t n) {
    return std::uniform_int_distribution<std::int64_t>(0, n - 1)(engine_);
  }

  Sample expression(int depth) {
    if (depth == 0 || below(5) == 0) {
      if (below(2) == 0) {
        const std::int64_t v = below(13) - 6;
        return {v, v};
      }
      static const char* const names[] = {"B", "S", "s70"};
      const std::string name = names[below(3)];
      return {Sym::symbol(name), point.at(name)};
    }
    const Sample a = expression(depth - 1);
    const Sample b = expression(depth - 1);
    switch (below(7)) {
      case 0:
        return {a.sym + b.sym, a.value + b.value};
      case 1:
        return {a.sym - b.sym, a.value - b.value};
      case 2:
        return {a.sym * b.sym, a.value * b.value};
      case 3:
        return {min(a.sym, b.sym), std::min(a.value, b.value)};
      case 4:
        return {max(a.sym, b.sym), std::max(a.value, b.value)};
      case 5:
        if (b.value == 0) return a;
        return {floordiv(a.sym, b.sym), python_floordiv(a.value, b.value)};
      default:
        if (b.value == 0) return a;
        return {mod(a.sym, b.sym), a.value - python_floordiv(a.value, b.value) * b.value};
    }
  }

 private:
  std::mt19937 engine_;
};

TEST(Sym, ValuesAndTextSurviveRandomExpressions) {
  for (unsigned seed = 0; seed < 4000; ++seed) {
    SCOPED_TRACE(seed);
    const Sample s = Random(seed).expression(4);
    EXPECT_EQ(s.sym.eval(point), s.value) << s.sym.str();
    const Sym again = Sym::parse(s.sym.str());
    EXPECT_EQ(again, s.sym) << s.sym.str();
    EXPECT_EQ(again.str(), s.sym.str());
    std::map<std::string, Sym, std::less<>> constants;
    for (const auto& [name, value] : point) constants.emplace(name, value);
    EXPECT_TRUE(s.sym.subst(constants).is(s.value)) << s.sym.str();
  }
}

TEST(Sym, OneNormalFormForEqualPolynomials) {
  for (unsigned seed = 0; seed < 500; ++seed) {
    SCOPED_TRACE(seed);
    Random random(seed);
    const Sym a = random.expression(2).sym;
    const Sym b = random.expression(2).sym;
    const Sym c = random.expression(2).sym;
    EXPECT_EQ(a + b, b + a);
    EXPECT_EQ(a * b, b * a);
    EXPECT_EQ((a + b) + c, a + (b + c));
    EXPECT_EQ((a * b) * c, a * (b * c));
    EXPECT_EQ(a * (b + c), a * b + a * c);
    EXPECT_TRUE((a - a).is(0));
    EXPECT_EQ(min(a, b), min(b, a));
    EXPECT_EQ(max(a, b), max(b, a));
  }
}

TEST(Sym, OrderIsTotal) {
  std::vector<Sym> all;
  for (unsigned seed = 0; seed < 60; ++seed) all.push_back(Random(seed).expression(2).sym);
  all.emplace_back(biggest);
  all.emplace_back(smallest);
  for (const Sym& a : all)
    for (const Sym& b : all) {
      EXPECT_EQ(static_cast<int>(a < b) + static_cast<int>(b < a) + static_cast<int>(a == b), 1)
          << a.str() << " and " << b.str();
      for (const Sym& c : all)
        if (a < b && b < c) {
          EXPECT_LT(a, c);
        }
    }
}

TEST(Sym, PrintsLikeAPerson) {
  const Sym b = Sym::symbol("B");
  const Sym s = Sym::symbol("S");
  EXPECT_EQ((b * s + s * Sym(2) - Sym(1)).str(), "B*S + 2*S - 1");
  EXPECT_EQ((Sym(0) - s).str(), "-S");
  EXPECT_EQ(floordiv(s + Sym(1), 2).str(), "floordiv(S + 1, 2)");
  EXPECT_EQ(Sym(-3).str(), "-3");
}

TEST(Sym, ExactDivisionIsSimplified) {
  const Sym b = Sym::symbol("B");
  const Sym s = Sym::symbol("S");
  EXPECT_EQ(floordiv(s * Sym(4), 2), s * Sym(2));
  EXPECT_EQ(floordiv(b * s * Sym(6), s * Sym(3)), b * Sym(2));
  EXPECT_EQ(floordiv(s * Sym(4) + Sym(4), s + Sym(1)), floordiv(s * Sym(4) + Sym(4), s + Sym(1)));
  EXPECT_TRUE(mod(s * Sym(4), 2).is(0));
  EXPECT_FALSE(exact_div(s * Sym(3), 2).has_value());
  EXPECT_FALSE(exact_div(s, 0).has_value());
  EXPECT_FALSE(mod(s, 2).is_const());
}

TEST(Sym, MinAndMaxOfAKnownDifferenceAreDecided) {
  const Sym s = Sym::symbol("S");
  EXPECT_EQ(min(s, s + Sym(1)), s);
  EXPECT_EQ(max(s, s + Sym(1)), s + Sym(1));
  EXPECT_EQ(min(s, s), s);
}

TEST(Sym, MentionsLooksInsideFunctions) {
  const Sym e = floordiv(Sym::symbol("S") + Sym(1), 2) * Sym::symbol("B");
  EXPECT_TRUE(e.mentions("S"));
  EXPECT_TRUE(e.mentions("B"));
  EXPECT_FALSE(e.mentions("T"));
}

TEST(Sym, OverflowIsAnError) {  // TK0304
  const Sym s = Sym::symbol("S");
  EXPECT_EQ(code_of([&] { return Sym(biggest) + Sym(1); }), "TK0304");
  EXPECT_EQ(code_of([&] { return Sym(biggest) * Sym(2); }), "TK0304");
  EXPECT_EQ(code_of([&] { return s * Sym(biggest) + s; }), "TK0304");
  EXPECT_EQ(code_of([&] { return (s * s).eval({{"S", biggest}}); }), "TK0304");
  EXPECT_EQ(code_of([&] { return floordiv(smallest, -1); }), "TK0304");
  EXPECT_EQ(code_of([&] { return Sym(0) - Sym(smallest); }), "TK0304");
  EXPECT_EQ(code_of([&] { return exact_div(s * Sym(smallest), -1); }), "TK0304");
}

TEST(Sym, DivisionByZeroInAFileIsTheFilesFault) {  // TK0304
  const Sym s = Sym::symbol("S");
  EXPECT_EQ(code_of([&] { return floordiv(s, s - Sym(7)).eval({{"S", 7}}); }), "TK0304");
  EXPECT_EQ(code_of([&] { return mod(5, 0); }), "TK0304");
  EXPECT_EQ(code_of([&] { return floordiv(s, s - Sym(7)).subst({{"S", 7}}); }), "TK0304");
}

TEST(Sym, ASizeWithoutAValueIsAnError) {  // TK0303
  EXPECT_EQ(code_of([] { return Sym::symbol("S").eval({}); }), "TK0303");
}

TEST(Sym, BadTextIsAnErrorWithThePosition) {  // TK0302
  for (const char* text : {"", "S +", "floordiv(S)", "floordiv(S, 0)", "mod(S, S - S)", "(S", "S)",
                           "2 S", "3x", "99999999999999999999", "min(S,)", "S $ 2", "--", ".."})
    EXPECT_EQ(code_of([&] { return Sym::parse(text); }), "TK0302") << text;
  try {
    Sym::parse("S + $");
    FAIL();
  } catch (const UserError& e) {
    EXPECT_NE(e.message().find("position 4"), std::string::npos) << e.message();
  }
}

TEST(Sym, DeepNestingIsRefusedNotFollowed) {  // TK0302
  EXPECT_EQ(code_of([] { return Sym::parse(std::string(100000, '(')); }), "TK0302");
  EXPECT_EQ(code_of([] { return Sym::parse(std::string(100000, '-') + "S"); }), "TK0302");
}

TEST(Sym, ProductsThatExplodeAreRefused) {  // TK0304
  std::string sum = "(a";
  for (int i = 0; i < 40; ++i) sum += cat(" + x", i);
  sum += ")";
  std::string product = sum;
  for (int i = 0; i < 12; ++i) product += "*" + sum;
  EXPECT_EQ(code_of([&] { return Sym::parse(product); }), "TK0304");
}

TEST(Sym, ExtremeConstantsPrintAndParse) {
  for (const std::int64_t v : {biggest, smallest, smallest + 1})
    EXPECT_TRUE(Sym::parse(Sym(v).str()).is(v)) << v;
  const Sym s = Sym::symbol("S") + Sym(smallest);
  EXPECT_EQ(Sym::parse(s.str()), s) << s.str();
  const Sym t = Sym::symbol("B") + Sym::symbol("S") * Sym(smallest);
  EXPECT_EQ(Sym::parse(t.str()), t) << t.str();
}

}  // namespace
}  // namespace tk
