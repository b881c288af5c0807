// What a kernel is for, from its type: norm, matmul, attention, dispatch ... One table, read by the
// automatic structure, the default cluster rules and the insights.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

#include "timeline/timeline.h"

namespace tk {

enum class Role : std::uint8_t {
  attention,
  linear_attention,
  indexer,
  prolog,
  cache_write,
  rope,
  norm,
  gate,
  dispatch,
  combine,
  grouped_matmul,
  activation,
  quant,
  matmul,
  communication,
  sampling,
  move,
  elementwise,
  other,
  count
};
std::string_view role_name(Role role);  // the default cluster's name: "attention", "rope", ...
std::string_view role_text(Role role);  // one line for people

// `name` decides where the type only says that kernels were fused by the compiler.
Role role_of(std::string_view type, std::string_view name, Core core);
bool is_backward(std::string_view type);  // gradients and optimizers: a training step

// A regular expression that matches the types of a role that occur; see clusters.h.
std::vector<Role> roles_of(const Timeline& t);  // per string id of a type; other for the rest

// Families of data movement (BD-134): "transpose", "cast", ...; empty: moves nothing.
std::string_view movement_family(std::string_view type);
std::string_view movement_kind(
    std::string_view family);  // layout, shape, indexing, cache_update ...

}  // namespace tk
