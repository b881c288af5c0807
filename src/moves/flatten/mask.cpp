#include "moves/flatten/mask.h"

#include <algorithm>
#include <optional>
#include <set>
#include <vector>

#include "base/error.h"
#include "graph/extract.h"
#include "moves/flatten/located.h"
#include "ops/interpret.h"

namespace tk {
namespace {

// Sizes and windows in the mask's arithmetic above this are scaled down before it is evaluated.
constexpr std::int64_t large_constant = 32;

// Integer constants of the nodes that could be a window: above large_constant.
std::set<std::int64_t> large_constants(const Graph& graph) {
  std::set<std::int64_t> found;
  for (Node* n : nodes(graph))
    for (const auto& [key, value] : n->attrs)
      if (const Sym* s = std::get_if<Sym>(&value); s != nullptr && s->is_const()) {
        const std::int64_t k = std::abs(s->value());
        if (key != "end" && key != "dtype" && k > large_constant && k < (std::int64_t{1} << 31))
          found.insert(k);
      }
  return found;
}

// The same arithmetic with each large constant replaced by a small one.
void scale_down(Graph* graph, const std::map<std::int64_t, std::int64_t>& to) {
  for (Node* n : nodes(*graph)) {
    Attrs attrs = n->attrs;
    for (const auto& [key, value] : n->attrs)
      if (const Sym* s = std::get_if<Sym>(&value); s != nullptr && s->is_const() && key != "end") {
        auto it = to.find(std::abs(s->value()));
        if (it != to.end()) attrs.set(key, Sym(s->value() < 0 ? -it->second : it->second));
      }
    n->attrs = attrs;
  }
}

// visible[q][k] for S tokens at positions 0 .. S-1.
struct Visible {
  std::int64_t n;
  std::vector<bool> at;
  bool operator()(std::int64_t q, std::int64_t k) const {
    return at[static_cast<std::size_t>(q * n + k)];
  }
};

class Evaluation {
 public:
  Evaluation(const Node& attention, const TokenSymbols& symbols, const Weights* weights)
      : attention_(attention), symbols_(symbols), weights_(weights) {}

  [[noreturn]] void unknown(const std::string& what) const {
    const Node* maker = attention_.in(3)->node != nullptr ? attention_.in(3)->node : &attention_;
    throw located({"TK0402", cat("the attention mask is none of the known ones: ", what)}, *maker)
        .note(cat("it is made by ", maker->op->name, " for the attention in ",
                  attention_.loc != nullptr ? attention_.loc->module : std::string("the graph")))
        .help("known are causal, causal within a sliding window, and causal within chunks");
  }

  // The mask with its last two axes as long as the tokens; it may be the same for all queries or
  // keys.
  TensorView spread(const TensorView& mask, std::int64_t n) const {
    TensorView out = mask;
    while (out.rank() < 2) {
      out.shape.insert(0, 1);
      out.strides.insert(0, 0);
    }
    for (int axis = out.rank() - 2; axis < out.rank(); ++axis) {
      if (out.shape[axis] == 1) {
        out.shape[axis] = n;
        out.strides[axis] = 0;
      }
      if (out.shape[axis] != n) unknown(cat("its shape for ", n, " tokens is ", mask.shape.str()));
    }
    return out;
  }

  Visible run(const Graph& symbolic, std::int64_t n) const {
    constexpr std::int64_t batch = 2;
    // Sizes are put in beforehand: a mask of plain aranges has no input to take them from.
    const Graph graph = symbolic.subst({{symbols_.batch, Sym(batch)}, {symbols_.token, Sym(n)}});
    std::vector<Tensor> inputs;
    for (const auto& v : graph.inputs()) {
      Tensor t = Tensor::zeros(v->type.dtype, concrete(v->type.shape, {}));
      if (v->name.find("position") != std::string::npos)
        for (std::int64_t i = 0; i < t.numel(); ++i) set_element(t, i, static_cast<double>(i % n));
      inputs.push_back(std::move(t));
    }
    static const Weights none;
    const Tensor made = interpret(graph, inputs, weights_ != nullptr ? *weights_ : none).at(0);
    const TensorView mask = spread(made, n);
    Visible out{n, std::vector<bool>(static_cast<std::size_t>(n * n))};
    for (std::int64_t i = 0; i < mask.numel(); ++i) {
      const double v = element(mask, i);
      bool seen = false;
      if (mask.dtype == DType::boolean) {
        seen = v != 0;
      } else if (v == 0) {
        seen = true;
      } else if (v > -1000) {
        unknown(cat("it adds ", v, " to a score (a position bias)"));
      }
      const auto at = static_cast<std::size_t>(i % (n * n));
      if (i >= n * n && out.at[at] != seen) unknown("it differs between sequences or heads");
      out.at[at] = seen;
    }
    return out;
  }

 private:
  const Node& attention_;
  const TokenSymbols& symbols_;
  const Weights* weights_;
};

std::optional<MaskFacts> compare(const Visible& v) {
  const auto all = [&](auto expected) {
    for (std::int64_t q = 0; q < v.n; ++q)
      for (std::int64_t k = 0; k < v.n; ++k)
        if (v(q, k) != expected(q, k)) return false;
    return true;
  };
  if (all([](auto, auto) { return true; })) return MaskFacts{"full", 0};
  if (all([](auto q, auto k) { return k <= q; })) return MaskFacts{"causal", 0};
  std::int64_t window = 0;  // keys that the last query sees
  for (std::int64_t k = 0; k < v.n; ++k) window += v(v.n - 1, k) ? 1 : 0;
  if (all([&](auto q, auto k) { return k <= q && k > q - window; }))
    return MaskFacts{"window", window};
  std::int64_t chunk = 0;  // the first query that does not see key 0
  while (chunk < v.n && v(chunk, 0)) ++chunk;
  if (chunk > 0 && all([&](auto q, auto k) { return k <= q && k / chunk == q / chunk; }))
    return MaskFacts{"chunk", chunk};
  return std::nullopt;
}

void check_weights(const Graph& graph, const Node& attention, const Weights* weights) {
  for (const auto& w : graph.weights())
    if (weights == nullptr || weights->find(w->name) == weights->end())
      throw UserError("TK0403",
                      cat("the attention mask depends on '", w->name, "', which has no data here"))
          .in_module(attention.loc != nullptr ? attention.loc->module : "")
          .help("give the weights with the graph");
}

}  // namespace

MaskFacts classify_mask(const Graph& graph, const Node& attention, const TokenSymbols& symbols,
                        const Weights* weights) {
  const bool causal = attention.args().flag("causal");
  Value* mask = attention.in(3);
  if (mask == nullptr) return {causal ? "causal" : "full", 0};
  const Graph part = extract(graph, std::span<Value* const>(&mask, 1));
  check_weights(part, attention, weights);
  const Evaluation evaluation(attention, symbols, weights);
  const std::set<std::int64_t> large = large_constants(part);

  // A mask cut from a table holds for the lengths of the capture only, and need be known for no
  // more.
  const auto range = graph.ranges.find(symbols.token);
  const std::int64_t longest = range == graph.ranges.end() ? INT64_MAX : range->second.max;

  // Without large constants one look at sizes beyond every window decides. With them, the mask is
  // looked at twice with different small stand-ins: a window that follows its stand-in is that
  // constant, give or take what the arithmetic adds.
  const auto look =
      [&](std::int64_t stand_in) -> std::pair<MaskFacts, std::map<std::int64_t, std::int64_t>> {
    Graph small = part.clone();
    std::map<std::int64_t, std::int64_t> to;
    for (std::int64_t k : large) to[k] = stand_in++;
    scale_down(&small, to);
    const std::int64_t sizes[] = {7, 3 * large_constant + 5};
    std::optional<MaskFacts> last;
    for (const std::int64_t size : sizes) {
      const std::int64_t n = std::min(size, longest);
      Visible visible = evaluation.run(small, n);
      if (causal)
        for (std::int64_t q = 0; q < n; ++q)
          for (std::int64_t k = q + 1; k < n; ++k)
            visible.at[static_cast<std::size_t>(q * n + k)] = false;
      last = compare(visible);
      if (!last) evaluation.unknown(cat("evaluated for ", n, " tokens it matches none"));
    }
    return {*last, to};
  };
  auto [first, to_first] = look(11);
  if (large.empty() || first.window == 0) return first;
  auto [second, to_second] = look(19);
  if (first.kind != second.kind) evaluation.unknown("it changes its kind with its size");
  if (first.window == second.window) return first;  // a small constant after all
  for (std::int64_t k : large) {
    const std::int64_t delta = first.window - to_first.at(k);
    if (second.window - to_second.at(k) == delta && std::abs(delta) <= 2)
      return {first.kind, k + delta};
  }
  evaluation.unknown("its window follows none of its constants");
}

std::vector<MaskFacts> take_masks(Graph* graph, const TokenSymbols& symbols,
                                  const Weights* weights) {
  std::vector<MaskFacts> masks;
  std::map<std::pair<const Value*, bool>, MaskFacts> known;
  for (Node* n : nodes(*graph)) {
    if (!n->is("tk.attention")) continue;
    const auto key = std::make_pair(static_cast<const Value*>(n->in(3)), n->args().flag("causal"));
    auto it = known.find(key);
    if (it == known.end())
      it = known.emplace(key, classify_mask(*graph, *n, symbols, weights)).first;
    if (it->second.kind == "full") {
      throw located({"TK0404",
                     "this attention sees tokens that come later; with a cache they are not there "
                     "yet"},
                    *n)
          .help("only causal attention can be served token by token");
    }
    masks.push_back(it->second);
  }
  for (Node* n : nodes(*graph))
    if (n->is("tk.attention") && n->in(3) != nullptr) graph->set_input(n, 3, nullptr);
  graph->erase_dead();
  return masks;
}

}  // namespace tk
