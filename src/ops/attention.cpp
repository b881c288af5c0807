// Scaled dot product attention as PyTorch defines it.
#include <cmath>

#include "ops/gemm.h"
#include "ops/ops.h"
#include "ops/view.h"

namespace tk::ops {
namespace {

SymDims batch_of(const Type& t) { return {t.shape.begin(), t.shape.end() - 2}; }

std::vector<Type> infer_attention(const Args& args) {
  for (int i = 0; i < 3; ++i) {
    need_rank(args, i, 2, max_rank);
    need_float(args, i);
    if (args.in(i).dtype != args.in(0).dtype || args.in(i).rank() != args.in(0).rank())
      args.fail("needs query, key and value of one dtype and rank");
  }
  if (args.f64("dropout_p") != 0) args.fail("is for inference: needs dropout_p to be 0");
  const Type& q = args.in(0);
  const Type& k = args.in(1);
  const Type& v = args.in(2);
  need_same(args, q.dim(-1), k.dim(-1), "the head sizes of query and key");
  need_same(args, k.dim(-2), v.dim(-2), "the lengths of key and value");
  SymDims batch = batch_of(q);
  if (args.flag("enable_gqa")) {
    if (q.rank() < 3) args.fail("needs a dim of heads for enable_gqa");
    for (int i : {1, 2}) {
      const Sym& heads = args.in(i).dim(-3);
      if (!exact_div(q.dim(-3), heads))
        args.fail(cat("needs query heads that ", heads.str(), " divides, got ", q.dim(-3).str()));
      SymDims other = batch_of(args.in(i));
      other.back() = q.dim(-3);
      batch = broadcast(args, batch, other);
    }
  } else {
    batch = broadcast(args, broadcast(args, batch, batch_of(k)), batch_of(v));
  }
  SymDims scores = batch;
  scores.push_back(q.dim(-2));
  scores.push_back(k.dim(-2));
  if (args.has(3)) {
    const DType mask = args.in(3).dtype;
    if (mask != DType::boolean && !is_float(mask)) args.fail("needs a mask of bool or floats");
    if (args.flag("is_causal")) args.fail("needs a mask or is_causal, not both");
    need_broadcastable(args, args.in(3).shape, scores, "a mask");
  }
  Type out{q.dtype, batch};
  out.shape.push_back(q.dim(-2));
  out.shape.push_back(v.dim(-1));
  return {out};
}

// t [..., heads, n, d] with batch axes spread to `batch`; heads are repeated in groups.
TensorView spread(TensorView t, const Dims& batch, Dims* head_division) {
  *head_division = batch;
  for (auto& d : *head_division) d = 1;
  if (t.rank() >= 3 && t.shape.at(-3) != 1 && t.shape.at(-3) != batch.back()) {
    const int axis_of_heads = batch.size() - 1;
    (*head_division)[axis_of_heads] = batch.back() / t.shape.at(-3);
  }
  while (t.rank() < batch.size() + 2) {
    t.shape.insert(0, 1);
    t.strides.insert(0, 0);
  }
  for (int i = 0; i < batch.size(); ++i)
    if (t.shape[i] == 1) t.strides[i] = 0;
  return t;
}

TensorView matrix_at(const TensorView& t, const Dims& index, const Dims& division) {
  std::int64_t offset = 0;
  for (int i = 0; i < index.size(); ++i) offset += index[i] / division[i] * t.strides[i];
  TensorView out = moved(t, offset);
  out.shape = {t.shape.at(-2), t.shape.at(-1)};
  out.strides = {t.strides.at(-2), t.strides.at(-1)};
  return out;
}

TensorView rows_of(TensorView m, std::int64_t from, std::int64_t count) {
  m = moved(m, from * m.strides[0]);
  m.shape[0] = count;
  return m;
}

// scores [n, keys] become weights; a row that may see nothing becomes zeros.
template <typename T>
void softmax_rows(T* scores, std::int64_t n, std::int64_t keys) {
  for (std::int64_t r = 0; r < n; ++r) {
    T* row = scores + r * keys;
    T most = -INFINITY;
    for (std::int64_t i = 0; i < keys; ++i)
      most = row[i] > most || row[i] != row[i] ? row[i] : most;
    if (most == T(-INFINITY)) {
      std::fill(row, row + keys, T(0));
      continue;
    }
    double sum = 0;
    for (std::int64_t i = 0; i < keys; ++i) sum += row[i] = std::exp(row[i] - most);
    const T scale = static_cast<T>(1 / sum);
    for (std::int64_t i = 0; i < keys; ++i) row[i] *= scale;
  }
}

// Adds a mask (or fills where a bool one is false) for rows [from, from + n) of the scores.
template <typename T>
void apply_mask(const TensorView& mask, std::int64_t from, std::int64_t n, T* scores) {
  const std::int64_t keys = mask.shape[1];
  std::array<T, block> buffer;
  for (std::int64_t r = 0; r < n; ++r)
    for (std::int64_t i = 0; i < keys; i += block) {
      const int m = static_cast<int>(std::min<std::int64_t>(block, keys - i));
      const T* p = load(mask, (from + r) * mask.strides[0] + i * mask.strides[1], mask.strides[1],
                        m, buffer.data());
      T* s = scores + r * keys + i;
      if (mask.dtype == DType::boolean) {
        for (int e = 0; e < m; ++e)
          if (p[e] == T(0)) s[e] = -INFINITY;
      } else {
        for (int e = 0; e < m; ++e) s[e] += p[e];
      }
    }
}

template <typename T>
void attend(const EvalArgs& args) {
  const TensorView& out = args.out();
  if (out.numel() == 0) return;
  const Dims batch(std::span(out.shape.begin(), static_cast<std::size_t>(out.rank() - 2)));
  std::array<Dims, 3> division;
  std::array<TensorView, 3> in;
  for (int i = 0; i < 3; ++i)
    in[static_cast<std::size_t>(i)] =
        spread(args.in(i), batch, &division[static_cast<std::size_t>(i)]);
  const std::int64_t queries = out.shape.at(-2);
  const std::int64_t keys = args.in(1).shape.at(-2);
  const double scale = args.has_attr("scale")
                           ? args.f64("scale")
                           : 1 / std::sqrt(static_cast<double>(args.in(0).shape.back()));
  const bool causal = args.flag("is_causal");
  TensorView mask;
  if (args.has(3)) {
    Dims shape = batch;
    shape.push_back(queries);
    shape.push_back(keys);
    mask = expand(args.in(3), shape);
  }
  Dims ones = batch;
  for (auto& d : ones) d = 1;
  constexpr DType dtype = std::is_same_v<T, double> ? DType::f64 : DType::f32;
  // Queries in parts, so that the scores stay small.
  constexpr std::int64_t part = 256;
  const std::int64_t n_parts = (queries + part - 1) / part;
  parallel(batch.numel() * n_parts, out.numel() * keys, [&](std::int64_t begin, std::int64_t end) {
    Tensor scores = Tensor::empty(dtype, {std::min(part, queries), keys});
    for (std::int64_t job = begin; job < end; ++job) {
      Dims index = batch;
      std::int64_t rest = job / n_parts;
      for (int i = batch.size() - 1; i >= 0; --i) {
        index[i] = rest % batch[i];
        rest /= batch[i];
      }
      const std::int64_t from = job % n_parts * part;
      const std::int64_t n = std::min(part, queries - from);
      const TensorView s = rows_of(scores, 0, n);
      TensorView k = matrix_at(in[1], index, division[1]);
      std::swap(k.shape[0], k.shape[1]);
      std::swap(k.strides[0], k.strides[1]);
      const TensorView q = rows_of(matrix_at(in[0], index, division[0]), from, n);
      gemm(q, k, s, scale);
      if (causal)
        for (std::int64_t r = 0; r < n; ++r)
          for (std::int64_t i = from + r + 1; i < keys; ++i) s.as<T>()[r * keys + i] = -INFINITY;
      if (mask.data != nullptr) apply_mask(matrix_at(mask, index, ones), from, n, s.as<T>());
      softmax_rows(s.as<T>(), n, keys);
      gemm(s, matrix_at(in[2], index, division[2]), rows_of(matrix_at(out, index, ones), from, n));
    }
  });
}

void eval_attention(const EvalArgs& args) {
  if (args.in(0).dtype == DType::f64) return attend<double>(args);
  attend<float>(args);
}

}  // namespace

const OpDef aten_scaled_dot_product_attention{
    .name = "aten.scaled_dot_product_attention",
    .schema =
        "(Tensor query, Tensor key, Tensor value, Tensor? attn_mask=None, "
        "float dropout_p=0.0, bool is_causal=false, *, float? scale=None, "
        "bool enable_gqa=false) -> Tensor",
    .doc =
        "softmax(query * key^T * scale + mask) * value; scale is 1 / sqrt(head size) where absent",
    .infer = infer_attention,
    .eval = eval_attention};

}  // namespace tk::ops
