#include "cpu/library_gemm.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <map>
#include <memory>
#include <mutex>
#include <string_view>
#include <tuple>
#include <utility>
#include <vector>

#include "base/tensor.h"
#include "cpu/kernels/targets.h"

#ifdef TOKAMAK_ONEDNN
#include <dnnl.hpp>

// Of libgomp, which oneDNN runs on; its header is the compiler's own.
extern "C" {
int omp_get_max_threads();
void omp_set_num_threads(int n);
}
#endif

namespace tk {
namespace {

constexpr std::int64_t least_rows = 32;  // fewer are a stream of the weight
constexpr std::int64_t block = 256;      // columns of W that one call of the library takes

// Sums of a block, twice for gates and ups, of one thread.
std::int64_t scratch_of_thread(const kernels::LinearArgs& a) { return 2 * a.m * block * 4; }

#ifdef TOKAMAK_ONEDNN

kernels::Range columns_of(const kernels::LinearArgs& a, int thread, int n_threads) {
  return kernels::share(a.gated ? a.n / 2 : a.n, kernels::packed_columns, thread, n_threads);
}

// The calling thread's own setting of OpenMP, which is not the other threads'.
class OneThread {
 public:
  OneThread() : before_(omp_get_max_threads()) { omp_set_num_threads(1); }
  ~OneThread() { omp_set_num_threads(before_); }
  OneThread(const OneThread&) = delete;
  OneThread& operator=(const OneThread&) = delete;

 private:
  int before_;
};

struct Gemm {
  dnnl::memory::desc x, w, y, scratch;
  dnnl::matmul primitive;
};

const dnnl::engine& cpu_engine() {
  static const dnnl::engine engine(dnnl::engine::kind::cpu, 0);
  return engine;
}

// y[m, n] f32 = x[m, k] bf16 * W, W packed. Null when the library has nothing good for it.
std::unique_ptr<Gemm> make_gemm(std::int64_t m, std::int64_t n, std::int64_t k, bool need_amx) {
  const OneThread one;
  using Desc = dnnl::memory::desc;
  using Tag = dnnl::memory::format_tag;
  auto g = std::make_unique<Gemm>();
  try {
    g->x = Desc({m, k}, dnnl::memory::data_type::bf16, Tag::ab);
    // The C++ enumeration of 2.6 has no name for this one.
    g->w = Desc({k, n}, dnnl::memory::data_type::bf16, static_cast<Tag>(dnnl_BA16a32b2a));
    g->y = Desc({m, n}, dnnl::memory::data_type::f32, Tag::ab);
    dnnl::primitive_attr attr;
    attr.set_scratchpad_mode(dnnl::scratchpad_mode::user);
    const dnnl::matmul::primitive_desc pd({g->x, g->w, g->y}, attr, cpu_engine());
    const std::string name = pd.impl_info_str();
    if (name.find(need_amx ? "amx" : "brg") == std::string::npos) return nullptr;
    g->scratch = pd.scratchpad_desc();
    g->primitive = dnnl::matmul(pd);
  } catch (const dnnl::error&) {  // its way to say that it has no such kernel
    return nullptr;
  }
  return g;
}

void run_gemm(const Gemm& g, const void* x, const void* w, float* y) {
  const OneThread one;
  thread_local dnnl::stream stream(cpu_engine());
  thread_local std::vector<std::byte> scratch;
  if (scratch.size() < g.scratch.get_size() + 64) scratch.resize(g.scratch.get_size() + 64);
  void* room = scratch.data() + (64 - reinterpret_cast<std::uintptr_t>(scratch.data()) % 64) % 64;
  const auto memory = [](const dnnl::memory::desc& d, const void* p) {
    return dnnl::memory(d, cpu_engine(), const_cast<void*>(p));
  };
  g.primitive.execute(stream, {{DNNL_ARG_SRC, memory(g.x, x)},
                               {DNNL_ARG_WEIGHTS, memory(g.w, w)},
                               {DNNL_ARG_DST, memory(g.y, y)},
                               {DNNL_ARG_SCRATCHPAD, memory(g.scratch, room)}});
  stream.wait();
}

// Against our kernel, on numbers of which every product and sum of a few is exact or nearly so.
bool agrees(const Gemm& g, std::int64_t m, std::int64_t n, std::int64_t k) {
  const Tensor x = Tensor::empty(DType::bf16, {m, k}), w = Tensor::empty(DType::bf16, {n, k});
  std::uint32_t state = 1;
  for (const Tensor* t : {&x, &w})
    for (std::int64_t i = 0; i < t->numel(); ++i) {
      state = state * 1664525U + 1013904223U;
      t->as<bf16>()[i] = to_bf16(static_cast<float>(static_cast<int>(state >> 24) - 128) / 128.0F);
    }
  const Tensor got = Tensor::zeros(DType::f32, {m, n}), want = Tensor::zeros(DType::f32, {m, n});
  run_gemm(g, x.data, w.data, got.as<float>());
  kernels::LinearArgs a;
  a.x = x.data, a.w = w.data, a.y = want.data;
  a.x_dtype = a.w_dtype = DType::bf16;
  a.layout = kernels::WeightLayout::packed;
  a.m = m, a.n = n, a.k = k, a.x_stride = k, a.y_stride = n;
  const Tensor scratch = Tensor::empty(
      DType::u8, {static_cast<std::int64_t>(kernels::linear_scratch_bytes(a, 1)) + 64});
  a.scratch = scratch.data;
  kernels::linear(a, 0, 1);
  const double limit = 1e-3 * std::sqrt(static_cast<double>(k));
  for (std::int64_t i = 0; i < m * n; ++i)
    if (!(std::abs(got.as<float>()[i] - want.as<float>()[i]) <= limit)) return false;
  return true;
}

// Whether the library's kernel for these sizes of W can be trusted, tried with a few rows.
bool trusted(std::int64_t n, std::int64_t k, bool need_amx) {
  constexpr std::int64_t rows = 64;
  const auto g = make_gemm(rows, n, k, need_amx);
  return g != nullptr && agrees(*g, rows, n, k);
}

// Kept for the next plan: at most so many, since each length of a prompt has its own.
constexpr std::size_t most_gemms = 1024;

std::shared_ptr<const Gemm> gemm_of(std::int64_t m, std::int64_t n, std::int64_t k) {
  static std::mutex mutex;
  static std::map<std::tuple<std::int64_t, std::int64_t, std::int64_t>, std::shared_ptr<const Gemm>>
      all;
  static std::map<std::pair<std::int64_t, std::int64_t>, bool> tried;
  const std::lock_guard lock(mutex);
  if (all.size() >= most_gemms) all.clear();
  const auto [it, fresh] = all.try_emplace({m, n, k});
  if (fresh) {
    const char* wanted = std::getenv("TOKAMAK_GEMM");
    const bool need_amx = wanted == nullptr || std::string_view(wanted) != "onednn";
    const auto [known, first] = tried.try_emplace({n, k});
    if (first) known->second = trusted(n, k, need_amx);
    if (known->second) it->second = make_gemm(m, n, k, need_amx);
  }
  return it->second;
}

#endif

}  // namespace

bool library_takes(const kernels::LinearArgs& a, int n_threads) {
#ifdef TOKAMAK_ONEDNN
  const char* wanted = std::getenv("TOKAMAK_GEMM");
  const std::string_view choice = wanted == nullptr ? "" : wanted;
  if (choice == "own" ||
      (choice != "onednn" && !(kernels::has_amx_bf16() && kernels::use_bf16_dot())))
    return false;
  if (a.layout != kernels::WeightLayout::packed || a.x_dtype != DType::bf16 || a.m < least_rows ||
      a.k % 32 != 0 || a.x_stride != a.k || (a.gated && a.glu.layout != kernels::GluLayout::halves))
    return false;
  for (int t = 0; t < n_threads; ++t) {
    const kernels::Range cols = columns_of(a, t, n_threads);
    for (std::int64_t c = cols.begin; c < cols.end; c += block)
      if (gemm_of(a.m, std::min(block, cols.end - c), a.k) == nullptr) return false;
  }
  return true;
#else
  (void)a, (void)n_threads;
  return false;
#endif
}

std::size_t library_scratch_bytes(const kernels::LinearArgs& a, int n_threads) {
  return static_cast<std::size_t>(scratch_of_thread(a)) * static_cast<std::size_t>(n_threads);
}

void library_linear(const LibraryLinearArgs& args, int thread, int n_threads) {
#ifdef TOKAMAK_ONEDNN
  const kernels::LinearArgs& a = args.linear;
  float* const sums[2] = {
      reinterpret_cast<float*>(static_cast<char*>(a.scratch) + scratch_of_thread(a) * thread),
      reinterpret_cast<float*>(static_cast<char*>(a.scratch) + scratch_of_thread(a) * thread) +
          a.m * block};
  const kernels::Range cols = columns_of(a, thread, n_threads);
  for (std::int64_t c = cols.begin; c < cols.end;) {
    const std::int64_t n = std::min(block, cols.end - c);
    const std::shared_ptr<const Gemm> g = gemm_of(a.m, n, a.k);
    for (int q = 0; q < (a.gated ? 2 : 1); ++q)
      run_gemm(*g, a.x, static_cast<const bf16*>(a.w) + (c + q * (a.n / 2)) * a.k, sums[q]);
    kernels::finish_sums(a, {c, c + n}, sums[0], sums[1]);
    c += n;
  }
#else
  (void)args, (void)thread, (void)n_threads;
#endif
}

}  // namespace tk
