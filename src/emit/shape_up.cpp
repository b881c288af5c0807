#include "emit/shape_up.h"

#include <algorithm>
#include <map>
#include <set>

#include "base/error.h"
#include "graph/op.h"

namespace tk::emit {
namespace {

constexpr std::string_view rows_input = "logit_rows";

std::vector<Type> norm_infer(const Args& args) { return {args.in(0), args.in(0)}; }
std::vector<Type> none_infer(const Args& args) {
  return {{args.dtype("dtype"), args.syms("size")}};
}

// "model.layers.*.input_layernorm": the same place of any layer.
std::string place_of(const Node& n) {
  std::string place;
  bool number = false;
  for (const char c : n.loc == nullptr ? std::string() : n.loc->module) {
    const bool digit = c >= '0' && c <= '9';
    if (!digit) place += c;
    if (digit && !number) place += '*';
    number = digit;
  }
  return place;
}

// The product that makes the logits.
Node* head_of(const Graph& graph) {
  Node* n = graph.outputs().empty() ? nullptr : graph.outputs()[0]->node;
  while (n != nullptr && !n->is("aten.linear") && !n->is("aten.matmul") && !n->is("aten.mm"))
    n = n->in(0) == nullptr ? nullptr : n->in(0)->node;
  return n;
}

}  // namespace

const OpDef residual_norm{
    .name = "emit.residual_norm",
    .schema = "(Tensor x, Tensor? residual, Tensor gamma, float epsilon=1e-06) -> (Tensor, Tensor)",
    .doc = "rms_norm(x + residual), and the sum.",
    .infer = norm_infer,
};

const OpDef none{
    .name = "emit.none",
    .schema = "(*, int[] size, dtype dtype) -> Tensor",
    .doc = "None.",
    .infer = none_infer,
};

Graph rows_before_head(const Graph& graph) {
  const Value* rows = graph.find_input(rows_input);
  if (rows == nullptr || rows->type.rank() != 1) return graph.clone();
  const Sym tokens = graph.find_input("input_ids")->type.dim(0);
  Graph out = graph.subst({{rows->type.dim(0).str(), tokens}});
  Value* index = out.find_input(rows_input);
  for (Node* n : nodes(out))
    if (n->is("aten.index_select") && n->in(1) == index && n->args().i64("dim") == 0) {
      out.replace_uses(n->out(), n->in(0));
      out.erase(n);
    }
  Node* head = head_of(out);
  TK_CHECK(head != nullptr, "logits without a product");
  Builder b{out, head, out.loc({})};  // of the model, so that the head stays a module
  Value* chosen = b.op("aten.index_select", {head->in(0), index}, {{"dim", Sym(0)}});
  out.set_input(head, 0, chosen);
  return out;
}

void unify_norms(Graph* graph) {
  std::set<std::string> places;
  for (const Node* n : nodes(*graph))
    if (n->is("npu.npu_add_rms_norm") && !place_of(*n).empty()) places.insert(place_of(*n));
  for (Node* n : nodes(*graph)) {
    const bool adds = n->is("npu.npu_add_rms_norm");
    const bool shifted = n->is("npu.npu_gemma_rms_norm");  // by 1 + gamma
    if (!adds && !shifted && !n->is("npu.npu_rms_norm")) continue;
    if (places.count(place_of(*n)) == 0) continue;
    Attrs attrs;
    if (const Attr* e = n->attrs.find("epsilon")) attrs.set("epsilon", *e);
    Value* x = n->in(0);
    if (adds) {
      // x1 is the stream of the layers before, x2 what the last one adds.
      Node* made = graph->insert(n, residual_norm, {n->in(1), x, n->in(2)}, attrs, n->loc);
      graph->replace_uses(n->out(0), made->out(0));
      graph->replace_uses(n->out(2), made->out(1));
      graph->erase(n);
      continue;
    }
    Node* nothing =
        graph->insert(n, none, {}, {{"size", x->type.shape}, {"dtype", x->type.dtype}}, nullptr);
    Value* gamma = n->in(1);
    if (shifted)
      gamma = Builder{*graph, n, n->loc}.op("aten.add", {gamma, nullptr}, {{"other", 1.0}});
    Node* made = graph->insert(n, residual_norm, {x, nothing->out(), gamma}, attrs, n->loc);
    graph->replace_uses(n->out(0), made->out(0));
    // Later readers of the stream take it from the norm.
    const std::vector<Use> uses = x->uses;
    for (const Use& use : uses)
      if (use.node != nullptr && use.node->order > n->order)
        graph->set_input(use.node, use.index, made->out(1));
    graph->erase(n);
  }
}

void merge_reshapes(Graph* graph) {
  for (Node* n : nodes(*graph))
    if (n->is("aten.reshape") && n->in(0)->node != nullptr && n->in(0)->node->is("aten.reshape"))
      graph->set_input(n, 0, n->in(0)->node->in(0));
}

void split_slices(Graph* graph) {
  std::vector<Value*> values;
  for (Node* n : nodes(*graph))
    for (const auto& v : n->outputs) values.push_back(v.get());
  std::set<const Value*> gone;
  for (std::size_t at = 0; at < values.size(); ++at) {  // parts may be cut again
    Value* v = values[at];
    if (gone.count(v) != 0) continue;
    const int axis = v->type.rank() - 1;
    // What has no free size is worked out from weights, once.
    if (axis < 1 || !v->type.dim(axis).is_const() || v->type.numel().is_const()) continue;
    std::map<std::int64_t, std::vector<Node*>> parts;  // by their start
    for (const Use& use : v->uses) {
      if (use.node == nullptr || !use.node->is("aten.slice") || use.node->in(0) != v) continue;
      const Args a = use.node->args();
      const std::int64_t dim = a.i64("dim");
      if ((dim < 0 ? dim + axis + 1 : dim) != axis || a.i64("step") != 1) continue;
      const Attr* start = a.attr("start");
      const Sym first = start == nullptr ? Sym(0) : std::get<Sym>(*start);
      if (first.is_const()) parts[first.value()].push_back(use.node);
    }
    if (parts.size() < 2) continue;
    SymDims sizes;
    std::int64_t end = 0;
    for (const auto& [start, slices] : parts) {
      const Sym& size = slices[0]->out()->type.dim(axis);
      const bool alike = std::all_of(slices.begin(), slices.end(), [&](const Node* s) {
        return s->out()->type.dim(axis) == size;
      });
      if (start != end || !alike || !size.is_const()) break;
      end += size.value();
      sizes.push_back(size);
    }
    if (sizes.size() != parts.size() || !v->type.dim(axis).is(end)) continue;
    Node* first = parts.begin()->second[0];
    for (const auto& [start, slices] : parts)
      for (Node* s : slices)
        if (s->order < first->order) first = s;
    Node* made = graph->insert(first, *find_op("aten.split"), {v},
                               {{"split_size", sizes}, {"dim", Sym(axis)}}, v->node->loc);
    int i = 0;
    for (const auto& [start, slices] : parts) {
      Value* part = made->out(i++);
      values.push_back(part);
      if (slices[0]->loc != nullptr) part->name = slices[0]->loc->module;
      for (Node* s : slices) {
        graph->replace_uses(s->out(), part);
        gone.insert(s->out());
        graph->erase(s);
      }
    }
  }
}

}  // namespace tk::emit
