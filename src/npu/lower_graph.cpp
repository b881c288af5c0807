#include "npu/lower_graph.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <set>

#include "base/error.h"
#include "npu/kernel_types.h"
#include "npu/node_cost.h"
#include "npu/routing.h"
#include "npu/shard.h"
#include "npu/unfused_attention.h"
#include "ops/cost.h"

namespace tk {
namespace {

constexpr std::int64_t most_elements = std::int64_t{1} << 50;
constexpr std::int64_t most_size = 1 << 28;  // of tokens, sequences and keys
constexpr int main_stream = 0;
constexpr int comm_stream = 1;
constexpr int side_stream = 2;

std::string place_of(const Node& n) {
  std::string text(n.op->name);
  if (n.loc != nullptr && !n.loc->file.empty()) text += cat(" at ", n.loc->file, ":", n.loc->line);
  return text;
}

class Lowering {
 public:
  Lowering(const Graph& graph, const StepShape& shape, const Degrees& degrees)
      : graph_(graph), shape_(shape), degrees_(degrees) {
    check_sizes();
    env_ = symbols_of(shape);
    load_.kv_len = static_cast<double>(shape.kv_len);
  }

  Step run() {
    known_ = known_at_load(graph_);
    sharding_ = shard(graph_, known_, degrees_.ep == 1);
    if (degrees_.tp == 1) sharding_ = {};
    find_routed();
    for (const auto& v : graph_.inputs()) step_.input_bytes += bytes(*v);
    const Node* last = nullptr;
    for (const Node* n : nodes(graph_))
      if (known_.count(n->out()) == 0) {
        visit(*n);
        last = n;
      }
    if (last == nullptr || step_.kernels().empty())
      throw UserError("TK1415", "there is no operator to be timed in this graph");
    if (step_.kernels().back().stream != main_stream) end_on_main(*last);
    for (const KernelWork& k : step_.kernels())
      step_.updates += k.family == Family::attention ? 1 : 0;
    return std::move(step_);
  }

 private:
  void check_sizes() const {
    const std::array<std::pair<const char*, std::int64_t>, 6> sizes{
        {{"tokens", shape_.tokens},
         {"sequences (batch)", shape_.sequences},
         {"tokens in the cache (kv)", shape_.kv_len},
         {"block size", shape_.block_size},
         {"tp", degrees_.tp},
         {"ep", degrees_.ep}}};
    for (const auto& [name, size] : sizes)
      if (size < 1)
        throw UserError("TK1413", cat("the number of ", name, " is ", size))
            .help("it must be 1 or more");
    for (const auto& [name, size] : sizes)
      if (size > most_size)
        throw UserError("TK1413", cat("the number of ", name, " is ", size))
            .help(cat("it must be at most ", most_size));
  }

  // Values whose rows are those that experts get: from the routing to the weighted sum.
  void find_routed() {
    for (const Node* n : nodes(graph_)) {
      if (n->op->name.find("finalize_routing") != std::string_view::npos) continue;
      bool routed = n->op->name.find("init_routing") != std::string_view::npos;
      for (const Value* v : n->inputs) routed |= v != nullptr && routed_.count(v) != 0;
      if (routed)
        for (const auto& v : n->outputs) routed_.insert(v.get());
    }
  }

  std::int64_t bytes(const Value& v) const {
    try {
      const std::int64_t elements = v.type.numel().eval(env_);
      if (elements < 0 || elements > most_elements)
        throw UserError("TK1413", cat("a value of type ", v.type.str(), " has ", elements,
                                      " elements in this step"))
            .help("choose a smaller batch or fewer tokens");
      return elements * static_cast<std::int64_t>(size_of(v.type.dtype));
    } catch (const UserError& e) {
      if (e.code() != "TK0303") throw;
      throw UserError("TK1413", cat("the type ", v.type.str(), " has a symbol without a size"))
          .in_module(v.node != nullptr && v.node->loc != nullptr ? v.node->loc->module : v.name)
          .help("a step has sizes for T, B, R, MB and NB: capture with the others fixed");
    }
  }

  // What one rank has of a value.
  std::int64_t share(const Value& v) const {
    return sharding_.split(&v) == Split::split ? degrees_.tp : 1;
  }
  std::int64_t rows_share(const Value& v) const {
    return degrees_.ep > 1 && routed_.count(&v) != 0 ? degrees_.tp : 1;
  }

  int tensor_of(const Value& v) {
    const auto found = tensors_.find(&v);
    if (found != tensors_.end()) return found->second;
    const bool weight = known_.count(&v) != 0 || v.kind == ValueKind::weight;
    const TensorKind storage = weight                       ? TensorKind::weight
                               : v.kind == ValueKind::state ? TensorKind::state
                                                            : TensorKind::activation;
    std::int64_t size = bytes(v) / share(v) / rows_share(v);
    if (const auto w = weight_share_.find(&v); w != weight_share_.end()) size /= w->second;
    return tensors_[&v] = step_.tensor(storage, size);
  }

  void alias(const Node& n) {
    const Value* base = n.in(0);
    for (const auto& v : n.outputs) tensors_[v.get()] = tensor_of(*base);
  }

  void visit(const Node& n) {
    if (n.op->view != nullptr && n.in(0) != nullptr) {
      alias(n);
      return;
    }
    for (std::size_t i = 0; i < n.op->updates.size() && i < n.outputs.size(); ++i)
      if (n.op->updates[i] >= 0)
        tensors_[n.outputs[i].get()] =
            tensor_of(*n.inputs[static_cast<std::size_t>(n.op->updates[i])]);
    const bool dispatch =
        degrees_.ep > 1 && n.op->name.find("init_routing") != std::string_view::npos;
    const bool combine =
        degrees_.ep > 1 && n.op->name.find("finalize_routing") != std::string_view::npos;
    if (combine) exchange(n, *n.in(0), sim::CollectiveKind::combine);
    add_kernel(n);
    if (dispatch) exchange(n, *n.out(), sim::CollectiveKind::dispatch);
    for (const auto& v : n.outputs) {
      if (sharding_.reduce.count(v.get()) != 0)
        collective(n, *v, sim::CollectiveKind::all_reduce, degrees_.tp);
      if (sharding_.gather.count(v.get()) != 0)
        collective(n, *v, sim::CollectiveKind::all_gather, degrees_.tp);
    }
    if (combine && degrees_.tp > 1)
      collective(n, *n.out(), sim::CollectiveKind::all_gather, degrees_.tp);
  }

  // Rows to experts and back: the rows of this rank, over all ranks that have experts.
  void exchange(const Node& n, const Value& rows, sim::CollectiveKind kind) {
    const std::int64_t size = bytes(rows) / rows_share(rows);
    KernelWork k;
    k.family = Family::collective;
    k.type =
        kind == sim::CollectiveKind::dispatch ? "MoeDistributeDispatch" : "MoeDistributeCombine";
    sim::Collective c;
    c.kind = kind;
    c.group = step_.group(0, static_cast<std::int32_t>(degrees_.ep));
    c.bytes = size;
    if (degrees_.zipf > 0)
      c.traffic = step_.traffic(
          routed_bytes(degrees_.ep, size, degrees_.zipf, kind == sim::CollectiveKind::combine));
    k.collective = c;
    finish(n, &k, {{tensor_of(rows), size, false}, {tensor_of(rows), size, true}});
  }

  void collective(const Node& n, const Value& v, sim::CollectiveKind kind, std::int64_t degree) {
    if (degree == 1) return;
    KernelWork k;
    k.family = Family::collective;
    k.type = kind == sim::CollectiveKind::all_reduce ? "hcom_allReduce_" : "hcom_allGather_";
    sim::Collective c;
    c.kind = kind;
    c.group = step_.group(0, static_cast<std::int32_t>(degree));
    c.bytes = bytes(v);
    k.collective = c;
    const int t = tensor_of(v);
    finish(n, &k, {{t, step_.bytes_of(t), false}, {t, step_.bytes_of(t), true}});
  }

  void finish(const Node& n, KernelWork* k, std::vector<Operand> operands) {
    k->operands = std::move(operands);
    k->place = place_of(n);
    k->node = &n;
    if (n.loc != nullptr) k->module = n.loc->module;
    if (k->collective) {
      k->stream = comm_stream;
    } else if (degrees_.streams && k->module.find("shared_expert") != std::string::npos) {
      k->stream = side_stream;
    }
    step_.add(std::move(*k));
  }

  void end_on_main(const Node& n) {
    KernelWork k;
    k.type = "Identity";
    const int t = tensor_of(*n.out());
    finish(n, &k, {{t, std::min<std::int64_t>(step_.bytes_of(t), 512), false}});
  }

  void add_kernel(const Node& n) {
    const Cost cost = cost_of(n, env_, load_);
    KernelWork k;
    k.type = kernel_type(n.op->name);
    k.family = family_of(n, cost);
    k.default_rule = n.op->cost == nullptr;
    describe(n, &k);
    // The part of the work that is this rank's.
    double mine = 1;
    const bool column = sharding_.column.count(&n) != 0;
    const bool row = sharding_.row.count(&n) != 0;
    if (column || row) mine /= static_cast<double>(degrees_.tp);
    if (!column && !row)
      for (const Value* v : n.inputs)
        if (v != nullptr && share(*v) > 1) {
          mine /= static_cast<double>(degrees_.tp);
          break;
        }
    const bool routed = std::any_of(n.inputs.begin(), n.inputs.end(), [&](const Value* v) {
      return v != nullptr && routed_.count(v) != 0;
    });
    if (routed && degrees_.ep > 1) mine /= static_cast<double>(degrees_.tp);
    double vector = cost.vector;
    if (k.default_rule && cost.cube == 0) vector *= vector_passes(n.op->name);
    if (k.default_rule && reduces(n.op->name) && n.in(0) != nullptr)
      vector =
          static_cast<double>(bytes(*n.in(0))) / static_cast<double>(size_of(n.in(0)->type.dtype));
    k.vector_bytes = vector * 4 * mine;  // in f32 inside
    std::vector<Operand> operands =
        is_grouped(n) ? grouped(n, &k, column, row) : plain(n, cost, &k, column || row);
    if (!is_grouped(n) && cost.cube > 0) products(n, cost, column, row, &k);
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const bool in_place = i < n.op->updates.size() && n.op->updates[i] >= 0;
      if (in_place) continue;
      if (n.outputs[i]->uses.empty() && n.outputs.size() > 1) continue;
      const int t = tensor_of(*n.outputs[i]);
      operands.push_back({t, step_.bytes_of(t), true});
    }
    if (n.op->name.starts_with("tk.") && is_attention(n)) {
      k.operands = std::move(operands);
      const std::int64_t heads = std::max<std::int64_t>(1, heads_of(n) / share(*n.in(0)));
      const std::int64_t scores = shape_.tokens * heads * shape_.kv_len;
      for (KernelWork& part : unfused_attention(&step_, k, scores)) {
        std::vector<Operand> own = std::move(part.operands);
        finish(n, &part, std::move(own));
      }
      return;
    }
    finish(n, &k, std::move(operands));
  }

  // What is read of each input: small ones whole, the largest what is left of the operator's cost.
  std::vector<Operand> plain(const Node& n, const Cost& cost, KernelWork* k, bool split_weight) {
    std::vector<const Value*> ins;
    for (const Value* v : n.inputs)
      if (v != nullptr && std::find(ins.begin(), ins.end(), v) == ins.end()) ins.push_back(v);
    std::stable_sort(ins.begin(), ins.end(),
                     [&](const Value* a, const Value* b) { return bytes(*a) < bytes(*b); });
    std::vector<Operand> out;
    auto left = static_cast<std::int64_t>(cost.read);
    const bool writes_state = !n.op->updates.empty();
    std::size_t caches = 0;
    for (const Value* v : ins) caches += of_state(*v) ? 1 : 0;
    for (const Value* v : ins) {
      std::int64_t b = bytes(*v);
      if (of_state(*v)) {
        if (writes_state) continue;
        const std::int64_t own =
            std::min(b, left / static_cast<std::int64_t>(std::max<std::size_t>(1, caches--)));
        left -= own;
        b = std::min(b, whole_pages(own));
      } else {
        b = std::min(b, left);
        left -= b;
      }
      if (split_weight && known_.count(v) != 0) weight_share_[v] = degrees_.tp;
      const int t = tensor_of(*v);
      b = std::min(step_.bytes_of(t), b / share(*v) / rows_share(*v) /
                                          (weight_share_.count(v) != 0 ? weight_share_[v] : 1));
      if (b > 0) out.push_back({t, b, false});
    }
    if (writes_state) {
      std::int64_t caches_written = 0;
      for (const int u : n.op->updates) caches_written += u >= 0 ? 1 : 0;
      for (const int u : n.op->updates) {
        if (u < 0) continue;
        const int t = tensor_of(*n.inputs[static_cast<std::size_t>(u)]);
        const auto b = static_cast<std::int64_t>(cost.written) / caches_written;
        out.push_back({t, std::clamp<std::int64_t>(b, 1, step_.bytes_of(t)), true});
      }
    }
    if (k->family == Family::norm) k->parts = rows_of(n);
    return out;
  }

  // A cache is read by blocks (VN-27): what a sequence has of its last one counts as all of it.
  std::int64_t whole_pages(std::int64_t bytes) const {
    const std::int64_t blocks = (shape_.kv_len + shape_.block_size - 1) / shape_.block_size;
    return static_cast<std::int64_t>(static_cast<double>(bytes) *
                                     static_cast<double>(blocks * shape_.block_size) /
                                     static_cast<double>(shape_.kv_len));
  }

  bool of_state(const Value& v) const {
    if (v.kind == ValueKind::state) return true;
    const Node* d = v.node;
    if (d == nullptr) return false;
    if (d->op->view != nullptr && d->in(0) != nullptr) return of_state(*d->in(0));
    const auto i = static_cast<std::size_t>(v.index);
    return i < d->op->updates.size() && d->op->updates[i] >= 0;
  }

  std::int64_t rows_of(const Node& n) const {
    const Type& t = n.out()->type;
    std::int64_t rows = 1;
    for (int i = 0; i + 1 < t.rank(); ++i) rows *= t.dim(i).eval(env_);
    return std::max<std::int64_t>(1, rows);
  }

  // Rows in groups: only the weights of experts that get a row are read (VN-28).
  std::vector<Operand> grouped(const Node& n, KernelWork* k, bool column, bool row) {
    const Value& x = *n.in(0);
    const Value& w = *n.in(1);
    const std::int64_t rows_all = x.type.dim(0).eval(env_);
    const std::int64_t inner = x.type.dim(-1).eval(env_);
    const std::int64_t outer = n.out()->type.dim(-1).eval(env_);
    const std::int64_t experts = w.type.rank() == 3 ? w.type.dim(0).eval(env_) : 1;
    if (degrees_.ep > experts || experts % degrees_.ep != 0)
      throw UserError(
          "TK1414", cat(experts, " experts cannot be divided among ", degrees_.ep, " ranks (--ep)"))
          .in_module(n.loc != nullptr ? n.loc->module : "");
    // Ranks of a tp group hold the same rows. Without ep each has a part of every expert, and so
    // all rows; with it a rank sends its part of them.
    const std::int64_t rows_sent = degrees_.all_tokens > 0
                                       ? rows_all * degrees_.all_tokens / shape_.tokens
                                   : degrees_.ep > 1 ? rows_all * degrees_.ep / degrees_.tp
                                                     : rows_all;
    const Spread s =
        spread(experts, degrees_.ep, rows_sent, degrees_.zipf, true, degrees_.rank % degrees_.ep);
    const std::int64_t local = degrees_.ep > 1 ? s.rows : rows_all;
    if (column || row || degrees_.ep > 1)
      weight_share_[&w] = degrees_.ep > 1 ? degrees_.ep : degrees_.tp;
    const std::int64_t hit = std::max<std::int64_t>(1, s.experts_hit);
    Product p;
    p.groups = hit;
    p.m = (local + hit - 1) / hit;
    p.k = row ? inner / degrees_.tp : inner;
    p.n = column ? outer / degrees_.tp : outer;
    k->products.push_back(p);
    k->bits = static_cast<int>(size_of(x.type.dtype)) * 8;
    const int tx = tensor_of(x);
    const int tw = tensor_of(w);
    const std::int64_t per_expert =
        step_.bytes_of(tw) / std::max<std::int64_t>(1, experts / degrees_.ep);
    return {{tx, step_.bytes_of(tx), false},
            {tw, std::min(step_.bytes_of(tw), per_expert * hit), false}};
  }

  void products(const Node& n, const Cost& cost, bool column, bool row, KernelWork* k) {
    k->bits = static_cast<int>(size_of(n.in(0)->type.dtype)) * 8;
    if (is_attention(n)) {
      attention(n, cost, k);
      return;
    }
    const Type& out = n.out()->type;
    Product p;
    p.n = out.dim(-1).eval(env_);
    const std::int64_t elements = std::max<std::int64_t>(1, out.numel().eval(env_));
    p.k = std::llround(cost.cube / 2 / static_cast<double>(elements));
    p.m = elements / std::max<std::int64_t>(1, p.n);
    if (n.op->name.find("batchmatmul") != std::string_view::npos && out.rank() == 3) {
      p.groups = out.dim(1).eval(env_) / share(*n.in(0));  // [rows, heads, n]
      p.m = out.dim(0).eval(env_);
    }
    if (column) p.n = divided(p.n, n);
    if (row) p.k = divided(p.k, n);
    k->products.push_back(p);
  }

  std::int64_t divided(std::int64_t size, const Node& n) const {
    if (size % degrees_.tp != 0)
      throw UserError("TK1414", cat("an axis of ", size, " cannot be divided among ", degrees_.tp,
                                    " ranks (--tp)"))
          .in_module(n.loc != nullptr ? n.loc->module : "");
    return size / degrees_.tp;
  }

  std::int64_t heads_of(const Node& n) const {
    const Type& q = n.in(0)->type;
    return q.rank() >= 3 ? q.dim(1).eval(env_) : 1;
  }

  // Queries of a head group against the keys they see, once for the scores and once for the sum;
  // the keys are the free axis of both, so that long sequences are split over the cores.
  void attention(const Node& n, const Cost& cost, KernelWork* k) {
    const Type& q = n.in(0)->type;
    const std::int64_t heads = std::max<std::int64_t>(1, heads_of(n) / share(*n.in(0)));
    const std::int64_t dim = std::max<std::int64_t>(1, q.dim(-1).eval(env_));
    const std::int64_t per_sequence = std::max<std::int64_t>(1, shape_.tokens / shape_.sequences);
    std::int64_t kv_heads = 1;
    if (const Attr* a = n.attrs.find("num_key_value_heads"))
      if (const auto* s = std::get_if<Sym>(a)) kv_heads = std::max<std::int64_t>(1, s->eval(env_));
    if (n.is("tk.paged_attention")) kv_heads = n.in(1)->type.dim(2).eval(env_);
    kv_heads = std::max<std::int64_t>(1, kv_heads / share(*n.in(0)));
    const double whole_heads = static_cast<double>(heads * share(*n.in(0)));
    const double flop_a_key =
        2.0 * static_cast<double>(shape_.tokens) * whole_heads * static_cast<double>(dim);
    Product p;
    p.groups = shape_.sequences * kv_heads;
    p.m = per_sequence * std::max<std::int64_t>(1, heads / kv_heads);
    p.k = dim;
    // All flop of the operator's own cost: scores and sums together.
    p.n = std::max<std::int64_t>(1, std::llround(cost.cube / flop_a_key));
    k->products.push_back(p);
  }

  void describe(const Node& n, KernelWork* k) const {
    const auto text = [&](const Value* v, std::string* shapes, std::string* types, bool first) {
      if (!first) *shapes += ';';
      if (!first && types != nullptr) *types += ';';
      if (v == nullptr) return;
      for (int i = 0; i < v->type.rank(); ++i)
        *shapes += cat(i > 0 ? "," : "", v->type.dim(i).eval(env_));
      if (types != nullptr) *types += profiler_dtype(v->type.dtype);
    };
    for (std::size_t i = 0; i < n.inputs.size(); ++i)
      text(n.inputs[i], &k->in_shapes, &k->in_types, i == 0);
    for (std::size_t i = 0; i < n.outputs.size(); ++i)
      text(n.outputs[i].get(), &k->out_shapes, nullptr, i == 0);
  }

  const Graph& graph_;
  StepShape shape_;
  Degrees degrees_;
  SymEnv env_;
  Load load_;
  Step step_;
  Sharding sharding_;
  std::unordered_set<const Value*> known_, routed_;
  std::unordered_map<const Value*, int> tensors_;
  std::unordered_map<const Value*, std::int64_t> weight_share_;
};

}  // namespace

std::vector<std::string> unknown_operators(const Graph& graph) {
  std::vector<std::string> out;
  std::set<std::string_view> seen;
  for (const Node* n : nodes(graph)) {
    if (n->op->view != nullptr) continue;
    const bool unknown =
        n->is("tk.opaque") || ((is_product(*n) || is_attention(*n)) && n->op->cost == nullptr);
    if (unknown && seen.insert(n->op->name).second)
      out.push_back(cat(place_of(*n), n->loc != nullptr ? " in " + n->loc->module : ""));
  }
  return out;
}

SymEnv symbols_of(const StepShape& shape) {
  const std::int64_t blocks = (shape.kv_len + shape.block_size - 1) / shape.block_size;
  return {{"T", shape.tokens},
          {"B", shape.sequences},
          {"R", shape.sequences},
          {"MB", blocks},
          {"NB", blocks * shape.sequences + 1}};
}

Step lower_graph(const Graph& graph, const StepShape& shape, const Degrees& degrees) {
  return Lowering(graph, shape, degrees).run();
}

}  // namespace tk
