// Work along some axes of a tensor: rows of elements that belong together.
#pragma once

#include "ops/view.h"

namespace tk::ops {

// A line of elements: `size` of them, `stride` apart.
struct Line {
  std::int64_t offset, size, stride;
};

// f(offsets) for the start of each line along `dim`, in row-major order of the other axes; the
// operands agree in all axes but `dim`.
template <std::size_t N, typename F>
void for_lines(const std::array<TensorView, N>& operands, int dim, F f) {
  Dims shape = operands[0].shape;
  std::array<Dims, N> strides;
  for (std::size_t k = 0; k < N; ++k) {
    strides[k] = operands[k].strides;
    if (shape.size() > 0) strides[k].erase(dim);
  }
  if (shape.size() > 0) shape.erase(dim);
  for_blocks<N>(shape, strides, [&](const auto& at, const auto& step, int n) {
    for (int i = 0; i < n; ++i) {
      Offsets<N> offsets;
      for (std::size_t k = 0; k < N; ++k) offsets[k] = at[k] + i * step[k];
      f(offsets);
    }
  });
}

inline std::int64_t line_size(const TensorView& t, int dim) {
  return t.rank() == 0 ? 1 : t.shape[dim];
}
inline std::int64_t line_stride(const TensorView& t, int dim) {
  return t.rank() == 0 ? 1 : t.strides[dim];
}

// A line, read into or written from contiguous memory.
template <typename C>
void read_line(const TensorView& t, Line line, C* to) {
  for (std::int64_t i = 0; i < line.size; i += block) {
    const int n = static_cast<int>(std::min<std::int64_t>(block, line.size - i));
    const C* p = load(t, line.offset + i * line.stride, line.stride, n, to + i);
    if (p != to + i) std::copy(p, p + n, to + i);
  }
}
template <typename C>
void write_line(const TensorView& t, Line line, const C* from) {
  for (std::int64_t i = 0; i < line.size; i += block) {
    const int n = static_cast<int>(std::min<std::int64_t>(block, line.size - i));
    store(t, line.offset + i * line.stride, line.stride, n, from + i);
  }
}

// f(i, part) for each place i that is left when `gone` axes are reduced, in row-major order; part
// views the elements that are reduced to it.
template <typename F>
void for_reduced(const TensorView& t, const std::vector<int>& gone, F f) {
  TensorView kept = t;
  TensorView part = t;
  kept.shape = kept.strides = part.shape = part.strides = {};
  for (int i = 0; i < t.rank(); ++i) {
    const bool goes = std::find(gone.begin(), gone.end(), i) != gone.end();
    TensorView& to = goes ? part : kept;
    to.shape.push_back(t.shape[i]);
    to.strides.push_back(t.strides[i]);
  }
  std::int64_t place = 0;
  for_blocks<1>(kept.shape, {kept.strides}, [&](const auto& at, const auto& step, int n) {
    for (int i = 0; i < n; ++i) {
      part.data = moved(t, at[0] + i * step[0]).data;
      f(place++, part);
    }
  });
}

// f(values, n) over all elements of t in row-major order, computed in C.
template <typename C, typename F>
void for_values(const TensorView& t, F f) {
  std::array<C, block> buffer;
  for_blocks<1>(t.shape, {t.strides}, [&](const auto& at, const auto& step, int n) {
    f(load(t, at[0], step[0], n, buffer.data()), n);
  });
}

// Element i of a contiguous result.
template <typename C>
void store_one(const TensorView& out, std::int64_t i, C value) {
  store(out, i, 1, 1, &value);
}

// The shape that is left when axes are reduced.
SymDims reduced_shape(const SymDims& shape, const std::vector<int>& gone, bool keepdim);
// Shape after reduction over `dim` (int, list or None) with `keepdim`.
SymDims reduced_shape(const Args& args);

}  // namespace tk::ops
