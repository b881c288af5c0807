// Memory of the caller that a graph changes where it lies, as torch.compile's static caches are.
#include "base/error.h"
#include "ops/compute.h"
#include "ops/infer.h"
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

constexpr int first_input[] = {0};

std::vector<Type> infer_index_write(const Args& args) {
  const Type& t = args.in(0);
  const Type& source = args.in(2);
  need_rank(args, 1, 1, 1);
  need_integral(args, 1);
  const int dim = axis(args, "dim", t.rank());
  if (source.dtype != t.dtype || source.rank() != t.rank())
    args.fail(cat("needs a source like self, ", t.str(), ", got ", source.str()));
  for (int i = 0; i < t.rank(); ++i)
    need_same(args, source.dim(i), i == dim ? args.in(1).dim(0) : t.dim(i),
              "the source and what it is written to");
  return {t};
}

void eval_index_write(const EvalArgs& args) {
  const TensorView& out = args.out();
  if (out.data != args.in(0).data) copy_into(out, args.in(0));
  const int dim = axis(args.i64("dim"), out.rank());
  const Tensor ids = to_dtype(args.in(1), DType::i64);
  const auto part = [&](TensorView v, std::int64_t i) {
    v = moved(v, i * v.strides[dim]);
    v.shape.erase(dim);
    v.strides.erase(dim);
    return v;
  };
  for (std::int64_t i = 0; i < ids.numel(); ++i) {
    const std::int64_t id = ids.as<std::int64_t>()[i];
    if (id < 0 || id >= out.shape[dim])
      throw UserError("TK0501", cat("tk.index_write: index ", id, " is outside the ",
                                    out.shape[dim], " places of axis ", dim));
    copy_into(part(out, id), part(args.in(2), i));
  }
}

std::vector<Type> infer_assign(const Args& args) {
  const Type& t = args.in(0);
  const Type& source = args.in(1);
  if (source.dtype != t.dtype || source.rank() != t.rank())
    args.fail(cat("needs a source like self, ", t.str(), ", got ", source.str()));
  for (int i = 0; i < t.rank(); ++i)
    need_same(args, source.dim(i), t.dim(i), "the source and what it is written to");
  return {t};
}

void eval_assign(const EvalArgs& args) { copy_into(args.out(), args.in(1)); }

}  // namespace

const OpDef tk_index_write{
    .name = "tk.index_write",
    .schema = "(Tensor self, Tensor index, Tensor source, *, int dim) -> Tensor",
    .doc = "self, changed in place: the parts of dim that index names become those of source",
    .infer = infer_index_write,
    .eval = eval_index_write,
    .updates = first_input};
const OpDef tk_assign{.name = "tk.assign",
                      .schema = "(Tensor self, Tensor source) -> Tensor",
                      .doc = "self, changed in place: it becomes source",
                      .infer = infer_assign,
                      .eval = eval_assign,
                      .updates = first_input};

}  // namespace tk::ops
