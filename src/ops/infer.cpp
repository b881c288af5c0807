#include "ops/infer.h"

#include <algorithm>
#include <set>

#include "base/error.h"
#include "graph/graph.h"

namespace tk::ops {
namespace {

int category(DType d) {
  if (d == DType::boolean) return 0;
  if (is_integral(d)) return 1;
  return d == DType::c64 ? 3 : 2;
}

void merge(std::optional<DType>* into, DType dtype) {
  *into = into->has_value() ? promote(**into, dtype) : dtype;
}

std::optional<DType> combine(std::optional<DType> higher, std::optional<DType> lower) {
  if (!higher) return lower;
  if (!lower || category(*lower) <= category(*higher)) return higher;
  return promote(*higher, *lower);
}

}  // namespace

void Promotion::tensor(DType dtype, int rank) { merge(rank > 0 ? &axes_ : &scalars_, dtype); }

void Promotion::number(const Attr& attr) {
  if (std::holds_alternative<bool>(attr)) {
    merge(&numbers_, DType::boolean);
  } else {
    merge(&numbers_, std::holds_alternative<Sym>(attr) ? DType::i64 : DType::f32);
  }
}

DType Promotion::result() const {
  const auto d = combine(axes_, combine(scalars_, numbers_));
  TK_CHECK(d.has_value(), "an operator without operands");
  return *d;
}

DType result_type(const Args& args, std::initializer_list<Operand> operands) {
  Promotion p;
  for (const Operand& o : operands) {
    if (args.has(o.input)) {
      p.tensor(args.in(o.input).dtype, args.in(o.input).rank());
    } else if (const Attr* a = o.name.empty() ? nullptr : args.attr(o.name)) {
      p.number(*a);
    }
  }
  return p.result();
}

DType result_type(const EvalArgs& args, std::initializer_list<Operand> operands) {
  Promotion p;
  for (const Operand& o : operands) {
    if (args.has(o.input)) {
      p.tensor(args.in(o.input).dtype, args.in(o.input).rank());
    } else if (const Attr* a = o.name.empty() ? nullptr : args.attr(o.name)) {
      p.number(*a);
    }
  }
  return p.result();
}

DType float_of(DType dtype) { return is_integral(dtype) ? DType::f32 : dtype; }

int axis(std::int64_t dim, int rank) {
  const int n = std::max(rank, 1);
  TK_CHECK(dim >= -n && dim < n, "axis ", dim, " of rank ", rank);
  return static_cast<int>(dim < 0 ? dim + n : dim);
}

int axis(const Args& args, std::int64_t dim, int rank) {
  const int n = std::max(rank, 1);
  if (dim < -n || dim >= n) args.fail(cat("needs a dim from ", -n, " to ", n - 1, ", got ", dim));
  return axis(dim, rank);
}

int axis(const Args& args, std::string_view attr, int rank) {
  return axis(args, args.i64(attr), rank);
}

namespace {
std::vector<int> all_axes(int rank) {
  std::vector<int> out;
  for (int i = 0; i < rank; ++i) out.push_back(i);
  return out;
}
}  // namespace

std::vector<int> axes(const Args& args, std::string_view attr, int rank) {
  if (!args.has_attr(attr)) return all_axes(rank);
  std::vector<int> out;
  for (std::int64_t dim : args.ints(attr)) {
    out.push_back(axis(args, dim, rank));
    if (std::count(out.begin(), out.end(), out.back()) > 1)
      args.fail(cat("needs different dims, got ", dim, " twice"));
  }
  if (rank == 0) return {};
  return out.empty() ? all_axes(rank) : out;
}

std::vector<int> axes(const EvalArgs& args, std::string_view attr, int rank) {
  if (!args.has_attr(attr)) return all_axes(rank);
  std::vector<int> out;
  for (std::int64_t dim : args.ints(attr)) out.push_back(axis(dim, rank));
  if (rank == 0) return {};
  return out.empty() ? all_axes(rank) : out;
}

namespace {
bool is_plain(const Sym& s) { return s.str().find('(') == std::string::npos; }
}  // namespace

SymDims broadcast(const Args& args, const SymDims& a, const SymDims& b) {
  const SymDims& longer = a.size() >= b.size() ? a : b;
  const SymDims& other = a.size() >= b.size() ? b : a;
  SymDims out = longer;
  const std::size_t lead = longer.size() - other.size();
  for (std::size_t i = 0; i < other.size(); ++i) {
    Sym& d = out[lead + i];
    const Sym& e = other[i];
    if (d == e || e.is(1)) continue;
    if (d.is(1)) {
      d = e;
    } else if (may_be_equal(d, e)) {
      // Equal as far as can be seen: the plainer of the two; running checks it.
      if (is_plain(e)) d = e;
    } else {
      args.fail(cat("needs shapes that broadcast, got ", str(a), " and ", str(b)));
    }
  }
  return out;
}

SymDims broadcast(const Args& args, std::initializer_list<Operand> operands) {
  SymDims out;
  for (const Operand& o : operands)
    if (args.has(o.input)) out = broadcast(args, out, args.in(o.input).shape);
  return out;
}

void need_broadcastable(const Args& args, const SymDims& from, const SymDims& to,
                        std::string_view what) {
  bool fits = from.size() <= to.size();
  for (std::size_t i = 0; fits && i < from.size(); ++i) {
    const Sym& d = from[from.size() - 1 - i];
    fits = d.is(1) || d == to[to.size() - 1 - i];
  }
  if (!fits) args.fail(cat("needs ", what, " that broadcasts to ", str(to), ", got ", str(from)));
}

void need_rank(const Args& args, int input, int at_least, int at_most) {
  const int rank = args.in(input).rank();
  if (rank >= at_least && rank <= at_most) return;
  const Schema& schema = args.op().parsed();
  const auto last = schema.tensors.size() - 1;
  const std::string& name = schema.tensors[std::min<std::size_t>(input, last)].name;
  args.fail(at_least == at_most
                ? cat("needs ", name, " of rank ", at_least, ", got ", args.in(input).str())
                : cat("needs ", name, " of rank ", at_least, " to ", at_most, ", got ",
                      args.in(input).str()));
}

void need_same(const Args& args, const Sym& a, const Sym& b, std::string_view what) {
  if (!(a == b)) args.fail(cat("needs ", what, " to be equal, got ", a.str(), " and ", b.str()));
}

void need_float(const Args& args, int input) {
  if (!is_float(args.in(input).dtype))
    args.fail(cat("needs floating-point numbers, got ", args.in(input).str()));
}

void need_integral(const Args& args, int input) {
  const DType d = args.in(input).dtype;
  if (!is_integral(d) || d == DType::boolean)
    args.fail(cat("needs integers, got ", args.in(input).str()));
}

std::optional<std::int64_t> lower_bound(const Sym& s) {
  if (s.is_const()) return s.value();
  // A sum of products of symbols with positive factors is least where all symbols are 1.
  const Sym sum = s - s.constant_part();
  if (sum.str().find_first_of("-(") != std::string::npos) return std::nullopt;
  std::set<std::string, std::less<>> symbols;
  sum.collect_symbols(&symbols);
  SymEnv ones;
  for (const auto& name : symbols) ones[name] = 1;
  return s.eval(ones);
}

Sym smaller(const Sym& a, const Sym& b) {
  if (lower_bound(b - a).value_or(-1) >= 0) return a;
  if (lower_bound(a - b).value_or(-1) >= 0) return b;
  return min(a, b);
}

Sym larger(const Sym& a, const Sym& b) {
  if (lower_bound(a - b).value_or(-1) >= 0) return a;
  if (lower_bound(b - a).value_or(-1) >= 0) return b;
  return max(a, b);
}

bool may_be_equal(const Sym& a, const Sym& b) {
  const Sym d = a - b;
  return d.is(0) || !is_plain(d);
}

std::vector<Type> infer_same(const Args& args) { return {args.in(0)}; }

std::vector<Type> infer_float(const Args& args) {
  return {{float_of(args.in(0).dtype), args.in(0).shape}};
}

std::vector<Type> infer_bool(const Args& args) { return {{DType::boolean, args.in(0).shape}}; }

}  // namespace tk::ops
