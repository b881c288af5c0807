// Rotary embedding from a table of positions, torch_npu 2.14. Arithmetic in f32, rounded once.
#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"

namespace tk::ops {
namespace {

// Without sections, or with zeros, one position a token.
std::vector<std::int64_t> sections_of(const Dims& given) {
  std::vector<std::int64_t> s(given.begin(), given.end());
  for (const std::int64_t v : s)
    if (v != 0) return s;
  return {};
}

std::vector<Type> infer(const Args& args) {
  const Type& positions = args.in(0);
  const Type& table = args.in(3);
  const std::int64_t head = args.i64("head_size");
  std::vector<std::int64_t> sections;
  if (args.has_attr("mrope_section")) {
    Dims given;
    for (const std::int64_t v : args.ints("mrope_section")) given.push_back(v);
    sections = sections_of(given);
  }
  need_integral(args, 0);
  need_rank(args, 3, 2, 2);
  const bool many = positions.rank() == 2;
  const Sym tokens = positions.rank() == 0 ? Sym(1) : positions.dim(-1);
  if (positions.rank() < 1 || positions.rank() > 2 || many == sections.empty() ||
      (many && !positions.dim(0).is(static_cast<std::int64_t>(sections.size()))))
    args.fail(cat("needs positions [T], or [", sections.size(), ", T] with a mrope_section, got ",
                  positions.str()));
  if (!table.dim(1).is_const() || table.dim(1).value() % 2 != 0 || table.dim(1).value() > head)
    args.fail(
        cat("needs a table [L, D] with an even D up to head_size ", head, ", got ", table.str()));
  if (many) {
    std::int64_t sum = 0;
    for (const std::int64_t s : sections) {
      if (s < 0) args.fail("needs a mrope_section of sizes");
      sum += s;
    }
    if (sum != table.dim(1).value() / 2 || sections.size() < 3)
      args.fail(cat("needs 3 or 4 sections of ", table.dim(1).value() / 2, " in all, got ", sum));
  }
  for (const int i : {1, 2}) {
    const Type& x = args.in(i);
    if (x.rank() != 2 || !(x.dim(0) == tokens) || !is_float(x.dtype) || head < 1 ||
        !exact_div(x.dim(1), Sym(head)))
      args.fail(cat("needs query and key [", tokens.str(), ", heads * ", head, "], got ", x.str()));
  }
  const std::string& mode = args.text("rotary_mode");
  if (mode != "half" && mode != "interleaved" && mode != "interleave")
    args.fail(cat("needs rotary_mode half or interleaved, got '", mode, "'"));
  const std::string& cache = args.text("cache_mode");
  if (cache != "default" && cache != "interleave")
    args.fail(cat("needs cache_mode default or interleave, got '", cache, "'"));
  if (cache == "interleave" && sections.size() != 3)
    args.fail("needs three sections with cache_mode interleave");
  return {args.in(1), args.in(2)};
}

// Which row of positions holds for lane k of half the rotary size.
std::vector<std::size_t> rows_of_lanes(const std::vector<std::int64_t>& sections, bool interleave,
                                       std::int64_t half) {
  std::vector<std::size_t> rows(static_cast<std::size_t>(half), 0);
  if (interleave) {
    for (std::size_t k = 0; k < rows.size(); ++k)
      if (k % 3 != 0 && static_cast<std::int64_t>(k) < sections[1] * 3) rows[k] = k % 3;
    return rows;
  }
  std::size_t at = 0;
  for (std::size_t s = 0; s < sections.size(); ++s)
    for (std::int64_t i = 0; i < sections[s]; ++i) rows[at++] = s;
  return rows;
}

void eval(const EvalArgs& a) {
  const Tensor positions = to_dtype(a.in(0), DType::i64);
  const Tensor table = to_dtype(a.in(3), DType::f32);
  const std::int64_t head = a.i64("head_size");
  const std::int64_t d = table.shape[1];
  const std::int64_t half = d / 2;
  const bool halves = a.text("rotary_mode") == "half";
  const auto sections = a.has_attr("mrope_section") ? sections_of(a.ints("mrope_section"))
                                                    : std::vector<std::int64_t>();
  const auto rows = rows_of_lanes(sections, a.text("cache_mode") == "interleave", half);
  const std::int64_t tokens = a.in(1).shape[0];
  const auto n = static_cast<std::size_t>(half);
  std::vector<float> cos(n);
  std::vector<float> sin(n);
  std::vector<float> x(static_cast<std::size_t>(head));
  for (std::int64_t t = 0; t < tokens; ++t) {
    for (std::int64_t i = 0; i < positions.numel(); i += std::max<std::int64_t>(tokens, 1))
      checked_index(a, positions.as<std::int64_t>()[i + t], table.shape[0], false);
    for (std::size_t k = 0; k < n; ++k) {
      const std::int64_t p =
          positions.as<std::int64_t>()[static_cast<std::int64_t>(rows[k]) * tokens + t];
      cos[k] = table.as<float>()[p * d + static_cast<std::int64_t>(k)];
      sin[k] = table.as<float>()[p * d + half + static_cast<std::int64_t>(k)];
    }
    for (const int i : {1, 2}) {
      const TensorView& in = a.in(i);
      const TensorView& out = a.out(i - 1);
      for (std::int64_t from = 0; from < in.shape[1]; from += head) {
        read_row(in, t * in.strides[0] + from * in.strides[1], in.strides[1], head, x.data());
        for (std::size_t k = 0; k < n; ++k) {
          float& p = x[halves ? k : 2 * k];
          float& q = x[halves ? k + n : 2 * k + 1];
          const float turned = p * cos[k] - q * sin[k];
          q = q * cos[k] + p * sin[k];
          p = turned;
        }
        write_row(out, t * in.shape[1] + from, 1, head, x.data());
      }
    }
  }
}

Cost cost(const Args& args, const Load&) {
  Cost c = moved(args, 4);
  // Of the table the rows of the tokens are read.
  c.read += elements_of(args.in(0)) * static_cast<double>(args.in(3).dim(1).value()) *
                static_cast<double>(size_of(args.in(3).dtype)) -
            bytes_of(args.in(3));
  return c;
}

constexpr Symbol symbols[] = {
    {"rotary_dim", "cos_sin_cache.shape[-1]", "lanes of a head that turn"},
    {"sections", "mrope_section is not None and max(mrope_section) > 0",
     "each section has positions of its own"},
};
constexpr Limit limits[] = {
    {"mrope.rd16", "query.dtype == fp32 or rotary_dim % 32 == 0"},
    {"mrope.rd32", "query.dtype != fp32 or rotary_dim % 16 == 0"},
    {"mrope.section", "not sections or sum(mrope_section) == rotary_dim // 2"},
    {"mrope.pos", "max(positions) < cos_sin_cache.shape[0]"},
    {"mrope.head",
     "head_size % (16 if query.dtype == fp32 else 32) == 0 and rotary_dim <= head_size"},
    {"mrope.dtype",
     "query.dtype in (fp16, bf16, fp32) and key.dtype == query.dtype and cos_sin_cache.dtype == "
     "query.dtype"},
    {"mrope.known",
     "not sections or mrope_section in ([16, 24, 24], [24, 20, 20], [8, 12, 12], [16, 16, 16, 16])",
     "the sections that are documented"},
    {"mrope.cache", "cache_mode == \"default\" or (sections and len(mrope_section) == 3)"},
};
constexpr NpuFacts facts{
    .group = "rope",
    .signature =
        "npu_mrope(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int "
        "head_size, *, int[]? mrope_section=None, str? rotary_mode='half', str? "
        "cache_mode='default') -> (Tensor, Tensor)",
    .source = "wheel docs",
    .a2 = "not named",
    .a3 = "not named",
    .graph_mode = "not stated; shape function; no GE converter",
    .symbols = symbols,
    .limits = limits,
};

}  // namespace

const OpDef npu_mrope{
    .name = "npu.npu_mrope",
    .schema =
        "(Tensor positions, Tensor query, Tensor key, Tensor cos_sin_cache, int head_size, "
        "int[]? mrope_section=None, str? rotary_mode=\"half\", str? cache_mode=\"default\") -> "
        "(Tensor query, Tensor key)",
    .doc =
        "The first D lanes of each head turned by the table's cosines (first half of a row) and "
        "sines, as halves or neighbours. With mrope_section each section of the lanes takes its "
        "own row of positions [3 or 4, T]; cache_mode interleave deals the lanes out in turn.",
    .infer = infer,
    .eval = eval,
    .cost = cost,
    .npu = &facts,
};

}  // namespace tk::ops
