#include "cpu/kernels/elementwise.h"

#include <algorithm>
#include <numeric>

#include "cpu/kernels/bandwidth.h"
#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

Rows out(const Tensor& t) { return {t.data, t.dtype, t.shape.back()}; }
ConstRows in(const Tensor& t) { return {t.data, t.dtype, t.shape.back()}; }

TEST(elementwise, binary_and_broadcast) {
  on_each_target([](const std::string& target) {
    for (DType x : float_types)
      for (DType y : float_types)
        for (BinaryOp op : {BinaryOp::add, BinaryOp::sub, BinaryOp::mul, BinaryOp::div})
          for (int form = 0; form < 3; ++form) {  // full, one row, one column
            const std::int64_t rows = 3, cols = form == 0 ? 1100 : 37;
            const Tensor a = random_tensor(x, {rows, cols});
            const Tensor b = random_tensor(y, {form == 1 ? 1 : rows, form == 2 ? 1 : cols});
            const Tensor c = Tensor::zeros(DType::f32, {rows, cols});
            BinaryArgs args{op, in(a), in(b), out(c), rows, cols, form == 2};
            if (form == 1) args.b.stride = 0;
            run(binary, args, 2);
            for (std::int64_t i = 0; i < c.numel(); ++i) {
              const double p = element(a, i);
              const double q = element(b, form == 0 ? i : form == 1 ? i % cols : i / cols);
              const double want = op == BinaryOp::add   ? p + q
                                  : op == BinaryOp::sub ? p - q
                                  : op == BinaryOp::mul ? p * q
                                                        : p / q;
              expect_close(element(c, i), want, 1e-6, 1e-7, target);
            }
          }
  });
}

TEST(elementwise, activations_over_their_range) {
  on_each_target([](const std::string& target) {
    const double points[] = {0,    -0.0, 1e-8, 0.01, -0.29, 0.31, 1,        -1,        3,   -5.5,
                             11.0, -20,  60,   -90,  200,   -300, INFINITY, -INFINITY, NAN, 5e-39};
    const Tensor x = Tensor::zeros(DType::f32, {1, 20}), y = Tensor::zeros(DType::f32, {1, 20});
    for (int i = 0; i < 20; ++i) set_element(x, i, points[i]);
    const auto check = [&](Activation act, auto f) {
      run(unary, UnaryArgs{act, in(x), out(y), 1, 20}, 1);
      for (int i = 0; i < 20; ++i) {
        const double v = element(x, i);
        double want = f(v);
        if (std::isinf(v) && std::isnan(want)) continue;  // -inf * 0: as the formula gives
        expect_close(element(y, i), want, 1e-6, 1e-7, target, " act ", int(act), " x ", v);
      }
    };
    check(Activation::silu, [](double v) { return v / (1 + std::exp(-v)); });
    check(Activation::sigmoid, [](double v) { return 1 / (1 + std::exp(-v)); });
    check(Activation::tanh, [](double v) { return std::tanh(v); });
    check(Activation::gelu_erf, [](double v) { return 0.5 * v * std::erfc(-v / std::sqrt(2.0)); });
    check(Activation::gelu_tanh, [](double v) {
      return 0.5 * v * (1 + std::tanh(std::sqrt(2 / M_PI) * (v + 0.044715 * v * v * v)));
    });
    check(Activation::relu, [](double v) { return v < 0 ? 0 : v; });
    check(Activation::none, [](double v) { return v; });
  });
}

TEST(elementwise, casts_round_to_nearest_even) {
  on_each_target([](const std::string& target) {
    const Tensor x = random_tensor(DType::f32, {1, 1003}, 3);
    set_element(x, 0, NAN), set_element(x, 1, INFINITY), set_element(x, 2, 1.0 + 1.0 / 256);
    set_element(x, 3, 1.0 + 3.0 / 256), set_element(x, 4, 3.4e38), set_element(x, 5, 1e-41);
    for (DType to : {DType::bf16, DType::f16}) {
      const Tensor y = Tensor::zeros(to, {1, 1003});
      run(unary, UnaryArgs{Activation::none, in(x), out(y), 1, 1003}, 2);
      const Tensor want = to_dtype(x, to);
      for (std::int64_t i = 0; i < 1003; ++i) {
        if (std::isnan(element(x, i)))
          EXPECT_TRUE(std::isnan(element(y, i)));
        else
          EXPECT_EQ(element(y, i), element(want, i)) << target << " " << element(x, i);
      }
    }
  });
}

TEST(elementwise, glu_forms) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types)
      for (int form = 0; form < 3; ++form)  // halves, interleaved, two operands
        for (bool clamped : {false, true}) {
          const std::int64_t rows = 3, f = 45;
          const Tensor x = random_tensor(t, {rows, 2 * f}, 3), g = random_tensor(t, {rows, f}, 3);
          const Tensor u = random_tensor(t, {rows, f}, 3), y = Tensor::zeros(t, {rows, f});
          GluArgs a;
          a.glu.layout = form == 1 ? GluLayout::interleaved : GluLayout::halves;
          a.glu.clamped = clamped, a.glu.limit = 1.2F;
          a.x = form == 2 ? in(g) : in(x), a.y = out(y), a.rows = rows, a.f = f;
          if (form == 2) a.up = in(u);
          run(glu, a, 2);
          for (std::int64_t r = 0; r < rows; ++r)
            for (std::int64_t c = 0; c < f; ++c) {
              double gate = form == 2 ? element(g, r * f + c)
                                      : element(x, r * 2 * f + (form == 1 ? 2 * c : c));
              double up = form == 2 ? element(u, r * f + c)
                                    : element(x, r * 2 * f + (form == 1 ? 2 * c + 1 : f + c));
              double want = gate / (1 + std::exp(-gate)) * up;
              if (clamped) {
                gate = std::min<double>(gate, 1.2F);
                up = std::clamp<double>(up, -1.2F, 1.2F);
                want = (up + 1) * gate / (1 + std::exp(-1.702F * gate));
              }
              expect_close(element(y, r * f + c), want, roundoff(t) + 1e-6, 1e-6, target);
            }
        }
  });
}

TEST(elementwise, embedding_and_gather) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types) {
      const Tensor table = random_tensor(t, {10, 40}), y = Tensor::zeros(DType::f32, {3, 40});
      const std::int32_t ids[] = {9, 0, 4};
      EmbeddingArgs e{in(table), ids, DType::i32, out(y), 3, 40, 2.5F};
      run(embedding, e, 2);
      const Tensor z = Tensor::zeros(t, {3, 40});
      run(gather_rows, GatherRowsArgs{in(table), ids, out(z), 3, 40}, 2);
      for (std::int64_t i = 0; i < 120; ++i) {
        const double from = element(table, ids[i / 40] * 40 + i % 40);
        expect_close(element(y, i), from * 2.5, 1e-6, 0, target);
        EXPECT_EQ(element(z, i), from);
      }
    }
  });
}

TEST(elementwise, softmax_rows) {
  on_each_target([](const std::string& target) {
    for (std::int64_t cols : {1, 5, 16, 100}) {
      const Tensor x = random_tensor(DType::f32, {4, cols}, 30);
      const Tensor y = Tensor::zeros(DType::f32, {4, cols});
      for (std::int64_t c = 0; c < cols; ++c) set_element(x, cols + c, -INFINITY);
      set_element(x, 2 * cols, NAN);
      run(softmax, SoftmaxArgs{in(x), out(y), 4, cols, 0.5F}, 2);
      for (std::int64_t r : {0, 3}) {
        double total = 0;
        for (std::int64_t c = 0; c < cols; ++c) total += std::exp(element(x, r * cols + c) * 0.5);
        for (std::int64_t c = 0; c < cols; ++c)
          expect_close(element(y, r * cols + c), std::exp(element(x, r * cols + c) * 0.5) / total,
                       4e-6, 1e-30, target);
      }
      for (std::int64_t c = 0; c < cols; ++c) {
        EXPECT_EQ(element(y, cols + c), 0) << target;
        EXPECT_TRUE(std::isnan(element(y, 2 * cols + c))) << target;
      }
    }
  });
}

TEST(elementwise, top_k_and_argmax) {
  on_each_target([](const std::string& target) {
    for (DType t : float_types)
      for (std::int64_t cols : {1, 6, 33, 500}) {
        const std::int64_t k = std::min<std::int64_t>(cols, 7), rows = 5;
        const Tensor x = random_tensor(t, {rows, cols});
        for (std::int64_t c = 0; c < cols; ++c) set_element(x, c, c % 5);  // ties
        for (std::int64_t c = 0; c < cols; ++c) set_element(x, cols + c, -INFINITY);
        if (cols > 3) set_element(x, 2 * cols + 3, NAN);
        std::vector<std::int32_t> index(static_cast<std::size_t>(rows * k));
        std::vector<std::int64_t> best(static_cast<std::size_t>(rows), -1);
        const Tensor values = Tensor::zeros(t, {rows, k});
        run(top_k, TopKArgs{in(x), out(values), index.data(), rows, cols, k, k}, 2);
        run(argmax, ArgmaxArgs{in(x), best.data(), rows, cols}, 3);
        for (std::int64_t r = 0; r < rows; ++r) {
          std::vector<std::int32_t> order(static_cast<std::size_t>(cols));
          std::iota(order.begin(), order.end(), 0);
          std::stable_sort(order.begin(), order.end(), [&](std::int32_t a, std::int32_t b) {
            const double p = element(x, r * cols + a), q = element(x, r * cols + b);
            return p > q || (std::isnan(p) && !std::isnan(q));
          });
          for (std::int64_t j = 0; j < k; ++j) {
            EXPECT_EQ(index[static_cast<std::size_t>(r * k + j)],
                      order[static_cast<std::size_t>(j)]);
            expect_close(element(values, r * k + j),
                         element(x, r * cols + order[static_cast<std::size_t>(j)]), 0, 0, target);
          }
          EXPECT_EQ(best[static_cast<std::size_t>(r)], order[0]) << target << " row " << r;
        }
      }
  });
}

TEST(bandwidth, reads_everything) {
  const Tensor x = Tensor::zeros(DType::u8, {100'000});
  for (std::int64_t at : {0, 50'000, 99'999 / 8 * 8}) {
    std::fill_n(x.as<char>(), 100'000, 0);
    x.as<char>()[at] = 1;
    std::vector<std::uint64_t> sink(24);
    run(read_all, ReadArgs{x.data, x.bytes(), sink.data()}, 3);
    EXPECT_EQ(sink[0] ^ sink[8] ^ sink[16], 1U) << at;
  }
  EXPECT_GT(measure_read_bandwidth(1, 1 << 20, 3), 1e8);
}

}  // namespace
}  // namespace tk::kernels::test
