// For tests: a cached two-layer model as text, and the same model in plain C++ without any cache.
#pragma once

#include <cmath>
#include <random>
#include <vector>

#include "base/error.h"
#include "cpu/runner.h"

namespace tk::toy {

constexpr std::int64_t vocab = 50, dim = 16, heads = 2, head_dim = 8, n_layers = 2,
                       n_positions = 64;

// `dtype` of weights, caches and activations; `window` 0 for causal attention.
inline std::string text(const std::string& dtype, std::int64_t block_size, std::int64_t window,
                        bool logit_rows) {
  std::string s =
      cat("graph @toy(%input_ids: i64[T], %position_ids: i64[T], %slot_mapping: i64[T], "
          "%block_table: i32[B, MB], %query_lens: i32[B], %kv_lens: i32[B]",
          logit_rows ? ", %logit_rows: i64[R]" : "", ") {\n");
  const auto weight = [&](const std::string& name, const std::string& shape) {
    s += cat("  weight %", name, ": ", dtype, "[", shape, "] \"", name, "\"\n");
  };
  weight("embed", cat(vocab, ", ", dim));
  weight("place", cat(n_positions, ", ", dim));
  weight("head", cat(vocab, ", ", dim));
  for (std::int64_t l = 0; l < n_layers; ++l) {
    for (const char* name : {"q", "k", "v", "o"}) weight(cat(name, l), cat(dim, ", ", dim));
    for (const char* name : {"key", "value"})
      s += cat("  state %", name, l, ": ", dtype, "[NB, ", block_size, ", ", heads, ", ", head_dim,
               "] \"layers.", l, ".", name, "\"\n");
  }
  s += "  %e = aten.embedding(%embed, %input_ids)\n";
  s += "  %p = aten.embedding(%place, %position_ids)\n";
  s += "  %h0 = aten.add(%e, %p)\n";
  for (std::int64_t l = 0; l < n_layers; ++l) {
    for (const char* name : {"q", "k", "v"})
      s += cat("  %l", name, l, " = aten.linear(%h", l, ", %", name, l, ")\n  %", name, "h", l,
               " = aten.view(%l", name, l, ") {size=[T, ", heads, ", ", head_dim, "]}\n");
    s += cat("  %ck", l, " = tk.cache_write(%key", l, ", %kh", l, ", %slot_mapping)\n");
    s += cat("  %cv", l, " = tk.cache_write(%value", l, ", %vh", l, ", %slot_mapping)\n");
    s += cat("  %a", l, " = tk.paged_attention(%qh", l, ", %ck", l, ", %cv", l,
             ", %block_table, %query_lens, %kv_lens) {scale=0.35",
             window > 0 ? cat(", mask=\"window\", window=", window) : std::string(), "}\n");
    s += cat("  %f", l, " = aten.view(%a", l, ") {size=[T, ", dim, "]}\n");
    s += cat("  %o", l, "r = aten.linear(%f", l, ", %o", l, ")\n");
    s += cat("  %h", l + 1, " = aten.add(%h", l, ", %o", l, "r)\n");
  }
  if (logit_rows)
    s += cat("  %last = aten.index_select(%h", n_layers, ", %logit_rows) {dim=0}\n",
             "  %logits = aten.linear(%last, %head)\n");
  else
    s += cat("  %logits = aten.linear(%h", n_layers, ", %head)\n");
  return s + "  return %logits\n}\n";
}

inline EngineModel model(const std::string& dtype = "f32", std::int64_t block_size = 4,
                         std::int64_t window = 0, bool logit_rows = true, unsigned seed = 1) {
  EngineModel m;
  m.prefill = parse_graph(text(dtype, block_size, window, logit_rows));
  m.decode = m.prefill.clone();
  m.block_size = block_size;
  m.max_positions = n_positions;
  std::mt19937 random(seed);
  std::normal_distribution<double> normal(0, 0.4);
  for (const auto& w : m.prefill.weights()) {
    Tensor t = Tensor::empty(w->type.dtype, concrete(w->type.shape, {}));
    for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, normal(random));
    m.weights[w->name] = t;
  }
  return m;
}

// Logits after the last of `ids`: everything is computed anew, in double.
inline std::vector<double> oracle(const Weights& weights, const std::vector<std::int64_t>& ids,
                                  std::int64_t window = 0) {
  using Row = std::vector<double>;
  const auto w = [&](const std::string& name, std::int64_t i, std::int64_t j) {
    return element(weights.at(name), i * dim + j);
  };
  const auto product = [&](const std::string& name, std::int64_t n, const Row& x) {
    Row y(static_cast<std::size_t>(n));
    for (std::int64_t i = 0; i < n; ++i)
      for (std::int64_t j = 0; j < dim; ++j)
        y[static_cast<std::size_t>(i)] += w(name, i, j) * x[static_cast<std::size_t>(j)];
    return y;
  };
  const std::size_t n = ids.size();
  std::vector<Row> h(n, Row(dim));
  for (std::size_t t = 0; t < n; ++t)
    for (std::int64_t j = 0; j < dim; ++j)
      h[t][static_cast<std::size_t>(j)] =
          w("embed", ids[t], j) + w("place", static_cast<std::int64_t>(t), j);
  for (std::int64_t l = 0; l < n_layers; ++l) {
    std::vector<Row> q, k, v;
    for (const Row& x : h) {
      q.push_back(product(cat("q", l), dim, x));
      k.push_back(product(cat("k", l), dim, x));
      v.push_back(product(cat("v", l), dim, x));
    }
    for (std::size_t t = 0; t < n; ++t) {
      Row a(dim);
      for (std::size_t head = 0; head < heads; ++head) {
        Row p;
        double sum = 0;
        const std::size_t first = window > 0 && static_cast<std::int64_t>(t) >= window
                                      ? t + 1 - static_cast<std::size_t>(window)
                                      : 0;
        for (std::size_t s = first; s <= t; ++s) {
          double dot = 0;
          for (std::size_t d = head * head_dim; d < (head + 1) * head_dim; ++d)
            dot += q[t][d] * k[s][d];
          p.push_back(std::exp(0.35 * dot));
          sum += p.back();
        }
        for (std::size_t s = first; s <= t; ++s)
          for (std::size_t d = head * head_dim; d < (head + 1) * head_dim; ++d)
            a[d] += p[s - first] / sum * v[s][d];
      }
      const Row o = product(cat("o", l), dim, a);
      for (std::size_t j = 0; j < dim; ++j) h[t][j] += o[j];
    }
  }
  return product("head", vocab, h.back());
}

}  // namespace tk::toy
