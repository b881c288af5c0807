#include "moves/flatten/layout.h"

#include <algorithm>

#include "base/error.h"

namespace tk {

bool carries_tokens(const Axis& axis) {
  return std::any_of(axis.begin(), axis.end(),
                     [](const Factor& f) { return f.tag == Tag::token || f.tag == Tag::permuted; });
}
bool carries_batch(const Axis& axis) {
  return std::any_of(axis.begin(), axis.end(), [](const Factor& f) { return f.tag == Tag::batch; });
}
bool carries_tokens(const Layout& layout) {
  return std::any_of(layout.begin(), layout.end(), [](const Axis& a) { return carries_tokens(a); });
}
bool is_tagged(const Layout& layout) {
  return std::any_of(layout.begin(), layout.end(),
                     [](const Axis& a) { return carries_tokens(a) || carries_batch(a); });
}

Sym size_of_axis(const Axis& axis) {
  Sym n = 1;
  for (const Factor& f : axis) n = n * f.size;
  return n;
}

std::string str(const Layout& layout) {
  std::string s = "[";
  for (std::size_t i = 0; i < layout.size(); ++i) {
    if (i != 0) s += ", ";
    if (layout[i].empty()) s += '1';
    for (std::size_t j = 0; j < layout[i].size(); ++j) {
      const Factor& f = layout[i][j];
      if (j != 0) s += '*';
      s += f.tag == Tag::batch      ? "batch"
           : f.tag == Tag::token    ? "token"
           : f.tag == Tag::permuted ? "permuted"
                                    : f.size.str();
    }
  }
  return s + "]";
}

Layout layout_of_sizes(const SymDims& shape, const TokenSymbols& symbols) {
  Layout layout;
  const Sym batch = Sym::symbol(symbols.batch);
  const Sym token = Sym::symbol(symbols.token);
  for (const Sym& d : shape) {
    Axis axis;
    Sym rest = d;
    if (auto q = exact_div(rest, batch)) {
      axis.push_back({Tag::batch, batch, nullptr});
      rest = *q;
    }
    if (auto q = exact_div(rest, token)) {
      axis.push_back({Tag::token, token, nullptr});
      rest = *q;
    }
    if (!rest.is(1)) axis.push_back({Tag::plain, rest, nullptr});
    layout.push_back(std::move(axis));
  }
  return layout;
}

Axis merged(Axis axis) {
  Axis out;
  for (Factor& f : axis) {
    if (!out.empty() && out.back().tag == Tag::plain && f.tag == Tag::plain) {
      out.back().size = out.back().size * f.size;
    } else {
      out.push_back(std::move(f));
    }
  }
  return out;
}

std::optional<Layout> reshaped(const Layout& layout, const SymDims& shape) {
  std::vector<Factor> factors;
  for (const Axis& axis : layout) factors.insert(factors.end(), axis.begin(), axis.end());
  std::size_t at = 0;
  Layout out;
  for (const Sym& want : shape) {
    Axis axis;
    Sym rest = want;
    while (!rest.is(1)) {
      if (at == factors.size()) return std::nullopt;
      Factor& f = factors[at];
      if (auto q = exact_div(rest, f.size)) {
        axis.push_back(f);
        rest = *q;
        ++at;
      } else if (auto part = exact_div(f.size, rest); part && f.tag == Tag::plain) {
        axis.push_back({Tag::plain, rest, nullptr});
        f.size = *part;
        rest = 1;
      } else {
        return std::nullopt;
      }
    }
    out.push_back(merged(std::move(axis)));
  }
  if (at != factors.size()) return std::nullopt;
  return out;
}

std::optional<Layout> broadcast(const std::vector<const Layout*>& layouts) {
  std::size_t rank = 0;
  for (const Layout* l : layouts) rank = std::max(rank, l->size());
  Layout out(rank);
  for (const Layout* l : layouts)
    for (std::size_t i = 0; i < l->size(); ++i) {
      const Axis& axis = (*l)[i];
      Axis& to = out[rank - l->size() + i];
      if (axis.empty() || axis == to) continue;
      if (!to.empty()) return std::nullopt;
      to = axis;
    }
  return out;
}

FlatShape flat_shape(const Layout& layout, const TokenSymbols& symbols) {
  FlatShape flat;
  const std::map<std::string, Sym, std::less<>> env{{symbols.batch, Sym(1)},
                                                    {symbols.token, Sym::symbol("T")}};
  for (const Axis& axis : layout) {
    const bool batch_alone = axis.size() == 1 && axis[0].tag == Tag::batch;
    flat.dropped.push_back(batch_alone);
    if (batch_alone) continue;
    flat.shape.push_back(size_of_axis(axis).subst(env));
  }
  return flat;
}

}  // namespace tk
