// A step as work: kernels with their numbers and the tensors they touch. Lowerings fill a Step, and
// plan_of turns it into what the simulator times.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "npu/device_file.h"
#include "npu/sim/plan.h"

namespace tk {

struct Node;

// Kernels that cost alike (VN-20 to VN-28).
enum class Family : std::uint8_t {
  matmul,
  grouped_matmul,
  attention,
  norm,
  pointwise,
  rope,
  cache,    // writes into a KV cache
  gather,   // picks or scatters rows
  routing,  // sort, top-k, gating
  quant,
  collective,
};
std::string_view family_name(Family f);

// `groups` products of [m, k] by [k, n].
struct Product {
  std::int64_t m = 0, n = 0, k = 0, groups = 1;
};

struct Operand {
  int tensor = 0;
  std::int64_t bytes = 0;  // touched, at most the tensor's own
  bool write = false;
};

struct KernelWork {
  Family family = Family::pointwise;
  std::string type;            // "MatMulV2", as kernel_details.csv has it
  std::string module;          // "model.layers.0.self_attn"
  std::string place;           // of the node, for errors
  const Node* node = nullptr;  // of a graph, as long as that lives
  std::string in_shapes, out_shapes, in_types;
  std::string layout;  // which operands are transposed or blocked; empty: not known
  std::vector<Product> products;
  int bits = 16;              // of what the cube multiplies: 8 twice as fast, 32 a quarter
  double vector_bytes = 0;    // that go through vector instructions, all passes counted
  std::int64_t parts = 0;     // blocks at most (rows of a norm); 0: no limit
  bool gathered_mix = false;  // vector work goes with the matrix work (quantised products)
  std::vector<Operand> operands;
  int stream = 0;
  std::optional<sim::Collective> collective;
  std::vector<std::int64_t> kv_lengths;  // of an attention's sequences, where they differ
  bool prefetch = false;                 // brings its weight into L2, on no cores (VN-60)
  double ai_cpu_us = 0;                  // above 0: an AI CPU operator that takes so long (VN-54)
  bool host_reads = false;               // an eager host needs its result before it goes on
  bool default_rule = false;             // the operator has no cost rule of its own
};

enum class TensorKind : std::uint8_t { weight, state, activation };

// Cores that kernels of a stream may take at most (VN-33); -1: of all streams.
struct CoreLimit {
  int stream = -1;
  std::int32_t cube = 0, vector = 0;
};

struct PlanOptions {
  // Of each kernel in ge_graph, of the stream in npugraph_ex, of the whole device in eager mode;
  // kernels are tiled for the cores that they get.
  std::vector<CoreLimit> limits;
  // Shapes are not known when the graph is compiled: the host tiles each operator of a replay
  // before it is launched (VN-53).
  bool dynamic = false;
};

// Tensors get addresses when all is known: weights and states one after the other, activations in
// an arena by their lifetime, so that what is reused is in L2 (VN-42).
class Step {
 public:
  int tensor(TensorKind storage, std::int64_t bytes);
  std::int64_t bytes_of(int tensor) const { return sizes_[static_cast<std::size_t>(tensor)]; }
  bool is_state(int tensor) const { return kind_of(tensor) == TensorKind::state; }
  TensorKind kind_of(int tensor) const { return storage_[static_cast<std::size_t>(tensor)]; }
  bool is_activation(int tensor) const { return kind_of(tensor) == TensorKind::activation; }
  void add(KernelWork kernel) { kernels_.push_back(std::move(kernel)); }
  KernelWork& last() { return kernels_.back(); }
  const std::vector<KernelWork>& kernels() const { return kernels_; }
  void set_kernels(std::vector<KernelWork> kernels) { kernels_ = std::move(kernels); }
  int group(std::int32_t first, std::int32_t size, std::int32_t stride = 1);
  // Tokens of members to each other (VN-73); returns the index for Collective::traffic.
  int traffic(std::vector<std::int64_t> bytes);

  std::int64_t weight_bytes() const { return total(TensorKind::weight); }
  std::int64_t state_bytes() const { return total(TensorKind::state); }
  std::int64_t input_bytes = 0;  // copied in by each replay
  std::int32_t updates = 0;      // launches that npugraph_ex updates

 private:
  friend sim::Plan plan_of(const Step&, const DeviceFile&, const CostFile&, sim::Mode,
                           const PlanOptions&);
  std::int64_t total(TensorKind s) const;
  std::vector<std::int64_t> addresses() const;
  std::vector<TensorKind> storage_;
  std::vector<std::int64_t> sizes_;
  std::vector<KernelWork> kernels_;
  std::vector<sim::Group> groups_;
  std::vector<sim::Traffic> traffic_;
};

// Launches in the order of the kernels; a kernel that reads what another stream wrote waits for it.
// TK1451 for a limit of a stream in eager mode, or of one that is not there; TK1455 for an eager
// step that is to be a dynamic graph.
sim::Plan plan_of(const Step& step, const DeviceFile& device, const CostFile& costs, sim::Mode mode,
                  const PlanOptions& options = {});

// The terms of one kernel as the simulator takes them, without addresses.
sim::Launch launch_of(const KernelWork& kernel, const DeviceFile& device, const CostFile& costs);

// Bytes of a kernel by where they are.
struct Moved {
  double cold = 0, cold_writes = 0;  // HBM
  double warm = 0;                   // L2
};
// The kernel's time with the device to itself.
double alone_us(sim::Launch launch, const Moved& moved, const DeviceFile& device,
                const CostFile& costs);
NearKernel point_of(const KernelWork& kernel, double alone_us);
// launch_of, times what near kernels were measured to take (near.h): all that is not bytes by the
// factor, and what then is missing goes to the head. Bytes keep the device's rates.
sim::Launch calibrated_launch(const KernelWork& kernel, const Moved& moved,
                              const DeviceFile& device, const CostFile& costs);

// Cycles of a cube core for the product's tiles that fall to the busiest of `cores`, and blocks.
struct Tiling {
  std::int64_t tile_m = 0, tile_n = 0, tiles = 0, blocks = 0, cycles = 0;
};
Tiling tiling_of(const Product& product, int bits, std::int64_t cores);

}  // namespace tk
