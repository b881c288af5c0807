#include "npu/shard.h"

#include <algorithm>
#include <string_view>

namespace tk {
namespace {

bool has(const Node& n, std::string_view part) {
  return n.op->name.find(part) != std::string_view::npos;
}

bool has_any(const Node& n, std::initializer_list<std::string_view> parts) {
  return std::any_of(parts.begin(), parts.end(), [&](std::string_view p) { return has(n, p); });
}

class Sharder {
 public:
  Sharder(const std::unordered_set<const Value*>& known, bool split_experts)
      : known_(known), split_experts_(split_experts) {}

  void visit(const Node& n) {
    bool split = false;
    bool partial = false;
    for (const Value* v : n.inputs) {
      if (v == nullptr) continue;
      split |= out_.split(v) == Split::split;
      partial |= out_.split(v) == Split::partial;
    }
    if (weighted(n)) {
      visit_product(n, split);
      return;
    }
    if (partial) {
      // The weighted sum over a token's experts comes first: it is shorter by k.
      const Value* v = n.out();
      if (has(n, "finalize_routing")) {
        out_.reduce.insert(v);
      } else {
        for (const Value* in : n.inputs)
          if (in != nullptr && out_.split(in) == Split::partial) {
            out_.reduce.insert(in);
            out_.of.erase(in);
          }
      }
      return;
    }
    if (!split) return;
    mark(n, Split::split);
    // A cache that gets a rank's heads has no others.
    for (const int u : n.op->updates)
      if (u >= 0) out_.of[n.inputs[static_cast<std::size_t>(u)]] = Split::split;
  }

  Sharding take() { return std::move(out_); }

 private:
  bool weighted(const Node& n) const {
    if (!is_product(n)) return false;
    return std::any_of(n.inputs.begin(), n.inputs.end(),
                       [&](const Value* v) { return v != nullptr && known_.count(v) != 0; });
  }

  void mark(const Node& n, Split s) {
    for (const auto& v : n.outputs) out_.of[v.get()] = s;
  }

  void visit_product(const Node& n, bool split) {
    if (is_grouped(n) && !split_experts_) return;
    if (split) {
      if (has(n, "batchmatmul") || has(n, "aten.bmm")) {  // a product a head: heads stay split
        mark(n, Split::split);
        return;
      }
      out_.row.insert(&n);
      if (is_grouped(n)) {
        mark(n, Split::partial);
      } else {
        out_.reduce.insert(n.out());
      }
      return;
    }
    bool ends_graph = false;
    if (!reaches_product(n.out(), &ends_graph)) return;
    out_.column.insert(&n);
    if (ends_graph) {
      out_.gather.insert(n.out());
    } else {
      mark(n, Split::split);
    }
  }

  // Follows the result forward. False: something needs all of it on every rank.
  bool reaches_product(const Value* from, bool* ends_graph) const {
    std::vector<const Value*> open{from};
    std::unordered_set<const Value*> seen;
    bool reached = false;
    while (!open.empty()) {
      const Value* v = open.back();
      open.pop_back();
      if (!seen.insert(v).second) continue;
      for (const Use& use : v->uses) {
        if (use.node == nullptr) {
          *ends_graph = true;
          reached = true;
          continue;
        }
        const Node& n = *use.node;
        if (is_attention(n) || weighted(n)) {
          reached = true;
          continue;
        }
        if (!passes(n, *v)) return false;
        for (const auto& o : n.outputs) open.push_back(o.get());
      }
    }
    return reached;
  }

  bool passes(const Node& n, const Value& v) const {
    if (has_any(n, {"topk", "top_k", "sort", "softmax", "argmax", "routing", "index_select"}))
      return false;
    // A norm over the whole hidden axis; one over a head's own axis is each rank's.
    if (has(n, "norm")) return v.type.rank() > 2 && !has(n, "add_");
    if (n.is("aten.add") || n.is("aten.sub")) {  // a bias may be added, not another stream
      return std::all_of(n.inputs.begin(), n.inputs.end(), [&](const Value* in) {
        return in == nullptr || in == &v || known_.count(in) != 0;
      });
    }
    return true;
  }

  const std::unordered_set<const Value*>& known_;
  bool split_experts_;
  Sharding out_;
};

}  // namespace

bool is_attention(const Node& n) { return has_any(n, {"attention", "delta_rule", "mla_prolog"}); }
bool is_grouped(const Node& n) { return has_any(n, {"grouped_m", "grouped_swiglu", "gmm"}); }
bool is_product(const Node& n) {
  return is_grouped(n) || has_any(n, {"matmul", "linear", "addmm", "aten.mm", "aten.bmm", "baddbmm",
                                      "einsum", "ffn"});
}

Sharding shard(const Graph& graph, const std::unordered_set<const Value*>& known,
               bool split_experts) {
  Sharder s(known, split_experts);
  for (const Node* n : nodes(graph))
    if (known.count(n->out()) == 0) s.visit(*n);
  return s.take();
}

}  // namespace tk
