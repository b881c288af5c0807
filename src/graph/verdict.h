// Whether a change applies at a place, and why not. A value, never an exception: verdicts are
// collected, shown, and kept in the ledger.
#pragma once

#include <string>
#include <string_view>
#include <vector>

namespace tk {

enum class VerdictKind : unsigned char {
  adaptable,        // found, and nothing stands against it
  adaptable_after,  // nothing hard stands against it, but something has to be changed first
  not_adaptable,    // a hard constraint is false: `constraint` names it, `reason` has the values
  pending           // a needed fact is unknown
};

struct Verdict {
  VerdictKind kind = VerdictKind::adaptable;
  std::string reason;              // in words, with the values found; empty when adaptable
  std::string constraint;          // id of the constraint or of the needed change
  std::vector<std::string> notes;  // constraints of targets other than the one asked for

  bool ok() const { return kind == VerdictKind::adaptable; }
};

inline std::string_view name_of(VerdictKind kind) {
  switch (kind) {
    case VerdictKind::adaptable:
      return "adaptable";
    case VerdictKind::adaptable_after:
      return "adaptable after";
    case VerdictKind::not_adaptable:
      return "not adaptable";
    case VerdictKind::pending:
      return "pending";
  }
  return "pending";
}

}  // namespace tk
