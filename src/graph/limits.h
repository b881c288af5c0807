// The hard constraints of torch_npu's operators, evaluated for a call: of a graph (symbolic sizes,
// no contents), of the command line (sizes alone), or of the emulation (contents too).
#pragma once

#include <map>
#include <optional>
#include <set>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "graph/op.h"

namespace tk {

// What the expressions may name: the operator's arguments and attributes (None when absent; a
// tensor has dtype, shape, ndim, numel, itemsize and, with `values`, contents), its symbols, and
// `facts`, which come first: what is known beyond the call, as "graph" (in graph mode), "phase",
// "world", or what somebody wants to be taken instead of what the call has ("He", "x.shape[-1]").
// soc is "a2" or "a3".
struct LimitScope {
  const Args& args;
  std::string_view soc = "";
  std::span<const TensorView> values = {};  // per input; data null where it is not known
  std::map<std::string, Attr, std::less<>> facts;
  std::set<std::string, std::less<>> unknown = {};  // arguments of which nothing is known
};

enum class LimitState : unsigned char {
  holds,
  violated,
  unknown  // depends on sizes or contents that are known when it runs only
};

struct LimitResult {
  const Limit* limit;
  LimitState state;
  std::string values;  // of the names that decided, in order: "D = 64, Dv = 64"
};

// Every limit that applies to the soc (all of them when that is empty).
std::vector<LimitResult> check_limits(const LimitScope& scope);
LimitResult check_limit(const LimitScope& scope, const Limit& limit);

// The names of an expression (of a limit or a symbol) that nothing of the operator has, and its
// functions that there are not: such an expression is a mistake of ours. Throws InternalError where
// it doesn't parse.
std::vector<std::string> unknown_names(const OpDef& op, std::string_view expr);

// The value of a symbol of the operator as text; "?" when it is not known.
std::string value_of_symbol(const LimitScope& scope, const Symbol& symbol);

// The smallest change of one name that makes a violated limit hold, and no other limit fail.
struct LimitChange {
  std::string name;  // "He"
  std::string from, to;
  std::int64_t distance = 0;  // of numbers: to - from
};
std::optional<LimitChange> smallest_change(const LimitScope& scope, const Limit& limit);

}  // namespace tk
