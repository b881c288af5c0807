// Kernels of the operators that a step is made of, added to a Step one after the other.
#pragma once

#include <map>
#include <set>
#include <string>
#include <vector>

#include "npu/routing.h"
#include "npu/work.h"

namespace tk {

struct AttentionSizes {
  std::int64_t groups = 1;  // that read keys of their own
  std::int64_t rows = 1;    // queries times heads that share them
  double keys = 1;          // seen by each on average
  std::int64_t dim = 0, v_dim = 0;
  int passes = 5;  // of the vector units over the scores: softmax takes five, relu and a sum two
  int bits = 16;   // of what is multiplied
};

class EmitKernels {
 public:
  explicit EmitKernels(Step* step) : step_(step) {}
  int stream = 0, comm_stream = 1;  // of what follows

  int weight(const std::string& name, std::int64_t bytes);
  int cache(const std::string& name, std::int64_t bytes);
  // y = x @ w; quantises x first when the product is in 8 bits and x is not yet.
  int linear(const std::string& module, int x, std::int64_t rows, std::int64_t k, std::int64_t n,
             int weight_bits, int act_bits);
  // The last kernel's result is read by an eager host.
  void read_by_host() { step_->last().host_reads = true; }
  void mark_quantised(int x) { quantised_[x] = x; }
  void per_head(const std::string& module, int x, std::int64_t heads, std::int64_t rows,
                std::int64_t k, std::int64_t n, int y);
  int grouped(const std::string& module, int x, const Spread& rows, std::int64_t experts,
              std::int64_t k, std::int64_t n, int weight_bits, int act_bits);
  // `kv_bytes` are read of the cache by each of `readers`.
  void attention(const std::string& type, const std::string& module, const std::vector<int>& in,
                 int cache, int y, const AttentionSizes& sizes, std::int64_t readers,
                 double kv_bytes);
  void norm(const std::string& type, const std::string& module, const std::vector<int>& in,
            std::int64_t rows, std::int64_t width, int y);
  // `vector_bytes` go through the vector units; parts as in KernelWork; y absent: a few bytes.
  void vector(const std::string& type, const std::string& module, Family family,
              const std::vector<int>& in, std::int64_t vector_bytes, std::int64_t parts,
              int y = -1);
  void cache_write(const std::string& module, int x, int cache, std::int64_t bytes);
  void recurrent(const std::string& type, const std::string& module, const std::vector<int>& in,
                 int state, int y, std::int64_t state_bytes, double vector_bytes);
  void gather(const std::string& type, const std::string& module, int table, std::int64_t bytes,
              int y);
  void copy(const std::string& type, const std::string& module, int x, int y, std::int64_t bytes);
  int add(const std::string& module, int a, int b, int y, std::int64_t elements);
  void collective(sim::CollectiveKind kind, const std::string& module, int x, std::int64_t degree,
                  std::int64_t bytes);
  // `to_first` of the bytes go to (come from) rank 0, the rest as `zipf` says.
  void exchange(sim::CollectiveKind kind, const std::string& module, int x, std::int64_t ranks,
                std::int64_t bytes, double zipf, double to_first = 0);

 private:
  void put(KernelWork kernel);
  Operand all_of(int tensor, bool write) const { return {tensor, step_->bytes_of(tensor), write}; }
  Step* step_;
  std::map<std::string, int> weights_, caches_;
  std::map<int, int> quantised_;  // what is left of x in 8 bits
};

}  // namespace tk
