#include "base/tensor.h"

#include <algorithm>
#include <cstdlib>
#include <cstring>

#include "base/error.h"

namespace tk {

Dims::Dims(std::initializer_list<std::int64_t> values)
    : Dims(std::span<const std::int64_t>(values.begin(), values.size())) {}

Dims::Dims(std::span<const std::int64_t> values) {
  if (values.size() > max_rank)
    throw UserError("TK0301", cat("a tensor of rank ", values.size(), " is not supported"))
        .help(cat("ranks up to ", max_rank, " are"));
  for (auto v : values) v_[static_cast<std::size_t>(rank_++)] = v;
}

std::int64_t Dims::at(int i) const {
  if (i < 0) i += rank_;
  TK_CHECK(i >= 0 && i < rank_, "axis out of range");
  return v_[static_cast<std::size_t>(i)];
}

void Dims::push_back(std::int64_t value) { insert(rank_, value); }

void Dims::insert(int i, std::int64_t value) {
  if (rank_ == max_rank)
    throw UserError("TK0301", cat("a tensor of rank ", rank_ + 1, " is not supported"))
        .help(cat("ranks up to ", max_rank, " are"));
  for (int j = rank_; j > i; --j)
    v_[static_cast<std::size_t>(j)] = v_[static_cast<std::size_t>(j - 1)];
  v_[static_cast<std::size_t>(i)] = value;
  ++rank_;
}

void Dims::erase(int i) {
  std::copy(begin() + i + 1, end(), begin() + i);
  --rank_;
}

std::int64_t Dims::numel() const {
  std::int64_t n = 1;
  bool overflow = false;
  for (auto d : *this) overflow |= __builtin_mul_overflow(n, d, &n);
  // A zero makes any shape small, so it is looked for only when the product went wrong.
  if (overflow) {
    if (std::find(begin(), end(), 0) != end()) return 0;
    throw UserError("TK0304", cat("the size of a tensor ", str(), " overflows 64 bits"));
  }
  return n;
}

std::string Dims::str() const {
  std::string s = "[";
  for (int i = 0; i < rank_; ++i) s += cat(i != 0 ? ", " : "", (*this)[i]);
  return s + "]";
}

bool Dims::operator==(const Dims& other) const {
  return std::equal(begin(), end(), other.begin(), other.end());
}

Dims contiguous_strides(const Dims& shape) {
  Dims strides = shape;
  std::int64_t step = 1;
  for (int i = shape.size() - 1; i >= 0; --i) {
    strides[i] = step;
    // May wrap for a size that overflows: numel() is what reports it.
    step = static_cast<std::int64_t>(static_cast<std::uint64_t>(step) *
                                     static_cast<std::uint64_t>(shape[i]));
  }
  return strides;
}

bool TensorView::contiguous() const {
  std::int64_t step = 1;
  for (int i = rank() - 1; i >= 0; --i) {
    if (shape[i] != 1 && strides[i] != step) return false;
    step *= shape[i];
  }
  return true;
}

Tensor Tensor::empty(DType dtype, const Dims& shape) {
  Tensor t;
  t.dtype = dtype;
  t.shape = shape;
  t.strides = contiguous_strides(shape);
  // Far below where bytes() would overflow, far above any machine's memory.
  constexpr std::int64_t most_elements = std::int64_t{1} << 50;
  const bool possible = shape.numel() <= most_elements &&
                        std::all_of(shape.begin(), shape.end(), [](auto d) { return d >= 0; });
  const std::int64_t bytes = possible ? (std::max<std::int64_t>(t.bytes(), 1) + 63) / 64 * 64 : 0;
  void* p = possible ? std::aligned_alloc(64, static_cast<std::size_t>(bytes)) : nullptr;
  if (p == nullptr)
    throw UserError("TK0500", cat("no memory for a tensor ", shape.str(), " of ", name_of(dtype)));
  t.owner = std::shared_ptr<void>(p, std::free);
  t.data = p;
  return t;
}

Tensor Tensor::zeros(DType dtype, const Dims& shape) {
  Tensor t = empty(dtype, shape);
  std::memset(t.data, 0, static_cast<std::size_t>(t.bytes()));
  return t;
}

Tensor Tensor::scalar(DType dtype, double value) {
  Tensor t = empty(dtype, {});
  set_element(t, 0, value);
  return t;
}

Tensor Tensor::of(std::initializer_list<float> values) {
  Tensor t = empty(DType::f32, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as<float>());
  return t;
}

Tensor Tensor::ids(std::span<const std::int64_t> values) {
  Tensor t = empty(DType::i64, {static_cast<std::int64_t>(values.size())});
  std::copy(values.begin(), values.end(), t.as<std::int64_t>());
  return t;
}

namespace {

std::int64_t offset_of(const TensorView& t, std::int64_t i) {
  std::int64_t offset = 0;
  for (int axis = t.rank() - 1; axis >= 0; --axis) {
    offset += i % t.shape[axis] * t.strides[axis];
    i /= t.shape[axis];
  }
  return offset;
}

double load(const void* data, DType dtype, std::int64_t i) {
  switch (dtype) {
    case DType::f32:
      return static_cast<const float*>(data)[i];
    case DType::f16:
      return to_float(static_cast<const f16*>(data)[i]);
    case DType::bf16:
      return to_float(static_cast<const bf16*>(data)[i]);
    case DType::f64:
      return static_cast<const double*>(data)[i];
    case DType::i64:
      return static_cast<double>(static_cast<const std::int64_t*>(data)[i]);
    case DType::i32:
      return static_cast<const std::int32_t*>(data)[i];
    case DType::i16:
      return static_cast<const std::int16_t*>(data)[i];
    case DType::i8:
      return static_cast<const std::int8_t*>(data)[i];
    case DType::u8:
    case DType::boolean:
      return static_cast<const std::uint8_t*>(data)[i];
    case DType::c64:
      return static_cast<const float*>(data)[2 * i];
  }
  return 0;
}

void store(void* data, DType dtype, std::int64_t i, double v) {
  switch (dtype) {
    case DType::f32:
      static_cast<float*>(data)[i] = static_cast<float>(v);
      break;
    case DType::f16:
      static_cast<f16*>(data)[i] = to_f16(static_cast<float>(v));
      break;
    case DType::bf16:
      static_cast<bf16*>(data)[i] = to_bf16(static_cast<float>(v));
      break;
    case DType::f64:
      static_cast<double*>(data)[i] = v;
      break;
    case DType::i64:
      static_cast<std::int64_t*>(data)[i] = static_cast<std::int64_t>(v);
      break;
    case DType::i32:
      static_cast<std::int32_t*>(data)[i] = static_cast<std::int32_t>(v);
      break;
    case DType::i16:
      static_cast<std::int16_t*>(data)[i] = static_cast<std::int16_t>(v);
      break;
    case DType::i8:
      static_cast<std::int8_t*>(data)[i] = static_cast<std::int8_t>(v);
      break;
    case DType::u8:
      static_cast<std::uint8_t*>(data)[i] = static_cast<std::uint8_t>(v);
      break;
    case DType::boolean:
      static_cast<std::uint8_t*>(data)[i] = v != 0;
      break;
    case DType::c64:
      static_cast<float*>(data)[2 * i] = static_cast<float>(v);
      static_cast<float*>(data)[2 * i + 1] = 0;
      break;
  }
}

// Walks rows (the last axis) of two views of equal shape.
template <typename F>
void for_rows(const TensorView& a, const TensorView& b, F row) {
  const int rank = a.rank();
  if (a.numel() == 0) return;
  const std::int64_t n = rank == 0 ? 1 : a.shape[rank - 1];
  const std::int64_t rows = a.numel() / n;
  Dims index = a.shape;
  for (auto& i : index) i = 0;
  std::int64_t oa = 0;
  std::int64_t ob = 0;
  for (std::int64_t r = 0; r < rows; ++r) {
    row(oa, ob, n);
    for (int axis = rank - 2; axis >= 0; --axis) {
      oa += a.strides[axis];
      ob += b.strides[axis];
      if (++index[axis] < a.shape[axis]) break;
      oa -= a.strides[axis] * a.shape[axis];
      ob -= b.strides[axis] * b.shape[axis];
      index[axis] = 0;
    }
  }
}

template <typename T>
void copy_same(const TensorView& dst, const TensorView& src) {
  const std::int64_t sd = dst.rank() == 0 ? 1 : dst.strides.back();
  const std::int64_t ss = src.rank() == 0 ? 1 : src.strides.back();
  for_rows(dst, src, [&](std::int64_t od, std::int64_t os, std::int64_t n) {
    T* d = dst.as<T>() + od;
    const T* s = src.as<T>() + os;
    if (sd == 1 && ss == 1) {
      std::memcpy(d, s, static_cast<std::size_t>(n) * sizeof(T));
    } else {
      for (std::int64_t i = 0; i < n; ++i) d[i * sd] = s[i * ss];
    }
  });
}

}  // namespace

double element(const TensorView& t, std::int64_t i) {
  return load(t.data, t.dtype, offset_of(t, i));
}
void set_element(const TensorView& t, std::int64_t i, double value) {
  store(t.data, t.dtype, offset_of(t, i), value);
}

void copy_into(const TensorView& dst, const TensorView& src) {
  TK_CHECK(dst.shape == src.shape, dst.shape.str(), " and ", src.shape.str());
  if (dst.dtype == src.dtype) {
    switch (size_of(dst.dtype)) {
      case 1:
        return copy_same<std::uint8_t>(dst, src);
      case 2:
        return copy_same<std::uint16_t>(dst, src);
      case 4:
        return copy_same<std::uint32_t>(dst, src);
      default:
        return copy_same<std::uint64_t>(dst, src);
    }
  }
  const std::int64_t sd = dst.rank() == 0 ? 1 : dst.strides.back();
  const std::int64_t ss = src.rank() == 0 ? 1 : src.strides.back();
  for_rows(dst, src, [&](std::int64_t od, std::int64_t os, std::int64_t n) {
    if (src.dtype == DType::bf16 && dst.dtype == DType::f32) {
      for (std::int64_t i = 0; i < n; ++i)
        dst.as<float>()[od + i * sd] = to_float(src.as<bf16>()[os + i * ss]);
    } else if (src.dtype == DType::f32 && dst.dtype == DType::bf16) {
      for (std::int64_t i = 0; i < n; ++i)
        dst.as<bf16>()[od + i * sd] = to_bf16(src.as<float>()[os + i * ss]);
    } else {
      for (std::int64_t i = 0; i < n; ++i)
        store(dst.data, dst.dtype, od + i * sd, load(src.data, src.dtype, os + i * ss));
    }
  });
}

Tensor contiguous(const TensorView& t) { return to_dtype(t, t.dtype); }

Tensor to_dtype(const TensorView& t, DType dtype) {
  Tensor out = Tensor::empty(dtype, t.shape);
  copy_into(out, t);
  return out;
}

}  // namespace tk
