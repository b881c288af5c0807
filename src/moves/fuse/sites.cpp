#include "moves/fuse/sites.h"

#include <algorithm>

#include "base/error.h"

namespace tk {

std::span<const FusionSite> fusion_sites() {
  static constexpr FusionSite sites[] = {
#define TK_SITE(id, component, phase, operators, needs, targets) \
  {id, component, phase, operators, needs, targets},
#include "moves/fuse/sites.def"
#undef TK_SITE
  };
  return sites;
}

const FusionSite* find_fusion_site(std::string_view id) {
  for (const FusionSite& s : fusion_sites())
    if (s.id == id) return &s;
  return nullptr;
}

bool has_word(std::string_view list, std::string_view word) {
  while (!list.empty()) {
    const std::size_t end = std::min(list.find(' '), list.size());
    if (list.substr(0, end) == word) return true;
    list.remove_prefix(std::min(end + 1, list.size()));
  }
  return false;
}

void settle(const FusionSite& site, Target target, Verdict* verdict) {
  if (target == Target::cpu || !has_word(site.targets, name_of(target))) return;
  if (verdict->kind != VerdictKind::pending || verdict->constraint != not_named_id(target)) return;
  verdict->notes.push_back(cat(verdict->reason, "; the recipes use it there [", site.id, "]"));
  verdict->kind = VerdictKind::adaptable;
  verdict->constraint.clear();
  verdict->reason.clear();
}

}  // namespace tk
