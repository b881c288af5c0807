// Writes into caches of torch_npu 2.14: rows at indices, at places along an axis, at slots of a
// paged cache.
#include <array>
#include <cmath>

#include "base/error.h"
#include "graph/graph.h"
#include "ops/compute.h"
#include "ops/cost.h"
#include "ops/infer.h"
#include "ops/npu/npu_ops.h"
#include "ops/npu/rows.h"
#include "ops/npu/slot_map.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

constexpr int first_input[] = {0};

// What is written was read before, with the indices; the cache around it is not touched.
Cost write_cost(const Args& args, std::initializer_list<int> updates, int indices) {
  Cost c;
  for (const int i : updates) c.written += bytes_of(args.in(i));
  c.read = c.written + bytes_of(args.in(indices));
  return c;
}

// The output that is an input changed in place: a copy of it where the caller asks for a new one.
void begin_update(const EvalArgs& a, int output, int input) {
  if (a.out(output).data != a.in(input).data) copy_into(a.out(output), a.in(input));
}

TensorView without_axes(TensorView t, int n) {
  for (int i = 0; i < n; ++i) t.shape.erase(0), t.strides.erase(0);
  return t;
}

// ---- npu_scatter_nd_update_

std::vector<Type> scatter_nd_infer(const Args& args) {
  const Type& input = args.in(0);
  const Type& indices = args.in(1);
  const Type& updates = args.in(2);
  need_integral(args, 1);
  if (indices.rank() < 2 || !indices.shape.back().is_const() ||
      indices.shape.back().value() > input.rank())
    args.fail(cat("needs indices [..., n] with n axes of ", input.str(), ", got ", indices.str()));
  const auto n = static_cast<std::ptrdiff_t>(indices.shape.back().value());
  SymDims expected(indices.shape.begin(), indices.shape.end() - 1);
  expected.insert(expected.end(), input.shape.begin() + n, input.shape.end());
  if (updates.shape != expected || updates.dtype != input.dtype)
    args.fail(cat("needs updates ", Type{input.dtype, expected}.str(), ", got ", updates.str()));
  return {input};
}

void scatter_nd_eval(const EvalArgs& a) {
  begin_update(a, 0, 0);
  const TensorView& out = a.out();
  const Tensor indices = to_dtype(a.in(1), DType::i64);
  const auto n = static_cast<int>(indices.shape.back());
  const int lead = indices.rank() - 1;
  const std::int64_t rows = n == 0 ? 0 : indices.numel() / n;
  // The leading axes of updates as one.
  TensorView from = a.in(2);
  for (std::int64_t t = 0; t < rows; ++t) {
    std::int64_t to_offset = 0;
    for (int axis = 0; axis < n; ++axis)
      to_offset += out.strides[axis] * checked_index(a, indices.as<std::int64_t>()[t * n + axis],
                                                     out.shape[axis], false);
    std::int64_t from_offset = 0;
    std::int64_t rest = t;
    for (int axis = lead - 1; axis >= 0; --axis) {
      from_offset += rest % from.shape[axis] * from.strides[axis];
      rest /= from.shape[axis];
    }
    copy_into(without_axes(moved(out, to_offset), n), without_axes(moved(from, from_offset), lead));
  }
}

constexpr Limit scatter_nd_limits[] = {
    {"scatter_nd_update_.rank", "indices.ndim >= 2"},
    {"scatter_nd_update_.last", "indices.shape[-1] <= input.ndim"},
    {"scatter_nd_update_.shape",
     "updates.shape == indices.shape[:-1] + input.shape[indices.shape[-1]:]"},
    {"scatter_nd_update_.range",
     "indices.numel == 0 or indices.shape[-1] != 1 or (min(indices) >= 0 and max(indices) < "
     "input.shape[0])",
     "indices outside are not supported: there is no padding slot"},
};
constexpr std::string_view scatter_nd_notes[] = {
    "input: fp32, fp16, bool, bf16, int64, int8; indices: int32 or int64",
};
constexpr NpuFacts scatter_nd_facts{
    .group = "cache",
    .signature =
        "npu_scatter_nd_update_(Tensor(a!) input, Tensor indices, Tensor updates) -> Tensor(a!)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "stated; shape function; GE converter",
    .notes = scatter_nd_notes,
    .limits = scatter_nd_limits,
};

// ---- scatter_update_ and npu_quant_scatter_: updates[i] at a place of row i along an axis

std::vector<Type> place_infer(const Args& args) {
  const Type& data = args.in(0);
  const Type& indices = args.in(1);
  const Type& updates = args.in(2);
  need_integral(args, 1);
  const int axis_at = axis(args, "axis", data.rank());
  if (data.rank() < 2 || updates.rank() != data.rank() || axis_at == 0)
    args.fail(cat("needs input and updates of one rank and an axis past the first, got ",
                  data.str(), ", ", updates.str(), " and axis ", axis_at));
  if (indices.rank() < 1 || indices.rank() > 2 || (indices.rank() == 2 && !indices.dim(1).is(2)))
    args.fail(cat("needs indices [n] of places or [n, 2] of rows and places, got ", indices.str()));
  need_same(args, indices.dim(0), updates.dim(0), "the rows of indices and updates");
  for (int i = 1; i < data.rank(); ++i)
    if (i != axis_at) need_same(args, data.dim(i), updates.dim(i), "input and updates");
  return {data};
}

std::vector<Type> scatter_update_infer(const Args& args) {
  if (args.in(0).dtype != args.in(2).dtype)
    args.fail(cat("needs updates of the input's dtype, got ", args.in(2).str()));
  return place_infer(args);
}

// Calls f(target, source) for each row of updates.
template <typename F>
void for_places(const EvalArgs& a, F f) {
  begin_update(a, 0, 0);
  const TensorView& out = a.out();
  const TensorView& updates = a.in(2);
  const int along = axis(a.i64("axis"), out.rank());
  const Tensor indices = to_dtype(a.in(1), DType::i64);
  for (std::int64_t i = 0; i < updates.shape[0]; ++i) {
    const bool pairs = indices.rank() == 2;
    const auto* p = indices.as<std::int64_t>() + i * (pairs ? 2 : 1);
    const std::int64_t row = checked_index(a, pairs ? p[0] : i, out.shape[0], false);
    const std::int64_t room = out.shape[along] - updates.shape[along];
    const std::int64_t place = checked_index(a, pairs ? p[1] : p[0], room + 1, false);
    TensorView to = moved(out, row * out.strides[0] + place * out.strides[along]);
    to.shape[along] = updates.shape[along];
    f(without_axes(to, 1), without_axes(moved(updates, i * updates.strides[0]), 1));
  }
}

void scatter_update_eval(const EvalArgs& a) {
  for_places(a, [](const TensorView& to, const TensorView& from) { copy_into(to, from); });
}

constexpr Limit scatter_update_limits[] = {
    {"scatter_update_.rank", "input.ndim == updates.ndim"},
};
constexpr std::string_view scatter_update_notes[] = {
    "the range of indices is not checked there; it is here",
    "a cache BSH has axis 1, BNSD axis -2",
    "input: int8, fp16, fp32, bf16, int32 of 2 to 8 axes; indices: int32 or int64, [n] of places "
    "or [n, 2] of rows and places",
};
constexpr NpuFacts scatter_update_facts{
    .group = "cache",
    .signature =
        "scatter_update_(Tensor(a!) input, Tensor indices, Tensor updates, int axis) -> Tensor(a!)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter",
    .notes = scatter_update_notes,
    .limits = scatter_update_limits,
};

std::vector<Type> quant_scatter_infer(const Args& args) {
  if (args.in(0).dtype != DType::i8 || !is_float(args.in(2).dtype))
    args.fail(cat("is known here with an i8 input and updates of floats, got ", args.in(0).str(),
                  " and ", args.in(2).str()));
  if (args.text("reduce") != "update") args.fail("needs reduce \"update\"");
  if (args.has_attr("dst_type") && args.dtype("dst_type") != DType::i8)
    args.fail("is known here with dst_type int8");
  if (args.has_attr("round_mode") && args.text("round_mode") != "rint")
    args.fail("is known here with round_mode \"rint\"");
  const int last = args.in(2).rank() - 1;
  if (axis(args, "quant_axis", args.in(2).rank()) != last)
    args.fail("needs quant_axis to be the last axis");
  for (const int i : {3, 4})
    if (args.has(i))
      need_same(args, args.in(i).numel(), args.in(2).shape.back(), "scales and axis");
  return place_infer(args);
}

void quant_scatter_eval(const EvalArgs& a) {
  const Tensor scale = to_dtype(a.in(3), DType::f32);
  const Tensor zero = a.has(4) ? to_dtype(a.in(4), DType::f32) : Tensor();
  for_places(a, [&](const TensorView& to, const TensorView& from) {
    const RowWalk source(from);
    const RowWalk target(to);
    const std::int64_t n = from.shape.back();
    std::vector<float> row(static_cast<std::size_t>(n));
    for (std::int64_t r = 0; r < source.count(); ++r) {
      read_row(from, source.offset(r), from.strides.at(-1), n, row.data());
      for (std::int64_t d = 0; d < n; ++d) {
        float& x = row[static_cast<std::size_t>(d)];
        x = x / scale.as<float>()[d] + (a.has(4) ? zero.as<float>()[d] : 0.0F);
      }
      write_row(to, target.offset(r), to.strides.at(-1), n, row.data());
    }
  });
}

constexpr Limit quant_scatter_limits[] = {
    {"quant_scatter_.quant_axis", "quant_axis in (-1, updates.ndim - 1)"},
    {"quant_scatter_.axis", "axis not in (0, -updates.ndim, -1, updates.ndim - 1)"},
    {"quant_scatter_.align", "updates.shape[-1] % 32 == 0"},
    {"quant_scatter_.scale", "quant_scales.numel == updates.shape[quant_axis]"},
};
constexpr std::string_view quant_scatter_notes[] = {
    "rows that overlap give other results from run to run",
    "input: int8 of 3 to 8 axes; indices: int32; updates: bf16, fp16; quant_scales: bf16, fp32",
};
constexpr NpuFacts quant_scatter_facts{
    .group = "cache",
    .signature =
        "npu_quant_scatter_(Tensor(a!) input, Tensor indices, Tensor updates, Tensor quant_scales, "
        "Tensor? quant_zero_points=None, int axis=-2, int quant_axis=-1, str reduce='update', int? "
        "dst_type=None, str? round_mode='rint') -> Tensor(a!)",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "not named",
    .graph_mode = "stated; shape function; GE converter",
    .notes = quant_scatter_notes,
    .limits = quant_scatter_limits,
};

// ---- npu_scatter_pa_kv_cache

bool writes_nz(const Attr* mode) {
  return mode != nullptr && std::get<std::string>(*mode) == "PA_NZ";
}

std::vector<Type> scatter_pa_infer(const Args& args) {
  for (const char* name : {"compress_lens", "compress_seq_offsets", "seq_lens"})
    if (args.has(args.op().parsed().tensor_index(name)))
      args.fail(cat("is not known here with ", name, " (compressed caches)"));
  // None, which is "" here, is Norm.
  const Attr* mode = args.attr("cache_mode");
  if (mode != nullptr && !args.text("cache_mode").empty() && args.text("cache_mode") != "PA_NZ" &&
      args.text("cache_mode") != "Norm")
    args.fail(
        cat("has cache_mode \"PA_NZ\", \"Norm\" and None, got \"", args.text("cache_mode"), "\""));
  if (args.in(4).rank() != 1 || !is_integral(args.in(4).dtype))
    args.fail(cat("needs slot_mapping [T] of integers, got ", args.in(4).str()));
  for (const int i : {0, 1}) {
    const Type& x = args.in(i);
    const Type& cache = args.in(i + 2);
    if (x.rank() != 3 || cache.rank() != 4 || x.dtype != cache.dtype)
      args.fail(cat("needs tokens [T, heads, D] and caches of 4 axes, all of one dtype, got ",
                    x.str(), " and ", cache.str()));
    need_same(args, x.dim(0), args.in(4).dim(0), "tokens and slot_mapping");
    if (writes_nz(mode)) {
      need_same(
          args, x.dim(1) * x.dim(2), cache.dim(1) * cache.dim(3),
          "heads * D of tokens and lanes of a cache [blocks, heads * D / lanes, block, lanes]");
    } else {
      need_same(args, x.dim(1), cache.dim(2), "heads of tokens and cache");
      need_same(args, x.dim(2), cache.dim(3), "D of tokens and cache");
    }
  }
  return {args.in(2), args.in(3)};
}

void scatter_pa_eval(const EvalArgs& a) {
  const bool nz = writes_nz(a.attr("cache_mode"));
  for (const int i : {0, 1}) {
    begin_update(a, i, i + 2);
    const TensorView& cache = a.out(i);
    const Tensor tokens = contiguous(a.in(i));
    const std::int64_t size = cache.shape[nz ? 2 : 1];
    const std::int64_t row = tokens.shape[1] * tokens.shape[2];
    for (std::int64_t t = 0; t < tokens.shape[0]; ++t) {
      const std::int64_t slot = slot_at(a, a.in(4), t, cache.shape[0] * size);
      if (slot < 0) continue;
      TensorView from = moved(tokens, t * row);
      TensorView to =
          moved(cache, slot / size * cache.strides[0] + slot % size * cache.strides[nz ? 2 : 1]);
      if (nz) {
        to.shape = {cache.shape[1], cache.shape[3]};
        to.strides = {cache.strides[1], cache.strides[3]};
      } else {
        to.shape = {cache.shape[2], cache.shape[3]};
        to.strides = {cache.strides[2], cache.strides[3]};
      }
      from.shape = to.shape;
      from.strides = contiguous_strides(to.shape);
      copy_into(to, from);
    }
  }
}

constexpr Symbol scatter_pa_symbols[] = {
    {"block", "key_cache.shape[2] if cache_mode == \"PA_NZ\" else key_cache.shape[1]",
     "tokens of a block"},
};
constexpr Limit scatter_pa_limits[] = {
    {"scatter_pa_kv_cache.range",
     "slot_mapping.numel == 0 or (min(slot_mapping) >= 0 and max(slot_mapping) < "
     "key_cache.shape[0] * block)"},
    {"scatter_pa_kv_cache.unique", "unique(slot_mapping)", "duplicates are undefined"},
    {"scatter_pa_kv_cache.dtype",
     "key.dtype == value.dtype and key.dtype == key_cache.dtype and key.dtype == "
     "value_cache.dtype"},
    {"scatter_pa_kv_cache.contig",
     "key.contiguous and value.contiguous and key_cache.contiguous and value_cache.contiguous and "
     "slot_mapping.contiguous"},
};
constexpr std::string_view scatter_pa_notes[] = {
    "the default cache_mode writes NZ: a cache [blocks, block, heads, D] needs \"Norm\"",
    "key, value: [T, heads, D] of one dtype with the caches; 4 axes (compressed caches, with "
    "compress_lens, compress_seq_offsets and seq_lens) are not known here",
    "caches: NZ [blocks, heads * D / lanes, block, lanes] or [blocks, block, heads, D]",
};
constexpr NpuFacts scatter_pa_facts{
    .group = "cache",
    .signature =
        "npu_scatter_pa_kv_cache(Tensor key, Tensor value, Tensor(a!) key_cache, Tensor(b!) "
        "value_cache, Tensor slot_mapping, *, Tensor? compress_lens=None, Tensor? "
        "compress_seq_offsets=None, Tensor? seq_lens=None, str? cache_mode='PA_NZ') -> ()",
    .source = "wheel docs",
    .a2 = "yes",
    .a3 = "yes",
    .graph_mode = "not stated; shape function; GE converter of the functional variant alone",
    .notes = scatter_pa_notes,
    .symbols = scatter_pa_symbols,
    .limits = scatter_pa_limits,
};

constexpr int pa_caches[] = {2, 3};

}  // namespace

const OpDef npu_scatter_nd_update_{
    .name = "npu.npu_scatter_nd_update_",
    .schema = "(Tensor input, Tensor indices, Tensor updates) -> Tensor",
    .doc =
        "input[indices[t]] = updates[t], in place: the last axis of indices names the first axes "
        "of input. Rows outside are an error: there is no padding slot.",
    .infer = scatter_nd_infer,
    .eval = scatter_nd_eval,
    .updates = first_input,
    .cost = [](const Args& a, const Load&) { return write_cost(a, {2}, 1); },
    .npu = &scatter_nd_facts,
};

const OpDef scatter_update_{
    .name = "npu.scatter_update_",
    .schema = "(Tensor input, Tensor indices, Tensor updates, int axis) -> Tensor",
    .doc =
        "updates[i] goes into input[i], from indices[i] on along axis, in place; with indices "
        "[n, 2] into row indices[i, 0] from indices[i, 1] on.",
    .infer = scatter_update_infer,
    .eval = scatter_update_eval,
    .updates = first_input,
    .cost = [](const Args& a, const Load&) { return write_cost(a, {2}, 1); },
    .npu = &scatter_update_facts,
};

const OpDef npu_quant_scatter_{
    .name = "npu.npu_quant_scatter_",
    .schema =
        "(Tensor input, Tensor indices, Tensor updates, Tensor quant_scales, Tensor? "
        "quant_zero_points=None, int axis=-2, int quant_axis=-1, str reduce=\"update\", dtype? "
        "dst_type=None, str? round_mode=\"rint\") -> Tensor",
    .doc =
        "scatter_update_ of round(updates / quant_scales + quant_zero_points), int8, scales along "
        "the last axis.",
    .infer = quant_scatter_infer,
    .eval = quant_scatter_eval,
    .updates = first_input,
    .cost = [](const Args& a, const Load&) { return write_cost(a, {2}, 1); },
    .npu = &quant_scatter_facts,
};

const OpDef npu_scatter_pa_kv_cache{
    .name = "npu.npu_scatter_pa_kv_cache",
    .schema =
        "(Tensor key, Tensor value, Tensor key_cache, Tensor value_cache, Tensor slot_mapping, "
        "Tensor? compress_lens=None, Tensor? compress_seq_offsets=None, Tensor? seq_lens=None, "
        "str? cache_mode=\"PA_NZ\") -> (Tensor key_cache, Tensor value_cache)",
    .doc =
        "Token t of key and value goes to slot slot_mapping[t] of the paged caches, in place. "
        "Negative slots are skipped by the reference; the document excludes them. Compressed "
        "caches (tokens of 4 axes) are not known here.",
    .infer = scatter_pa_infer,
    .eval = scatter_pa_eval,
    .updates = pa_caches,
    .cost = [](const Args& a, const Load&) { return write_cost(a, {0, 1}, 4); },
    .npu = &scatter_pa_facts,
};

}  // namespace tk::ops
