#include "cpu/kernels/rope.h"

#include "cpu/kernels/cache.h"
#include "cpu/kernels/test_util.h"

namespace tk::kernels::test {
namespace {

struct Case {
  std::int64_t t, h, d, d_rot, offset;
  DType x, table;
  RopeStyle style;
  bool full, in_place, positions = false, slots = false;
};

void check(const Case& c, int n_threads, const std::string& target) {
  const std::int64_t width = c.full ? c.d_rot : c.d_rot / 2, half = c.d_rot / 2, n_table = 50;
  const std::int64_t n_slots = c.t + 4;
  const Tensor x = random_tensor(c.x, {c.t, c.h, c.d}), x0 = to_dtype(x, DType::f32);
  const Tensor cos = random_tensor(c.table, {n_table, width});
  const Tensor sin = random_tensor(c.table, {n_table, width});
  const Tensor out = filled(c.x, {n_slots, c.h, c.d}, 9);
  const Tensor& y = c.in_place ? x : out;
  Tensor positions = Tensor::empty(DType::i32, {c.t}), slots = Tensor::empty(DType::i64, {c.t});
  for (std::int64_t i = 0; i < c.t; ++i) {
    set_element(positions, i, static_cast<double>((i * 7 + 3) % n_table));
    set_element(slots, i, static_cast<double>(i == 1 ? -1 : n_slots - 1 - i));
  }
  RopeArgs a;
  a.x = x.data, a.y = y.data, a.cos = cos.data, a.sin = sin.data;
  a.dtype = c.x, a.table_dtype = c.table, a.style = c.style, a.table_full = c.full;
  a.tokens = c.t, a.heads = c.h, a.d = c.d, a.d_rot = c.d_rot, a.rot_offset = c.offset;
  a.x_stride = a.y_stride = c.h * c.d, a.x_head_stride = a.y_head_stride = c.d;
  a.table_stride = width;
  if (c.positions) a.positions = positions.data, a.positions_dtype = DType::i32;
  if (c.slots) a.slots = slots.data, a.n_slots = n_slots;
  run(rope, a, n_threads);

  for (std::int64_t t = 0; t < c.t; ++t) {
    const std::int64_t row = c.positions ? (t * 7 + 3) % n_table : t;
    const std::int64_t to = c.slots ? (t == 1 ? -1 : n_slots - 1 - t) : t;
    if (to < 0) continue;
    for (std::int64_t h = 0; h < c.h; ++h) {
      const auto in = [&](std::int64_t j) { return element(x0, (t * c.h + h) * c.d + j); };
      std::vector<double> want;
      for (std::int64_t j = 0; j < c.d; ++j) want.push_back(in(j));
      for (std::int64_t j = 0; j < half; ++j) {
        const bool pairs_in = c.style != RopeStyle::half;
        const bool pairs_out = c.style == RopeStyle::interleaved;
        const std::int64_t ia = pairs_in ? 2 * j : j, ib = pairs_in ? 2 * j + 1 : j + half;
        const std::int64_t oa = pairs_out ? 2 * j : j, ob = pairs_out ? 2 * j + 1 : j + half;
        const std::int64_t ca = c.full ? oa : j, cb = c.full ? ob : j;
        const double av = in(c.offset + ia), bv = in(c.offset + ib);
        const auto table = [&](const Tensor& m, std::int64_t i) {
          return element(m, row * width + i);
        };
        want[static_cast<std::size_t>(c.offset + oa)] = av * table(cos, ca) - bv * table(sin, ca);
        want[static_cast<std::size_t>(c.offset + ob)] = bv * table(cos, cb) + av * table(sin, cb);
      }
      for (std::int64_t j = 0; j < c.d; ++j)
        expect_close(element(y, (to * c.h + h) * c.d + j), want[static_cast<std::size_t>(j)],
                     roundoff(c.x), 2e-7, target, " d_rot ", c.d_rot, " at ", t, ",", h, ",", j);
      if (::testing::Test::HasFailure()) return;
    }
  }
  if (c.slots) {
    EXPECT_EQ(element(y, 0), 9) << "a slot that is nobody's was written";
  }
}

TEST(rope, styles) {
  on_each_target([](const std::string& target) {
    for (RopeStyle style :
         {RopeStyle::half, RopeStyle::interleaved, RopeStyle::interleaved_to_half})
      for (DType x : float_types)
        for (bool full : {false, true})
          for (std::int64_t d_rot : {2, 10, 32, 64, 96}) {
            const DType table = x == DType::f16 ? DType::f32 : x;
            check({3, 2, d_rot, d_rot, 0, x, table, style, full, false}, 2, target);
            check({4, 3, d_rot + 9, d_rot, 0, x, DType::f32, style, full, false, true}, 5, target);
            check({4, 3, d_rot + 9, d_rot, 9, x, table, style, full, false, true, true}, 2, target);
            if (style != RopeStyle::interleaved_to_half)
              check({5, 3, d_rot + 3, d_rot, 3, x, table, style, full, true}, 3, target);
          }
  });
}

TEST(rope, longer_than_a_chunk) {
  check({2, 2, 1100, 1100, 0, DType::f32, DType::f32, RopeStyle::half, false, true}, 2, "best");
  check({2, 2, 1100, 1100, 0, DType::bf16, DType::f32, RopeStyle::interleaved, true, false}, 2,
        "best");
}

TEST(cache_write, scatters_and_converts) {
  on_each_target([](const std::string& target) {
    for (DType from : float_types)
      for (DType to : float_types) {
        const std::int64_t t = 5, h = 2, d = 37, n = 8;
        const Tensor x = random_tensor(from, {t, h, d}), cache = filled(to, {n, h, d}, 4);
        const std::int32_t slots[] = {3, -1, 7, 8, 0};
        CacheWriteArgs a;
        a.x = x.data, a.cache = cache.data, a.slots = slots, a.slots_dtype = DType::i32;
        a.dtype = from, a.cache_dtype = to, a.tokens = t, a.heads = h, a.d = d, a.n_slots = n;
        a.x_stride = a.slot_stride = h * d, a.x_head_stride = a.cache_head_stride = d;
        run(cache_write, a, 2);
        for (std::int64_t s = 0; s < n; ++s)
          for (std::int64_t i = 0; i < h * d; ++i) {
            double want = 4;
            for (std::int64_t k = 0; k < t; ++k)
              if (slots[k] == s) want = element(x, k * h * d + i);
            expect_close(element(cache, s * h * d + i), want, roundoff(to), 1e-7, target);
          }
      }
  });
}

}  // namespace
}  // namespace tk::kernels::test
