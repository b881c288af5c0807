// Routed experts: sorted by expert and multiplied in groups, or with each token's weights gathered
// and multiplied one by one. Both become
//   init_routing_v2 -> grouped_matmul -> (what was in between) -> grouped_matmul -> finalize
#include <algorithm>
#include <unordered_set>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/row_wise.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

constexpr std::string_view name = "fuse_moe";

struct Product {  // y = h @ weight[expert] (+ bias[expert]), h and y a row per pair
  Value* y;
  Value* h;
  Value* weight;          // [E, K, N], or [E, N, K] when transposed
  Value* bias = nullptr;  // [E, N]
  bool transposed = false;
};

// One layer of experts. Pairs (t, j) of a token and one of its experts are numbered t * k + j.
struct Experts {
  Node* anchor = nullptr;    // the sort, or the repetition of the tokens
  Value* x = nullptr;        // [T, H]
  Value* ids = nullptr;      // [T, k]
  Value* weights = nullptr;  // [T, k]
  Value* rows = nullptr;     // [T * k, H]: the tokens, one row per pair
  Value* last = nullptr;     // [T * k, H]: what is weighted and summed
  Value* out = nullptr;      // [T, H]
  std::vector<Product> products;
  std::string missing;  // what could not be matched; the experts are then left alone
};

Value* peel(Value* v, std::string_view op) {
  while (v->node != nullptr && v->node->is(op)) v = v->node->inputs[0];
  return v;
}

// The [T, k] that `flat` [T * k] was reshaped from.
Value* pairs_of(Value* flat) {
  for (Value* v = flat;; v = v->node->inputs[0]) {
    if (v->type.rank() == 2 && v->type.dim(1).is_const()) return v;
    if (v->node == nullptr || (!v->node->is("aten.reshape") && !v->node->is("aten.to")))
      return nullptr;
  }
}

// Rows of a table by one index: table[rows].
bool is_gather(const Node& n, Value** table, Value** rows) {
  if (n.is("aten.index")) {
    if (n.inputs.size() != 2 || n.inputs[1] == nullptr) return false;
  } else if (!n.is("aten.index_select") || !n.args().sym("dim").is(0)) {
    return false;
  }
  *table = n.inputs[0];
  *rows = n.inputs[1];
  return (*rows)->type.rank() == 1 && is_integral((*rows)->type.dtype) &&
         (*rows)->type.dtype != DType::boolean;
}

bool is_iota(const Value* v, const Sym& size) {
  if (v->node == nullptr || !v->node->is("aten.arange")) return false;
  const Args a = v->node->args();
  return v->type.rank() == 1 && v->type.dim(0) == size &&
         (!a.has_attr("start") || a.sym("start").is(0));
}

std::string describe(const Node& n) {
  std::string s(n.op->name);
  if (n.loc != nullptr && !n.loc->file.empty()) s += cat(" (", n.loc->file, ":", n.loc->line, ")");
  return s;
}

// y + bias[ids], when that is the only use of y.
void take_bias(Product* p, const Value* ids) {
  if (!p->y->has_one_use() || p->y->uses[0].node == nullptr) return;
  const Node& add = *p->y->uses[0].node;
  if (!add.is("aten.add") || add.in(1) == nullptr || add.args().f64("alpha") != 1.0) return;
  const Value* other = add.inputs[0] == p->y ? add.inputs[1] : add.inputs[0];
  Value* table = nullptr;
  Value* rows = nullptr;
  if (other->node == nullptr || !is_gather(*other->node, &table, &rows) || rows != ids ||
      table->type.rank() != 2 || !from_weights_only(table))
    return;
  p->bias = table;
  p->y = add.out();
}

// sum over k of reshape(weighted, [T, k, H]); then perhaps a cast to the rows' dtype.
bool take_sum(Experts* e, Value* weighted) {
  if (!weighted->has_one_use() || weighted->uses[0].node == nullptr) return false;
  const Node& shape = *weighted->uses[0].node;
  const Sym k = e->ids->type.dim(1);
  const SymDims expected{e->ids->type.dim(0), k, weighted->type.dim(1)};
  if (!shape.is("aten.reshape") || shape.out()->type.shape != expected ||
      !shape.out()->has_one_use() || shape.out()->uses[0].node == nullptr)
    return false;
  const Node& sum = *shape.out()->uses[0].node;
  if (!sum.is("aten.sum") || sum.args().syms("dim") != SymDims{1} || sum.args().flag("keepdim"))
    return false;
  e->out = sum.out();
  const DType dtype = e->last->type.dtype;
  if (e->out->type.dtype == dtype) return true;
  // Wider weights: the sum is rounded by a cast, as the fused operator does at its end.
  if (!e->out->has_one_use() || e->out->uses[0].node == nullptr ||
      !e->out->uses[0].node->is("aten.to"))
    return false;
  e->out = e->out->uses[0].node->out();
  return e->out->type.dtype == dtype;
}

// rows * reshape(scale, [T * k, 1]), either way round; the rows may have been widened.
bool take_scaling(Experts* e, const Node& mul, const Value* scale) {
  if (!mul.is("aten.mul") || mul.in(1) == nullptr) return false;
  for (int i : {0, 1}) {
    Value* column = peel(mul.inputs[static_cast<std::size_t>(i)], "aten.to");
    if (column->node == nullptr || !column->node->is("aten.reshape") || column->type.rank() != 2 ||
        !column->type.dim(1).is(1) || peel(column->node->inputs[0], "aten.to") != scale)
      continue;
    e->last = peel(mul.inputs[static_cast<std::size_t>(1 - i)], "aten.to");
    return e->last->type.rank() == 2;
  }
  return false;
}

// ---- sorted by expert

struct Sorted {
  Value* perm;                   // sorted place -> pair
  Value* experts;                // the sorted ids
  std::vector<Value*> scales;    // weights in sorted order
  std::vector<Value*> inverses;  // pair -> sorted place
  std::vector<Value*> totals;    // running totals of rows per expert
};

// Follows the uses of the permutation.
bool read_permutation(Experts* e, Sorted* s) {
  const Sym k = e->ids->type.dim(1);
  const Sym n = s->perm->type.dim(0);
  for (const Use& use : s->perm->uses) {
    Node* user = use.node;
    if (user == nullptr) return false;
    Value* table = nullptr;
    Value* rows = nullptr;
    if (user->is("aten.full_like")) continue;
    if (user->is("aten.floor_divide") && user->in(1) == nullptr && user->args().sym("other") == k) {
      for (const Use& token : user->out()->uses) {
        if (token.node == nullptr || !is_gather(*token.node, &table, &rows) ||
            rows != user->out() || table->type.rank() != 2 || e->rows != nullptr)
          return false;
        e->x = table;
        e->rows = token.node->out();
      }
    } else if (is_gather(*user, &table, &rows) && rows == s->perm && table->type.rank() == 1) {
      e->weights = pairs_of(table);
      s->scales.push_back(user->out());
    } else if ((user->is("aten.index_put") && user->inputs.size() == 3 &&
                user->inputs[2] == s->perm && is_iota(user->inputs[1], n) &&
                !user->args().flag("accumulate")) ||
               (user->is("aten.argsort") && !user->args().flag("descending"))) {
      s->inverses.push_back(user->out());
    } else {
      e->missing = cat("the sorted order is also used by ", describe(*user));
      return true;
    }
  }
  return e->rows != nullptr && e->weights != nullptr && s->scales.size() == 1 &&
         s->inverses.size() == 1;
}

// Follows the sorted ids to the running totals of rows per expert.
bool read_totals(Experts* e, Sorted* s) {
  for (const Use& use : s->experts->uses) {
    Node* n = use.node;
    if (n == nullptr) return false;
    Value* table = nullptr;
    Value* rows = nullptr;
    if (is_gather(*n, &table, &rows) && rows == s->experts) continue;  // a bias; seen later
    while (n->is("aten.to") && n->out()->has_one_use() && n->out()->uses[0].node != nullptr)
      n = n->out()->uses[0].node;
    if ((!n->is("aten.histc") && !n->is("aten.bincount")) || !n->out()->has_one_use()) {
      e->missing = cat("the sorted experts are also used by ", describe(*n));
      return true;
    }
    n = n->out()->uses[0].node;
    if (n == nullptr || !n->is("aten.cumsum")) return false;
    Value* totals = n->out();
    while (totals->has_one_use() && totals->uses[0].node != nullptr &&
           totals->uses[0].node->is("aten.to"))
      totals = totals->uses[0].node->out();
    s->totals.push_back(totals);
  }
  return s->totals.size() == 1;
}

bool read_sorted(Node* sort, Experts* e) {
  if (!sort->is("aten.sort") || sort->inputs[0]->type.rank() != 1 ||
      sort->args().flag("descending"))
    return false;
  e->anchor = sort;
  e->ids = pairs_of(sort->inputs[0]);
  if (e->ids == nullptr || e->ids == sort->inputs[0]) return false;
  Sorted s{sort->out(1), sort->out(0), {}, {}, {}};
  if (!read_permutation(e, &s) || !e->missing.empty()) return !e->missing.empty();
  if (!read_totals(e, &s) || !e->missing.empty()) return !e->missing.empty();
  for (const Use& use : s.totals[0]->uses) {
    if (use.node == nullptr || !use.node->is("aten._grouped_mm") || use.index != 2) return false;
    Node* n = use.node;
    Product p{n->out(), n->inputs[0], n->inputs[1]};
    if (n->in(3) != nullptr || p.weight->type.rank() != 3) return false;
    take_bias(&p, s.experts);
    e->products.push_back(p);
  }
  if (!s.inverses[0]->has_one_use() || s.inverses[0]->uses[0].node == nullptr) return false;
  Value* scaled = nullptr;
  Value* rows = nullptr;
  const Node& back = *s.inverses[0]->uses[0].node;
  return is_gather(back, &scaled, &rows) && rows == s.inverses[0] && scaled->node != nullptr &&
         take_scaling(e, *scaled->node, s.scales[0]) && take_sum(e, back.out());
}

// ---- one product per pair

// bmm of gathered weights and one row: weights[ids] @ h or h @ weights[ids].
bool read_pair_product(const Node& bmm, const Value* ids, Product* p) {
  if (!bmm.is("aten.bmm") || !bmm.out()->has_one_use() || bmm.out()->uses[0].node == nullptr)
    return false;
  for (const bool left : {true, false}) {
    const Value* gathered = bmm.inputs[left ? 0 : 1];
    const Value* row = bmm.inputs[left ? 1 : 0];
    Value* table = nullptr;
    Value* rows = nullptr;
    if (gathered->node == nullptr || !is_gather(*gathered->node, &table, &rows) || rows != ids ||
        table->type.rank() != 3 || row->node == nullptr || !row->node->is("aten.reshape") ||
        row->node->inputs[0]->type.rank() != 2)
      continue;
    const Node& flat = *bmm.out()->uses[0].node;
    if (!flat.is("aten.reshape") || flat.out()->type.rank() != 2) return false;
    *p = {flat.out(), row->node->inputs[0], table, nullptr, left};
    take_bias(p, ids);
    return true;
  }
  return false;
}

// Follows the rows from their first use to the weighted sum; everything on the way must work row by
// row, as rows will be in another order there.
bool read_batched(Node* repeat, Experts* e) {
  if (!repeat->is("aten.repeat_interleave") || repeat->inputs[0]->type.rank() != 2 ||
      !repeat->args().has_attr("dim") || !repeat->args().sym("dim").is(0))
    return false;
  e->anchor = repeat;
  e->x = repeat->inputs[0];
  e->rows = repeat->out();
  const Sym k = repeat->args().sym("repeats");
  std::vector<Value*> open{e->rows};
  std::unordered_set<const Value*> rows{e->rows};
  Value* flat_ids = nullptr;
  auto add = [&](Value* v) {
    if (rows.insert(v).second) open.push_back(v);
  };
  while (!open.empty()) {
    const Value* v = open.back();
    open.pop_back();
    for (const Use& use : v->uses) {
      Node* n = use.node;
      if (n == nullptr) return false;
      Product p{};
      if (n->is("aten.reshape") && n->out()->type.rank() == 3 && n->out()->has_one_use() &&
          n->out()->uses[0].node != nullptr && n->out()->uses[0].node->is("aten.bmm")) {
        const Node& bmm = *n->out()->uses[0].node;
        for (const Value* in : bmm.inputs) {
          Value* table = nullptr;
          Value* index = nullptr;
          if (flat_ids == nullptr && in->node != nullptr && is_gather(*in->node, &table, &index))
            flat_ids = index;
        }
        if (flat_ids == nullptr || !read_pair_product(bmm, flat_ids, &p)) {
          e->missing = cat("no product with gathered weights at ", describe(bmm));
          return !e->products.empty();
        }
        e->products.push_back(p);
        add(p.y);
        continue;
      }
      if (flat_ids != nullptr && e->ids == nullptr) e->ids = pairs_of(flat_ids);
      // The end: weighted by reshape(weights, [T * k, 1]).
      if (n->is("aten.mul") && n->in(1) != nullptr && e->ids != nullptr && e->out == nullptr) {
        const Value* other = n->inputs[0] == v ? n->inputs[1] : n->inputs[0];
        const Value* column = peel(const_cast<Value*>(other), "aten.to");
        if (rows.count(other) == 0 && column->node != nullptr && column->node->is("aten.reshape") &&
            column->type.rank() == 2 && column->type.dim(1).is(1)) {
          Value* scale = peel(column->node->inputs[0], "aten.to");
          e->weights = pairs_of(scale);
          if (e->weights == nullptr || !take_scaling(e, *n, scale) || !take_sum(e, n->out()))
            return false;
          continue;
        }
      }
      if (!is_row_wise(*n, [&](const Value* in) { return rows.count(in) != 0; })) {
        e->missing = cat(describe(*n), " does not work row by row");
        return !e->products.empty();
      }
      for (const auto& out : n->outputs) add(out.get());
    }
  }
  return e->out != nullptr && e->ids != nullptr && e->ids->type.dim(1) == k && !e->products.empty();
}

std::string check(const Experts& e) {
  if (!e.missing.empty()) return e.missing;
  const Sym n = e.products[0].weight->type.dim(0);
  for (const Product& p : e.products) {
    if (!n.is_const() || !(p.weight->type.dim(0) == n)) return "the numbers of experts differ";
    if (p.weight->type.dtype != p.h->type.dtype)
      return cat("a product of ", p.h->type.str(), " and ", p.weight->type.str());
  }
  if (!(e.weights->type.shape == e.ids->type.shape)) return "weights and ids differ in shape";
  if (!(e.out->type == Type{e.last->type.dtype, {e.x->type.dim(0), e.last->type.dim(1)}}))
    return cat("the sum has type ", e.out->type.str());
  return "";
}

std::vector<Experts> all_experts(const Graph& graph) {
  std::vector<Experts> out;
  for (Node* n : nodes(graph)) {
    Experts e;
    if (read_sorted(n, &e)) {
      out.push_back(std::move(e));
      continue;
    }
    Experts b;
    if (read_batched(n, &b)) out.push_back(std::move(b));
  }
  return out;
}

// Returns the nodes that were made.
std::vector<Node*> build(Graph& graph, const Experts& e) {
  std::vector<Node*> made;
  Builder b{graph, e.rows->node, e.rows->node->loc};
  auto node = [&](std::string_view op, std::vector<Value*> inputs, Attrs attrs) {
    made.push_back(b.node(op, std::move(inputs), std::move(attrs)));
    return made.back();
  };
  std::vector<std::pair<Value*, Value*>> replaced;
  auto replace = [&](Value* old_value, Value* new_value) {
    graph.replace_uses(old_value, new_value);
    replaced.emplace_back(old_value, new_value);
  };
  auto now = [&](Value* v) {
    for (const auto& [old_value, new_value] : replaced)
      if (v == old_value) return new_value;
    return v;
  };

  Value* const needed[] = {e.ids, e.x};
  TK_CHECK(hoist_before(graph, needed, b.before, {}), "experts that depend on themselves");
  Node* routing = node("npu.npu_moe_init_routing_v2", {e.x, as_dtype(b, e.ids, DType::i32)},
                       {{"expert_num", e.products[0].weight->type.dim(0)},
                        {"expert_tokens_num_type", Sym(1)},
                        {"expert_tokens_num_flag", true}});
  replace(e.rows, routing->out(0));
  for (const Product& p : e.products) {
    b.before = p.y->node;
    b.loc = p.y->node->loc;
    Value* w = p.weight;
    if (p.transposed) w = b.op("aten.permute", {w}, {{"dims", SymDims{0, 2, 1}}});
    Node* product =
        node("npu.npu_grouped_matmul", {now(p.h), w, p.bias, routing->out(2)},
             {{"split_item", Sym(3)}, {"group_type", Sym(0)}, {"group_list_type", Sym(1)}});
    replace(p.y, product->out());
  }
  b.before = e.out->node;
  b.loc = e.out->node->loc;
  Node* out = node("npu.npu_moe_finalize_routing",
                   {now(e.last), nullptr, nullptr, nullptr, e.weights, routing->out(1), nullptr},
                   {{"drop_pad_mode", Sym(2)}});
  replace(e.out, out->out());
  graph.erase_dead();
  return made;
}

std::vector<Site> find(const Graph& graph, Target target) {
  const std::vector<Node*> order = nodes_in_order(graph);
  const std::vector<Experts> experts = all_experts(graph);
  Graph copy = graph.clone();
  const std::vector<Experts> copies = all_experts(copy);
  TK_CHECK(copies.size() == experts.size(), "a clone with other experts");
  std::vector<Site> sites;
  for (std::size_t i = 0; i < experts.size(); ++i) {
    Site site = site_at(name, *experts[i].anchor, {}, order);
    if (const std::string why = check(experts[i]); !why.empty()) {
      site.verdict = {VerdictKind::pending, why, "", {}};
    } else {
      for (const Node* n : build(copy, copies[i])) judge_limits(*n, target, &site.verdict);
    }
    sites.push_back(std::move(site));
  }
  return sites;
}

std::size_t apply(Graph& graph, std::span<const Site> sites) {
  const std::vector<Node*> order = nodes_in_order(graph);
  std::vector<Node*> anchors;
  for (const Site& s : sites)
    if (s.verdict.ok()) anchors.push_back(order.at(static_cast<std::size_t>(s.nodes.at(0))));
  std::size_t n = 0;
  for (const Experts& e : all_experts(graph)) {
    if (std::find(anchors.begin(), anchors.end(), e.anchor) == anchors.end() || !check(e).empty())
      continue;
    build(graph, e);
    ++n;
  }
  return n;
}

}  // namespace

Move fuse_moe() {
  Move move;
  move.name = name;
  move.doc =
      "sort by expert, grouped products, weighted sum -> npu.npu_moe_init_routing_v2, "
      "npu.npu_grouped_matmul, npu.npu_moe_finalize_routing";
  move.target_op = "npu.npu_grouped_matmul";
  move.find = find;
  move.apply = apply;
  return move;
}

}  // namespace tk::fuse
