// Tensors as kernels see them: a pointer, a dtype, a shape and strides (in elements).
#pragma once

#include <array>
#include <cstdint>
#include <initializer_list>
#include <memory>
#include <span>
#include <string>

#include "base/dtype.h"

namespace tk {

constexpr int max_rank = 8;

// Up to eight integers, inline: a concrete shape or strides.
class Dims {
 public:
  Dims() = default;
  Dims(std::initializer_list<std::int64_t> values);
  explicit Dims(std::span<const std::int64_t> values);

  int size() const { return rank_; }
  bool empty() const { return rank_ == 0; }
  std::int64_t& operator[](int i) { return v_[static_cast<std::size_t>(i)]; }
  std::int64_t operator[](int i) const { return v_[static_cast<std::size_t>(i)]; }
  // Negative i counts from the end.
  std::int64_t at(int i) const;
  void push_back(std::int64_t value);
  void insert(int i, std::int64_t value);
  void erase(int i);
  const std::int64_t* begin() const { return v_.data(); }
  const std::int64_t* end() const { return v_.data() + rank_; }
  std::int64_t* begin() { return v_.data(); }
  std::int64_t* end() { return v_.data() + rank_; }
  std::int64_t back() const { return v_[static_cast<std::size_t>(rank_ - 1)]; }
  std::int64_t numel() const;
  std::string str() const;  // "[2, 3]"
  bool operator==(const Dims& other) const;

 private:
  std::array<std::int64_t, max_rank> v_{};
  int rank_ = 0;
};

Dims contiguous_strides(const Dims& shape);

struct TensorView {
  void* data = nullptr;
  DType dtype = DType::f32;
  Dims shape;
  Dims strides;  // in elements; 0 for an expanded axis

  int rank() const { return shape.size(); }
  std::int64_t numel() const { return shape.numel(); }
  std::int64_t bytes() const { return numel() * static_cast<std::int64_t>(size_of(dtype)); }
  bool contiguous() const;
  template <typename T>
  T* as() const {
    return static_cast<T*>(data);
  }
};

// A view with its storage kept alive.
struct Tensor : TensorView {
  std::shared_ptr<void> owner;

  static Tensor empty(DType dtype, const Dims& shape);  // 64-byte aligned, not initialised
  static Tensor zeros(DType dtype, const Dims& shape);
  static Tensor scalar(DType dtype, double value);
  static Tensor of(std::initializer_list<float> values);    // f32, rank 1
  static Tensor ids(std::span<const std::int64_t> values);  // i64, rank 1
};

// Element i of the logical (row-major) order, whatever the strides; slow, for tests and reports.
double element(const TensorView& t, std::int64_t i);
void set_element(const TensorView& t, std::int64_t i, double value);

// dst = src, converting dtypes; same shape; any strides.
void copy_into(const TensorView& dst, const TensorView& src);
Tensor contiguous(const TensorView& t);             // always a copy
Tensor to_dtype(const TensorView& t, DType dtype);  // a contiguous copy

}  // namespace tk
