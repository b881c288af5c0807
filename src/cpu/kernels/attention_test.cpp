#include "cpu/kernels/attention.h"

#include <limits>

#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

struct Case {
  std::vector<std::int32_t> q_lens, kv_lens;
  std::int64_t q_heads, kv_heads, dk, dv, block;
  DType dtype = DType::f32, cache = DType::f32;
  MaskKind mask = MaskKind::causal;
  std::int64_t window = 0;
  float soft_cap = 0.0F;
  bool sinks = false, value_is_key = false;
  std::int64_t dk2 = 0;
  std::int64_t padding = 0;  // queries that belong to no request
  float scale = 0.3F;
};

void check(const Case& c, int n_threads, const std::string& target) {
  const auto batch = static_cast<std::int64_t>(c.q_lens.size());
  std::int64_t tokens = c.padding, max_kv = 1;
  std::vector<std::int32_t> cu;
  std::int32_t total = 0;
  for (std::int32_t n : c.q_lens) cu.push_back(total += n);
  tokens += total;
  for (std::int32_t n : c.kv_lens) max_kv = std::max<std::int64_t>(max_kv, n);
  const std::int64_t blocks_each = (max_kv + c.block - 1) / c.block;
  const std::int64_t n_blocks = blocks_each * batch + 1;
  const Tensor q = random_tensor(c.dtype, {tokens, c.q_heads, c.dk}, 2);
  const Tensor q2 = random_tensor(c.dtype, {tokens, c.q_heads, std::max<std::int64_t>(1, c.dk2)});
  const Tensor k = random_tensor(c.cache, {n_blocks, c.block, c.kv_heads, c.dk});
  const Tensor k2 =
      random_tensor(c.cache, {n_blocks, c.block, c.kv_heads, std::max<std::int64_t>(1, c.dk2)});
  const Tensor v =
      c.value_is_key ? k : random_tensor(c.cache, {n_blocks, c.block, c.kv_heads, c.dv});
  const std::int64_t v_dim = c.value_is_key ? c.dk : c.dv;
  const Tensor sinks = random_tensor(DType::f32, {c.q_heads}, 3);
  const Tensor out = filled(c.dtype, {tokens, c.q_heads, c.dv}, 55);
  std::vector<std::int32_t> table;
  for (std::int64_t b = 0; b < batch; ++b)
    for (std::int64_t i = 0; i < blocks_each; ++i)  // scattered over the cache
      table.push_back(static_cast<std::int32_t>(n_blocks - 1 - (i * batch + b)));
  PagedAttentionArgs a;
  a.q = q.data, a.q2 = c.dk2 > 0 ? q2.data : nullptr, a.out = out.data;
  a.dtype = c.dtype, a.cache_dtype = c.cache;
  a.k = {k.data, c.block * c.kv_heads * c.dk, c.kv_heads * c.dk, c.dk};
  a.v = {v.data, c.block * c.kv_heads * v_dim, c.kv_heads * v_dim, v_dim};
  a.k2 = {k2.data, c.block * c.kv_heads * c.dk2, c.kv_heads * c.dk2, c.dk2};
  a.q_stride = c.q_heads * c.dk, a.q_head_stride = c.dk;
  a.q2_stride = c.q_heads * c.dk2, a.q2_head_stride = c.dk2;
  a.out_stride = c.q_heads * c.dv, a.out_head_stride = c.dv;
  a.block_table = table.data(), a.cu_q = cu.data(), a.kv_lens = c.kv_lens.data();
  a.sinks = c.sinks ? sinks.as<float>() : nullptr;
  a.batch = batch, a.tokens = tokens, a.q_heads = c.q_heads, a.kv_heads = c.kv_heads;
  a.dk = c.dk, a.dk2 = c.dk2, a.dv = c.dv, a.block_size = c.block;
  a.block_table_stride = blocks_each;
  a.mask = c.mask, a.window = c.window, a.scale = c.scale, a.soft_cap = c.soft_cap;
  a.max_kv_len = max_kv;
  const Tensor scratch = Tensor::empty(
      DType::u8, {static_cast<std::int64_t>(paged_attention_scratch_bytes(a, n_threads)) + 64});
  std::memset(scratch.data, 0xff, static_cast<std::size_t>(scratch.bytes()));  // NaNs
  a.scratch = scratch.data;
  run(paged_attention, a, n_threads);
  run(paged_attention_combine, a, n_threads);

  const auto reader = [](const Tensor& t) {
    return [v = values(t)](std::int64_t i) { return v[static_cast<std::size_t>(i)]; };
  };
  const auto qv = reader(q), q2v = reader(q2), kv = reader(k), k2v = reader(k2), vv = reader(v);
  const double tolerance = c.dtype == DType::f32 && c.cache == DType::f32 ? 1e-5 : 2e-2;
  for (std::int64_t b = 0; b < batch; ++b) {
    const std::int64_t n_q = c.q_lens[static_cast<std::size_t>(b)];
    const std::int64_t n_kv = c.kv_lens[static_cast<std::size_t>(b)];
    const std::int64_t first = cu[static_cast<std::size_t>(b)] - n_q;
    for (std::int64_t i = 0; i < n_q; ++i)
      for (std::int64_t h = 0; h < c.q_heads; ++h) {
        const std::int64_t g = h / (c.q_heads / c.kv_heads), position = n_kv - n_q + i;
        const auto row = [&](std::int64_t p) {
          const std::int32_t block = table[static_cast<std::size_t>(b * blocks_each + p / c.block)];
          return (block * c.block + p % c.block) * c.kv_heads + g;
        };
        std::vector<double> s;
        double top = c.sinks ? element(sinks, h) : -1e300;
        for (std::int64_t p = 0; p < n_kv; ++p) {
          double dot = 0;
          for (std::int64_t j = 0; j < c.dk; ++j)
            dot += qv(((first + i) * c.q_heads + h) * c.dk + j) * kv(row(p) * c.dk + j);
          for (std::int64_t j = 0; j < c.dk2; ++j)
            dot += q2v(((first + i) * c.q_heads + h) * c.dk2 + j) * k2v(row(p) * c.dk2 + j);
          dot *= c.scale;
          if (c.soft_cap > 0) dot = c.soft_cap * std::tanh(dot / c.soft_cap);
          const bool seen =
              c.mask == MaskKind::full ||
              (p <= position && (c.mask != MaskKind::window || p > position - c.window) &&
               (c.mask != MaskKind::chunked || p / c.window == position / c.window));
          s.push_back(seen ? dot : -std::numeric_limits<double>::infinity());
          if (seen) top = std::max(top, dot);
        }
        double total_weight = c.sinks ? std::exp(element(sinks, h) - top) : 0;
        for (double& e : s) total_weight += e = std::exp(e - top);
        for (std::int64_t j = 0; j < c.dv; ++j) {
          double want = 0;
          for (std::int64_t p = 0; p < n_kv; ++p)
            want += s[static_cast<std::size_t>(p)] * vv(row(p) * v_dim + j);
          want = total_weight == 0 ? 0 : want / total_weight;
          expect_close(element(out, ((first + i) * c.q_heads + h) * c.dv + j), want, tolerance,
                       tolerance, target, " request ", b, " query ", i, " head ", h, " dim ", j,
                       " kv ", n_kv);
          if (::testing::Test::HasFailure()) return;
        }
      }
  }
  for (std::int64_t i = total * c.q_heads * c.dv; i < out.numel(); ++i)
    ASSERT_EQ(element(out, i), 0) << "padding";
}

TEST(paged_attention, decode) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types)
      for (std::int64_t block : {1, 16, 128}) {
        check({{1, 1, 1}, {1, 77, 300}, 6, 2, 64, 64, block, t, t}, 2, target);
        check({{1}, {1030}, 3, 1, 20, 12, block, t, t}, 3, target);
        check({{2, 3}, {40, 600}, 4, 4, 33, 33, block, t, t}, 2, target);
      }
  });
}

TEST(paged_attention, prefill) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types) {
      check({{70, 1, 9}, {70, 100, 33}, 3, 1, 32, 32, 16, t, t}, 2, target);
      check({{130}, {150}, 2, 2, 17, 40, 8, t, t}, 3, target);
      check({{20}, {20}, 6, 2, 64, 64, 32, t, DType::bf16}, 2, target);
    }
  });
}

TEST(paged_attention, masks_caps_sinks) {
  on_each_target([](const std::string& target) {
    for (DType t : {DType::f32, DType::bf16})
      for (MaskKind mask : {MaskKind::full, MaskKind::causal, MaskKind::window, MaskKind::chunked})
        for (std::int64_t window : {1, 7, 64})
          for (bool sinks : {false, true}) {
            Case c{{1, 5, 40}, {90, 300, 90}, 4, 2, 32, 32, 16, t, t, mask, window};
            c.sinks = sinks;
            c.soft_cap = sinks ? 0.7F : 0.0F;
            c.padding = 3;
            check(c, 2, target);
          }
  });
}

// What is masked stays without weight, though -inf times 0 is NaN and times less is +inf.
TEST(paged_attention, scale_of_zero_or_less) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types)
      for (float scale : {0.0F, -0.3F})
        for (MaskKind mask : {MaskKind::causal, MaskKind::window, MaskKind::chunked})
          for (float soft_cap : {0.0F, 0.7F}) {
            Case c{{1, 5, 40}, {90, 300, 90}, 4, 2, 32, 32, 16, t, t, mask, 7, soft_cap};
            c.scale = scale;
            check(c, 2, target);
            c.sinks = true;
            check(c, 2, target);
          }
  });
}

// MLA: one latent head; the values are the latent itself; rope part in its own cache.
TEST(paged_attention, latent_cache) {
  on_each_target([](const std::string& target) {
    for (DType t : {DType::f32, DType::bf16})
      for (std::int32_t q : {1, 20}) {
        Case c{{q, q}, {300, 40}, 70, 1, 48, 40, 16, t, t};
        c.value_is_key = true;
        check(c, 2, target);
        c.dk2 = 10;
        check(c, 2, target);
      }
  });
}

TEST(paged_attention, nothing_to_see) {
  on_each_target([](const std::string& target) {
    check({{3, 1}, {2, 0}, 2, 1, 16, 16, 4}, 2, target);
    Case c{{3, 1}, {2, 0}, 2, 1, 16, 16, 4};
    c.sinks = true;
    check(c, 2, target);
  });
}

TEST(paged_attention, threads_do_not_change_results) {
  // Same seed for each run: the outputs are compared through the reference with tolerance
  // elsewhere; here bit for bit.
  const std::int64_t heads = 6, d = 32, kv = 1500;
  const Tensor q = random_tensor(DType::f32, {1, heads, d}),
               k = random_tensor(DType::f32, {kv, 2, d});
  std::int32_t table[] = {0}, cu[] = {1}, len[] = {static_cast<std::int32_t>(kv)};
  std::vector<Tensor> outs;
  for (int n_threads : {1, 2, 5}) {
    const Tensor out = Tensor::zeros(DType::f32, {1, heads, d});
    PagedAttentionArgs a;
    a.q = q.data, a.out = out.data, a.k = a.v = {k.data, kv * 2 * d, 2 * d, d};
    a.q_stride = a.out_stride = heads * d, a.q_head_stride = a.out_head_stride = d;
    a.block_table = table, a.cu_q = cu, a.kv_lens = len;
    a.batch = a.tokens = 1, a.q_heads = heads, a.kv_heads = 2, a.dk = a.dv = d;
    a.block_size = a.max_kv_len = kv, a.block_table_stride = 1;
    const Tensor scratch = Tensor::empty(
        DType::u8, {static_cast<std::int64_t>(paged_attention_scratch_bytes(a, n_threads)) + 64});
    a.scratch = scratch.data;
    run(paged_attention, a, n_threads);
    run(paged_attention_combine, a, n_threads);
    outs.push_back(out);
  }
  for (std::int64_t i = 0; i < heads * d; ++i) {
    ASSERT_EQ(element(outs[0], i), element(outs[1], i));
    ASSERT_EQ(element(outs[0], i), element(outs[2], i));
  }
}

}  // namespace
}  // namespace tk::kernels::test
