/* The CPU engine for other languages: a graph in the text form is rewritten by the moves, prepared
 * and run in this process, on memory of the caller. A plain C interface: the torch.compile backend
 * in Python (python/tokamak/backend) binds it with ctypes.
 *
 * Functions that return int give 0, 1 (the call is at fault) or 2 (a bug of Tokamak), and those
 * that return a pointer null; tk_engine_text() is then the error, and otherwise the result where
 * there is one. It is the thread's own and good until its next call. One engine runs at a time:
 * calls of different threads wait for each other. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TK_ENGINE_API __attribute__((visibility("default")))

/* C has no using, and its names are those of C. */
/* NOLINTBEGIN(modernize-use-using,readability-identifier-naming) */
typedef struct {
  const char* name;  /* of the graph's weight or state; not looked at for outputs */
  const char* dtype; /* "bf16", as in the text form */
  void* data;
  int rank;
  const int64_t* shape;
  const int64_t* strides; /* in elements */
} tk_engine_tensor;

typedef struct tk_engine tk_engine;

/* What engines computed from weights, by the weights' names, so that the graphs of one model share
 * it. Names of weights must then say all: equal names, equal contents. */
typedef struct tk_engine_pool tk_engine_pool;
/* NOLINTEND(modernize-use-using,readability-identifier-naming) */
TK_ENGINE_API tk_engine_pool* tk_engine_pool_new(void);
TK_ENGINE_API void tk_engine_pool_delete(tk_engine_pool* pool);

TK_ENGINE_API const char* tk_engine_text(void);

/* JSON: all operators with their tensors, attributes, and whether a kernel or a view runs them. */
TK_ENGINE_API int tk_engine_operators(void);

/* Whether the engine takes a graph: 1 when an operator refuses its arguments. */
TK_ENGINE_API int tk_engine_check(const char* graph);

/* `graph` is rewritten (with `fuse`, by every move of the CPU) and what depends on weights only is
 * computed. The memory of weights is read in place and must outlive the engine. States are those of
 * the graph, in order: memory that is changed in place, given to each run; here their names count.
 * The pool must outlive the engine. With `plan_cache`, a folder, the rewritten graph is kept there
 * and found again (cpu/plan_cache.h); null: not. The text is then a warning, of a plan that could
 * not be used or kept, or empty. */
TK_ENGINE_API tk_engine* tk_engine_new(const char* graph, const tk_engine_tensor* weights,
                                       int n_weights, const tk_engine_tensor* states, int n_states,
                                       int threads, int fuse, tk_engine_pool* pool,
                                       const char* plan_cache);
TK_ENGINE_API void tk_engine_delete(tk_engine* engine);

/* One run. `symbols` are the sizes of the graph's symbols, in the order of their names; states are
 * in the order of tk_engine_new, of any strides; inputs are contiguous, in the graph's order;
 * outputs have the graph's shapes and any strides. Inputs and outputs are copied in and out,
 * weights and states are not. TK0502, before anything is read, for another number of them, or one
 * whose dtype or shape is not the graph's with these symbols. */
TK_ENGINE_API int tk_engine_run(tk_engine* engine, const int64_t* symbols, int n_symbols,
                                const tk_engine_tensor* states, int n_states,
                                const tk_engine_tensor* inputs, int n_inputs,
                                const tk_engine_tensor* outputs, int n_outputs);

/* JSON of the last run's plan: {"nodes", "once", "launches", "kernels": [{"op", "kernel",
 * "launches", "bytes"}], "passed_over": ["aten.foo; why no kernel took it"], "once_bytes",
 * "arena_bytes"}. */
TK_ENGINE_API int tk_engine_describe(tk_engine* engine);

/* The rewritten graph, in the text form. */
TK_ENGINE_API int tk_engine_graph(tk_engine* engine);

/* What the launches of the last run cost, with another run on the same memory: JSON,
 * {"wall_ns", "launches": [{"op", "kernel", "ns"}]}. States are changed as by any run. */
TK_ENGINE_API int tk_engine_profile(tk_engine* engine);

#ifdef __cplusplus
}
#endif
