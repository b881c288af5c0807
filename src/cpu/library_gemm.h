// Products of many rows through oneDNN, where the processor has matrix tiles (AMX): the library
// takes packed weights as they are (its BA16a32b2a), so there is no second copy.
#pragma once

#include "cpu/kernels/linear.h"

namespace tk {

// Whether a product goes through the library; a fixed rule of shape and processor, so that results
// don't depend on the day. TOKAMAK_GEMM=own: never; TOKAMAK_GEMM=onednn: also without AMX, where
// the library has a bf16 kernel of its own. The first product of a shape is compared with our
// kernel; a library that disagrees is not used for it.
bool library_takes(const kernels::LinearArgs& args, int n_threads);

struct LibraryLinearArgs {
  kernels::LinearArgs linear;  // packed, x contiguous, both bf16
};
void library_linear(const LibraryLinearArgs& args, int thread, int n_threads);
std::size_t library_scratch_bytes(const kernels::LinearArgs& args, int n_threads);

}  // namespace tk
