// Products through oneDNN equal our own kernels; where the processor has no bf16 instructions only
// the rule of what goes there is checked.
#include "cpu/library_gemm.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <random>
#include <thread>
#include <vector>

#include "base/tensor.h"
#include "cpu/kernels/targets.h"

namespace tk {
namespace {

using kernels::LinearArgs;

Tensor drawn(const Dims& shape) {
  static std::mt19937 random(5);
  std::uniform_real_distribution<double> u(-1, 1);
  Tensor t = Tensor::empty(DType::bf16, shape);
  for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, u(random));
  return t;
}

// y[m, n] = x[m, k] W + bias, or gated with n / 2 columns, from packed weights; y is f32.
struct Product {
  Tensor x, w, packed, bias, y;
  LinearArgs args;
  Product(std::int64_t m, std::int64_t n, std::int64_t k, bool gated)
      : x(drawn({m, k})),
        w(drawn({n, k})),
        packed(Tensor::empty(DType::bf16, {n, k})),
        bias(drawn({n})),
        y(Tensor::zeros(DType::f32, {m, gated ? n / 2 : n})) {
    kernels::pack_weight(w.as<bf16>(), kernels::WeightLayout::n_k, k, k, 0,
                         n / kernels::packed_columns, packed.as<bf16>());
    args.x = x.data, args.w = packed.data, args.bias = bias.data, args.y = y.data;
    args.x_dtype = args.w_dtype = args.bias_dtype = DType::bf16;
    args.layout = kernels::WeightLayout::packed;
    args.m = m, args.n = n, args.k = k, args.x_stride = k, args.gated = gated;
    args.y_stride = gated ? n / 2 : n;
  }
};

class LibraryGemm : public ::testing::Test {
 protected:
  void SetUp() override { setenv("TOKAMAK_GEMM", "onednn", 1); }
  void TearDown() override { unsetenv("TOKAMAK_GEMM"); }
};

TEST_F(LibraryGemm, TakesOnlyManyRowsOfPackedBf16) {
  EXPECT_FALSE(library_takes(Product(31, 64, 64, false).args, 1)) << "a stream of the weight";
  EXPECT_FALSE(library_takes(Product(32, 64, 34, false).args, 1)) << "k is no multiple of 32";
  Product as_it_lies(32, 64, 64, false);
  as_it_lies.args.w = as_it_lies.w.data, as_it_lies.args.layout = kernels::WeightLayout::n_k;
  EXPECT_FALSE(library_takes(as_it_lies.args, 1));
  setenv("TOKAMAK_GEMM", "own", 1);
  EXPECT_FALSE(library_takes(Product(32, 64, 64, false).args, 1));
}

TEST_F(LibraryGemm, EqualsOurKernels) {
  constexpr int n_threads = 2;
  int compared = 0;
  for (const char* choice : {"onednn", ""})  // any kernel of the library for bf16; its tiles
    for (const bool gated : {false, true}) {
      setenv("TOKAMAK_GEMM", choice, 1);
      // More than a block of 256 columns for each thread, and a rest.
      const Product got(33, 1216, 96, gated);
      if (!library_takes(got.args, n_threads)) {
#ifdef TOKAMAK_ONEDNN  // has tiles for these sizes: it was asked and disagreed
        EXPECT_FALSE(*choice == '\0' && kernels::has_amx_bf16() && kernels::use_bf16_dot());
#endif
        continue;
      }
      LinearArgs args = got.args;
      const Tensor scratch = Tensor::empty(
          DType::u8, {static_cast<std::int64_t>(library_scratch_bytes(args, n_threads)) + 64});
      args.scratch = scratch.data;
      std::thread other([&] { library_linear({args}, 1, n_threads); });
      library_linear({args}, 0, n_threads);
      other.join();

      const Tensor want = Tensor::zeros(DType::f32, {args.m, args.y_stride});
      LinearArgs own = got.args;
      own.y = want.data;
      const Tensor room = Tensor::empty(
          DType::u8, {static_cast<std::int64_t>(kernels::linear_scratch_bytes(own, 1)) + 64});
      own.scratch = room.data;
      kernels::linear(own, 0, 1);
      for (std::int64_t i = 0; i < want.numel(); ++i)
        ASSERT_NEAR(got.y.as<float>()[i], want.as<float>()[i],
                    1e-4 * (1 + std::abs(want.as<float>()[i])))
            << choice << " gated " << gated << " at " << i;
      ++compared;
    }
  if (compared == 0) GTEST_SKIP() << "the library has no bf16 kernel for this processor";
}

}  // namespace
}  // namespace tk
