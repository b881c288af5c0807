// What the processor offers beyond Highway's targets; read when a kernel starts.
#pragma once

namespace tk::kernels {

bool use_bf16_dot();  // vdpbf16ps is there, and a test has not forbidden it
bool has_amx_bf16();

}  // namespace tk::kernels
