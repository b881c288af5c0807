// How a step of a bound plan becomes launches: kernels are tried in the order of kernels.def, the
// operator's reference comes last.
#pragma once

#include <string>
#include <type_traits>

#include "cpu/launch.h"
#include "plan/bind.h"

namespace tk {

namespace detail {
template <typename F>
struct KernelArgs;
template <typename A>
struct KernelArgs<void (*)(const A&, int, int)> {
  using type = A;
};
}  // namespace detail

// One step with everything known, and where its launches go.
class Prepare {
 public:
  // constant, packed: of each input; see below.
  Prepare(const Node& node, const EvalArgs& args, std::span<const bool> constant,
          std::span<const bool> packed, int n_threads, LaunchList* list);

  const Node& node;
  const EvalArgs& args;  // sizes, strides, attributes; the memory is in place but not yet filled
  const int n_threads;
  const TensorView& in(int i) const { return args.in(i); }
  const TensorView& out(int i = 0) const { return args.out(i); }
  bool has(int i) const { return args.has(i); }
  // Whether input i is a weight or was computed from weights: its contents may be read.
  bool constant(int i) const { return constant_[static_cast<std::size_t>(i)]; }

  // Whether input i is a weight in the layout of kernels::pack_weight; only what asks may read it.
  bool packed(int i) const { return packed_[static_cast<std::size_t>(i)]; }

  // Adds a launch of a kernel and returns its args to be filled. `bytes` is what it moves.
  template <auto Kernel>
  auto& launch(const char* name, std::int64_t bytes) {
    using A = typename detail::KernelArgs<decltype(Kernel)>::type;
    static_assert(std::is_trivially_destructible_v<A>);
    A* a = new (list_->store.get(sizeof(A))) A();
    add({.fn = &call<Kernel>, .args = a, .node = &node, .kernel = name, .bytes = bytes});
    return *a;
  }
  // A launch on thread 0 that checks the contents of the node's inputs `of`. One that checks the
  // same inputs of the graph is enough for a run.
  template <auto Kernel, class A = typename detail::KernelArgs<decltype(Kernel)>::type>
  void check(const char* name, std::int64_t bytes, std::span<const int> of, const A& a) {
    bool fixed = true;  // results of nodes share memory, so an equal address proves nothing
    for (const int i : of) fixed &= node.in(i)->kind == ValueKind::input;
    if (fixed)
      for (const Launch& l : list_->launches)
        if (l.fn == &call<Kernel> && *static_cast<const A*>(l.args) == a) return;
    launch<Kernel>(name, bytes) = a;
    last().serial = true;
  }
  // A launch of this kernel so far that `fits`, or null.
  template <auto Kernel, typename Fits>
  const Launch* find(const Fits& fits) const {
    for (const Launch& l : list_->launches)
      if (l.fn == &call<Kernel> && fits(l)) return &l;
    return nullptr;
  }
  Launch& last() { return list_->launches.back(); }

  // *pointer will lead to `bytes` of memory that the launches of this step have to themselves.
  template <typename T>
  void scratch(T** pointer, std::size_t bytes) {
    lend(pointer, bytes);
  }
  // *pointer will lead to the same memory as *other, lent before.
  template <typename T, typename U>
  void share_scratch(T** pointer, U* const* other) {
    share(pointer, other);
  }
  // The launch streams this constant from memory; *next and *bytes will be what the launch that
  // streams after it wants, as a hint for prefetching.
  void streams(const void** next, std::int64_t* bytes, const TensorView& constant);
  // Whether nothing reads output i.
  bool unused(int i) const { return node.out(i)->uses.empty(); }
  // Memory that lives as long as the launches: small tables, views.
  template <typename T>
  T* keep(std::size_t n) {
    static_assert(std::is_trivially_destructible_v<T>);
    return static_cast<T*>(list_->store.get(n * sizeof(T)));
  }
  std::int64_t io_bytes() const;  // of all inputs and outputs

 private:
  template <auto Kernel>
  static void call(const void* a, int thread, int n) {
    Kernel(*static_cast<const typename detail::KernelArgs<decltype(Kernel)>::type*>(a), thread, n);
  }
  void add(Launch launch);
  void lend(void* pointer, std::size_t bytes);
  void share(void* pointer, const void* other);
  std::span<const bool> constant_, packed_;
  LaunchList* list_;
  std::int64_t scratch_used_ = 0;
};

// Adds launches and returns nullptr, or adds nothing and says in a few words why it does not apply.
using PrepareFn = const char* (*)(Prepare& p);

struct KernelEntry {
  std::string_view op;
  const char* name;
  PrepareFn prepare;
};
std::span<const KernelEntry> kernel_table();

// The reference: OpDef.eval on thread 0. Always applies.
void prepare_reference(Prepare& p);
// y = x, any strides and dtypes.
void prepare_copy(Prepare& p, const TensorView& y, const TensorView& x);

struct PrepareOptions {
  bool reference_only = false;  // for tests: no kernels
  // When set, receives one line per step that no kernel took: "aten.foo: reason; reason".
  std::vector<std::string>* passed_over = nullptr;
};

// Launches of a placed bound plan. Fills list->scratch_bytes; set_scratch comes next.
void prepare(const BoundPlan& bound, int n_threads, const PrepareOptions& options,
             LaunchList* list);

}  // namespace tk
