// Filters of logits before sampling, torch_npu 2.14. Arithmetic in f32.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

std::vector<Type> infer(const Args& args) {
  const Type& logits = args.in(0);
  need_rank(args, 0, 2, 2);
  need_float(args, 0);
  if (args.has(1) && (args.in(1).shape != SymDims{logits.dim(0)} || !is_float(args.in(1).dtype)))
    args.fail(cat("needs p [", logits.dim(0).str(), "], got ", args.in(1).str()));
  if (args.has(2) && (args.in(2).shape != SymDims{logits.dim(0)} || args.in(2).dtype != DType::i32))
    args.fail(cat("needs k i32[", logits.dim(0).str(), "], got ", args.in(2).str()));
  return {logits};
}

// NaN is the largest, as where torch sorts.
bool less(float a, float b) { return std::isnan(b) ? !std::isnan(a) : a < b; }

// Values are ascending. The first that top_k keeps: the first equal to the k-th largest.
std::size_t first_of_top_k(const std::vector<float>& sorted, std::int64_t k) {
  const float least = sorted[sorted.size() - static_cast<std::size_t>(k)];
  return static_cast<std::size_t>(std::lower_bound(sorted.begin(), sorted.end(), least, less) -
                                  sorted.begin());
}

// The first after `from` that top_p keeps: the sum of the smaller ones is at most 1 - p. The
// largest is always kept.
std::size_t first_of_top_p(const std::vector<float>& sorted, std::size_t from, float p) {
  const float top = sorted.back();
  float all = 0;
  for (std::size_t i = from; i < sorted.size(); ++i) all += std::exp(sorted[i] - top);
  float sum = 0;
  while (from + 1 < sorted.size()) {
    sum += std::exp(sorted[from] - top) / all;
    if (!(sum <= 1 - p)) break;
    ++from;
  }
  return from;
}

void eval(const EvalArgs& a) {
  const Tensor logits = to_dtype(a.in(0), DType::f32);
  const Tensor p = a.has(1) ? to_dtype(a.in(1), DType::f32) : Tensor();
  const Tensor k = a.has(2) ? contiguous(a.in(2)) : Tensor();
  const std::int64_t n = logits.shape[1];
  std::vector<std::int64_t> order(static_cast<std::size_t>(n));
  std::vector<float> sorted(order.size());
  for (std::int64_t b = 0; n > 0 && b < logits.shape[0]; ++b) {
    float* row = logits.as<float>() + b * n;
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(),
                     [&](std::int64_t x, std::int64_t y) { return less(row[x], row[y]); });
    for (std::size_t i = 0; i < sorted.size(); ++i) sorted[i] = row[order[i]];
    std::size_t first = 0;
    if (k.data != nullptr) {
      const std::int64_t kept = k.as<std::int32_t>()[b];
      if (kept < 1 || kept > n)
        throw UserError("TK0505", cat("npu_top_k_top_p: k is ", kept, " of ", n, " logits"))
            .help("k is from 1 to the size of the vocabulary");
      first = first_of_top_k(sorted, kept);
    }
    if (p.data != nullptr) first = first_of_top_p(sorted, first, p.as<float>()[b]);
    for (std::size_t i = 0; i < first; ++i) row[order[i]] = -INFINITY;
    write_row(a.out(), b * n, 1, n, row);
  }
}

Cost cost(const Args& args, const Load&) { return moved(args, 24); }

constexpr Symbol symbols[] = {{"vocab", "logits.shape[-1]", "logits of a row"}};
constexpr Limit limits[] = {
    {"top_k_top_p.k", "k is None or (min(k) >= 1 and max(k) <= min(1024, vocab))"},
    {"top_k_top_p.some", "p is not None or k is not None"},
    {"top_k_top_p.dtype",
     "logits.dtype in (fp32, fp16, bf16) and (p is None or p.dtype == logits.dtype) and (k is None "
     "or k.dtype == int32)"},
    {"top_k_top_p.p", "p is None or (min(p) >= 0 and max(p) <= 1)"},
    {"top_k_top_p.rank", "logits.ndim == 2"},
};
constexpr std::string_view notes[] = {"pays where there are more than 1024 logits"};
constexpr NpuFacts facts{
    .group = "misc",
    .signature = "npu_top_k_top_p(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; no GE converter",
    .notes = notes,
    .symbols = symbols,
    .limits = limits,
};

}  // namespace

const OpDef npu_top_k_top_p{
    .name = "npu.npu_top_k_top_p",
    .schema = "(Tensor logits, Tensor? p=None, Tensor? k=None) -> Tensor",
    .doc =
        "Logits below the k[b]-th largest of their row become -inf; of the others' softmax, the "
        "smallest whose running sum is at most 1 - p[b] too. The largest stays.",
    .infer = infer,
    .eval = eval,
    .cost = cost,
    .npu = &facts,
};

}  // namespace tk::ops
