#include "moves/flatten/flatten.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "moves/flatten/attention.h"
#include "moves/flatten/locality.h"
#include "moves/flatten/located.h"
#include "moves/flatten/mla.h"
#include "moves/flatten/permutes.h"

namespace tk {

std::int64_t CacheSpec::bytes_per_token() const {
  std::int64_t bytes = 0;
  for (const CacheEntry& e : entries)
    bytes += e.heads * e.dim * static_cast<std::int64_t>(size_of(e.dtype));
  return bytes;
}

namespace {

const std::map<std::string, Sym, std::less<>>& to_flat_symbols(const TokenSymbols& symbols) {
  static thread_local std::map<std::string, Sym, std::less<>> env;
  env = {{symbols.batch, Sym(1)}, {symbols.token, Sym::symbol("T")}};
  return env;
}

[[noreturn]] void cannot_flatten(const Node& n, const std::string& why) {
  throw located({"TK0405", cat("can't bring ", n.op->name, " to the token-flat form: ", why)}, n)
      .note(cat("in ", print(n)));
}

bool is_position(const Value& v) { return v.name.find("position") != std::string::npos; }

// B and S are the two dims of the token ids.
TokenSymbols find_symbols(const Graph& graph) {
  const Value* ids = nullptr;
  for (const auto& v : graph.inputs()) {
    const bool expected = v->type.dtype == DType::i64 && v->type.rank() == 2;
    if (!expected && v->uses.empty()) continue;
    if (!expected || (!is_position(*v) && ids != nullptr))
      throw UserError("TK0406", cat("the input '", v->name, "' of type ", v->type.str(),
                                    " is not expected in a model to be served"))
          .help("capture a forward of input_ids [B, S] and position_ids [B, S]");
    if (!is_position(*v)) ids = v.get();
  }
  if (ids == nullptr)
    throw UserError("TK0406", "there is no input of token ids, i64 [B, S]")
        .help("capture a forward of input_ids [B, S] and position_ids [B, S]");
  const auto symbol_of = [&](const Sym& d, std::string_view what) -> std::string {
    std::set<std::string, std::less<>> names;
    d.collect_symbols(&names);
    if (names.size() == 1 && d == Sym::symbol(*names.begin())) return *names.begin();
    throw UserError("TK0406", cat("the ", what, " of ", ids->name, " is ", d.str(),
                                  ", not a dynamic size of its own"))
        .help("capture with a dynamic batch and sequence");
  };
  const SymDims& shape = ids->type.shape;
  TokenSymbols symbols;
  symbols.token = symbol_of(shape[1], "sequence length");
  // A capture for one sequence is fine: there is nothing to drop then.
  symbols.batch = shape[0].is(1) ? std::string("<one>") : symbol_of(shape[0], "batch");
  return symbols;
}

class Flattener {
 public:
  Flattener(const Graph& from, const TokenSymbols& symbols, std::vector<MaskFacts> masks,
            const FlattenOptions& options)
      : from_(from), symbols_(symbols), masks_(std::move(masks)) {
    out_.cache.block_size = options.block_size;
  }

  CachedModel run() {
    find_inputs();
    locality_ = prove_token_locality(from_, symbols_);
    declare();
    for (Node* n : nodes(from_)) visit(*n);
    for (Value* v : from_.outputs()) add_logits(v);
    out_.graph.erase_dead();
    sink_permutes(out_.graph);
    out_.graph.erase_dead();
    out_.graph.erase_unused_weights();
    return std::move(out_);
  }

 private:
  Graph& graph() { return out_.graph; }
  const Layout& layout(const Value* v) const { return locality_.of(v).layout; }
  FlatShape flat(const Value* v) const { return flat_shape(layout(v), symbols_); }
  Value* at(const Value* v) const { return v == nullptr ? nullptr : map_.at(v); }
  Builder builder(const Node& n) {
    return {graph(), nullptr, n.loc != nullptr ? graph().loc(*n.loc) : nullptr};
  }
  void put(const Value* v, Value* flat_value) { map_[v] = flat_value; }

  void find_inputs() {
    for (const auto& v : from_.inputs()) (is_position(*v) ? position_ids_ : input_ids_) = v.get();
  }

  void declare() {
    const Sym tokens = Sym::symbol("T");
    const Sym batch = Sym::symbol("B");
    graph().name = from_.name;
    Value* ids = graph().add_input("input_ids", {DType::i64, {tokens}});
    positions_ = graph().add_input("position_ids", {DType::i64, {tokens}});
    slots_ = graph().add_input("slot_mapping", {DType::i64, {tokens}});
    table_ = graph().add_input("block_table", {DType::i32, {batch, Sym::symbol("MB")}});
    query_lens_ = graph().add_input("query_lens", {DType::i32, {batch}});
    kv_lens_ = graph().add_input("kv_lens", {DType::i32, {batch}});
    put_input(input_ids_, ids);
    if (position_ids_ != nullptr) put_input(position_ids_, positions_);
    for (const auto& w : from_.weights()) put(w.get(), graph().add_weight(w->name, w->type));
  }

  // An input [1, S] of a capture for one sequence keeps its first axis.
  void put_input(const Value* v, Value* flat_value) {
    const FlatShape shape = flat(v);
    if (flat_value->type.shape == shape.shape) return put(v, flat_value);
    put(v, Builder{graph(), nullptr, nullptr}.op("aten.reshape", {flat_value},
                                                 {{"shape", shape.shape}}));
  }

  void visit(const Node& n) {
    const TokenRule rule = token_rule(n.op->name);
    if (rule == TokenRule::attention) return attention(n);
    const bool tagged =
        std::any_of(n.inputs.begin(), n.inputs.end(),
                    [&](const Value* v) { return v != nullptr && is_tagged(layout(v)); }) ||
        std::any_of(n.outputs.begin(), n.outputs.end(),
                    [&](const auto& v) { return is_tagged(layout(v.get())); });
    if (!tagged) return same(n);
    switch (rule) {
      case TokenRule::reshape:
        return reshape(n);
      case TokenRule::permute:
        return permute(n);
      case TokenRule::expand:
        return expand(n);
      case TokenRule::create:
        return create(n);
      case TokenRule::einsum:
        return einsum(n);
      case TokenRule::index:
        return index(n);
      case TokenRule::elementwise:
      case TokenRule::matmul:
      case TokenRule::cat:
        return broadcast_like(n);
      default:
        return generic(n);
    }
  }

  // Emits the node with these inputs and attributes and checks that the types are as proven.
  void emit(const Node& n, std::vector<Value*> inputs, Attrs attrs) {
    Node* copy = builder(n).node(n.op->name, std::move(inputs), std::move(attrs));
    for (std::size_t i = 0; i < n.outputs.size(); ++i) {
      const Value* old = n.outputs[i].get();
      const Type expected{old->type.dtype, flat(old).shape};
      const Type& got = copy->outputs.at(i)->type;
      if (!(got == expected))
        cannot_flatten(n, cat("it would give ", got.str(), " where ", expected.str(), " is meant"));
      put(old, copy->outputs[i].get());
    }
  }

  std::vector<Value*> inputs_of(const Node& n) {
    std::vector<Value*> inputs;
    inputs.reserve(n.inputs.size());
    for (const Value* v : n.inputs) inputs.push_back(at(v));
    return inputs;
  }

  void same(const Node& n) {
    Node* copy = builder(n).node(n.op->name, inputs_of(n), n.attrs);
    for (std::size_t i = 0; i < n.outputs.size(); ++i)
      put(n.outputs[i].get(), copy->out(static_cast<int>(i)));
  }

  // Attributes with B and S replaced, and `dim` counted without the dropped axes.
  Attrs flat_attrs(const Node& n) const {
    Attrs attrs;
    const auto& env = to_flat_symbols(symbols_);
    for (const auto& [key, value] : n.attrs) {
      if (const Sym* s = std::get_if<Sym>(&value)) {
        attrs.set(key, s->subst(env));
      } else if (const SymDims* dims = std::get_if<SymDims>(&value)) {
        SymDims out;
        for (const Sym& d : *dims) out.push_back(d.subst(env));
        attrs.set(key, out);
      } else {
        attrs.set(key, value);
      }
    }
    if (n.in(0) == nullptr) return attrs;
    const std::vector<bool> dropped = flat(n.in(0)).dropped;
    const int rank = static_cast<int>(dropped.size());
    const auto remap = [&](const Sym& old) -> Sym {
      std::int64_t axis = old.value() < 0 ? old.value() + rank : old.value();
      if (axis >= rank || dropped[static_cast<std::size_t>(axis)])
        cannot_flatten(n, "it acts along the batch");
      std::int64_t before = 0;
      for (std::int64_t i = 0; i < axis; ++i)
        before += dropped[static_cast<std::size_t>(i)] ? 1 : 0;
      return axis - before;
    };
    for (const char* key : {"dim", "dims"}) {
      const Attr* a = n.args().attr(key_in(n, key));
      if (key_in(n, key) != key || a == nullptr) continue;
      if (const Sym* s = std::get_if<Sym>(a)) {
        attrs.set(key, remap(*s));
      } else if (const SymDims* list = std::get_if<SymDims>(a)) {
        SymDims out;
        for (const Sym& old : *list) out.push_back(remap(old));
        attrs.set(key, out);
      }
    }
    return attrs;
  }

  // `key` when the schema has it, else any attribute that it has (so that looking up is defined).
  static std::string_view key_in(const Node& n, std::string_view key) {
    const Schema& schema = n.op->parsed();
    if (schema.find_attr(key) != nullptr) return key;
    return schema.attrs.empty() ? std::string_view() : std::string_view(schema.attrs.front().name);
  }

  void generic(const Node& n) {
    std::vector<Value*> inputs = inputs_of(n);
    const Schema& schema = n.op->parsed();
    const bool has_dim = schema.find_attr("dim") != nullptr || schema.find_attr("dims") != nullptr;
    Attrs attrs = has_dim ? flat_attrs(n) : without_dims(n);
    if (n.is("aten.repeat")) {
      SymDims repeats;
      const SymDims old = n.args().syms("repeats");
      const std::vector<bool> dropped = flat(n.out()).dropped;
      for (std::size_t i = 0; i < old.size(); ++i)
        if (!dropped[i]) repeats.push_back(old[i]);
      attrs.set("repeats", repeats);
    }
    emit(n, std::move(inputs), std::move(attrs));
  }

  Attrs without_dims(const Node& n) const {
    Attrs attrs;
    const auto& env = to_flat_symbols(symbols_);
    for (const auto& [key, value] : n.attrs) {
      const Sym* s = std::get_if<Sym>(&value);
      attrs.set(key, s != nullptr ? Attr(s->subst(env)) : value);
    }
    return attrs;
  }

  // An operand of a broadcast without the unit axes that stand where the result's batch was.
  Value* aligned(const Value* v, const std::vector<bool>& dropped, const Node& n) {
    const Layout& l = layout(v);
    const FlatShape own = flat(v);
    const std::size_t shift = dropped.size() - l.size();
    SymDims shape;
    std::size_t j = 0;
    bool removes = false;
    for (std::size_t i = 0; i < l.size(); ++i) {
      if (own.dropped[i]) continue;
      const bool unit_at_batch = dropped[i + shift] && l[i].empty();
      removes |= unit_at_batch;
      if (!unit_at_batch) shape.push_back(own.shape[j]);
      ++j;
    }
    if (!removes) return at(v);
    return builder(n).op("aten.reshape", {at(v)}, {{"shape", shape}});
  }

  void broadcast_like(const Node& n) {
    const std::vector<bool> dropped = flat(n.out()).dropped;
    std::vector<Value*> inputs;
    inputs.reserve(n.inputs.size());
    for (const Value* v : n.inputs)
      inputs.push_back(v == nullptr ? nullptr : aligned(v, dropped, n));
    const bool concatenates = token_rule(n.op->name) == TokenRule::cat;
    Attrs attrs = without_dims(n);
    if (concatenates) {
      // The axis counts in the result's rank, whichever input is first.
      std::int64_t axis = n.args().i64("dim");
      if (axis < 0) axis += n.out()->type.rank();
      std::int64_t before = 0;
      for (std::int64_t i = 0; i < axis; ++i)
        before += dropped[static_cast<std::size_t>(i)] ? 1 : 0;
      attrs.set("dim", Sym(axis - before));
    }
    if (concatenates || n.is("aten.matmul")) spread(n, dropped, &inputs);
    emit(n, std::move(inputs), std::move(attrs));
  }

  // cat needs equal shapes: an operand that was the same for all tokens is expanded.
  void spread(const Node& n, const std::vector<bool>&, std::vector<Value*>* inputs) {
    if (token_rule(n.op->name) != TokenRule::cat) return;
    const FlatShape result = flat(n.out());
    std::int64_t axis = n.args().i64("dim");
    if (axis < 0) axis += n.out()->type.rank();
    for (std::size_t i = 0; i < n.inputs.size(); ++i) {
      SymDims want;
      for (std::size_t j = 0; j < result.dropped.size(); ++j) {
        if (result.dropped[j]) continue;
        want.push_back(static_cast<std::int64_t>(j) == axis
                           ? n.in(static_cast<int>(i))->type.shape[j]
                           : result.shape[want.size()]);
      }
      if ((*inputs)[i]->type.shape != want &&
          (*inputs)[i]->type.rank() == static_cast<int>(want.size()))
        (*inputs)[i] = builder(n).op("aten.expand", {(*inputs)[i]}, {{"size", want}});
    }
  }

  void reshape(const Node& n) {
    const FlatShape shape = flat(n.out());
    Value* in = at(n.in(0));
    if (in->type.shape == shape.shape) return put(n.out(), in);
    put(n.out(), builder(n).op("aten.reshape", {in}, {{"shape", shape.shape}}));
  }

  void permute(const Node& n) {
    const std::vector<bool> dropped = flat(n.in(0)).dropped;
    std::vector<std::int64_t> number(dropped.size());
    std::int64_t next = 0;
    for (std::size_t i = 0; i < dropped.size(); ++i) number[i] = dropped[i] ? -1 : next++;
    SymDims dims;
    bool identity = true;
    for (int i : axis_order(n)) {
      const std::int64_t axis = number[static_cast<std::size_t>(i)];
      if (axis < 0) continue;
      identity &= axis == static_cast<std::int64_t>(dims.size());
      dims.emplace_back(axis);
    }
    put(n.out(),
        identity ? at(n.in(0)) : builder(n).op("aten.permute", {at(n.in(0))}, {{"dims", dims}}));
  }

  void expand(const Node& n) {
    const FlatShape shape = flat(n.out());
    Value* in = aligned(n.in(0), shape.dropped, n);
    if (in->type.shape == shape.shape) return put(n.out(), in);
    put(n.out(), builder(n).op("aten.expand", {in}, {{"size", shape.shape}}));
  }

  void create(const Node& n) {
    const FlatShape shape = flat(n.out());
    const TokenFacts& facts = locality_.of(n.out());
    if (facts.meaning == Meaning::iota && facts.layout.size() == 1 && facts.layout[0].size() == 1 &&
        facts.layout[0][0].tag == Tag::token) {
      // Counting the tokens of a sequence gives their positions.
      Value* v = positions_;
      if (n.out()->type.dtype != DType::i64)
        v = builder(n).op("aten.to", {v}, {{"dtype", n.out()->type.dtype}});
      return put(n.out(), v);
    }
    Attrs attrs = without_dims(n);
    for (const char* key : {"size", "shape"})
      if (n.attrs.find(key) != nullptr) attrs.set(key, shape.shape);
    emit(n, inputs_of(n), std::move(attrs));
  }

  void einsum(const Node& n) {
    std::string equation;
    for (char c : n.args().text("equation"))
      if (c != ' ') equation += c;
    // Letters of dropped axes go.
    std::string gone;
    std::size_t operand = 0;
    std::size_t position = 0;
    const std::size_t arrow = equation.find("->");
    for (char c : equation.substr(0, arrow)) {
      if (c == ',') {
        ++operand;
        position = 0;
      } else if (flat(n.inputs.at(operand)).dropped.at(position++)) {
        gone += c;
      }
    }
    std::string left;
    for (char c : equation)
      if (gone.find(c) == std::string::npos) left += c;
    std::vector<Value*> inputs;
    operand = 0;
    position = 0;
    std::vector<SymDims> shapes(n.inputs.size());
    for (char c : equation.substr(0, arrow) + ",") {
      if (c == ',') {
        Value* v = at(n.inputs.at(operand));
        if (v->type.shape != shapes[operand])
          v = builder(n).op("aten.reshape", {v}, {{"shape", shapes[operand]}});
        inputs.push_back(v);
        ++operand;
        position = 0;
        continue;
      }
      const Axis& axis = layout(n.inputs.at(operand))[position++];
      if (gone.find(c) == std::string::npos)
        shapes[operand].push_back(size_of_axis(axis).subst(to_flat_symbols(symbols_)));
    }
    emit(n, std::move(inputs), {{"equation", left}});
  }

  void index(const Node& n) {
    const std::vector<bool> dropped = flat(n.in(0)).dropped;
    std::vector<Value*> inputs{at(n.in(0))};
    std::vector<const Layout*> layouts;
    for (std::size_t i = 1; i < n.inputs.size(); ++i)
      if (n.inputs[i] != nullptr) layouts.push_back(&layout(n.inputs[i]));
    const auto picked = broadcast(layouts);
    TK_CHECK(picked.has_value(), "the indices were proven to broadcast: ", print(n));
    const std::vector<bool> index_dropped = flat_shape(*picked, symbols_).dropped;
    for (std::size_t i = 1; i < n.inputs.size(); ++i) {
      if (dropped[i - 1]) {
        if (n.inputs[i] != nullptr) cannot_flatten(n, "it indexes the batch");
        continue;
      }
      inputs.push_back(n.inputs[i] == nullptr ? nullptr : aligned(n.inputs[i], index_dropped, n));
    }
    emit(n, std::move(inputs), n.attrs);
  }

  // ---- attention ----------------------------------------------------------------------------

  // A value of the captured graph as rows [T, heads, dim], whichever order its axes have.
  Value* rows(const Value* v, std::int64_t heads, std::int64_t dim, const Node& n) {
    Value* x = at(v);
    const Layout& l = layout(v);
    const FlatShape shape = flat(v);
    int token_axis = -1;
    int axis = 0;
    for (std::size_t i = 0; i < l.size(); ++i) {
      if (shape.dropped[i]) continue;
      if (carries_tokens(l[i])) token_axis = axis;
      ++axis;
    }
    TK_CHECK(token_axis >= 0, "no token axis in ", str(l));
    if (token_axis > 0) {
      SymDims dims{token_axis};
      for (int i = 0; i < axis; ++i)
        if (i != token_axis) dims.emplace_back(i);
      x = builder(n).op("aten.permute", {x}, {{"dims", dims}});
    }
    const SymDims want{Sym::symbol("T"), heads, dim};
    if (x->type.shape != want) x = builder(n).op("aten.reshape", {x}, {{"shape", want}});
    return x;
  }

  int add_entry(const std::string& what, std::int64_t heads, std::int64_t dim, DType dtype) {
    const std::string name = cat("layers.", out_.cache.layers.size(), ".", what);
    out_.cache.entries.push_back({name, heads, dim, dtype});
    states_.push_back(
        graph().add_state(name, {dtype, {Sym::symbol("NB"), out_.cache.block_size, heads, dim}}));
    return static_cast<int>(out_.cache.entries.size()) - 1;
  }

  // Writes this step's rows and returns the cache after it; once for shared keys and values.
  Value* written(int entry, Value* rows_value, const Node& n) {
    Value*& v = states_[static_cast<std::size_t>(entry)];
    if (v->kind == ValueKind::state) v = builder(n).op("tk.cache_write", {v, rows_value, slots_});
    return v;
  }

  void attention(const Node& n) {
    CacheLayer layer;
    layer.module = n.loc != nullptr ? n.loc->module : "";
    layer.mask = masks_.at(out_.cache.layers.size());
    layer.query_heads = n.in(0)->type.dim(1).value();
    layer.kv_heads = n.in(1)->type.dim(1).value();
    layer.head_dim = n.in(0)->type.dim(3).value();
    layer.v_dim = n.in(2)->type.dim(3).value();
    layer.sinks = n.in(4) != nullptr;
    layer.softcap = n.args().f64("softcap");
    Attrs attrs{{"scale", n.args().f64("scale")},
                {"softcap", layer.softcap},
                {"mask", layer.mask.kind},
                {"window", Sym(layer.mask.window)}};
    Value* q = rows(n.in(0), layer.query_heads, layer.head_dim, n);
    const auto mla = find_mla(n);
    Value* result = mla ? latent(n, *mla, q, std::move(attrs), &layer)
                        : keys_and_values(n, q, std::move(attrs), &layer);
    out_.cache.layers.push_back(layer);
    // Back to the capture's [heads, T, D]; the permutes cancel with what follows.
    Value* back = builder(n).op("aten.permute", {result}, {{"dims", SymDims{1, 0, 2}}});
    const FlatShape shape = flat(n.out());
    if (back->type.shape != shape.shape)
      back = builder(n).op("aten.reshape", {back}, {{"shape", shape.shape}});
    put(n.out(), back);
  }

  Value* keys_and_values(const Node& n, Value* q, Attrs attrs, CacheLayer* layer) {
    layer->kind = layer->kv_heads == layer->query_heads ? "MHA"
                  : layer->kv_heads == 1                ? "MQA"
                                                        : "GQA";
    const auto key =
        std::make_pair(static_cast<const Value*>(n.in(1)), static_cast<const Value*>(n.in(2)));
    auto shared = entries_.find(key);
    if (shared == entries_.end()) {
      const int k = add_entry("key", layer->kv_heads, layer->head_dim, n.in(1)->type.dtype);
      const int v = add_entry("value", layer->kv_heads, layer->v_dim, n.in(2)->type.dtype);
      shared = entries_.emplace(key, std::make_pair(k, v)).first;
      written(k, rows(n.in(1), layer->kv_heads, layer->head_dim, n), n);
      written(v, rows(n.in(2), layer->kv_heads, layer->v_dim, n), n);
    }
    const auto [k, v] = shared->second;
    layer->entries = {k, v};
    Value* sinks = n.in(4) == nullptr ? nullptr : at(n.in(4));
    return builder(n).op(
        "tk.paged_attention",
        {q, states_[static_cast<std::size_t>(k)], states_[static_cast<std::size_t>(v)], table_,
         query_lens_, kv_lens_, nullptr, nullptr, sinks},
        std::move(attrs));
  }

  Value* latent(const Node& n, const MlaSite& site, Value* q, Attrs attrs, CacheLayer* layer) {
    layer->kind = "MLA";
    layer->kv_heads = 1;
    const auto key = std::make_pair(static_cast<const Value*>(site.latent),
                                    static_cast<const Value*>(site.rope));
    auto shared = entries_.find(key);
    if (shared == entries_.end()) {
      const int c = add_entry("latent", 1, site.rank, site.latent->type.dtype);
      const int r = add_entry("rope", 1, site.rope_dim, site.rope->type.dtype);
      shared = entries_.emplace(key, std::make_pair(c, r)).first;
      written(c, rows(site.latent, 1, site.rank, n), n);
      written(r, rows(site.rope, 1, site.rope_dim, n), n);
    }
    const auto [c, r] = shared->second;
    layer->entries = {c, r};
    const std::int64_t dim = site.nope + site.rope_dim;
    const std::int64_t nope_at = site.rope_first ? site.rope_dim : 0;
    const auto part = [&](std::int64_t start, std::int64_t size) {
      return builder(n).op("aten.slice", {q},
                           {{"dim", Sym(2)}, {"start", Sym(start)}, {"end", Sym(start + size)}});
    };
    TK_CHECK(q->type.dim(2).is(dim), "query of latent attention");
    Value* q_nope = part(nope_at, site.nope);
    Value* q_rope = part(site.rope_first ? 0 : site.nope, site.rope_dim);
    return builder(n).op(
        "tk.mla_paged_attention",
        {q_nope, q_rope, states_[static_cast<std::size_t>(c)], states_[static_cast<std::size_t>(r)],
         at(site.kv_b_weight), table_, query_lens_, kv_lens_},
        std::move(attrs));
  }

  // [T, V]
  void add_logits(const Value* v) {
    Value* x = at(v);
    if (x->type.rank() != 2) {
      const Sym& vocabulary = x->type.shape.back();
      x = Builder{graph(), nullptr, nullptr}.op("aten.reshape", {x},
                                                {{"shape", SymDims{Sym::symbol("T"), vocabulary}}});
    }
    graph().add_output(x);
  }

  const Graph& from_;
  CachedModel out_;
  TokenSymbols symbols_;
  Locality locality_;
  const Value* input_ids_ = nullptr;
  const Value* position_ids_ = nullptr;
  Value *positions_ = nullptr, *slots_ = nullptr, *table_ = nullptr, *query_lens_ = nullptr,
        *kv_lens_ = nullptr;
  std::unordered_map<const Value*, Value*> map_;
  std::vector<Value*> states_;    // of each entry: the state, then the cache after the write
  std::vector<MaskFacts> masks_;  // of the attention sites in order
  std::map<std::pair<const Value*, const Value*>, std::pair<int, int>> entries_;
};

}  // namespace

CachedModel flatten(const Graph& captured, const Weights* weights, const FlattenOptions& options) {
  if (options.block_size <= 0)
    throw UserError("TK0407",
                    cat("the block size of the cache must be positive, got ", options.block_size));
  Graph graph = captured.clone();
  recognise_attention(graph);
  const TokenSymbols symbols = find_symbols(graph);
  std::vector<MaskFacts> masks = take_masks(&graph, symbols, weights);
  return Flattener(graph, symbols, std::move(masks), options).run();
}

}  // namespace tk
