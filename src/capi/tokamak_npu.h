/* The operators of torch_npu for other languages: looked up, their results inferred, their limits
 * evaluated, their reference run on memory of the caller. A plain C interface: the emulation in
 * Python (python/tokamak/npu) binds it with ctypes, for any Python.
 *
 * Every function gives 0, 1 (the call is at fault) or 2 (a bug of Tokamak). tk_npu_text() is then
 * the result, where there is one, or the error; it is the thread's own and good until its next
 * call. Calls of different threads don't disturb each other. */
#pragma once

#include <stdint.h>

#ifdef __cplusplus
extern "C" {
#endif

#define TK_NPU_API __attribute__((visibility("default")))

/* An argument that is not there has dtype null. */
typedef struct {
  const char* dtype;      /* "bf16", as in the text form of graphs */
  const char* shape;      /* "[B, 64]"; numbers alone where there is data */
  void* data;             /* null: contents are not known */
  const int64_t* strides; /* in elements; null: contiguous */
} tk_npu_tensor;

/* Attributes are literals of the text form: 3, 1e-06, true, "TND", f32, [1, 2]. */
typedef struct {
  const char* name;
  const char* value;
} tk_npu_attr;

/* `op` is "npu_rms_norm"; inputs are those of the operator's schema, in its order. */
typedef struct {
  const char* op;
  const tk_npu_tensor* inputs;
  int n_inputs;
  const tk_npu_attr* attrs;
  int n_attrs;
} tk_npu_call;

TK_NPU_API const char* tk_npu_text(void);

/* JSON: all operators with their schema, arguments, signature, facts, symbols and limits. */
TK_NPU_API int tk_npu_operators(void);

/* JSON: the types of the results, [["bf16", ["B", "64"]], ...]. */
TK_NPU_API int tk_npu_infer(const tk_npu_call* call);

/* JSON: the limits that the call violates on `soc` ("a2", "a3"), with the values found and the
 * smallest change that is legal. `facts` is what is known beyond the call: see graph/limits.h. */
TK_NPU_API int tk_npu_check(const tk_npu_call* call, const char* soc, const tk_npu_attr* facts,
                            int n_facts);

/* Runs the reference. Outputs are contiguous and of the inferred types; one that is an input
 * changed in place (`updates` of the operator) is written there, whatever its strides. */
TK_NPU_API int tk_npu_run(const tk_npu_call* call, const tk_npu_tensor* outputs, int n_outputs);

/* A DLManagedTensor of the same memory on another device (1 the host, 12 an extension device); it
 * owns the one given. `bytes` of the device are in use until it is deleted. */
TK_NPU_API void* tk_npu_rehome(void* managed, int device_type, int device_id, int64_t bytes);
TK_NPU_API int64_t tk_npu_memory_used(void);
TK_NPU_API int64_t tk_npu_memory_peak(void);
TK_NPU_API void tk_npu_memory_reset_peak(void);

#ifdef __cplusplus
}
#endif
