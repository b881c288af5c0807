#include "cpu/kernels/bandwidth.h"

#include <unistd.h>

#include <algorithm>
#include <chrono>
#include <functional>
#include <vector>

#include "base/tensor.h"
#include "base/threads.h"

#undef HWY_TARGET_INCLUDE
#define HWY_TARGET_INCLUDE "cpu/kernels/bandwidth.cpp"
#include "hwy/foreach_target.h"
//
#include "hwy/cache_control.h"
#include "hwy/highway.h"

HWY_BEFORE_NAMESPACE();
namespace tk::kernels {
namespace HWY_NAMESPACE {

namespace hn = hwy::HWY_NAMESPACE;

// Four streams per thread, which is what keeps most cache misses in flight on the machines tried.
std::uint64_t read_range(const std::uint64_t* data, std::int64_t n) {
  const hn::ScalableTag<std::uint64_t> d;
  const auto lanes = static_cast<std::int64_t>(HWY_LANES(std::uint64_t));
  const std::int64_t quarter = n / 4 / lanes * lanes;
  auto s0 = hn::Zero(d), s1 = s0, s2 = s0, s3 = s0;
  for (std::int64_t i = 0; i < quarter; i += lanes) {
    s0 = hn::Xor(s0, hn::LoadU(d, data + i));
    s1 = hn::Xor(s1, hn::LoadU(d, data + quarter + i));
    s2 = hn::Xor(s2, hn::LoadU(d, data + 2 * quarter + i));
    s3 = hn::Xor(s3, hn::LoadU(d, data + 3 * quarter + i));
  }
  HWY_ALIGN std::uint64_t all[HWY_LANES(std::uint64_t)];
  hn::Store(hn::Xor(hn::Xor(s0, s1), hn::Xor(s2, s3)), d, all);
  std::uint64_t total = 0;
  for (std::uint64_t v : all) total ^= v;
  for (std::int64_t i = 4 * quarter; i < n; ++i) total ^= data[i];
  return total;
}

}  // namespace HWY_NAMESPACE
}  // namespace tk::kernels
HWY_AFTER_NAMESPACE();

#if HWY_ONCE
namespace tk::kernels {

HWY_EXPORT(read_range);

void read_all(const ReadArgs& a, int thread, int n_threads) {
  const Range part = share(a.bytes / 8, 512, thread, n_threads);
  a.sink[std::ptrdiff_t{8} * thread] = HWY_DYNAMIC_DISPATCH(read_range)(
      static_cast<const std::uint64_t*>(a.data) + part.begin, part.end - part.begin);
}

double measure_read_bandwidth(int n_threads, std::size_t bytes, int rounds) {
  if (bytes == 0) {
    const auto cache = sysconf(_SC_LEVEL3_CACHE_SIZE);  // 0 or -1 where the system does not say
    bytes = std::clamp<std::size_t>(cache > 0 ? 8 * static_cast<std::size_t>(cache) : 0,
                                    std::size_t{1} << 28, std::size_t{1} << 30);
  }
  const Tensor buffer = Tensor::empty(DType::u8, {static_cast<std::int64_t>(bytes)});
  std::vector<std::uint64_t> sink(static_cast<std::size_t>(n_threads) * 8);
  const ReadArgs args{buffer.data, buffer.bytes(), sink.data()};
  Team team(n_threads);
  // Touched by the threads that will read it, so that its pages lie near them.
  team.run([&](int thread) {
    const Range part = share(args.bytes / 8, 512, thread, n_threads);
    std::fill(buffer.as<std::uint64_t>() + part.begin, buffer.as<std::uint64_t>() + part.end, 1);
  });
  std::vector<double> seconds;
  for (int i = 0; i < rounds; ++i) {
    const auto start = std::chrono::steady_clock::now();
    team.run([&](int thread) { read_all(args, thread, n_threads); });
    seconds.push_back(
        std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count());
  }
  std::sort(seconds.begin(), seconds.end());
  return static_cast<double>(bytes) / seconds[seconds.size() / 2];
}

}  // namespace tk::kernels
#endif
