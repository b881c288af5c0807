// Bound plans run by kernels equal the references, on random data and sizes.
#include "cpu/engine.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstdlib>
#include <new>
#include <random>

#include "base/error.h"
#include "ops/interpret.h"

namespace {
std::atomic<std::int64_t> n_allocations{0};
}

// Counts what this binary allocates, to prove that a replay does not. The compiler sees malloc
// behind one and free behind the other and takes them for a mismatch.
#pragma GCC diagnostic ignored "-Wmismatched-new-delete"
void* operator new(std::size_t n) {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  if (void* p = std::malloc(n != 0 ? n : 1)) return p;
  throw std::bad_alloc();
}
void* operator new(std::size_t n, const std::nothrow_t&) noexcept {
  n_allocations.fetch_add(1, std::memory_order_relaxed);
  return std::malloc(n != 0 ? n : 1);
}
void operator delete(void* p) noexcept { std::free(p); }
void operator delete(void* p, std::size_t) noexcept { std::free(p); }

namespace tk {
namespace {

class Data {
 public:
  explicit Data(unsigned seed) : random_(seed) {}
  Tensor floats(DType dtype, const Dims& shape, double scale = 1) {
    Tensor t = Tensor::empty(dtype, shape);
    std::normal_distribution<double> d(0, scale);
    for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, d(random_));
    return t;
  }
  std::int64_t between(std::int64_t low, std::int64_t high) {
    return std::uniform_int_distribution<std::int64_t>(low, high)(random_);
  }
  Tensor ints(DType dtype, const Dims& shape, std::int64_t low, std::int64_t high) {
    Tensor t = Tensor::empty(dtype, shape);
    for (std::int64_t i = 0; i < t.numel(); ++i)
      set_element(t, i, static_cast<double>(between(low, high)));
    return t;
  }
  Tensor of(const Type& type, const SymEnv& env) {
    const Dims shape = concrete(type.shape, env);
    if (is_float(type.dtype)) return floats(type.dtype, shape, 0.5);
    return ints(type.dtype, shape, 0, type.dtype == DType::boolean ? 1 : 3);
  }

 private:
  std::mt19937 random_;
};

double tolerance(DType t) { return t == DType::f32 ? 3e-5 : t == DType::f16 ? 2e-3 : 2e-2; }

void expect_near(const Tensor& got, const Tensor& want, const std::string& what) {
  ASSERT_EQ(got.shape.str(), want.shape.str()) << what;
  ASSERT_EQ(got.dtype, want.dtype) << what;
  double scale = 1;
  for (std::int64_t i = 0; i < want.numel(); ++i)
    if (std::isfinite(element(want, i))) scale = std::max(scale, std::abs(element(want, i)));
  for (std::int64_t i = 0; i < want.numel(); ++i) {
    const double a = element(got, i);
    const double b = element(want, i);
    if (std::isnan(b) ? std::isnan(a) : a == b) continue;
    ASSERT_LE(std::abs(a - b), tolerance(want.dtype) * scale) << what << " element " << i;
  }
}

struct Case {
  const char* name;
  const char* text;              // F stands for the dtype under test
  const char* kernel = nullptr;  // that must be used for every launch, references aside
};

std::string with_dtype(std::string text, const std::string& dtype) {
  for (std::size_t i; (i = text.find("F[")) != std::string::npos;) text.replace(i, 1, dtype);
  return text;
}

// Runs the graph with kernels, with references only, and by the interpreter; states are compared,
// too.
void check(const std::string& text, const std::string& kernel, unsigned seed, int threads,
           const std::vector<Tensor>* given = nullptr) {
  Data data(seed);
  SymEnv env;
  for (const char* s : {"T", "S", "B"}) env[s] = data.between(1, 9);
  env["NB"] = 6;
  env["MB"] = 2;
  const Graph types = parse_graph(text);
  Weights weights;
  for (const auto& w : types.weights()) weights[w->name] = data.of(w->type, {});
  std::vector<Tensor> inputs;
  if (given != nullptr) {
    inputs = *given;
  } else {
    for (const auto& v : types.inputs()) inputs.push_back(data.of(v->type, env));
  }
  std::vector<Tensor> states[2];
  States interpreted;
  for (const auto& v : types.states()) {
    const Tensor t = data.of(v->type, env);
    states[0].push_back(t);
    states[1].push_back(contiguous(t));
    interpreted[v->name] = contiguous(t);
  }
  Team team(threads);
  std::vector<Tensor> outputs[2];
  for (const int reference : {0, 1}) {
    EngineOptions options;
    options.prepare.reference_only = reference != 0;
    std::vector<std::string> passed_over;
    options.prepare.passed_over = &passed_over;
    Engine engine(make_plan(parse_graph(text), weights), states[reference], &team,
                  std::make_shared<EngineMemory>(), options);
    outputs[reference] = engine.run(inputs);
    if (reference == 0 && !kernel.empty()) {
      std::string all;
      for (const auto& s : passed_over) all += s + "\n";
      EXPECT_EQ(all, "") << text;
    }
    // The same again, the arena full of old values.
    const std::vector<Tensor> again = engine.run(inputs);
    for (std::size_t i = 0; i < again.size() && types.states().empty(); ++i)
      expect_near(again[i], outputs[reference][i], "second run of " + text);
  }
  const std::vector<Tensor> want = interpret(types, inputs, weights, &interpreted);
  for (std::size_t i = 0; i < want.size(); ++i)
    for (const int reference : {0, 1})
      expect_near(outputs[reference][i], contiguous(want[i]),
                  cat("output ", i, reference != 0 ? " of references, " : " of kernels, ", text));
  for (std::size_t i = 0; i < states[0].size(); ++i)
    for (const int reference : {0, 1})
      expect_near(states[reference][i], interpreted.at(types.states()[i]->name),
                  cat("state ", i, " of ", text));
}

const Case cases[] = {
    {"linear", R"(
graph @f(%x: F[T, 24]) {
  weight %w: F[40, 24] "w"
  weight %b: F[40] "b"
  %0 = aten.linear(%x, %w, %b)
  %1 = aten.linear(%x, %w)
  return %0, %1
})",
     "linear"},
    {"linear of a batch", R"(
graph @f(%x: F[B, T, 24]) {
  weight %w: F[40, 24] "w"
  %0 = aten.linear(%x, %w)
  return %0
})",
     "linear"},
    {"linear of a slice", R"(
graph @f(%x: F[T, 64]) {
  weight %w: F[40, 24] "w"
  %0 = aten.slice(%x) {dim=1, start=8, end=32}
  %1 = aten.linear(%0, %w)
  return %1
})",
     "linear"},
    {"products with a transposed weight", R"(
graph @f(%x: F[T, 24]) {
  weight %w: F[40, 24] "w"
  weight %v: F[24, 40] "v"
  weight %b: F[40] "b"
  %0 = aten.t(%w)
  %1 = aten.mm(%x, %0)
  %2 = aten.mm(%x, %v)
  %3 = aten.matmul(%x, %v)
  %4 = aten.addmm(%b, %x, %0)
  return %1, %2, %3, %4
})",
     "linear"},
    {"rms_norm", R"(
graph @f(%x: F[T, 48]) {
  weight %w: F[48] "w"
  %0, %1 = npu.npu_rms_norm(%x, %w)
  %2, %3 = npu.npu_gemma_rms_norm(%x, %w) {epsilon=0.01}
  return %0, %2
})",
     "rms_norm"},
    {"rms_norm of heads of a merged projection", R"(
graph @f(%x: F[T, 96]) {
  weight %w: F[16] "w"
  %0 = aten.slice(%x) {dim=1, start=32, end=80}
  %1 = aten.view(%0) {size=[T, 3, 16]}
  %2, %3 = npu.npu_rms_norm(%1, %w)
  return %2
})",
     "rms_norm"},
    {"add_rms_norm", R"(
graph @f(%x: F[B, T, 48], %y: F[B, T, 48]) {
  weight %w: F[48] "w"
  %0, %1, %2 = npu.npu_add_rms_norm(%x, %y, %w)
  return %0, %2
})",
     "rms_norm"},
    {"layer_norm", R"(
graph @f(%x: F[T, 48]) {
  weight %w: F[48] "w"
  weight %b: F[48] "b"
  %0 = npu.npu_layer_norm_eval(%x, %w, %b) {normalized_shape=[48]}
  %1 = npu.npu_layer_norm_eval(%x) {normalized_shape=[48]}
  return %0, %1
})",
     "layer_norm"},
    {"rope of [T, H, D]", R"(
graph @f(%x: F[T, 4, 16], %c: F[T, 1, 16], %s: F[T, 1, 16]) {
  %0 = npu.npu_rotary_mul(%x, %c, %s)
  %1 = npu.npu_rotary_mul(%x, %c, %s) {rotary_mode="interleave"}
  %2 = npu.npu_interleave_rope(%x, %c, %s)
  return %0, %1, %2
})",
     "rope"},
    {"rope of [B, S, H, D]", R"(
graph @f(%x: F[B, S, 4, 16], %y: F[B, S, 2, 16], %c: F[B, S, 1, 16], %s: F[B, S, 1, 16]) {
  %0, %1 = npu.npu_apply_rotary_pos_emb(%x, %y, %c, %s)
  return %0, %1
})",
     "rope"},
    {"rope of [H, S, D]", R"(
graph @f(%x: F[4, S, 16], %c: F[1, S, 16], %s: F[1, S, 16]) {
  %0 = npu.npu_rotary_mul(%x, %c, %s)
  return %0
})",
     "rope"},
    {"gated activations", R"(
graph @f(%x: F[B, T, 48]) {
  %0 = npu.npu_swiglu(%x)
  %1, %2 = npu.npu_geglu(%x)
  %3, %4 = npu.npu_geglu(%x) {approximate=0, activate_left=true}
  %5 = npu.npu_clipped_swiglu(%x)
  %6 = npu.npu_clipped_swiglu(%x) {interleaved=false, limit=0.5, alpha=1.1, bias=0.0}
  return %0, %1, %3, %5, %6
})",
     "glu"},
    {"arithmetic", R"(
graph @f(%x: F[T, 5, 24], %y: F[T, 1, 24], %z: F[5, 1]) {
  %0 = aten.add(%x, %y)
  %1 = aten.mul(%x, %z)
  %2 = aten.sub(%y, %x)
  %3 = aten.div(%x) {other=0.3}
  %4 = aten.add(%x) {other=0.1}
  %5 = aten.rsub(%x) {other=1}
  %6 = aten.transpose(%x) {dim0=0, dim1=2}
  %7 = aten.mul(%6) {other=2}
  %8 = aten.maximum(%x, %y)
  %9 = aten.clamp(%x) {min=-0.25, max=0.25}
  %10 = aten.neg(%x)
  %11 = aten.pow(%x) {exponent=2}
  %12 = aten.clamp(%x) {max=0.1}
  %13 = aten.clamp_min(%x) {min=0.1}
  return %0, %1, %2, %3, %4, %5, %7, %8, %9, %10, %11, %12, %13
})",
     "pointwise"},
    {"functions", R"(
graph @f(%x: F[T, 40]) {
  %0 = aten.silu(%x)
  %1 = aten.gelu(%x)
  %2 = aten.gelu(%x) {approximate="tanh"}
  %3 = aten.sigmoid(%x)
  %4 = aten.tanh(%x)
  %5 = aten.exp(%x)
  %6 = aten.cos(%x)
  %7 = aten.sin(%x)
  %8 = aten.mul(%x, %x)
  %9 = aten.add(%8) {other=1.0}
  %10 = aten.rsqrt(%9)
  %11 = aten.relu(%x)
  %12 = aten.softmax(%x) {dim=-1}
  %13 = aten.mean(%x) {dim=[-1], keepdim=true}
  %14 = aten.sum(%x) {dim=[1]}
  %15 = aten.amax(%x) {dim=[-1]}
  %16 = npu.npu_gelu(%x)
  return %0, %1, %2, %3, %4, %5, %6, %7, %10, %11, %12, %13, %14, %15, %16
})",
     "pointwise"},
    {"comparisons and choices", R"(
graph @f(%x: F[T, 24], %y: F[T, 24], %m: bool[T, 1]) {
  %0 = aten.lt(%x, %y)
  %1 = aten.ge(%x) {other=0.1}
  %2 = aten.logical_and(%0, %1)
  %3 = aten.where(%2, %x, %y)
  %4 = aten.masked_fill(%x, %m) {value=-1.5}
  %5 = aten.bitwise_not(%2)
  %6 = aten.where(%5, %x) {other=0.0}
  %7 = aten.logical_not(%x)
  return %0, %1, %2, %3, %4, %5, %6, %7
})",
     "pointwise"},
    {"integers", R"(
graph @f(%i: i64[T, 3], %j: i32[T, 1]) {
  %0 = aten.add(%i, %j)
  %1 = aten.mul(%i) {other=3}
  %2 = aten.eq(%i, %j)
  %3 = aten.le(%i) {other=1}
  %4 = aten.bitwise_or(%2, %3)
  %5 = aten.to(%i) {dtype=f32}
  %6 = aten.to(%4) {dtype=i64}
  %7 = aten.to(%i) {dtype=bool}
  %8 = aten.div(%i) {other=2}
  %9 = aten.where(%4, %i) {other=0}
  return %0, %1, %2, %3, %4, %5, %6, %7, %8, %9
})",
     "pointwise"},
    {"copies and casts", R"(
graph @f(%x: F[T, 6, 8], %y: F[T, 2, 8]) {
  %0 = aten.transpose(%x) {dim0=0, dim1=1}
  %1 = aten.contiguous(%0)
  %2 = aten.reshape(%0) {shape=[6, T*8]}
  %3 = aten.cat(%x, %y) {dim=1}
  %4 = aten.slice(%x) {dim=2, start=4, end=8}
  %5 = aten.slice(%x) {dim=2, start=0, end=4}
  %6 = aten.neg(%4)
  %7 = aten.cat(%6, %5) {dim=-1}
  %8 = aten.to(%x) {dtype=f32}
  %9 = aten.to(%8) {dtype=bf16}
  %10 = aten.clone(%4)
  %11 = aten.transpose(%x) {dim0=1, dim1=2}
  %12 = aten.contiguous(%11)
  return %1, %2, %3, %7, %8, %9, %10, %12
})",
     "move"},
    {"rows", R"(
graph @f(%i: i64[B, T], %j: i64[T]) {
  weight %w: F[5, 24] "w"
  weight %v: F[5, 3, 8] "v"
  %0 = aten.embedding(%w, %i)
  %1 = aten.index_select(%w, %j) {dim=0}
  %2 = aten.index_select(%v, %j) {dim=0}
  %3 = aten.slice(%w) {dim=1, start=4, end=20}
  %4 = aten.index_select(%3, %j) {dim=0}
  return %0, %1, %2, %4
})",
     "rows"},
    {"the largest", R"(
graph @f(%x: F[T, 37]) {
  %0, %1 = aten.topk(%x) {k=5}
  return %0, %1
})",
     "top_k"},
    {"batches of products", R"(
graph @f(%x: F[B, T, 24], %y: F[B, 24, S], %z: F[T, B, 24]) {
  weight %w: F[24, 16] "w"
  %0 = aten.bmm(%x, %y)
  %1 = aten.matmul(%x, %y)
  %2 = aten.transpose(%z) {dim0=0, dim1=1}
  %3 = aten.matmul(%2, %y)
  return %0, %1, %3
})",
     "batched_linear"},
    {"a product per head", R"(
graph @f(%x: F[T, 4, 24]) {
  weight %w: F[4, 24, 16] "w"
  %0 = npu.npu_transpose_batchmatmul(%x, %w) {perm_x1=[1, 0, 2], perm_y=[1, 0, 2]}
  return %0
})",
     "batched_linear"},
    {"experts", R"(
graph @f(%x: F[T, 24], %l: F[T, 8]) {
  weight %w: F[8, 24, 16] "w"
  weight %v: F[8, 24, 16] "v"
  weight %b: F[8, 24] "b"
  weight %bias: f32[8] "bias"
  %y, %e, %o = npu.npu_moe_gating_top_k(%l, %bias) {k=2, k_group=1, group_count=2, group_select_mode=1, norm_type=1, routed_scaling_factor=2.5}
  %0, %1, %2, %3 = npu.npu_moe_init_routing_v2(%x, %e) {expert_num=8, expert_tokens_num_type=1, expert_tokens_num_flag=true}
  %4 = npu.npu_grouped_matmul(%0, %w, none, %2) {split_item=3, group_type=0, group_list_type=1}
  %5 = aten.transpose(%v) {dim0=1, dim1=2}
  %6 = npu.npu_grouped_matmul(%4, %5, %b, %2) {split_item=3, group_type=0, group_list_type=1}
  %7 = npu.npu_moe_finalize_routing(%6, %x, none, none, %y, %1) {drop_pad_mode=2}
  return %7, %e
})",
     "grouped_linear"},
    {"gates", R"(
graph @f(%l: F[T, 8]) {
  %0, %1, %2 = npu.npu_moe_gating_top_k_softmax(%l) {k=3}
  %3, %4, %5 = npu.npu_moe_gating_top_k_softmax_v2(%l) {k=3, renorm=1}
  %6, %7, %8 = npu.npu_moe_gating_top_k(%l) {k=3}
  return %0, %1, %3, %4, %6, %7
})",
     "moe_gate"},
};

TEST(kernels, equal_the_references) {
  for (const Case& c : cases)
    for (const char* dtype : {"f32", "bf16", "f16"}) {
      SCOPED_TRACE(cat(c.name, " ", dtype));
      for (unsigned seed = 1; seed <= 4; ++seed)
        check(with_dtype(c.text, dtype), c.kernel, seed, 1 + static_cast<int>(seed % 3));
    }
}

TEST(kernels, paged_attention_and_cache_writes) {
  for (const char* dtype : {"f32", "bf16"})
    for (const char* mask : {"mask=\"causal\"", "mask=\"window\", window=3", "mask=\"full\"",
                             "mask=\"chunk\", window=4, softcap=5.0"}) {
      const std::string text = with_dtype(cat(R"(
graph @f(%q: F[T, 4, 16], %k: F[T, 2, 16], %v: F[T, 2, 16], %slots: i64[T], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  weight %w: f32[4] "sinks"
  state %s0: F[NB, 4, 2, 16] "key"
  state %s1: F[NB, 4, 2, 16] "value"
  %0 = tk.cache_write(%s0, %k, %slots)
  %1 = tk.cache_write(%s1, %v, %slots)
  %2 = tk.paged_attention(%q, %0, %1, %table, %ql, %kl) {scale=0.25, )",
                                              mask, R"(}
  %3 = tk.paged_attention(%q, %0, %1, %table, %ql, %kl, none, none, %w) {scale=0.25, )",
                                              mask,
                                              R"(}
  return %2, %3
})"),
                                          dtype);
      Data data(5);
      // Three requests of 5, 1 and 1 new tokens; the last one is padding.
      Tensor table = Tensor::zeros(DType::i32, {3, 2});
      const int blocks[] = {3, 1, 5, 2, 0, 0};
      for (int i = 0; i < 6; ++i) set_element(table, i, blocks[i]);
      Tensor ql = Tensor::zeros(DType::i32, {3});
      Tensor kl = Tensor::zeros(DType::i32, {3});
      const int query[] = {5, 6, 7}, keys[] = {6, 4, 0};
      for (int i = 0; i < 3; ++i) {
        set_element(ql, i, query[i]);
        set_element(kl, i, keys[i]);
      }
      const std::vector<Tensor> inputs{
          data.floats(parse_graph(text).inputs()[0]->type.dtype, {7, 4, 16}),
          data.floats(parse_graph(text).inputs()[0]->type.dtype, {7, 2, 16}),
          data.floats(parse_graph(text).inputs()[0]->type.dtype, {7, 2, 16}),
          Tensor::ids(std::vector<std::int64_t>{13, 14, 15, 4, 5, 23, -1}),
          table,
          ql,
          kl};
      check(text, "paged_attention", 1, 2, &inputs);
    }
}

TEST(kernels, mla_attention_absorbed_equals_expanded) {
  for (const char* dtype : {"f32", "bf16"}) {
    const std::string text = with_dtype(R"(
graph @f(%q: F[T, 3, 16], %r: F[T, 3, 8], %table: i32[B, MB], %ql: i32[B], %kl: i32[B]) {
  weight %w: F[84, 32] "kv_b"
  state %s0: F[NB, 4, 1, 32] "latent"
  state %s1: F[NB, 4, 1, 8] "rope"
  %0 = tk.mla_paged_attention(%q, %r, %s0, %s1, %w, %table, %ql, %kl) {scale=0.2}
  return %0
})",
                                        dtype);
    Data data(6);
    Tensor table = Tensor::zeros(DType::i32, {2, 2});
    Tensor ql = Tensor::zeros(DType::i32, {2});
    Tensor kl = Tensor::zeros(DType::i32, {2});
    const int blocks[] = {3, 1, 5, 0}, query[] = {5, 6}, keys[] = {7, 2};
    for (int i = 0; i < 4; ++i) set_element(table, i, blocks[i]);
    for (int i = 0; i < 2; ++i) {
      set_element(ql, i, query[i]);
      set_element(kl, i, keys[i]);
    }
    const DType t = parse_graph(text).inputs()[0]->type.dtype;
    const std::vector<Tensor> inputs{data.floats(t, {6, 3, 16}), data.floats(t, {6, 3, 8}), table,
                                     ql, kl};
    for (const int threads : {1, 2, 5}) check(text, "mla_attention", 2, threads, &inputs);
  }
}

const char* chain = R"(
graph @f(%x: f32[T, 64]) {
  weight %w: f32[64, 64] "w"
  weight %g: f32[64] "g"
  %0 = aten.linear(%x, %w)
  %1, %2, %3 = npu.npu_add_rms_norm(%0, %x, %g)
  %4 = aten.linear(%1, %w)
  %5, %6, %7 = npu.npu_add_rms_norm(%4, %3, %g)
  return %5, %7
})";

TEST(engine, a_replay_allocates_nothing) {
  Data data(1);
  const Weights weights{{"w", data.floats(DType::f32, {64, 64}, 0.1)},
                        {"g", data.floats(DType::f32, {64})}};
  Team team(2);
  Engine engine(make_plan(parse_graph(chain), weights), {}, &team,
                std::make_shared<EngineMemory>());
  Bound& b = engine.bound({{"T", 33}});
  copy_into(b.plan.input(0), data.floats(DType::f32, {33, 64}));
  LaunchTimes times;
  times.start.resize(b.list.launches.size());
  times.end.resize(b.list.launches.size());
  engine.run(b);
  const std::int64_t before = n_allocations.load();
  for (int i = 0; i < 20; ++i) engine.run(b, &times);
  EXPECT_EQ(n_allocations.load(), before);
  for (std::size_t i = 0; i < times.start.size(); ++i) {
    EXPECT_LE(times.start[i], times.end[i]);
    if (i > 0) {
      EXPECT_LE(times.end[i - 1], times.start[i]);
    }
  }
}

TEST(engine, bound_plans_are_kept_and_survive_a_moved_arena) {
  Data data(2);
  const Weights weights{{"w", data.floats(DType::f32, {64, 64}, 0.1)},
                        {"g", data.floats(DType::f32, {64})}};
  Team team(2);
  auto memory = std::make_shared<EngineMemory>();
  EngineOptions options;
  options.max_bound = 2;
  Engine engine(make_plan(parse_graph(chain), weights), {}, &team, memory, options);
  const Tensor small = data.floats(DType::f32, {2, 64});
  const std::vector<Tensor> first = engine.run(std::vector<Tensor>{small});
  const Bound* bound = &engine.bound({{"T", 2}});
  const std::uint64_t generation = memory->arena.generation();
  engine.run(std::vector<Tensor>{data.floats(DType::f32, {500, 64})});
  EXPECT_NE(memory->arena.generation(), generation);
  EXPECT_EQ(&engine.bound({{"T", 2}}), bound);  // kept, placed anew
  const std::vector<Tensor> second = engine.run(std::vector<Tensor>{small});
  expect_near(second[0], first[0], "after the move");
  engine.bound({{"T", 3}});
  engine.bound({{"T", 4}});  // 2 has gone
  const std::vector<Tensor> third = engine.run(std::vector<Tensor>{small});
  expect_near(third[1], first[1], "bound again");
}

TEST(engine, results_do_not_depend_on_the_number_of_threads) {
  Data data(3);
  const Weights weights{{"w", data.floats(DType::f32, {64, 64}, 0.1)},
                        {"g", data.floats(DType::f32, {64})}};
  const Tensor x = data.floats(DType::f32, {37, 64});
  std::vector<Tensor> results;
  for (const int n : {1, 2, 3, 5}) {
    Team team(n);
    Engine engine(make_plan(parse_graph(chain), weights), {}, &team,
                  std::make_shared<EngineMemory>());
    results.push_back(engine.run(std::vector<Tensor>{x})[0]);
    for (std::int64_t i = 0; i < x.numel(); ++i)
      ASSERT_EQ(element(results.back(), i), element(results[0], i));
  }
}

TEST(engine, an_error_in_a_launch_leaves_the_engine_usable) {
  const char* text = R"(
graph @f(%x: f32[T, 2, 8], %slots: i64[T]) {
  state %s0: f32[NB, 4, 2, 8] "key"
  %0 = tk.cache_write(%s0, %x, %slots)
  %1 = aten.add(%0) {other=1}
  return %1
})";
  for (const bool reference : {false, true}) {
    Team team(3);
    EngineOptions options;
    options.prepare.reference_only = reference;
    Engine engine(make_plan(parse_graph(text), {}), {Tensor::zeros(DType::f32, {2, 4, 2, 8})},
                  &team, std::make_shared<EngineMemory>(), options);
    Data data(4);
    const Tensor x = data.floats(DType::f32, {2, 2, 8});
    for (int i = 0; i < 3; ++i) {
      try {
        engine.run({x, Tensor::ids(std::vector<std::int64_t>{1, 8})});
        FAIL();
      } catch (const UserError& e) {
        EXPECT_EQ(e.code(), "TK0501");
      }
      const auto out = engine.run({x, Tensor::ids(std::vector<std::int64_t>{3, -1})});
      EXPECT_EQ(element(out[0], 3 * 16 + 5), element(x, 5) + 1);
    }
  }
}

TEST(engine, inputs_of_another_type_are_refused) {
  Team team(1);
  Engine engine(make_plan(parse_graph(R"(
graph @f(%x: f32[T, 2]) {
  %0 = aten.add(%x) {other=1}
  return %0
})"),
                          {}),
                {}, &team, std::make_shared<EngineMemory>());
  EXPECT_THROW(engine.run({Tensor::zeros(DType::i64, {1, 2})}), UserError);
  EXPECT_THROW(engine.run({Tensor::zeros(DType::f32, {1, 3})}), UserError);
  EXPECT_EQ(engine.run({Tensor::zeros(DType::f32, {0, 2})})[0].numel(), 0);
}

}  // namespace
}  // namespace tk
