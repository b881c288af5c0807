// What the fused attentions of torch_npu share: layouts, lengths, masks, caches, quantised
// operands, whatever an operator calls its arguments.
#pragma once

#include <span>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk::ops {

// The names of an operator's arguments, inputs and attributes. Empty: it has no such argument.
// query, key and value are the inputs 0, 1 and 2 everywhere.
struct AttentionNames {
  std::string_view heads, scale;
  std::string_view q_lens = {}, kv_lens = {};
  std::string_view lse = {};  // the flag
  std::string_view key_scale = {}, key_offset = {}, key_mode = {};
  std::string_view value_scale = {}, value_offset = {}, value_mode = {};
  std::string_view out_scale = {}, out_offset = {};
  std::string_view query_scale = {}, sinks = {};
  // Of key and value in one tensor [2, ...].
  std::string_view both_scale = {}, both_offset = {}, both_mode = {};
  bool decode = false;  // one query a request, no sparse_mode
  // Arguments of the signature that are refused by name when they are given.
  std::span<const std::string_view> refused = {};
};

// The input of that name, -1 when the operator has none of it.
inline int input_of(const OpDef& op, std::string_view name) {
  return name.empty() ? -1 : op.parsed().tensor_index(name);
}
template <typename A>  // Args or EvalArgs
bool given(const A& args, std::string_view name) {
  const int i = input_of(args.op(), name);
  return i >= 0 && args.has(i);
}
// None of these arguments may be given.
void refuse_given(const Args& args, std::span<const std::string_view> names);

std::vector<Type> fused_attention_infer(const Args& args, const AttentionNames& names);
void fused_attention_eval(const EvalArgs& args, const AttentionNames& names);
Cost fused_attention_cost(const Args& args, const Load& load, const AttentionNames& names);

}  // namespace tk::ops
