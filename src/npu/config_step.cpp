#include "npu/config_step.h"

#include <utility>

#include "base/error.h"

namespace tk {

void check_step(const ConfigSizes& sizes, const ConfigStep& step) {
  for (const auto& [name, v] : {std::pair<const char*, std::int64_t>{"sequences", step.sequences},
                                {"query_len", step.query_len},
                                {"attn_tp", step.attn_tp},
                                {"attn_dp", step.attn_dp},
                                {"ep", step.ep},
                                {"moe_tp", step.moe_tp},
                                {"micro_batches", step.micro_batches}})
    if (v < 1)
      throw UserError("TK1413", cat("the number of ", name, " is ", v))
          .help("it must be 1 or more");
  constexpr std::int64_t most = 1 << 24;
  if (step.sequences > most || step.query_len > most || step.sequences * step.query_len > most ||
      step.kv_len > most * 64 || step.sequences * (step.kv_len + step.query_len) > most * 1024)
    throw UserError("TK1413", cat("a step of ", step.sequences, " sequences with ", step.query_len,
                                  " new tokens and ", step.kv_len, " before them is too large"))
        .help("at most 2^24 tokens a step and 2^34 in the caches");
  if (step.kv_len < 0) throw UserError("TK1413", cat("kv_len is ", step.kv_len));
  if (sizes.heads % step.attn_tp != 0)
    throw UserError("TK1414",
                    cat(sizes.heads, " heads cannot be divided among ", step.attn_tp, " ranks"));
  if (sizes.n_experts > 0 && step.ep > 1 && step.ep < sizes.n_experts &&
      sizes.n_experts % step.ep != 0 && step.ep < sizes.n_experts / 2)
    throw UserError("TK1414",
                    cat(sizes.n_experts, " experts cannot be divided among ", step.ep, " ranks"));
}

}  // namespace tk
