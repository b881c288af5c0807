// Grouped products that torch_npu 2.14 overlaps with an exchange of their rows.
#include <algorithm>
#include <cstring>
#include <numeric>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/product.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

constexpr int gmm_x = 0, gmm_weight = 1, mm_x = 2, mm_weight = 3;

std::int64_t total(const std::vector<std::int64_t>& v) {
  return std::accumulate(v.begin(), v.end(), std::int64_t{0});
}

// Counts for each (rank, expert of a rank).
std::vector<std::int64_t> counts_of(const Args& args, std::string_view name) {
  const std::vector<std::int64_t> v = args.ints(name);
  const Sym experts = args.in(gmm_weight).dim(0) * Sym(args.i64("ep_world_size"));
  if (!(Sym(static_cast<std::int64_t>(v.size())) == experts) ||
      std::any_of(v.begin(), v.end(), [](std::int64_t n) { return n < 0; }))
    args.fail(cat("needs ", name, " of ", experts.str(), " counts"));
  return v;
}

// The types of gmm_y and mm_y for `rows` results of the grouped product.
std::vector<Type> product_types(const Args& args, const Sym& rows) {
  const Type& x = args.in(gmm_x);
  const Type& w = args.in(gmm_weight);
  const bool turned = args.flag("trans_gmm_weight");
  if (!is_one_of(x.dtype, {DType::f16, DType::bf16}) || w.dtype != x.dtype || x.rank() != 2 ||
      w.rank() != 3 || !(w.dim(turned ? 2 : 1) == x.dim(1)))
    args.fail(cat("needs gmm_x [M, K] and gmm_weight [E, K, N] in f16 or bf16, got ", x.str(),
                  " and ", w.str()));
  if (args.has(mm_x) != args.has(mm_weight)) args.fail("needs mm_x and mm_weight together");
  Type mm{x.dtype, {0}};
  if (args.has(mm_x)) {
    const Type& a = args.in(mm_x);
    const Type& b = args.in(mm_weight);
    const bool t = args.flag("trans_mm_weight");
    if (a.rank() != 2 || b.rank() != 2 || a.dtype != x.dtype || b.dtype != x.dtype ||
        !(b.dim(t ? 1 : 0) == a.dim(1)))
      args.fail(cat("needs mm_x [BS, K] and mm_weight [K, N], got ", a.str(), " and ", b.str()));
    mm.shape = {a.dim(0), b.dim(t ? 0 : 1)};
  }
  return {{x.dtype, {rows, w.dim(turned ? 1 : 2)}}, mm};
}

TensorView turned(TensorView t, bool turn) {
  const int last = t.rank() - 1;
  if (turn) {
    std::swap(t.shape[last], t.shape[last - 1]);
    std::swap(t.strides[last], t.strides[last - 1]);
  }
  return t;
}

void need_one_rank(const EvalArgs& a) {
  if (a.i64("ep_world_size") != 1)
    throw UserError("TK0312",
                    cat(a.op().name, " needs the other ", a.i64("ep_world_size") - 1, " ranks"))
        .help("one process computes it for ep_world_size 1; the emulation exchanges the rest");
}

// Both products; rows are in the order of the experts, `counts` names how many each has.
void products(const EvalArgs& a, std::string_view counts) {
  std::int64_t begin = 0;
  std::int64_t e = -1;
  for (const Sym& count : std::get<SymDims>(*a.attr(counts))) {
    const std::int64_t end = begin + count.eval(a.env());
    ++e;
    const TensorView w = matrix_of(turned(a.in(gmm_weight), a.flag("trans_gmm_weight")), e);
    if (end > begin)
      store_rows(a.out(0), begin, product(widened(rows_of(a.in(gmm_x), begin, end)), widened(w)));
    begin = end;
  }
  if (a.has(mm_x))
    store_rows(
        a.out(1), 0,
        product(widened(a.in(mm_x)), widened(turned(a.in(mm_weight), a.flag("trans_mm_weight")))));
}

// ---- npu_alltoallv_gmm

std::vector<Type> to_experts_infer(const Args& args) {
  const std::int64_t rows = total(counts_of(args, "recv_counts"));
  std::vector<Type> out = product_types(args, rows);
  if (!(args.in(gmm_x).dim(0) == Sym(total(counts_of(args, "send_counts")))))
    args.fail(cat("needs the sum of send_counts rows in gmm_x, got ", args.in(gmm_x).str()));
  const bool permuted = args.flag("permute_out_flag");
  out.push_back(
      {args.in(gmm_x).dtype, permuted ? SymDims{rows, args.in(gmm_x).dim(1)} : SymDims{0}});
  return out;
}

void to_experts_eval(const EvalArgs& a) {
  need_one_rank(a);
  products(a, "recv_counts");
  if (a.flag("permute_out_flag")) copy_into(a.out(2), a.in(gmm_x));
}

constexpr Limit to_experts_limits[] = {
    {"alltoallv_gmm.ep", "ep_world_size in (8, 16, 32, 64)"},
    {"alltoallv_gmm.dtype", "gmm_x.dtype in (fp16, bf16)"},
};
constexpr NpuFacts to_experts_facts{
    .group = "moe",
    .signature =
        "npu_alltoallv_gmm(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] "
        "send_counts, int[] recv_counts, *, Tensor? send_counts_tensor=None, Tensor? "
        "recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, bool "
        "trans_gmm_weight=False, bool trans_mm_weight=False, bool permute_out_flag=False, str? "
        "comm_mode=None) -> (Tensor, Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .limits = to_experts_limits,
};

// ---- npu_gmm_alltoallv

std::vector<Type> from_experts_infer(const Args& args) {
  std::vector<Type> out = product_types(args, total(counts_of(args, "recv_counts")));
  if (!(args.in(gmm_x).dim(0) == Sym(total(counts_of(args, "send_counts")))))
    args.fail(cat("needs the sum of send_counts rows in gmm_x, got ", args.in(gmm_x).str()));
  return out;
}

void from_experts_eval(const EvalArgs& a) {
  need_one_rank(a);
  products(a, "send_counts");
}

constexpr Limit from_experts_limits[] = {
    {"gmm_alltoallv.ep", "ep_world_size in (8, 16, 32, 64)"},
    {"gmm_alltoallv.dtype", "gmm_x.dtype in (fp16, bf16)"},
};
constexpr NpuFacts from_experts_facts{
    .group = "moe",
    .signature =
        "npu_gmm_alltoallv(Tensor gmm_x, Tensor gmm_weight, str hcom, int ep_world_size, int[] "
        "send_counts, int[] recv_counts, *, Tensor? send_counts_tensor=None, Tensor? "
        "recv_counts_tensor=None, Tensor? mm_x=None, Tensor? mm_weight=None, bool "
        "trans_gmm_weight=False, bool trans_mm_weight=False, str? comm_mode=None) -> (Tensor, "
        "Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .limits = from_experts_limits,
};

}  // namespace

const OpDef npu_alltoallv_gmm{
    .name = "npu.npu_alltoallv_gmm",
    .schema =
        "(Tensor gmm_x, Tensor gmm_weight, Tensor? mm_x=None, Tensor? mm_weight=None, str hcom, "
        "int ep_world_size, int[] send_counts, int[] recv_counts, bool trans_gmm_weight=False, "
        "bool trans_mm_weight=False, bool permute_out_flag=False) -> "
        "(Tensor gmm_y, Tensor mm_y, Tensor permute_out)",
    .doc =
        "Rows go to the ranks of their experts (send_counts[rank * E + expert], recv_counts "
        "likewise from each rank), are put in the order of the experts (permute_out) and "
        "multiplied by gmm_weight[expert]; mm_y = mm_x @ mm_weight. The reference is that of one "
        "rank.",
    .infer = to_experts_infer,
    .eval = to_experts_eval,
    .cost = grouped_cost,
    .npu = &to_experts_facts,
};

const OpDef npu_gmm_alltoallv{
    .name = "npu.npu_gmm_alltoallv",
    .schema =
        "(Tensor gmm_x, Tensor gmm_weight, Tensor? mm_x=None, Tensor? mm_weight=None, str hcom, "
        "int ep_world_size, int[] send_counts, int[] recv_counts, bool trans_gmm_weight=False, "
        "bool trans_mm_weight=False) -> (Tensor y, Tensor mm_y)",
    .doc =
        "Rows in the order of the experts times gmm_weight[expert], put in the order of the ranks "
        "and sent there (send_counts[rank * E + expert] rows, recv_counts come back); mm_y = mm_x "
        "@ mm_weight. The reference is that of one rank.",
    .infer = from_experts_infer,
    .eval = from_experts_eval,
    .cost = grouped_cost,
    .npu = &from_experts_facts,
};

}  // namespace tk::ops
