// The place of an operator that is not known, in graphs that are only looked at.
#include <sstream>

#include "base/error.h"
#include "ops/ops.h"

namespace tk::ops {
namespace {

std::vector<Type> opaque_infer(const Args& args) {
  std::vector<Type> out;
  const std::vector<std::int64_t> ranks = args.ints("ranks");
  const SymDims dims = args.syms("dims");
  std::istringstream names(args.text("dtypes"));
  std::string name;
  std::size_t at = 0;
  while (std::getline(names, name, ',')) {
    Type t;
    if (!parse_dtype(name, &t.dtype)) args.fail(cat("has no dtype '", name, "'"));
    const std::int64_t rank = out.size() < ranks.size() ? ranks[out.size()] : -1;
    if (rank < 0 || rank > max_rank || at + static_cast<std::size_t>(rank) > dims.size())
      args.fail("needs as many ranks as dtypes, and as many dims as their sum");
    for (std::int64_t i = 0; i < rank; ++i) t.shape.push_back(dims[at++]);
    out.push_back(std::move(t));
  }
  if (out.size() != ranks.size() || at != dims.size())
    args.fail("needs as many ranks as dtypes, and as many dims as their sum");
  return out;
}

void opaque_eval(const EvalArgs& args) {
  throw UserError("TK0211", cat("the graph needs the operator ", args.text("target"),
                                ", which is not supported"))
      .help("`tokamak inspect` can look at such a graph; it cannot be run");
}

}  // namespace

const OpDef tk_opaque = {
    .name = "tk.opaque",
    .schema = "(Tensor?[] inputs, *, str target, str dtypes, int[] ranks, int[] dims) -> Tensor[]",
    .doc =
        "An operator that is not known: `target`. The types of its results stand in dtypes "
        "(\"f32,i64\"), ranks and dims, all dims in a row. It cannot be run.",
    .infer = opaque_infer,
    .eval = opaque_eval,
};

}  // namespace tk::ops
