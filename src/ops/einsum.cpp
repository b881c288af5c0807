// Einstein sums: operands with named axes, multiplied and summed over the names that the result
// lacks. Each pair of operands becomes a batched matrix product.
#include <map>

#include "ops/gemm.h"
#include "ops/lines.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

// A name is a letter; the axes of "..." are named 256 + k, k counted from the last one.
using Labels = std::vector<int>;
constexpr int ellipsis = 256;

struct Equation {
  std::vector<Labels> operands;
  Labels result;
};

bool has(const Labels& labels, int label) {
  return std::find(labels.begin(), labels.end(), label) != labels.end();
}

// One side's term. `extra` is how many axes "..." stands for there.
Labels parse_term(std::string_view text, int extra, bool* dots) {
  Labels out;
  *dots = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    const char c = text[i];
    if ((c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z')) {
      out.push_back(c);
    } else if (text.substr(i, 3) == "..." && !*dots) {
      *dots = true;
      i += 2;
      for (int k = extra - 1; k >= 0; --k) out.push_back(ellipsis + k);
    } else {
      throw UserError("TK0312", cat("aten.einsum: '", text, "' is not letters and '...'"));
    }
  }
  return out;
}

int count_letters(std::string_view term) {
  return static_cast<int>(std::count_if(term.begin(), term.end(), [](char c) { return c != '.'; }));
}

Equation parse_equation(const std::string& text, const std::vector<int>& ranks) {
  std::string s;
  std::copy_if(text.begin(), text.end(), std::back_inserter(s), [](char c) { return c != ' '; });
  const std::size_t arrow = s.find("->");
  std::string_view rest = std::string_view(s).substr(0, arrow);
  Equation e;
  int most_extra = 0;
  for (std::size_t begin = 0;;) {
    const std::size_t comma = rest.find(',', begin);
    const std::string_view term = rest.substr(begin, comma - begin);
    if (e.operands.size() == ranks.size())
      throw UserError("TK0312", cat("aten.einsum: '", text, "' has more terms than the ",
                                    ranks.size(), " tensors"));
    const int rank = ranks[e.operands.size()];
    bool dots = false;
    const int extra = rank - count_letters(term);
    e.operands.push_back(parse_term(term, std::max(extra, 0), &dots));
    if (extra < 0 || (extra > 0 && !dots))
      throw UserError("TK0312", cat("aten.einsum: '", term, "' does not name the axes of a tensor ",
                                    "of rank ", rank));
    if (dots) most_extra = std::max(most_extra, extra);
    if (comma == std::string_view::npos) break;
    begin = comma + 1;
  }
  if (e.operands.size() != ranks.size())
    throw UserError("TK0312", cat("aten.einsum: '", text, "' has ", e.operands.size(),
                                  " terms for ", ranks.size(), " tensors"));
  if (arrow != std::string::npos) {
    bool dots = false;
    e.result = parse_term(std::string_view(s).substr(arrow + 2), most_extra, &dots);
    return e;
  }
  for (int k = most_extra - 1; k >= 0; --k) e.result.push_back(ellipsis + k);
  std::map<int, int> uses;
  for (const Labels& labels : e.operands)
    for (int l : labels) ++uses[l];
  for (const auto& [label, n] : uses)
    if (n == 1 && label < ellipsis) e.result.push_back(label);
  return e;
}

std::vector<Type> infer_einsum(const Args& args) {
  if (args.n_inputs() == 0) args.fail("needs a tensor");
  std::vector<int> ranks;
  for (int i = 0; i < args.n_inputs(); ++i) {
    ranks.push_back(args.in(i).rank());
    if (args.in(i).dtype != args.in(0).dtype) args.fail("needs tensors of one dtype");
  }
  const Equation e = parse_equation(args.text("equation"), ranks);
  std::map<int, Sym> sizes;
  for (int i = 0; i < args.n_inputs(); ++i)
    for (int k = 0; k < ranks[static_cast<std::size_t>(i)]; ++k) {
      const int label = e.operands[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)];
      const Sym& d = args.in(i).dim(k);
      const auto [it, is_new] = sizes.emplace(label, d);
      if (is_new || it->second == d || d.is(1)) continue;
      if (!it->second.is(1))
        args.fail(cat("needs one size for each name, got ", it->second.str(), " and ", d.str()));
      it->second = d;
    }
  Type out{args.in(0).dtype, {}};
  for (std::size_t i = 0; i < e.result.size(); ++i) {
    const int label = e.result[i];
    const bool twice =
        std::find(e.result.begin(), e.result.begin() + static_cast<std::ptrdiff_t>(i), label) !=
        e.result.begin() + static_cast<std::ptrdiff_t>(i);
    if (sizes.find(label) == sizes.end() || twice)
      args.fail(cat("has a result that names an axis twice or none of the operands has: ",
                    args.text("equation")));
    out.shape.push_back(sizes.at(label));
  }
  return {out};
}

struct Operand {
  Tensor t;
  Labels labels;
};

// The axes named by `order`, in that order; a name that the operand lacks is an axis of size 1.
TensorView arranged(const Operand& o, const Labels& order) {
  TensorView v = o.t;
  v.shape = v.strides = {};
  for (int label : order) {
    const auto it = std::find(o.labels.begin(), o.labels.end(), label);
    const int i = static_cast<int>(it - o.labels.begin());
    v.shape.push_back(it == o.labels.end() ? 1 : o.t.shape[i]);
    v.strides.push_back(it == o.labels.end() ? 0 : o.t.strides[i]);
  }
  return v;
}

// A name that stands twice means the diagonal; axes of size 1 repeat where the name is larger.
Operand prepared(const TensorView& t, const Labels& labels,
                 const std::map<int, std::int64_t>& sizes) {
  Operand out{{t, nullptr}, {}};
  out.t.shape = out.t.strides = {};
  for (int i = 0; i < t.rank(); ++i) {
    const int label = labels[static_cast<std::size_t>(i)];
    const std::int64_t stride = t.shape[i] == 1 ? 0 : t.strides[i];
    const auto it = std::find(out.labels.begin(), out.labels.end(), label);
    if (it != out.labels.end()) {
      out.t.strides[static_cast<int>(it - out.labels.begin())] += stride;
      continue;
    }
    out.labels.push_back(label);
    out.t.shape.push_back(sizes.at(label));
    out.t.strides.push_back(stride);
  }
  return out;
}

// Sums over the names that are not kept.
Operand summed(const Operand& o, const Labels& kept) {
  std::vector<int> gone;
  Operand out;
  Dims shape;
  for (int i = 0; i < o.t.rank(); ++i) {
    const int label = o.labels[static_cast<std::size_t>(i)];
    if (has(kept, label)) {
      out.labels.push_back(label);
      shape.push_back(o.t.shape[i]);
    } else {
      gone.push_back(i);
    }
  }
  if (gone.empty()) return o;
  out.t = Tensor::empty(o.t.dtype, shape);
  const auto sum = [&](auto tag) {
    using T = decltype(tag);
    for_reduced(o.t, gone, [&](std::int64_t i, const TensorView& part) {
      T total{};
      for_values<T>(part, [&](const T* v, int n) {
        for (int k = 0; k < n; ++k) total = wrap_add(total, v[k]);
      });
      store_one(out.t, i, total);
    });
  };
  if (o.t.dtype == DType::c64) {
    sum(Complex{});
  } else if (is_float(o.t.dtype)) {
    sum(double{});
  } else {
    sum(std::int64_t{});
  }
  return out;
}

Operand product(const Operand& a, const Operand& b, const Labels& kept) {
  Labels both, left, right, inner;
  for (int l : a.labels) {
    if (!has(b.labels, l)) {
      left.push_back(l);
    } else {
      (has(kept, l) ? both : inner).push_back(l);
    }
  }
  for (int l : b.labels)
    if (!has(a.labels, l)) right.push_back(l);
  const auto order = [](std::initializer_list<const Labels*> parts) {
    Labels out;
    for (const Labels* p : parts) out.insert(out.end(), p->begin(), p->end());
    return out;
  };
  const auto size = [](const Operand& o, const Labels& labels) {
    return arranged(o, labels).numel();
  };
  const auto matrices = [](const TensorView& v, std::int64_t n, std::int64_t rows,
                           std::int64_t columns, Tensor* copy) {
    TensorView out;
    if (reshape_view(v, {n, rows, columns}, &out)) return out;
    *copy = contiguous(v);
    TK_CHECK(reshape_view(*copy, {n, rows, columns}, &out));
    return out;
  };
  const std::int64_t n = size(a, both);
  const std::int64_t rows = size(a, left);
  const std::int64_t columns = size(b, right);
  Tensor a_copy, b_copy;
  const TensorView x =
      matrices(arranged(a, order({&both, &left, &inner})), n, rows, size(a, inner), &a_copy);
  const TensorView y =
      matrices(arranged(b, order({&both, &inner, &right})), n, size(a, inner), columns, &b_copy);
  Operand out;
  out.labels = order({&both, &left, &right});
  Dims shape = arranged(a, both).shape;
  for (auto d : arranged(a, left).shape) shape.push_back(d);
  for (auto d : arranged(b, right).shape) shape.push_back(d);
  out.t = Tensor::empty(a.t.dtype, shape);
  TensorView flat;
  TK_CHECK(reshape_view(out.t, {n, rows, columns}, &flat));
  batched_gemm(x, y, flat);
  return out;
}

void eval_einsum(const EvalArgs& args) {
  std::vector<int> ranks;
  for (int i = 0; i < args.n_inputs(); ++i) ranks.push_back(args.in(i).rank());
  const Equation e = parse_equation(args.text("equation"), ranks);
  std::map<int, std::int64_t> sizes;
  for (int i = 0; i < args.n_inputs(); ++i)
    for (int k = 0; k < args.in(i).rank(); ++k) {
      std::int64_t& d =
          sizes.emplace(e.operands[static_cast<std::size_t>(i)][static_cast<std::size_t>(k)], 1)
              .first->second;
      if (args.in(i).shape[k] != 1) d = args.in(i).shape[k];
    }
  // From left to right; names that later operands or the result have are kept.
  const auto kept_after = [&](std::size_t i) {
    Labels kept = e.result;
    for (std::size_t k = i + 1; k < e.operands.size(); ++k)
      kept.insert(kept.end(), e.operands[k].begin(), e.operands[k].end());
    return kept;
  };
  Operand all = summed(prepared(args.in(0), e.operands[0], sizes), kept_after(0));
  for (std::size_t i = 1; i < e.operands.size(); ++i) {
    Labels kept = kept_after(i);
    Labels used = kept;
    used.insert(used.end(), all.labels.begin(), all.labels.end());
    const Operand next = summed(prepared(args.in(static_cast<int>(i)), e.operands[i], sizes), used);
    all = product(summed(all,
                         [&] {
                           Labels own = kept;
                           own.insert(own.end(), next.labels.begin(), next.labels.end());
                           return own;
                         }()),
                  next, kept);
  }
  const TensorView result = arranged(summed(all, e.result), e.result);
  copy_into(args.out(), result);
}

}  // namespace

const OpDef aten_einsum{
    .name = "aten.einsum",
    .schema = "(str equation, Tensor[] tensors, *, int[]? path=None) -> Tensor",
    .doc = "products summed over the axes whose names the result lacks, as in \"bhqd,bhkd->bhqk\"",
    .infer = infer_einsum,
    .eval = eval_einsum};

}  // namespace tk::ops
