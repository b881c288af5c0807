#include "trial/reference.h"

#include <algorithm>
#include <cmath>

#include "base/error.h"
#include "ops/interpret.h"

namespace tk {
namespace {

Tensor row_of(const TensorView& t, std::int64_t i) {
  Tensor r;
  static_cast<TensorView&>(r) = t;
  r.data = static_cast<std::byte*>(t.data) +
           static_cast<std::size_t>(i * t.strides[0]) * size_of(t.dtype);
  r.shape.erase(0);
  r.strides.erase(0);
  return r;
}

// Rows `count` of t from `first` on, as a view.
TensorView rows_of(const TensorView& t, std::int64_t first, std::int64_t count) {
  TensorView r = t;
  r.data = static_cast<std::byte*>(t.data) +
           static_cast<std::size_t>(first * t.strides[0]) * size_of(t.dtype);
  r.shape[0] = count;
  return r;
}

Tensor concatenate(const TensorView& a, const TensorView& b) {
  Tensor out = Tensor::empty(a.dtype, {a.shape[0] + b.shape[0], a.shape[1]});
  copy_into(rows_of(out, 0, a.shape[0]), a);
  copy_into(rows_of(out, a.shape[0], b.shape[0]), b);
  return out;
}

std::vector<std::int64_t> ids_of(const TensorView& t) {
  std::vector<std::int64_t> ids(static_cast<std::size_t>(t.numel()));
  for (std::int64_t i = 0; i < t.numel(); ++i)
    ids[static_cast<std::size_t>(i)] = static_cast<std::int64_t>(element(t, i));
  return ids;
}

Tensor run_captured(const Graph& graph, const Weights& weights,
                    const std::vector<std::int64_t>& ids) {
  const auto n = static_cast<std::int64_t>(ids.size());
  std::vector<Tensor> inputs;
  for (const auto& v : graph.inputs()) {
    Tensor t = Tensor::empty(DType::i64, {1, n});
    const bool position = v->name.find("position") != std::string::npos;
    for (std::int64_t i = 0; i < n; ++i)
      t.as<std::int64_t>()[i] = position ? i : ids[static_cast<std::size_t>(i)];
    inputs.push_back(std::move(t));
  }
  Tensor logits = interpret(graph, inputs, weights).at(0);
  TK_CHECK(logits.rank() == 3 && logits.shape[1] == n, "logits ", logits.shape.str());
  logits = contiguous(logits);
  logits.shape.erase(0);
  logits.strides.erase(0);
  return logits;
}

bool is_half(DType d) { return d == DType::bf16 || d == DType::f16; }

void find_own_error(Reference* r) {
  for (const ReferenceSequence& s : r->sequences) {
    if (!s.logits_f32) continue;
    const ErrorStats e = compare(rows_of(s.logits, 0, s.logits_f32->shape[0]), *s.logits_f32);
    if (r->own_error) {
      r->own_error->merge(e);
    } else {
      r->own_error = e;
    }
  }
}

// Collects what a model under test gives, position by position.
class Tally {
 public:
  explicit Tally(const Reference& reference) : reference_(reference) {}

  // `got` are logits [n, V] of positions first .. first + n of sequence s.
  void add(std::size_t s, std::int64_t first, const TensorView& got) {
    const ReferenceSequence& seq = reference_.sequences[s];
    const std::int64_t n = got.shape[0];
    const ErrorStats e = compare(got, rows_of(seq.logits, first, n));
    const bool prompt = first < seq.n_prompt;
    merge(&out_.all, e);
    merge(prompt ? &out_.prefill : &out_.decode, e);
    if (seq.logits_f32 && first + n <= seq.logits_f32->shape[0]) {
      const ErrorStats f = compare(got, rows_of(*seq.logits_f32, first, n));
      if (out_.against_f32) {
        out_.against_f32->merge(f);
      } else {
        out_.against_f32 = f;
      }
    }
    for (std::int64_t i = 0; i < n; ++i) {
      const std::int64_t mine = argmax(row_of(got, i));
      const std::int64_t theirs = argmax(row_of(seq.logits, first + i));
      if (mine == theirs || within_rounding(seq, first + i, mine, theirs)) continue;
      if (out_.greedy_equal)
        out_.first_difference =
            cat(seq.name, ", position ", first + i, ": token ", mine, " instead of ", theirs);
      out_.greedy_equal = false;
    }
  }

  Agreement finish() {
    if (!is_half(reference_.dtype)) {
      const Tolerance t = logits_tolerance(reference_.dtype);
      out_.allowed = t.relative;
      out_.rule =
          cat("largest error at most ", t.relative, " of the largest logit, greedy tokens equal");
      out_.passed = out_.all.relative() <= t.relative && out_.greedy_equal;
    } else if (reference_.own_error && out_.against_f32) {
      out_.allowed = allowed_error_ratio;
      out_.rule = cat("error against f32 at most ", allowed_error_ratio, " times the model's own ",
                      name_of(reference_.dtype), " error");
      const ErrorStats& own = *reference_.own_error;
      out_.passed =
          out_.against_f32->max_abs <= allowed_error_ratio * std::max(own.max_abs, 1e-6) &&
          out_.against_f32->rms() <= allowed_error_ratio * std::max(own.rms(), 1e-7) &&
          out_.greedy_equal;
    } else {
      const Tolerance t = logits_tolerance(reference_.dtype);
      out_.allowed = t.relative;
      out_.rule = cat("largest error at most ", t.relative, " of the largest logit");
      out_.passed = out_.all.relative() <= t.relative && out_.greedy_equal;
    }
    if (out_.all.not_finite > 0) out_.passed = false;
    return out_;
  }

 private:
  static void merge(ErrorStats* to, const ErrorStats& e) { to->merge(e); }

  // In 16 bits two tokens may be closer than the roundings (OP-73).
  bool within_rounding(const ReferenceSequence& seq, std::int64_t position, std::int64_t mine,
                       std::int64_t theirs) const {
    if (!is_half(reference_.dtype)) return false;
    const Tensor row = row_of(seq.logits, position);
    const double margin = element(row, theirs) - element(row, mine);
    const double own = reference_.own_error ? reference_.own_error->max_abs : 0;
    return margin <= 2 * allowed_error_ratio * std::max(own, 1e-6);
  }

  const Reference& reference_;
  Agreement out_;
};

}  // namespace

Graph in_f32(const Graph& graph) {
  const auto wide = [](DType d) { return is_half(d) ? DType::f32 : d; };
  Graph out;
  out.name = graph.name;
  out.ranges = graph.ranges;
  std::unordered_map<const Value*, Value*> to;
  for (const auto& v : graph.inputs())
    to[v.get()] = out.add_input(v->name, {wide(v->type.dtype), v->type.shape});
  for (const auto& v : graph.weights())
    to[v.get()] = out.add_weight(v->name, {wide(v->type.dtype), v->type.shape});
  for (Node* n : nodes(graph)) {
    std::vector<Value*> inputs;
    inputs.reserve(n->inputs.size());
    for (Value* v : n->inputs) inputs.push_back(v == nullptr ? nullptr : to.at(v));
    Attrs attrs;
    for (const auto& [key, value] : n->attrs) {
      const DType* d = std::get_if<DType>(&value);
      attrs.set(key, d != nullptr ? Attr(wide(*d)) : value);
    }
    Node* copy = out.insert(nullptr, *n->op, std::move(inputs), std::move(attrs), nullptr);
    for (std::size_t i = 0; i < n->outputs.size(); ++i)
      to[n->outputs[i].get()] = copy->out(static_cast<int>(i));
  }
  for (Value* v : graph.outputs()) out.add_output(to.at(v));
  return out;
}

namespace {

// Logits of every position in f32, of a 16-bit model that has weights.
void add_f32(const CapturedModel& model, Reference* r) {
  if (!is_half(r->dtype) || !model.has_weights) return;
  const Graph wide = in_f32(model.graph);
  Weights weights;
  for (const auto& [name, t] : model.weights)
    weights[name] = is_half(t.dtype) ? to_dtype(t, DType::f32) : t;
  for (ReferenceSequence& s : r->sequences) s.logits_f32 = run_captured(wide, weights, s.ids);
}

}  // namespace

Reference reference_of_golden(const Golden& golden, const CapturedModel& model) {
  Reference r;
  r.source = golden.path.filename().string();
  for (const GoldenCase& c : golden.cases) {
    r.dtype = c.logits.dtype;
    for (std::int64_t b = 0; b < c.input_ids.shape[0]; ++b) {
      ReferenceSequence s;
      s.name = cat(c.name, "[", b, "]");
      s.ids = ids_of(row_of(c.input_ids, b));
      s.n_prompt = static_cast<std::int64_t>(s.ids.size());
      const auto next = ids_of(row_of(c.decode_ids, b));
      // The last token is chosen, never fed.
      if (next.size() > 1) s.ids.insert(s.ids.end(), next.begin(), next.end() - 1);
      const Tensor decode = row_of(c.decode_logits, b);
      s.logits = concatenate(row_of(c.logits, b),
                             rows_of(decode, 1, std::max<std::int64_t>(decode.shape[0] - 1, 0)));
      r.sequences.push_back(std::move(s));
    }
  }
  add_f32(model, &r);
  find_own_error(&r);
  return r;
}

Reference reference_of_captured(const CapturedModel& model, std::int64_t max_len) {
  Reference r;
  r.source = "the captured graph";
  r.dtype = model.graph.outputs().at(0)->type.dtype;
  const Sym& v = model.graph.outputs().at(0)->type.shape.back();
  TK_CHECK(v.is_const(), "vocabulary");
  const std::int64_t vocab = v.value();
  struct Lengths {
    std::int64_t prompt, decode;
  };
  for (const Lengths& l : {Lengths{9, 4}, Lengths{5, 3}, Lengths{1, 2}}) {
    const std::int64_t n = std::min(l.prompt + l.decode, max_len);
    ReferenceSequence s;
    s.name = cat("ids", r.sequences.size());
    for (std::int64_t i = 0; i < n; ++i)
      s.ids.push_back((17 + i * 7919 + static_cast<std::int64_t>(r.sequences.size()) * 104729) %
                      vocab);
    s.n_prompt = std::min(l.prompt, n);
    s.logits = run_captured(model.graph, model.weights, s.ids);
    r.sequences.push_back(std::move(s));
  }
  add_f32(model, &r);
  find_own_error(&r);
  return r;
}

Agreement check_captured(const Graph& captured, const Weights& weights,
                         const Reference& reference) {
  Tally tally(reference);
  for (std::size_t i = 0; i < reference.sequences.size(); ++i) {
    const ReferenceSequence& s = reference.sequences[i];
    const Tensor logits = run_captured(captured, weights, s.ids);
    tally.add(i, 0, rows_of(logits, 0, s.n_prompt));
    for (std::int64_t p = s.n_prompt; p < static_cast<std::int64_t>(s.ids.size()); ++p)
      tally.add(i, p, rows_of(logits, p, 1));
  }
  return tally.finish();
}

namespace {

// Closes the sequences on every way out.
struct Open {
  Runner* runner;
  std::vector<SeqId> ids;
  ~Open() {
    for (SeqId id : ids) runner->close(id);
  }
};

// Sequences `group` of the reference together: prompts of mixed lengths in one prefill, then one
// token each while they last.
void run_group(Runner* runner, const Reference& reference, const std::vector<std::size_t>& group,
               Tally* tally) {
  Open open{runner, {}};
  std::vector<Piece> pieces;
  for (std::size_t i : group) {
    open.ids.push_back(runner->open());
    const ReferenceSequence& s = reference.sequences[i];
    pieces.push_back(
        {open.ids.back(), std::span(s.ids).first(static_cast<std::size_t>(s.n_prompt))});
  }
  {
    const Logits& logits = runner->run(pieces, Phase::prefill, LogitRows::all);
    std::int64_t at = 0;
    for (std::size_t i : group) {
      const ReferenceSequence& s = reference.sequences[i];
      const std::int64_t vocab = s.logits.shape[1];
      Tensor got = Tensor::empty(logits.table.dtype, {s.n_prompt, vocab});
      for (std::int64_t p = 0; p < s.n_prompt; ++p) copy_into(row_of(got, p), logits.row(at++));
      tally->add(i, 0, got);
    }
  }
  for (std::int64_t step = 0;; ++step) {
    pieces.clear();
    std::vector<std::size_t> live;
    for (std::size_t g = 0; g < group.size(); ++g) {
      const ReferenceSequence& s = reference.sequences[group[g]];
      const std::int64_t p = s.n_prompt + step;
      if (p >= static_cast<std::int64_t>(s.ids.size())) continue;
      pieces.push_back({open.ids[g], std::span(s.ids).subspan(static_cast<std::size_t>(p), 1)});
      live.push_back(group[g]);
    }
    if (live.empty()) break;
    const Logits& logits = runner->run(pieces, Phase::decode);
    for (std::size_t i = 0; i < live.size(); ++i) {
      const ReferenceSequence& s = reference.sequences[live[i]];
      Tensor got = Tensor::empty(logits.table.dtype, {1, s.logits.shape[1]});
      copy_into(row_of(got, 0), logits.row(static_cast<std::int64_t>(i)));
      tally->add(live[i], s.n_prompt + step, got);
    }
  }
}

}  // namespace

Agreement check_runner(Runner* runner, const Reference& reference, bool batched) {
  Tally tally(reference);
  std::vector<std::size_t> group;
  for (std::size_t i = 0; i < reference.sequences.size(); ++i) {
    group.push_back(i);
    const bool full = static_cast<std::int64_t>(group.size()) == runner->options().max_batch;
    if (!batched || full || i + 1 == reference.sequences.size()) {
      run_group(runner, reference, group, &tally);
      group.clear();
    }
  }
  return tally.finish();
}

}  // namespace tk
