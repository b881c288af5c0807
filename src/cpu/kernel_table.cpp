#include "cpu/prepare.h"

namespace tk {

// A function that serves several operators is declared once for each.
#define TK_KERNEL(op, name, prepare) const char* prepare(Prepare& p);
#include "cpu/kernels.def"
#undef TK_KERNEL

std::span<const KernelEntry> kernel_table() {
  static const KernelEntry table[] = {
#define TK_KERNEL(op, name, prepare) {op, name, prepare},
#include "cpu/kernels.def"
#undef TK_KERNEL
      {"", "", nullptr},
  };
  return {table, std::size(table) - 1};
}

}  // namespace tk
