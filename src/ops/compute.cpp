#include "ops/compute.h"

#include <atomic>
#include <cmath>
#include <exception>
#include <limits>
#include <thread>

#include "base/threads.h"

namespace tk::ops {
namespace {

template <typename T>
constexpr bool is_complex = std::is_same_v<T, Complex>;

template <typename F>
std::int64_t to_int(F v) {
  constexpr F limit = static_cast<F>(9223372036854775808.0);
  if (v >= -limit && v < limit) return static_cast<std::int64_t>(v);
  return std::numeric_limits<std::int64_t>::min();
}

// Storage type to computing type.
template <typename C, typename T>
C widen(T v) {
  if constexpr (std::is_same_v<T, bf16> || std::is_same_v<T, f16>) {
    return widen<C>(to_float(v));
  } else if constexpr (is_complex<T>) {
    if constexpr (is_complex<C>) {
      return v;
    } else {
      return widen<C>(v.real());
    }
  } else if constexpr (is_complex<C>) {
    return C(static_cast<float>(v), 0);
  } else if constexpr (std::is_floating_point_v<T> && std::is_integral_v<C>) {
    return to_int(v);
  } else {
    return static_cast<C>(v);
  }
}

// Computing type to storage type; bool is handled by the caller.
template <typename T, typename C>
T narrow(C v) {
  if constexpr (is_complex<C>) {
    if constexpr (is_complex<T>) {
      return v;
    } else {
      return narrow<T>(v.real());
    }
  } else if constexpr (is_complex<T>) {
    return T(static_cast<float>(v), 0);
  } else if constexpr (std::is_same_v<T, bf16>) {
    return to_bf16(static_cast<float>(v));
  } else if constexpr (std::is_same_v<T, f16>) {
    return to_f16(static_cast<float>(v));
  } else if constexpr (std::is_integral_v<T> && std::is_floating_point_v<C>) {
    return static_cast<T>(to_int(v));
  } else {
    return static_cast<T>(v);
  }
}

template <typename F>
void with_storage(DType dtype, F f) {
  switch (dtype) {
    case DType::f32:
      return f(float{});
    case DType::f16:
      return f(f16{});
    case DType::bf16:
      return f(bf16{});
    case DType::f64:
      return f(double{});
    case DType::i64:
      return f(std::int64_t{});
    case DType::i32:
      return f(std::int32_t{});
    case DType::i16:
      return f(std::int16_t{});
    case DType::i8:
      return f(std::int8_t{});
    case DType::u8:
    case DType::boolean:
      return f(std::uint8_t{});
    case DType::c64:
      return f(Complex{});
  }
}

template <typename C>
bool is_native(DType d) {
  if constexpr (std::is_same_v<C, float>) return d == DType::f32;
  if constexpr (std::is_same_v<C, double>) return d == DType::f64;
  if constexpr (std::is_same_v<C, std::int64_t>) return d == DType::i64;
  return d == DType::c64;
}

}  // namespace

template <typename C>
const C* load(const TensorView& t, std::int64_t offset, std::int64_t stride, int n, C* buffer) {
  if (stride == 1 && is_native<C>(t.dtype)) return t.as<const C>() + offset;
  with_storage(t.dtype, [&](auto tag) {
    using T = decltype(tag);
    const T* p = t.as<const T>() + offset;
    if (stride == 1) {
      for (int i = 0; i < n; ++i) buffer[i] = widen<C>(p[i]);
    } else if (stride == 0) {
      std::fill(buffer, buffer + n, widen<C>(*p));
    } else {
      for (int i = 0; i < n; ++i) buffer[i] = widen<C>(p[i * stride]);
    }
  });
  return buffer;
}

template <typename C>
void store(const TensorView& t, std::int64_t offset, std::int64_t stride, int n, const C* values) {
  if (t.dtype == DType::boolean) {
    auto* p = t.as<std::uint8_t>() + offset;
    for (int i = 0; i < n; ++i) p[i * stride] = values[i] != C(0) ? 1 : 0;
    return;
  }
  with_storage(t.dtype, [&](auto tag) {
    using T = decltype(tag);
    T* p = t.as<T>() + offset;
    if (stride == 1) {
      for (int i = 0; i < n; ++i) p[i] = narrow<T>(values[i]);
    } else {
      for (int i = 0; i < n; ++i) p[i * stride] = narrow<T>(values[i]);
    }
  });
}

template <typename C>
C* in_place(const TensorView& t, std::int64_t offset, std::int64_t stride) {
  return stride == 1 && is_native<C>(t.dtype) ? t.as<C>() + offset : nullptr;
}

#define TK_INSTANTIATE(C)                                                            \
  template const C* load(const TensorView&, std::int64_t, std::int64_t, int, C*);    \
  template void store(const TensorView&, std::int64_t, std::int64_t, int, const C*); \
  template C* in_place(const TensorView&, std::int64_t, std::int64_t);
TK_INSTANTIATE(float)
TK_INSTANTIATE(double)
TK_INSTANTIATE(std::int64_t)
TK_INSTANTIATE(Complex)
#undef TK_INSTANTIATE

TensorView expand(const TensorView& t, const Dims& shape) {
  TensorView out = t;
  out.shape = shape;
  out.strides = shape;
  const int lead = shape.size() - t.rank();
  bool fits = lead >= 0;
  for (int i = 0; fits && i < shape.size(); ++i) {
    const std::int64_t size = i < lead ? 1 : t.shape[i - lead];
    fits = size == 1 || size == shape[i];
    out.strides[i] = size == 1 ? 0 : t.strides[i - lead];
  }
  if (!fits)
    throw UserError("TK0505", cat(t.shape.str(), " does not broadcast to ", shape.str()))
        .note("the graph's symbolic sizes say otherwise");
  return out;
}

Tensor number(const Attr& attr, const SymEnv& env) {
  if (const auto* d = std::get_if<double>(&attr)) {
    Tensor t = Tensor::empty(DType::f64, {});
    *t.as<double>() = *d;
    return t;
  }
  if (const auto* b = std::get_if<bool>(&attr)) {
    Tensor t = Tensor::empty(DType::boolean, {});
    *t.as<std::uint8_t>() = *b ? 1 : 0;
    return t;
  }
  const auto* s = std::get_if<Sym>(&attr);
  if (s == nullptr) throw UserError("TK0311", cat("expected a number, got ", str(attr)));
  Tensor t = Tensor::empty(DType::i64, {});
  *t.as<std::int64_t>() = s->eval(env);
  return t;
}

void cast(const TensorView& out, const TensorView& t) {
  if (out.dtype == t.dtype) return copy_into(out, t);
  with_math(t.dtype, [&](auto tag) { map<decltype(tag), 1>(out, {t}, [](auto v) { return v; }); });
}

Tensor cast_to(const TensorView& t, DType dtype) {
  Tensor out = Tensor::empty(dtype, t.shape);
  cast(out, t);
  return out;
}

Tensor as_dtype(const TensorView& t, DType dtype) {
  if (t.dtype == dtype) return Tensor{t, nullptr};
  return cast_to(t, dtype);
}

Tensor operand(const EvalArgs& args, const Operand& o, DType dtype, bool exact_scalars) {
  if (args.has(o.input)) {
    const TensorView& t = args.in(o.input);
    const bool keep = exact_scalars && t.rank() == 0 && is_float(dtype) && is_float(t.dtype);
    return keep ? Tensor{t, nullptr} : as_dtype(t, dtype);
  }
  const Attr* a = args.attr(o.name);
  TK_CHECK(a != nullptr, args.op().name, " needs '", o.name, "'");
  Tensor t = number(*a, args.env());
  return exact_scalars || t.dtype == dtype ? t : cast_to(t, dtype);
}

void parallel(std::int64_t n, std::int64_t work,
              const std::function<void(std::int64_t, std::int64_t)>& f) {
  constexpr std::int64_t worth_it = 1
                                    << 23;  // about a millisecond; less than waking a thread may be
  static Team team(static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 64U)));
  static std::atomic<bool> busy{false};
  if (n < 2 || work < worth_it || team.size() == 1 ||
      busy.exchange(true, std::memory_order_acquire))
    return f(0, n);
  std::vector<std::exception_ptr> errors(static_cast<std::size_t>(team.size()));
  team.run([&](int thread) {
    const std::int64_t begin = n * thread / team.size();
    const std::int64_t end = n * (thread + 1) / team.size();
    try {
      if (begin < end) f(begin, end);
    } catch (...) {
      errors[static_cast<std::size_t>(thread)] = std::current_exception();
    }
  });
  busy.store(false, std::memory_order_release);
  for (const auto& e : errors)
    if (e != nullptr) std::rethrow_exception(e);
}

void bad_index(const EvalArgs& args, std::int64_t index, std::int64_t size, std::string_view what) {
  throw UserError("TK0501", cat(args.op().name, ": ", what, " ", index,
                                " is out of range for a size of ", size));
}

std::int64_t checked_index(const EvalArgs& args, std::int64_t index, std::int64_t size,
                           bool wraps) {
  if (index < (wraps ? -size : 0) || index >= size) bad_index(args, index, size);
  return index < 0 ? index + size : index;
}

}  // namespace tk::ops
