#include "npu/sim/l2.h"

#include <algorithm>

namespace tk::sim {

L2::L2(std::int64_t bytes, std::int32_t pages, std::int32_t keep_permille, std::int64_t span)
    : page_bytes_(std::max<std::int64_t>(1, bytes / pages)),
      keep_(bytes / 1000 * keep_permille + bytes % 1000 * keep_permille / 1000),
      slots_(static_cast<std::size_t>(pages)) {
  grow(span);
}

void L2::grow(std::int64_t span) {
  const auto pages = static_cast<std::size_t>((span + page_bytes_ - 1) / page_bytes_);
  if (pages > where_.size()) where_.resize(pages, -1);
}

// The slot of a page, made free if need be; it is the youngest then.
L2::Slot& L2::slot_of(std::int64_t page, L2Traffic* traffic) {
  std::int16_t& at = where_[static_cast<std::size_t>(page)];
  if (at < 0) {
    const auto oldest = std::min_element(
        slots_.begin(), slots_.end(), [](const Slot& a, const Slot& b) { return a.used < b.used; });
    if (oldest->page >= 0) where_[static_cast<std::size_t>(oldest->page)] = -1;
    for (const Piece& p : oldest->pieces) {
      if (p.dirty) traffic->written += p.end - p.begin;
      if (p.owner >= 0) owners_[static_cast<std::size_t>(p.owner)].evicted += p.end - p.begin;
    }
    oldest->pieces.clear();
    oldest->page = page;
    at = static_cast<std::int16_t>(oldest - slots_.begin());
  }
  Slot& s = slots_[static_cast<std::size_t>(at)];
  s.used = ++tick_;
  return s;
}

// Puts a piece over what is there; a part that it covers is gone, and neighbours that are alike
// join.
void L2::insert(Slot* slot, const Piece& piece) {
  std::vector<Piece>& v = slot->pieces;
  if (v.empty()) {
    v.push_back(piece);
    return;
  }
  if (v.size() == 1 && v[0].begin <= piece.begin && v[0].end >= piece.end &&
      v[0].dirty == piece.dirty && v[0].owner == piece.owner)
    return;
  std::vector<Piece> out;
  out.reserve(v.size() + 2);
  const auto add = [&out](const Piece& p) {
    if (p.begin >= p.end) return;
    if (!out.empty() && out.back().end == p.begin && out.back().dirty == p.dirty &&
        out.back().owner == p.owner)
      out.back().end = p.end;
    else
      out.push_back(p);
  };
  bool placed = false;
  for (const Piece& p : v) {
    if (p.begin < piece.begin) add({p.begin, std::min(p.end, piece.begin), p.owner, p.dirty});
    if (!placed && p.end > piece.begin) {
      add(piece);
      placed = true;
    }
    if (p.end > piece.end) add({std::max(p.begin, piece.end), p.end, p.owner, p.dirty});
  }
  if (!placed) add(piece);
  v = std::move(out);
}

void L2::put(std::int64_t address, std::int64_t bytes, bool dirty, std::int32_t owner,
             L2Traffic* traffic) {
  for (std::int64_t a = address; a < address + bytes;) {
    const std::int64_t page = a / page_bytes_;
    const std::int64_t end = std::min(address + bytes, (page + 1) * page_bytes_);
    Slot& s = slot_of(page, traffic);
    std::int64_t there = 0;
    bool simple = true;
    for (const Piece& p : s.pieces) {
      const std::int64_t n = std::min(p.end, end) - std::max(p.begin, a);
      if (n <= 0) continue;
      there += n;
      if (!dirty && p.owner >= 0 && owner < 0) owners_[static_cast<std::size_t>(p.owner)].used += n;
      simple &= p.owner < 0;
    }
    if (!dirty && simple && there == end - a) {
      traffic->hit += there;  // read, and all there: nothing changes but the age
    } else if (dirty) {
      insert(&s, {a, end, -1, true});
    } else {
      // What is dirty stays so: its bytes are newer than the memory's.
      std::vector<Piece> kept;
      for (const Piece& p : s.pieces)
        if (p.dirty && p.end > a && p.begin < end)
          kept.push_back({std::max(p.begin, a), std::min(p.end, end), -1, true});
      traffic->hit += there;
      traffic->miss += end - a - there;
      if (owner >= 0) {  // only what was not there is the prefetch's
        const std::vector<Piece> before = s.pieces;
        insert(&s, {a, end, owner, false});
        for (const Piece& p : before)
          if (p.end > a && p.begin < end)
            insert(&s, {std::max(p.begin, a), std::min(p.end, end), p.owner, p.dirty});
        owners_[static_cast<std::size_t>(owner)].brought += end - a - there;
      } else {
        insert(&s, {a, end, -1, false});
        for (const Piece& p : kept) insert(&s, p);
      }
    }
    a = end;
  }
}

L2Traffic L2::read(std::int64_t address, std::int64_t bytes) {
  L2Traffic t;
  if (bytes <= keep_) {
    put(address, bytes, false, -1, &t);
    return t;
  }
  t.hit = resident(address, bytes);  // too large to keep: passes by what is there
  t.miss = bytes - t.hit;
  return t;
}

L2Traffic L2::write(std::int64_t address, std::int64_t bytes) {
  L2Traffic t;
  if (bytes <= keep_)
    put(address, bytes, true, -1, &t);
  else
    t.written = bytes;
  return t;
}

L2Traffic L2::bring(std::int64_t address, std::int64_t bytes, std::int32_t owner) {
  L2Traffic t;
  put(address, bytes, false, owner, &t);
  return t;
}

std::int64_t L2::resident(std::int64_t address, std::int64_t bytes) const {
  std::int64_t n = 0;
  for (std::int64_t a = address; a < address + bytes;) {
    const std::int64_t page = a / page_bytes_;
    const std::int64_t end = std::min(address + bytes, (page + 1) * page_bytes_);
    const std::int16_t at = where_[static_cast<std::size_t>(page)];
    if (at >= 0)
      for (const Piece& p : slots_[static_cast<std::size_t>(at)].pieces)
        n += std::max<std::int64_t>(0, std::min(p.end, end) - std::max(p.begin, a));
    a = end;
  }
  return n;
}

std::int64_t L2::unread(std::int32_t owner) const {
  std::int64_t n = 0;
  for (const Slot& s : slots_)
    for (const Piece& p : s.pieces)
      if (p.owner == owner) n += p.end - p.begin;
  return n;
}

bool L2::same_as(const L2& other) const {
  const auto by_age = [](const L2& l) {
    std::vector<const Slot*> v;
    for (const Slot& s : l.slots_)
      if (s.page >= 0) v.push_back(&s);
    std::sort(v.begin(), v.end(), [](const Slot* a, const Slot* b) { return a->used < b->used; });
    return v;
  };
  const auto a = by_age(*this), b = by_age(other);
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const Slot* x, const Slot* y) {
    return x->page == y->page && std::equal(x->pieces.begin(), x->pieces.end(), y->pieces.begin(),
                                            y->pieces.end(), [](const Piece& p, const Piece& q) {
                                              // Who brought it is for the statistics only.
                                              return p.begin == q.begin && p.end == q.end &&
                                                     p.dirty == q.dirty;
                                            });
  });
}

}  // namespace tk::sim
