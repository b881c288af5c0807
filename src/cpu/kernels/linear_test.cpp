#include "cpu/kernels/linear.h"

#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

double act_ref(Activation act, double x) {
  switch (act) {
    case Activation::none:
      return x;
    case Activation::silu:
      return x / (1 + std::exp(-x));
    case Activation::gelu_tanh:
      return 0.5 * x * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
    case Activation::gelu_erf:
      return 0.5 * x * (1 + std::erf(x / std::sqrt(2.0)));
    case Activation::gelu_quick:
      return x / (1 + std::exp(-1.702 * x));
    case Activation::relu:
      return x < 0 ? 0 : x;
    case Activation::relu2:
      return x < 0 ? 0 : x * x;
    case Activation::sigmoid:
      return 1 / (1 + std::exp(-x));
    case Activation::tanh:
      return std::tanh(x);
  }
  return x;
}
double glu_ref(const Glu& g, double gate, double up) {
  if (!g.clamped) return act_ref(g.act, gate) * up;
  gate = std::min<double>(gate, g.limit);
  up = std::clamp<double>(up, -g.limit, g.limit);
  return (up + g.up_offset) * gate / (1 + std::exp(-g.alpha * gate));
}

struct Case {
  std::int64_t m, n, k;
  DType x = DType::f32, w = DType::f32, y = DType::f32;
  WeightLayout layout = WeightLayout::n_k;
  bool bias = false, residual = false, gated = false, padded = false;
  Activation act = Activation::none;
  Glu glu{};
  bool packed = false;
};

void check(const Case& c, int n_threads, const std::string& target) {
  const std::int64_t pad = c.padded ? 5 : 0, n_out = c.gated ? c.n / 2 : c.n;
  const bool n_k = c.layout == WeightLayout::n_k;
  const Tensor x = random_tensor(c.x, {c.m, c.k + pad});
  const Tensor w = random_tensor(c.w, {n_k ? c.n : c.k, (n_k ? c.k : c.n) + pad});
  const Tensor bias = random_tensor(c.w, {c.n});
  const Tensor residual = random_tensor(c.y, {c.m, n_out + pad});
  const Tensor y = filled(c.y, {c.m, n_out + pad}, 77);
  LinearArgs a;
  a.x = x.data, a.x_dtype = c.x, a.x_stride = c.k + pad;
  a.w = w.data, a.w_dtype = c.w, a.w_stride = (n_k ? c.k : c.n) + pad;
  a.bias = c.bias ? bias.data : nullptr, a.bias_dtype = c.w;
  a.residual = c.residual ? residual.data : nullptr, a.residual_stride = n_out + pad;
  a.y = y.data, a.y_dtype = c.y, a.y_stride = n_out + pad;
  a.layout = c.layout, a.m = c.m, a.n = c.n, a.k = c.k;
  a.act = c.act, a.gated = c.gated, a.glu = c.glu;
  const Tensor packed = Tensor::empty(c.w, {c.n, c.k});
  if (c.packed) {
    pack_weight(w.as<bf16>(), c.layout, c.k, a.w_stride, 0, c.n / packed_columns,
                packed.as<bf16>());
    a.w = packed.data, a.layout = WeightLayout::packed;
  }
  const Tensor scratch = Tensor::empty(
      DType::u8, {static_cast<std::int64_t>(linear_scratch_bytes(a, n_threads)) + 64});
  a.scratch = scratch.data;
  run(linear, a, n_threads);

  const std::vector<double> xv = values(x), wv = values(w);
  const auto dot = [&](std::int64_t i, std::int64_t j) {
    double s = c.bias ? element(bias, j) : 0;
    for (std::int64_t p = 0; p < c.k; ++p)
      s += xv[static_cast<std::size_t>(i * (c.k + pad) + p)] *
           wv[static_cast<std::size_t>(n_k ? j * (c.k + pad) + p : p * (c.n + pad) + j)];
    return s;
  };
  // A sum may run in one lane: k roundings of partial sums that are about sqrt(k) / 3 large, at
  // most some three times the typical sum of them.
  const auto k = static_cast<double>(c.k);
  const double absolute = std::max(1.6e-6 * std::sqrt(k), 5e-8 * k);
  for (std::int64_t i = 0; i < c.m; ++i) {
    for (std::int64_t j = 0; j < n_out; ++j) {
      double want;
      if (c.gated) {
        const bool pairs = c.glu.layout == GluLayout::interleaved;
        want = glu_ref(c.glu, dot(i, pairs ? 2 * j : j), dot(i, pairs ? 2 * j + 1 : n_out + j));
      } else {
        want = act_ref(c.act, dot(i, j));
      }
      if (c.residual) want += element(residual, i * (n_out + pad) + j);
      expect_close(element(y, i * (n_out + pad) + j), want, roundoff(c.y) + 1e-6,
                   absolute * (c.gated ? 8 : 1), target, " m", c.m, " n", c.n, " k", c.k, " ",
                   name_of(c.x), name_of(c.w), name_of(c.y), " threads ", n_threads, " at ", i, ",",
                   j);
      if (::testing::Test::HasFailure()) return;
    }
    for (std::int64_t j = 0; j < pad; ++j)
      ASSERT_EQ(element(y, i * (n_out + pad) + n_out + j), 77) << "wrote past the row";
  }
}

TEST(linear, dtypes_and_shapes) {
  on_each_target([](const std::string& target) {
    for (DType x : float_types)
      for (DType w : float_types) {
        check({1, 33, 70, x, w, x}, 2, target);
        check({5, 20, 129, x, w, DType::f32}, 1, target);
        check({53, 70, 67, x, w, x}, 2, target);
        check({60, 33, 32, x, w, w}, 1, target);
      }
  });
}

TEST(linear, odd_and_tiny) {
  on_each_target([](const std::string& target) {
    for (DType t : {DType::f32, DType::bf16})
      for (std::int64_t m : {1, 2, 3, 4, 7, 16, 30, 49, 61})
        for (std::int64_t n : {1, 3, 8, 31, 65})
          for (std::int64_t k : {1, 2, 15, 33, 64}) check({m, n, k, t, t, DType::f32}, 3, target);
  });
}

TEST(linear, bias_residual_strides_activation) {
  on_each_target([](const std::string& target) {
    for (std::int64_t m : {1, 3, 51})
      for (Activation act : {Activation::none, Activation::silu, Activation::gelu_tanh,
                             Activation::gelu_erf, Activation::gelu_quick, Activation::relu,
                             Activation::relu2, Activation::sigmoid, Activation::tanh}) {
        Case c{m, 45, 96, DType::bf16, DType::bf16, DType::f32};
        c.bias = c.residual = c.padded = true;
        c.act = act;
        check(c, 2, target);
      }
  });
}

TEST(linear, gated) {
  on_each_target([](const std::string& target) {
    for (std::int64_t m : {1, 2, 50})
      for (GluLayout layout : {GluLayout::halves, GluLayout::interleaved})
        for (WeightLayout w : {WeightLayout::n_k, WeightLayout::k_n})
          for (bool clamped : {false, true})
            for (std::int64_t n : {6, 74, 150}) {
              Case c{m, n, 50, DType::f32, DType::bf16, DType::f32, w};
              c.bias = c.padded = true;
              c.gated = true;
              c.glu.layout = layout;
              c.glu.clamped = clamped;
              c.glu.limit = 1.5F;
              check(c, 2, target);
            }
  });
}

TEST(linear, input_major_weights) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types)
      for (std::int64_t m : {1, 4, 16, 50})
        for (std::int64_t n : {3, 64, 77}) {
          Case c{m, n, 37, t, t, DType::f32, WeightLayout::k_n};
          c.padded = true;
          check(c, 2, target);
        }
  });
}

// K beyond what a panel holds; more rows than the sums of one pass.
TEST(linear, deep_and_tall) {
  on_each_target([](const std::string& target) {
    if (target == "SCALAR") return;
    check({50, 9, 4500, DType::bf16, DType::bf16, DType::f32}, 2, target);
    check({50, 9, 4500, DType::f32, DType::f32, DType::f32}, 2, target);
    check({530, 40, 33, DType::bf16, DType::bf16, DType::bf16}, 2, target);
  });
}

TEST(packed_linear, shapes_and_dtypes) {
  on_each_target([](const std::string& target) {
    for (DType x : float_types)
      for (std::int64_t m : {1, 2, 3, 5, 8, 13, 16, 17, 40}) {
        Case c{m, 96, 70, x, DType::bf16, m % 2 == 0 ? DType::f32 : x};
        c.packed = c.bias = true;
        c.residual = c.padded = m > 2;
        check(c, m % 3 + 1, target);
        c.layout = WeightLayout::k_n;
        check(c, 2, target);
      }
  });
}

TEST(packed_linear, gated) {
  on_each_target([](const std::string& target) {
    for (GluLayout layout : {GluLayout::halves, GluLayout::interleaved})
      for (std::int64_t n : {64, 192, 320})
        for (std::int64_t m : {1, 4, 19}) {
          Case c{m, n, 50, DType::bf16, DType::bf16, DType::f32};
          c.packed = c.bias = c.gated = true;
          c.glu.layout = layout;
          check(c, 2, target);
        }
  });
}

// Runs of K, and more rows than the sums of one pass.
TEST(packed_linear, deep_and_tall) {
  on_each_target([](const std::string& target) {
    if (target == "SCALAR") return;
    Case c{9, 32, 4500, DType::bf16, DType::bf16, DType::f32};
    c.packed = true;
    check(c, 2, target);
    c.m = 33;
    check(c, 2, target);
    c = {530, 160, 34, DType::bf16, DType::bf16, DType::bf16};
    c.packed = true;
    check(c, 2, target);
  });
}

TEST(packed_linear, packed_index_finds_every_element) {
  const Tensor w = random_tensor(DType::bf16, {64, 38});
  const Tensor packed = Tensor::empty(DType::bf16, {64, 38});
  pack_weight(w.as<bf16>(), WeightLayout::n_k, 38, 38, 0, 2, packed.as<bf16>());
  for (std::int64_t n = 0; n < 64; ++n)
    for (std::int64_t k = 0; k < 38; ++k)
      ASSERT_EQ(packed.as<bf16>()[packed_index(n, k, 38)].bits, w.as<bf16>()[n * 38 + k].bits);
}

// The same bits for a row alone, in a small batch and in a prompt, with any number of threads.
TEST(packed_linear, rows_are_independent) {
  on_each_target([](const std::string& target) {
    const std::int64_t n = 160, k = 2200;
    const Tensor x = random_tensor(DType::bf16, {40, k}), w = random_tensor(DType::bf16, {n, k});
    const Tensor packed = Tensor::empty(DType::bf16, {n, k});
    pack_weight(w.as<bf16>(), WeightLayout::n_k, k, k, 0, n / packed_columns, packed.as<bf16>());
    LinearArgs a;
    a.x = x.data, a.w = packed.data, a.x_dtype = a.w_dtype = DType::bf16;
    a.layout = WeightLayout::packed;
    a.n = n, a.k = k, a.x_stride = k, a.y_stride = n;
    const auto product = [&](std::int64_t m, int threads) {
      a.m = m;
      const Tensor y = Tensor::zeros(DType::f32, {m, n});
      const Tensor scratch = Tensor::empty(
          DType::u8, {static_cast<std::int64_t>(linear_scratch_bytes(a, threads)) + 64});
      a.scratch = scratch.data, a.y = y.data;
      run(linear, a, threads);
      return y;
    };
    const Tensor all = product(40, 3);
    for (std::int64_t m : {1, 2, 3, 7, 16, 17}) {
      const Tensor y = product(m, 1);
      for (std::int64_t i = 0; i < m * n; ++i)
        ASSERT_EQ(element(y, i), element(all, i)) << target << " m " << m << " at " << i;
    }
  });
}

// Rows of one batch must not influence each other, nor the number of threads anything.
TEST(linear, rows_are_independent) {
  on_each_target([](const std::string& target) {
    const std::int64_t n = 100, k = 200;
    for (DType t : {DType::f32, DType::bf16}) {
      const Tensor x = random_tensor(t, {40, k}), w = random_tensor(t, {n, k});
      const Tensor all = Tensor::zeros(DType::f32, {40, n});
      LinearArgs a;
      a.x = x.data, a.w = w.data, a.x_dtype = a.w_dtype = t, a.y_dtype = DType::f32;
      a.m = 40, a.n = n, a.k = k, a.x_stride = a.w_stride = k, a.y_stride = n;
      a.y = all.data;
      run(linear, a, 3);
      for (std::int64_t m : {1, 2, 3, 4, 5, 7, 8, 9, 13, 16, 31}) {
        a.m = m;
        const Tensor y = Tensor::zeros(DType::f32, {m, n});
        a.y = y.data;
        run(linear, a, 1);
        for (std::int64_t i = 0; i < m * n; ++i)
          ASSERT_EQ(element(y, i), element(all, i)) << target << " m " << m << " at " << i;
      }
    }
  });
}

TEST(linear, nan_and_infinity_stay) {
  on_each_target([](const std::string& target) {
    for (std::int64_t m : {1, 20, 60}) {
      const Tensor x = filled(DType::bf16, {m, 40}, 1), w = filled(DType::bf16, {3, 40}, 1);
      set_element(w, 40 + 39, NAN);
      set_element(w, 2 * 40 + 7, INFINITY);
      const Tensor y = Tensor::zeros(DType::bf16, {m, 3});
      LinearArgs a;
      a.x = x.data, a.w = w.data, a.y = y.data, a.x_dtype = a.w_dtype = a.y_dtype = DType::bf16;
      a.m = m, a.n = 3, a.k = 40, a.x_stride = a.w_stride = 40, a.y_stride = 3;
      a.act = Activation::silu;
      const Tensor scratch =
          Tensor::empty(DType::u8, {static_cast<std::int64_t>(linear_scratch_bytes(a, 1)) + 64});
      a.scratch = scratch.data;
      run(linear, a, 1);
      EXPECT_EQ(element(y, 0), 40) << target;
      EXPECT_TRUE(std::isnan(element(y, 1))) << target;
      EXPECT_TRUE(std::isinf(element(y, 2))) << target;
    }
  });
}

}  // namespace
}  // namespace tk::kernels::test
