// Memory of the emulated device is host memory. Tensors cross between torch's devices as DLPack
// capsules whose device is rewritten; what a tensor of the device owns is counted.
#include <atomic>
#include <cstdlib>

#include "capi/tokamak_npu.h"

namespace {

// The C ABI of DLPack before version 1, which torch.utils.dlpack speaks.
struct DlTensor {
  void* data;
  std::int32_t device_type, device_id;
  std::int32_t ndim;
  std::uint8_t code, bits;
  std::uint16_t lanes;
  std::int64_t* shape;
  std::int64_t* strides;
  std::uint64_t byte_offset;
};
struct DlManaged {
  DlTensor tensor;
  void* context;
  void (*deleter)(DlManaged*);
};

struct Rehomed {
  DlManaged managed;
  DlManaged* original;
  std::int64_t bytes;
};

std::atomic<std::int64_t> used, peak;

void drop(DlManaged* managed) {
  auto* r = static_cast<Rehomed*>(managed->context);
  used -= r->bytes;
  r->original->deleter(r->original);
  delete r;
}

}  // namespace

void* tk_npu_rehome(void* managed, int device_type, int device_id, int64_t bytes) {
  auto* original = static_cast<DlManaged*>(managed);
  auto* r = new Rehomed{{original->tensor, nullptr, drop}, original, bytes};
  r->managed.tensor.device_type = device_type;
  r->managed.tensor.device_id = device_id;
  r->managed.context = r;
  const std::int64_t now = used += bytes;
  std::int64_t before = peak;
  while (before < now && !peak.compare_exchange_weak(before, now)) {
  }
  return &r->managed;
}

int64_t tk_npu_memory_used(void) { return used; }
int64_t tk_npu_memory_peak(void) { return peak; }
void tk_npu_memory_reset_peak(void) { peak = used.load(); }
