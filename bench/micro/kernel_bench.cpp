// Speed of the kernels by themselves: `kernel_bench [threads] [filter] [cpu]`.
//
// With `cpu`, time is the processor time of the process (for one thread, on a busy machine).
// Decode shapes stream weights that lie far apart (a pool larger than the last cache), as one step
// after another does, and are related to the read bandwidth of memory, measured in the same rounds.
// Prefill shapes are related to nothing: GFLOP/s. Every figure is a median over interleaved rounds.
#include <algorithm>
#include <chrono>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <ctime>
#include <functional>
#include <string>
#include <vector>

#include "base/tensor.h"
#include "base/threads.h"
#include "cpu/kernels/attention.h"
#include "cpu/kernels/bandwidth.h"
#include "cpu/kernels/linear.h"

namespace {

using namespace tk;
using namespace tk::kernels;

double median(std::vector<double> v) {
  std::sort(v.begin(), v.end());
  return v[v.size() / 2];
}
double best(const std::vector<double>& v) { return *std::max_element(v.begin(), v.end()); }
bool by_cpu_time = false;
double now() {
  if (by_cpu_time) return static_cast<double>(std::clock()) / CLOCKS_PER_SEC;
  return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
}

// Anything to be timed: run() once, and what one run is worth.
struct Entry {
  std::string name, unit;
  double work;  // in units of 1e9, per run
  std::function<void()> run;
  std::vector<double> rates;
};

Tensor noise(DType dtype, const Dims& shape) {
  Tensor t = Tensor::empty(dtype, shape);
  std::uint32_t state = 1;
  const auto value = [&state] {
    state = state * 1664525U + 1013904223U;
    return static_cast<float>(state >> 8) / static_cast<float>(1U << 24) - 0.5F;
  };
  const std::int64_t n = t.numel();
  for (std::int64_t i = 0; i < n; ++i)
    if (dtype == DType::bf16)
      t.as<bf16>()[i] = to_bf16(value());
    else
      t.as<float>()[i] = value();
  return t;
}

struct Bench {
  Team team;
  Tensor pool;  // weights
  std::int64_t at = 0;
  std::vector<Tensor> kept;
  std::vector<Entry> entries;
  std::string filter;

  Bench(int n_threads, std::string f) : team(n_threads), filter(std::move(f)) {
    pool = noise(DType::bf16, {std::int64_t{192} << 20});
    ReadArgs args{nullptr, 96 << 20,
                  keep(Tensor::zeros(DType::i64, {8 * n_threads})).as<std::uint64_t>()};
    entries.push_back({"read",
                       "GB/s",
                       static_cast<double>(args.bytes) / 1e9,
                       [this, args]() mutable {
                         args.data = weight(args.bytes / 2);
                         team.run([&](int t) { read_all(args, t, team.size()); });
                       },
                       {}});
  }
  Tensor& keep(Tensor t) {
    kept.push_back(std::move(t));
    return kept.back();
  }
  // The next place in the pool with room for n elements of two bytes.
  char* weight(std::int64_t n) {
    if (at + n > pool.numel()) at = 0;
    char* p = pool.as<char>() + at * 2;
    at += n;
    return p;
  }

  void linear_entry(const std::string& shape, DType dtype, std::int64_t m, std::int64_t n,
                    std::int64_t k, bool gated, std::int64_t launches, bool packed = false) {
    if (dtype == DType::bf16 && !packed) linear_entry(shape, dtype, m, n, k, gated, launches, true);
    LinearArgs a;
    if (packed) a.layout = WeightLayout::packed;
    a.x = keep(noise(dtype, {m, k})).data;
    a.y = keep(Tensor::zeros(dtype, {m, n})).data;
    a.x_dtype = a.w_dtype = a.y_dtype = dtype;
    a.m = m, a.n = n, a.k = k, a.x_stride = a.w_stride = k, a.y_stride = gated ? n / 2 : n;
    a.gated = gated;
    a.scratch =
        keep(Tensor::empty(DType::u8,
                           {static_cast<std::int64_t>(linear_scratch_bytes(a, team.size())) + 64}))
            .data;
    const auto size = static_cast<std::int64_t>(size_of(dtype));
    const double l = static_cast<double>(launches);
    const double gb = l * static_cast<double>(n * k * size) / 1e9;
    const double gflop =
        l * 2.0 * static_cast<double>(m) * static_cast<double>(n) * static_cast<double>(k) / 1e9;
    const bool decode = m <= 16;
    char name[128];
    std::snprintf(name, sizeof(name), "%s m%ld n%ld k%ld %s%s%s", shape.c_str(), m, n, k,
                  dtype == DType::bf16 ? "bf16" : "f32", gated ? " swiglu" : "",
                  packed ? " packed" : "");
    if (std::string(name).find(filter) == std::string::npos) return;
    entries.push_back({name,
                       decode ? "GB/s" : "GFLOP/s",
                       decode ? gb : gflop,
                       [this, a, n, k, size, launches] {
                         std::vector<LinearArgs> list(static_cast<std::size_t>(launches), a);
                         for (LinearArgs& x : list) x.w = weight(n * k * size / 2);
                         team.run([&](int t) {
                           for (const LinearArgs& x : list) {
                             linear(x, t, team.size());
                             team.barrier().wait();
                           }
                         });
                       },
                       {}});
  }

  // A cache in blocks of 128 that lie in no order, or `contiguous`: one block.
  void attention_entry(std::int64_t q_len, std::int64_t kv_len, std::int64_t q_heads,
                       std::int64_t kv_heads, std::int64_t d, int layers, bool contiguous = false) {
    PagedAttentionArgs a;
    const std::int64_t block = contiguous ? kv_len : 128, blocks = (kv_len + block - 1) / block;
    const DType t = DType::bf16;
    a.q = keep(noise(t, {q_len, q_heads, d})).data;
    a.out = keep(Tensor::zeros(t, {q_len, q_heads, d})).data;
    a.dtype = a.cache_dtype = t;
    const std::int64_t cache = blocks * block * kv_heads * d;
    a.k = {nullptr, block * kv_heads * d, kv_heads * d, d};
    a.v = a.k;
    a.q_stride = a.out_stride = q_heads * d, a.q_head_stride = a.out_head_stride = d;
    Tensor& table = keep(Tensor::empty(DType::i32, {blocks}));
    for (std::int64_t i = 0; i < blocks; ++i)
      table.as<std::int32_t>()[i] = static_cast<std::int32_t>(i * 5 % blocks);  // 5: no divisor
    a.block_table = table.as<std::int32_t>();
    Tensor& lens = keep(Tensor::empty(DType::i32, {2}));
    lens.as<std::int32_t>()[0] = static_cast<std::int32_t>(q_len);
    lens.as<std::int32_t>()[1] = static_cast<std::int32_t>(kv_len);
    a.cu_q = lens.as<std::int32_t>(), a.kv_lens = lens.as<std::int32_t>() + 1;
    a.batch = 1, a.tokens = q_len, a.q_heads = q_heads, a.kv_heads = kv_heads, a.dk = a.dv = d;
    a.block_size = block, a.block_table_stride = blocks, a.max_kv_len = kv_len, a.scale = 0.1F;
    a.scratch =
        keep(Tensor::empty(
                 DType::u8,
                 {static_cast<std::int64_t>(paged_attention_scratch_bytes(a, team.size())) + 64}))
            .data;
    char name[128];
    std::snprintf(name, sizeof(name), "attention q%ld kv%ld heads %ld/%ld d%ld%s", q_len, kv_len,
                  q_heads, kv_heads, d, contiguous ? " contiguous" : "");
    if (std::string(name).find(filter) == std::string::npos) return;
    const bool decode = q_len <= 8;
    const double seen = q_len == kv_len ? 0.5 : 1.0;  // of the keys, causal
    const double work = decode ? static_cast<double>(2 * 2 * kv_len * kv_heads * d)
                               : 4.0 * seen * static_cast<double>(q_len * kv_len * q_heads * d);
    entries.push_back({name,
                       decode ? "GB/s" : "GFLOP/s",
                       work * layers / 1e9,
                       [this, a, cache, layers] {
                         std::vector<PagedAttentionArgs> list(static_cast<std::size_t>(layers), a);
                         for (PagedAttentionArgs& x : list)
                           x.k.data = weight(cache), x.v.data = weight(cache);
                         team.run([&](int i) {
                           for (const PagedAttentionArgs& x : list) {
                             paged_attention(x, i, team.size());
                             team.barrier().wait();
                             paged_attention_combine(x, i, team.size());
                             team.barrier().wait();
                           }
                         });
                       },
                       {}});
  }

  void measure(int rounds) {
    for (int i = 0; i < rounds; ++i)
      for (Entry& e : entries) {
        const double start = now();
        e.run();
        e.rates.push_back(e.work / (now() - start));
      }
    const char* target = std::getenv("TOKAMAK_TARGET");
    std::printf("%s, %d threads%s, %d rounds; best and median\n",
                target != nullptr ? target : best_target(), team.size(),
                by_cpu_time ? ", processor time" : "", rounds);
    const double read = median(entries[0].rates), best_read = best(entries[0].rates);
    for (const Entry& e : entries) {
      std::printf("%-44s %8.1f %8.1f %-7s", e.name.c_str(), best(e.rates), median(e.rates),
                  e.unit.c_str());
      if (e.unit == "GB/s")
        std::printf("  %.2f %.2f of read", best(e.rates) / best_read, median(e.rates) / read);
      std::printf("\n");
    }
  }
};

}  // namespace

int main(int argc, char** argv) {
  const int n_threads = argc > 1 ? std::atoi(argv[1]) : 2;
  const char* target = std::getenv("TOKAMAK_TARGET");
  if (target != nullptr && !force_target(target)) {
    std::fprintf(stderr, "TOKAMAK_TARGET=%s is not on this machine; best is %s\n", target,
                 best_target());
    return 2;
  }
  by_cpu_time = argc > 3;
  Bench b(n_threads < 1 ? 1 : n_threads, argc > 2 ? argv[2] : "");
  for (const std::int64_t m : {1, 4, 8, 16}) {
    b.linear_entry("135M qkv", DType::bf16, m, 960, 576, false, 40);
    b.linear_entry("135M o", DType::bf16, m, 576, 576, false, 60);
    b.linear_entry("135M gate-up", DType::bf16, m, 3072, 576, true, 15);
    b.linear_entry("135M down", DType::bf16, m, 576, 1536, false, 30);
    b.linear_entry("135M head", DType::bf16, m, 49152, 576, false, 1);
    b.linear_entry("1.1B gate-up", DType::bf16, m, 11264, 2048, true, 1);
    b.linear_entry("1.1B down", DType::bf16, m, 2048, 5632, false, 2);
    if (m <= 4) b.linear_entry("135M gate-up", DType::f32, m, 3072, 576, true, 8);
  }
  for (const std::int64_t m : {32, 64, 128, 512}) {
    b.linear_entry("135M qkv", DType::bf16, m, 960, 576, false, 4);
    b.linear_entry("135M gate-up", DType::bf16, m, 3072, 576, true, 2);
    b.linear_entry("135M down", DType::bf16, m, 576, 1536, false, 4);
    b.linear_entry("1.1B gate-up", DType::bf16, m, 11264, 2048, true, 1);
    b.linear_entry("1.1B down", DType::bf16, m, 2048, 5632, false, 1);
    if (m == 512) b.linear_entry("135M gate-up", DType::f32, m, 3072, 576, true, 1);
  }
  b.attention_entry(1, 512, 9, 3, 64, 30);
  b.attention_entry(1, 4096, 9, 3, 64, 30);
  b.attention_entry(1, 4096, 32, 4, 64, 8);
  b.attention_entry(1, 4096, 32, 8, 128, 4);
  b.attention_entry(1, 4096, 9, 3, 64, 30, true);
  b.attention_entry(1, 4096, 32, 4, 64, 8, true);
  b.attention_entry(1, 4096, 32, 8, 128, 4, true);
  b.attention_entry(512, 512, 9, 3, 64, 4);
  b.attention_entry(1024, 1024, 32, 8, 128, 1);
  b.measure(15);
  return 0;
}
