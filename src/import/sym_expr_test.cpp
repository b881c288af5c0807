#include "import/sym_expr.h"

#include <gtest/gtest.h>

#include "base/error.h"

namespace tk {
namespace {

std::string parsed(std::string_view text) { return SymExprs().parse(text).str(); }
std::string error_of(std::string_view text) {
  try {
    SymExprs().parse(text);
  } catch (const UserError& e) {
    return e.what();
  }
  return "no error";
}
const std::string s = "Symbol('s', positive=True, integer=True)";

TEST(SymExpr, ReadsWhatTorchWrites) {
  EXPECT_EQ(parsed("Integer(3)"), "3");
  EXPECT_EQ(parsed(s), "s");
  EXPECT_EQ(parsed("Mul(Integer(256), " + s + ")"), "256*s");
  EXPECT_EQ(parsed("Add(" + s + ", Integer(-1))"), "s - 1");
  EXPECT_EQ(parsed("Pow(" + s + ", Integer(2))"), "s*s");
  EXPECT_EQ(parsed("FloorDiv(" + s + ", Integer(2))"), "floordiv(s, 2)");
  EXPECT_EQ(parsed("PythonMod(" + s + ", Integer(2))"), "mod(s, 2)");
  EXPECT_EQ(parsed("Max(Integer(1), " + s + ", Integer(4))"),
            max(max(Sym(1), Sym::symbol("s")), Sym(4)).str());
  EXPECT_EQ(parsed("ModularIndexing(" + s + ", Integer(4), Integer(8))"), "mod(floordiv(s, 4), 8)");
  EXPECT_EQ(
      parsed("CeilToInt(IntTrueDiv(" + s + ", Integer(4)))").find("floordiv(") != std::string::npos,
      true);
}

TEST(SymExpr, RationalsAreExact) {
  // s*(s+1)/2, the size of a triangle.
  const Sym triangle =
      SymExprs().parse("Mul(Rational(1, 2), " + s + ", Add(" + s + ", Integer(1)))");
  for (const std::int64_t n : {1, 2, 7, 100}) EXPECT_EQ(triangle.eval({{"s", n}}), n * (n + 1) / 2);
  const Sym up = SymExprs().parse("CeilToInt(IntTrueDiv(" + s + ", Integer(4)))");
  EXPECT_EQ(up.eval({{"s", 9}}), 3);
  EXPECT_EQ(up.eval({{"s", 8}}), 2);
}

TEST(SymExpr, NamesAreReplaced) {
  SymExprs exprs({{"s", Sym::symbol("S")}});
  EXPECT_EQ(exprs.parse("Mul(Integer(2), " + s + ")").str(), "2*S");
  EXPECT_EQ(symbol_name("u8"), "u8_");  // the text form reads u8 as a dtype
}

TEST(SymExpr, Errors) {
  EXPECT_NE(error_of("Where(1, 2)").find("TK0203"), std::string::npos);
  EXPECT_NE(error_of("Where(1, 2)").find("function Where"), std::string::npos);
  EXPECT_NE(error_of("").find("TK0203"), std::string::npos);
  EXPECT_NE(error_of("Add(").find("TK0203"), std::string::npos);
  EXPECT_NE(error_of("Integer(99999999999999999999)").find("64 bits"), std::string::npos);
  EXPECT_NE(error_of("Symbol('a b')").find("letters"), std::string::npos);
  EXPECT_NE(error_of("Pow(" + s + ", Integer(-1))").find("power"), std::string::npos);
  EXPECT_NE(error_of("Rational(1, 0)").find("denominator"), std::string::npos);
  EXPECT_NE(error_of("FloorDiv(Integer(1), Integer(0))").find("TK0304"), std::string::npos);
  std::string deep;
  for (int i = 0; i < 10000; ++i) deep += "Add(";
  EXPECT_NE(error_of(deep).find("levels"), std::string::npos);
}

}  // namespace
}  // namespace tk
