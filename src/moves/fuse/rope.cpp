// Rotary position embedding: halves (rotate_half, and the two products of chunked halves), and
// neighbours regrouped into halves.
#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "moves/fuse/moves.h"
#include "moves/fuse/vocabulary.h"

namespace tk::fuse {
namespace {

// cat(t, t) along the last axis; one that is there already is taken again.
Value* doubled(Build& b, Value* t) {
  for (const Use& use : t->uses) {
    Node* n = use.node;
    if (n != nullptr && n->is("aten.cat") && n->inputs.size() == 2 && n->inputs[0] == t &&
        n->inputs[1] == t && is_last_axis(*n) && n->order < b.before->order)
      return n->out();
  }
  return b.op("aten.cat", {t, t}, {{"dim", Sym(t->type.rank() - 1)}});
}

// Both halves of the last axis of v are the same, as in cos(cat(f, f)): looks through what works
// element by element, and through new and moved axes other than the last.
bool has_equal_halves(const Value* v) {
  while (v->node != nullptr) {
    const Node& n = *v->node;
    const std::string_view op = n.op->name;
    if (op == "aten.cat")
      return n.inputs.size() == 2 && n.inputs[0] == n.inputs[1] && is_last_axis(n);
    const bool elementwise = op == "aten.cos" || op == "aten.sin" || op == "aten.to" ||
                             ((op == "aten.mul" || op == "aten.add") && n.in(1) == nullptr);
    const bool keeps_last = (op == "aten.reshape" || op == "aten.expand") && v->type.rank() >= 1 &&
                            n.inputs[0]->type.rank() >= 1 &&
                            v->type.shape.back() == n.inputs[0]->type.shape.back();
    // index_select and index of rows keep the last axis when they take whole rows.
    const bool picks_rows =
        op == "aten.index_select" && n.inputs[0]->type.rank() >= 2 && !is_last_axis(n);
    if (!elementwise && !keeps_last && !picks_rows) return false;
    v = n.inputs[0];
  }
  return false;
}

// The table whose first half `v` is, when its halves are the same; else `v` twice. Between the
// slice and v there may be a reshape for the head axis.
Value* whole_table(Build& b, Value* v) {
  Value* cut = v;
  const bool reshaped = v->node != nullptr && v->node->is("aten.reshape");
  if (reshaped) cut = v->node->inputs[0];
  const Sym half = v->type.shape.back();
  if (cut->node == nullptr || !cut->node->is("aten.slice") || !(cut->type.shape.back() == half) ||
      !is_last_axis(*cut->node))
    return doubled(b, v);
  Value* table = cut->node->inputs[0];
  const Args args = cut->node->args();
  if ((args.has_attr("start") && !args.sym("start").is(0)) || !args.sym("step").is(1) ||
      !(table->type.shape.back() == half + half) || !has_equal_halves(table))
    return doubled(b, v);
  if (!reshaped) return table;
  SymDims shape = v->type.shape;
  shape.back() = half + half;
  for (const Use& use : table->uses)
    if (use.node != nullptr && use.node->is("aten.reshape") &&
        use.node->out()->type.shape == shape && use.node->order < b.before->order)
      return use.node->out();
  return b.op("aten.reshape", {table}, {{"shape", shape}});
}

// The operator's tables have x's dtype; the rotation of 16-bit x by f32 tables is rounded once.
Value* rotary_mul(Build& b, Value* x, Value* cos, Value* sin) {
  return b.op("npu.npu_rotary_mul", {x, cos, sin});
}

std::vector<std::pair<std::string, Type>> tables(DType d, Sym t, std::int64_t heads,
                                                 std::int64_t size, std::int64_t table) {
  return {{"x", {d, {t, heads, size}}}, {"cos", {d, {t, 1, table}}}, {"sin", {d, {t, 1, table}}}};
}

// The operator takes [B, N, S, D]: packed tokens [T, N, D] are T sequences of one.
Value* interleave_rope(Build& b, Value* x, Value* cos, Value* sin) {
  const auto call = [&](Value* v, Value* c, Value* s) {
    return b.op("npu.npu_interleave_rope", {v, c, s});
  };
  if (x->type.rank() != 3) return call(x, cos, sin);
  const auto with_one = [&](Value* v) {
    const SymDims& d = v->type.shape;
    return b.op("aten.reshape", {v}, {{"shape", SymDims{d[0], d[1], 1, d[2]}}});
  };
  Value* turned = call(with_one(x), with_one(cos), with_one(sin));
  return b.op("aten.reshape", {turned}, {{"shape", x->type.shape}});
}

// Whether `v` is cosines or sines times a number above 1, seen through casts and views: the tables
// of scaled embeddings.
bool is_scaled_table(const Value* v) {
  bool scaled = false;
  while (v != nullptr && v->node != nullptr) {
    const Node& n = *v->node;
    if (n.is("aten.cos") || n.is("aten.sin")) return scaled;
    const Attr* factor = n.is("aten.mul") ? n.attrs.find("other") : nullptr;
    if (factor != nullptr) {
      const auto* d = std::get_if<double>(factor);
      scaled |= d != nullptr && std::abs(*d) > 1;
    } else if (n.op->view == nullptr && !n.is("aten.to") && !n.is("aten.cat")) {
      return false;
    }
    v = n.in(0);
  }
  return false;
}

// Contents decide rotary_mul.range, and of such tables they are known from the graph.
void refuse_scaled_tables(const Graph& graph, std::vector<Site>* sites) {
  const std::vector<Node*> order = nodes_in_order(graph);
  for (Site& site : *sites) {
    const bool scaled = std::any_of(site.nodes.begin(), site.nodes.end(), [&](std::int64_t p) {
      const Node& n = *order[static_cast<std::size_t>(p)];
      return n.is("aten.mul") && (is_scaled_table(n.in(0)) || is_scaled_table(n.in(1)));
    });
    if (!scaled || site.verdict.kind == VerdictKind::not_adaptable) continue;
    site.verdict.kind = VerdictKind::not_adaptable;
    site.verdict.constraint = "rotary_mul.range";
    site.verdict.reason =
        "rotary_mul.range: the tables are cosines and sines times a number above 1 (max(r1) <= 1 "
        "and min(r1) >= -1)";
  }
}

}  // namespace

Move fuse_rotary() {
  const Pat x = in("x");
  const Pat cos = in("cos");
  const Pat sin = in("sin");

  const Pat turned = joined(unary("aten.neg", half(x, 1)), half(x, 0));
  Rewrite whole =
      rewrite("x * cos + cat(-x2, x1) * sin -> npu_rotary_mul(x, cos, sin)", "npu.npu_rotary_mul")
          .match(x * cos + turned * sin)
          .build([=](Build& b) { return std::vector<Value*>{rotary_mul(b, b[x], b[cos], b[sin])}; })
          .check(tables(DType::f32, Sym(3), 2, 8, 8))
          .check(tables(DType::bf16, Sym::symbol("T"), 4, 16, 16));

  const Pat x1 = half(x, 0);
  const Pat x2 = half(x, 1);
  Rewrite parts =
      rewrite("cat(x1 * cos - x2 * sin, x2 * cos + x1 * sin) -> npu_rotary_mul(x, cos, sin)",
              "npu.npu_rotary_mul")
          .match(joined(x1 * cos - x2 * sin, x2 * cos + x1 * sin))
          .build([=](Build& b) {
            return std::vector<Value*>{
                rotary_mul(b, b[x], whole_table(b, b[cos]), whole_table(b, b[sin]))};
          })
          .check(tables(DType::f32, Sym(3), 2, 8, 4))
          .check(tables(DType::bf16, Sym::symbol("T"), 4, 16, 8));

  const Pat even = stride2(x, 0);
  const Pat odd = stride2(x, 1);
  Rewrite regrouped = rewrite(
                          "cat(even * cos - odd * sin, odd * cos + even * sin) -> "
                          "npu_interleave_rope(x, cos, sin)",
                          "npu.npu_interleave_rope")
                          .match(joined(even * cos - odd * sin, odd * cos + even * sin))
                          .build([=](Build& b) {
                            return std::vector<Value*>{interleave_rope(
                                b, b[x], whole_table(b, b[cos]), whole_table(b, b[sin]))};
                          })
                          .check(tables(DType::f32, Sym(3), 2, 8, 4))
                          .check(tables(DType::bf16, Sym::symbol("T"), 4, 16, 8));
  // Neighbours that stay neighbours: rotate(x) is a stack of (-odd, even).
  const auto column = [](const Pat& p) {
    return reshape(p, [](const Type& t) {
      SymDims shape = t.shape;
      shape.emplace_back(1);
      return shape;
    });
  };
  const Pat minus_odd = column(unary("aten.neg", odd));
  const Pat even_column = column(even);
  const Pat pairs = joined(minus_odd, even_column);
  const Pat neighbours = reshape(pairs, [](const Type& t) {
    SymDims shape(t.shape.begin(), t.shape.end() - 2);
    shape.push_back(t.dim(-1) * t.dim(-2));
    return shape;
  });
  Rewrite interleaved =
      rewrite("x * cos + stack(-odd, even) * sin -> npu_rotary_mul(x, cos, sin, interleave)",
              "npu.npu_rotary_mul")
          .match(x * cos + neighbours * sin)
          .when("pairs along a new last axis, flattened again",
                [=](const Match& m) {
                  const Type& c = m[minus_odd]->type;
                  return c.rank() == m[x]->type.rank() + 1 && c.shape.back().is(1) &&
                         c == m[even_column]->type && m[neighbours]->type == m[x]->type;
                })
          .build([=](Build& b) {
            return std::vector<Value*>{b.op("npu.npu_rotary_mul", {b[x], b[cos], b[sin]},
                                            {{"rotary_mode", std::string("interleave")}})};
          })
          .check(tables(DType::f32, Sym(3), 2, 8, 8))
          .check(tables(DType::bf16, Sym::symbol("T"), 4, 16, 16));
  Move move =
      move_of("fuse_rotary", "x * cos + rotate_half(x) * sin -> npu.npu_rotary_mul(x, cos, sin)",
              {whole, parts, regrouped, interleaved});
  move.find = [inner = move.find](const Graph& graph, Target target) {
    std::vector<Site> sites = inner(graph, target);
    if (target != Target::cpu) refuse_scaled_tables(graph, &sites);
    return sites;
  };
  return move;
}

}  // namespace tk::fuse
