#include "timeline/structure_auto.h"

#include <algorithm>
#include <cstdlib>
#include <iterator>
#include <map>
#include <set>

#include "base/error.h"
#include "timeline/decimal.h"
#include "timeline/structure_aux.h"

namespace tk {

namespace {

// Last dimension of the first operand of "16,7168;7168"; 0 if there is none.
std::int64_t width_of(std::string_view shapes) {
  const std::string_view first = shapes.substr(0, shapes.find(';'));
  const std::size_t comma = first.rfind(',');
  return decimal_int(comma == first.npos ? first : first.substr(comma + 1)).value_or(0);
}

using Counter = std::map<std::int64_t, std::size_t>;

// The walk along one stream.
class StreamWalk {
 public:
  StreamWalk(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
             const std::vector<std::uint32_t>& sequence, std::size_t lo, std::size_t hi)
      : t_(t), ops_(ops), roles_(roles), seq_(sequence), lo_(lo), hi_(hi) {}

  struct Layer {
    std::size_t begin = 0, ffn = 0, end = 0;  // places in the sequence; ffn == end: no MLP found
    std::size_t anchor = 0;
    bool linear = false;
  };
  struct Pass {
    std::vector<Layer> layers;
  };

  bool find() {
    find_anchors();
    if (anchors_.size() < 2) return false;
    find_norms();
    if (norms_.empty()) return false;
    merge_anchors();
    if (anchors_.size() < 2) return false;
    cut();
    return !passes_.empty();
  }

  const std::vector<Pass>& passes() const { return passes_; }
  std::int64_t hidden() const { return hidden_; }

  // Where models of different widths meet on the stream (a vision encoder before a language model):
  // the places behind which a new one begins. Two neighbouring intervals between attention kernels
  // that share no norm's width belong to different models.
  std::vector<std::size_t> seams() {
    find_anchors();
    std::vector<std::size_t> out;
    std::set<std::int64_t> common;
    std::size_t intervals = 0;
    for (std::size_t a = 0; a + 1 < anchors_.size(); ++a) {
      std::set<std::int64_t> widths;
      for (std::size_t i = anchors_[a] + 1; i < anchors_[a + 1]; ++i)
        if (role(i) == Role::norm)
          if (const std::int64_t w = norm_width(i); w > 256) widths.insert(w);
      if (widths.empty()) continue;
      std::set<std::int64_t> both;
      std::set_intersection(common.begin(), common.end(), widths.begin(), widths.end(),
                            std::inserter(both, both.end()));
      if (intervals == 0) {
        common = widths;
      } else if (both.empty()) {
        out.push_back(a > 0 ? anchors_[a - 1] + 1 : lo_);
        common = widths;
        intervals = 0;
      } else {
        common = both;
      }
      ++intervals;
    }
    anchors_.clear();
    return out;
  }

 private:
  const Kernel& at(std::size_t i) const { return t_.kernels[ops_.ops[seq_[i]]]; }
  Role role(std::size_t i) const { return roles_[at(i).type]; }

  // A matrix multiplication with a norm fused behind it norms its output.
  std::int64_t norm_width(std::size_t i) const {
    const bool product = t_.text(at(i).type).find("atmul") != std::string_view::npos;
    return width_of(t_.text(product ? at(i).out_shapes : at(i).in_shapes));
  }

  void find_anchors() {
    for (std::size_t i = lo_; i < hi_; ++i)
      if (role(i) == Role::attention || role(i) == Role::linear_attention) anchors_.push_back(i);
    if (!anchors_.empty()) return;
    // Attention that is not fused: a softmax between two batched matrix multiplications.
    for (std::size_t i = lo_; i < hi_; ++i) {
      if (t_.text(at(i).type).find("oftmax") == std::string_view::npos) continue;
      auto batched_near = [&](int direction) {
        for (int d = 1; d <= 12; ++d) {
          const auto j = static_cast<std::ptrdiff_t>(i) + direction * d;
          if (j < static_cast<std::ptrdiff_t>(lo_) || j >= static_cast<std::ptrdiff_t>(hi_))
            return false;
          if (role(static_cast<std::size_t>(j)) == Role::matmul)
            return t_.text(at(static_cast<std::size_t>(j)).type).find("atchMat") !=
                   std::string_view::npos;
        }
        return false;
      };
      if (batched_near(-1) && batched_near(1)) anchors_.push_back(i);
    }
  }

  // Norms of the residual stream: of the width that occurs most, ties to the wider. Head norms of q
  // and k are narrow; a latent's norm occurs once a layer.
  void find_norms() {
    std::vector<std::size_t> all;
    Counter count;
    for (std::size_t i = lo_; i < hi_; ++i)
      if (role(i) == Role::norm && !is_backward(t_.text(at(i).type))) {
        all.push_back(i);
        if (const std::int64_t w = norm_width(i); w > 0) ++count[w];
      }
    if (all.empty()) {
      primitive_norms();
      return;
    }
    const std::size_t needed = std::max<std::size_t>(1, count_layers() * 9 / 10);
    std::size_t most = 0;
    std::int64_t widest = 0;
    for (const auto& [w, n] : count)
      if (n >= needed) widest = std::max(widest, w);
    for (const auto& [w, n] : count)
      if (n >= needed && (w > 256 || widest <= 256) && n >= most) {
        most = n;
        hidden_ = w;
      }
    if (hidden_ == 0 && !count.empty())  // fewer norms than anchors: the widest
      hidden_ = count.rbegin()->first;
    for (std::size_t i : all)
      if (hidden_ == 0 || norm_width(i) == hidden_) norms_.push_back(i);
  }

  // Anchors with a matrix multiplication by weights between them: at least the number of layers.
  std::size_t count_layers() const {
    std::size_t n = anchors_.empty() ? 0 : 1;
    for (std::size_t a = 1; a < anchors_.size(); ++a)
      for (std::size_t i = anchors_[a - 1] + 1; i < anchors_[a]; ++i)
        if (role(i) == Role::activation || role(i) == Role::grouped_matmul) {
          ++n;
          break;
        }
    return std::max<std::size_t>(n, 1);
  }

  // Eager code without a norm kernel: ReduceMean of the residual stream, from its first power or
  // cast.
  void primitive_norms() {
    Counter count;
    std::vector<std::size_t> all;
    for (std::size_t i = lo_; i < hi_; ++i)
      if (t_.text(at(i).type).starts_with("ReduceMean")) {
        all.push_back(i);
        ++count[width_of(t_.text(at(i).in_shapes))];
      }
    std::size_t most = 0;
    for (const auto& [w, n] : count)
      if (n >= most && w > 256) {
        most = n;
        hidden_ = w;
      }
    for (std::size_t i : all) {
      if (width_of(t_.text(at(i).in_shapes)) != hidden_) continue;
      std::size_t first = i;
      while (first > lo_) {
        const std::string_view type = t_.text(at(first - 1).type);
        if (!type.starts_with("Cast") && !type.starts_with("Pow") && !type.starts_with("Square"))
          break;
        --first;
      }
      norms_.push_back(first);
    }
  }

  std::size_t norms_between(std::size_t from, std::size_t to) const {
    return static_cast<std::size_t>(std::lower_bound(norms_.begin(), norms_.end(), to) -
                                    std::upper_bound(norms_.begin(), norms_.end(), from));
  }

  // Several attention kernels in one layer (a convolution and a delta rule, prefill and decode of a
  // mixed batch) have no residual norm between them. The first stands for all; spans are kept.
  void merge_anchors() {
    std::vector<std::size_t> merged;
    for (std::size_t a : anchors_) {
      if (!merged.empty() && norms_between(last_of_.back(), a) == 0) {
        last_of_.back() = a;
        linear_.back() = linear_.back() || role(a) == Role::linear_attention;
        continue;
      }
      merged.push_back(a);
      last_of_.push_back(a);
      linear_.push_back(role(a) == Role::linear_attention);
    }
    anchors_ = std::move(merged);
  }

  void cut() {
    const std::size_t n = anchors_.size();
    // Norms per interval; the usual number says where the last layer ends and where passes meet.
    Counter usual_count;
    for (std::size_t a = 0; a + 1 < n; ++a)
      ++usual_count[static_cast<std::int64_t>(norms_between(last_of_[a], anchors_[a + 1]))];
    std::size_t usual = 1, most = 0;
    for (const auto& [k, c] : usual_count)
      if (k > 0 && c > most) {
        most = c;
        usual = static_cast<std::size_t>(k);
      }
    // More norms than usual: another pass begins. Unless many intervals are like that: then it is a
    // kind of layer with a norm more.
    auto is_seam = [&](std::size_t a) {
      const std::size_t norms = norms_between(last_of_[a], anchors_[a + 1]);
      return norms > usual && (n < 7 || usual_count[static_cast<std::int64_t>(norms)] * 3 <= n - 1);
    };
    auto norm_after = [&](std::size_t from,
                          std::size_t k) {  // the k-th, from 1; seq end if there is none
      auto it = std::upper_bound(norms_.begin(), norms_.end(), from);
      for (; k > 1 && it != norms_.end(); --k) ++it;
      return it == norms_.end() ? hi_ : *it;
    };
    auto norm_before = [&](std::size_t to) {
      auto it = std::lower_bound(norms_.begin(), norms_.end(), to);
      return it == norms_.begin() ? lo_ : *(it - 1);
    };
    Pass pass;
    for (std::size_t a = 0; a < n; ++a) {
      Layer layer;
      layer.anchor = anchors_[a];
      layer.linear = linear_[a];
      layer.begin = norm_before(anchors_[a]);
      const bool new_pass = a > 0 && is_seam(a - 1);
      if (new_pass) {
        passes_.push_back(std::move(pass));
        pass = {};
      }
      const bool last = a + 1 == n || is_seam(a);
      layer.end = last ? norm_after(last_of_[a], usual) : norm_before(anchors_[a + 1]);
      if (layer.end == hi_ && last && !pass.layers.empty()) {
        // No final norm: as long as the layer before it.
        const Layer& model = pass.layers.back();
        layer.end = std::min(hi_, layer.begin + (model.end - model.begin));
      }
      layer.ffn =
          usual >= 2 ? norm_after(last_of_[a], usual >= 4 ? 2 : 1) : after_projection(last_of_[a]);
      if (layer.ffn > layer.end) layer.ffn = layer.end;
      pass.layers.push_back(layer);
    }
    passes_.push_back(std::move(pass));
  }

  // One norm a layer: attention ends behind the first matrix multiplication after it.
  std::size_t after_projection(std::size_t anchor) const {
    for (std::size_t i = anchor + 1; i < hi_; ++i)
      if (role(i) == Role::matmul) return i + 1;
    return hi_;
  }

  const Timeline& t_;
  const StepOps& ops_;
  const std::vector<Role>& roles_;
  const std::vector<std::uint32_t>& seq_;
  std::size_t lo_, hi_;  // the part of the sequence that is looked at
  std::vector<std::size_t> anchors_, last_of_, norms_;
  std::vector<bool> linear_;
  std::int64_t hidden_ = 0;
  std::vector<Pass> passes_;
};

// The first attention kernel from `from` on: a model before it ends there at the latest.
std::size_t next_model(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                       const std::vector<std::uint32_t>& sequence, std::size_t from) {
  for (std::size_t i = from; i < sequence.size(); ++i) {
    const Role r = roles[t.kernels[ops.ops[sequence[i]]].type];
    if (r == Role::attention || r == Role::linear_attention) return i;
  }
  return sequence.size();
}

struct Walked {
  std::vector<StreamWalk::Pass> passes;
  std::int64_t hidden = 0;  // of the longest pass
};

// All passes on a stream, model by model.
Walked walk_stream(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                   const std::vector<std::uint32_t>& sequence) {
  Walked out;
  std::vector<std::size_t> bounds = StreamWalk(t, ops, roles, sequence, 0, sequence.size()).seams();
  bounds.push_back(sequence.size());
  std::size_t lo = 0, longest = 0, claimed = 0;
  for (std::size_t hi : bounds) {
    // The seam lies behind an attention kernel of the model before: its last layer reaches further.
    StreamWalk walk(t, ops, roles, sequence, lo,
                    hi == sequence.size() ? hi : next_model(t, ops, roles, sequence, hi));
    if (walk.find())
      for (StreamWalk::Pass pass : walk.passes()) {
        if (pass.layers.front().begin < claimed) pass.layers.front().begin = claimed;
        if (pass.layers.size() > longest) {
          longest = pass.layers.size();
          out.hidden = walk.hidden();
        }
        claimed = pass.layers.back().end;
        out.passes.push_back(std::move(pass));
      }
    lo = hi;
  }
  return out;
}

// The stream with the most attention kernels, else the busiest.
std::int32_t main_stream(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  std::map<std::int32_t, std::pair<std::size_t, Ns>> score;
  for (std::size_t i = 0; i < ops.size(); ++i) {
    const Kernel& k = t.kernels[ops.ops[i]];
    if (ops.streams[i] < 0 || k.core == Core::communication) continue;
    auto& [anchors, busy] = score[ops.streams[i]];
    anchors += roles[k.type] == Role::attention || roles[k.type] == Role::linear_attention;
    busy += k.duration;
  }
  std::int32_t best = no_stream;
  std::pair<std::size_t, Ns> high{0, -1};
  for (const auto& [stream, s] : score)
    if (s > high) {
      high = s;
      best = stream;
    }
  return best;
}

std::string attention_kind(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                           const std::vector<std::uint32_t>& part, bool linear) {
  if (linear) return "linear_attn";
  for (std::uint32_t i : part) {
    const Kernel& k = t.kernels[ops.ops[i]];
    const std::string_view type = t.text(k.type);
    if (roles[k.type] == Role::prolog || type.find("KvRmsNormRope") != type.npos ||
        type.find("MLA") != type.npos || type.find("Mla") != type.npos ||
        type.find("MultiLatent") != type.npos)
      return "mla";
  }
  return "self_attn";
}

std::string ffn_kind(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                     const std::vector<std::uint32_t>& part) {
  for (std::uint32_t i : part) {
    const Role r = roles[t.kernels[ops.ops[i]].type];
    if (r == Role::grouped_matmul || r == Role::dispatch || r == Role::combine || r == Role::gate)
      return "moe";
  }
  return "dense_mlp";
}

// Kinds whose kernels differ much between layers become types of their own: self_attn, self_attn_2.
void split_types(const Timeline& t, const StepOps& ops, Structure& s) {
  std::map<std::string, std::vector<std::size_t>> by_type;
  for (std::size_t c = 0; c < s.components.size(); ++c) by_type[s.components[c].type].push_back(c);
  for (auto& [type, members] : by_type) {
    using Bag = std::map<StringId, int>;
    std::vector<std::pair<Bag, std::vector<std::size_t>>> kinds;
    for (std::size_t c : members) {
      Bag bag;
      for (const StreamSegment& g : s.components[c].segments)
        if (g.primary)
          for (std::uint32_t i : g.ops) ++bag[t.kernels[ops.ops[i]].type];
      std::size_t best = kinds.size();
      for (std::size_t k = 0; k < kinds.size() && best == kinds.size(); ++k) {
        int both = 0, either = 0;
        for (const auto& [id, n] : bag) {
          const auto it = kinds[k].first.find(id);
          const int m = it == kinds[k].first.end() ? 0 : it->second;
          both += std::min(n, m);
          either += std::max(n, m);
        }
        for (const auto& [id, m] : kinds[k].first)
          if (!bag.contains(id)) either += m;
        if (either == 0 || both * 4 >= either * 3) best = k;
      }
      if (best == kinds.size()) kinds.push_back({bag, {}});
      kinds[best].second.push_back(c);
    }
    std::stable_sort(kinds.begin(), kinds.end(), [](const auto& a, const auto& b) {
      return a.second.size() > b.second.size();
    });
    int number = 2;
    for (std::size_t k = 1; k < kinds.size(); ++k) {
      if (kinds[k].second.size() < 2) continue;  // one odd layer stays, as an outlier
      for (std::size_t c : kinds[k].second) s.components[c].type = cat(type, "_", number);
      ++number;
    }
  }
}

// Of the places [from, to] on a stream the one before which it idles longest.
std::size_t widest_pause(const Timeline& t, const StepOps& ops,
                         const std::vector<std::uint32_t>& sequence, std::size_t from,
                         std::size_t to) {
  std::size_t best = to;
  Ns widest = -1;
  for (std::size_t i = std::max<std::size_t>(from, 1); i <= to && i < sequence.size(); ++i) {
    const Ns pause =
        t.kernels[ops.ops[sequence[i]]].start - t.kernels[ops.ops[sequence[i - 1]]].end();
    if (pause > widest) {
      widest = pause;
      best = i;
    }
  }
  return best;
}

std::string signature(const std::vector<StreamWalk::Layer>& layers) {
  std::string s;
  for (const auto& l : layers) s += l.linear ? 'l' : 'a';
  return s;
}

}  // namespace

Structure auto_structure(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles) {
  Structure s;
  s.origin = "auto:attention_and_residual_norms";
  if (!t.has_stream) {
    s.reason =
        "the profile has no Stream ID (collected at Level0): collect with Level1 and "
        "PipeUtilization";
    return s;
  }
  std::size_t backward = 0;
  for (std::uint32_t op : ops.ops) backward += is_backward(t.text(t.kernels[op].type));
  if (backward * 20 > ops.size()) {
    s.reason = cat("a training step: ", backward, " of ", ops.size(),
                   " kernels are gradients or the optimizer");
    return s;
  }
  const std::int32_t main = main_stream(t, ops, roles);
  const auto streams = ops_by_stream(t, ops);
  if (main == no_stream) {
    s.reason = "no compute kernels";
    return s;
  }
  const auto& sequence = streams.at(main);
  const Walked walk = walk_stream(t, ops, roles, sequence);
  if (walk.passes.empty()) {
    s.reason =
        "no repeated attention with norms around it on any stream: not the inference of a "
        "transformer";
    return s;
  }
  // The longest pass is the main model; what comes before it is an encoder, after it the MTP head.
  const auto& passes = walk.passes;
  std::size_t longest = 0;
  for (std::size_t p = 1; p < passes.size(); ++p)
    if (passes[p].layers.size() > passes[longest].layers.size()) longest = p;
  int before = 0, after = 0, global = 0;
  for (std::size_t p = 0; p < passes.size(); ++p) {
    std::string name = "main";
    if (p < longest) name = cat("before", before++ ? cat("_", before) : "");
    if (p > longest)
      name = passes[p].layers.size() == passes[longest].layers.size()
                 ? cat("main_", ++after + 1)
                 : cat("mtp_head", after++ ? cat("_", after) : "");
    Phase phase;
    phase.name = name;
    phase.layers = static_cast<int>(passes[p].layers.size());
    int local = 0;
    for (const auto& l : passes[p].layers) {
      auto part = [&](std::size_t from, std::size_t to, const std::string& type) {
        if (from >= to) return;
        Component c;
        c.type = type;
        c.phase = name;
        c.local_layer = local;
        c.layer = global;
        c.segments.push_back({main,
                              true,
                              {sequence.begin() + static_cast<std::ptrdiff_t>(from),
                               sequence.begin() + static_cast<std::ptrdiff_t>(to)}});
        s.components.push_back(std::move(c));
      };
      const std::vector<std::uint32_t> attn(sequence.begin() + static_cast<std::ptrdiff_t>(l.begin),
                                            sequence.begin() + static_cast<std::ptrdiff_t>(l.ffn));
      const std::vector<std::uint32_t> ffn(sequence.begin() + static_cast<std::ptrdiff_t>(l.ffn),
                                           sequence.begin() + static_cast<std::ptrdiff_t>(l.end));
      part(l.begin, l.ffn, attention_kind(t, ops, roles, attn, l.linear));
      part(l.ffn, l.end, ffn_kind(t, ops, roles, ffn));
      ++local;
      ++global;
    }
    s.phases.push_back(std::move(phase));
  }
  assign_auxiliary(t, ops, main, streams, s);
  // A kernel on another stream may decide the kind (experts beside the main stream, latent cache).
  for (Component& c : s.components) {
    std::vector<std::uint32_t> all;
    for (const StreamSegment& g : c.segments) all.insert(all.end(), g.ops.begin(), g.ops.end());
    if (c.type == "dense_mlp") c.type = ffn_kind(t, ops, roles, all);
    if (c.type == "self_attn") c.type = attention_kind(t, ops, roles, all, false);
  }
  split_types(t, ops, s);
  for (Phase& phase : s.phases) {
    std::map<std::vector<std::string>, std::vector<int>> kinds;
    for (int l = 0; l < phase.layers; ++l) {
      std::vector<std::string> types;
      for (const Component& c : s.components)
        if (c.phase == phase.name && c.local_layer == l) types.push_back(c.type);
      kinds[types].push_back(l);
    }
    for (auto& [types, layers] : kinds) phase.compositions.push_back({layers, types});
    std::sort(phase.compositions.begin(), phase.compositions.end(),
              [](const Composition& a, const Composition& b) { return a.layers < b.layers; });
  }
  s.found = true;
  if (walk.hidden) s.hint = cat("hidden ", walk.hidden);
  finish_structure(t, ops, s);
  return s;
}

std::size_t cut_passes(Timeline& t, const std::vector<Role>& roles) {
  if (t.has_step_column || t.steps.size() != 1 || !t.has_stream) return 0;
  const auto by_step = kernels_by_step(t);
  const StepOps ops = step_ops(t, 0, by_step[0]);
  const std::int32_t main = main_stream(t, ops, roles);
  const auto streams = ops_by_stream(t, ops);
  if (main == no_stream) return 0;
  const auto& sequence = streams.at(main);
  const Walked walk = walk_stream(t, ops, roles, sequence);
  if (walk.passes.size() < 2) return 0;
  const auto& passes = walk.passes;
  std::size_t longest = 0;
  for (const auto& p : passes) longest = std::max(longest, p.layers.size());
  if (longest < 2) return 0;
  // A pass of full length begins a step; shorter ones after it (an MTP head) belong to it.
  std::size_t whole = 0;
  std::set<std::string> kinds;
  for (const auto& p : passes)
    if (p.layers.size() == longest) {
      kinds.insert(signature(p.layers));
      ++whole;
    }
  if (whole < 2 || kinds.size() != 1) return 0;
  // Between two passes stand the end of one (final norm, head, sampling) and the beginning of the
  // next (inputs, embedding). Where the first pass shows its beginning whole, or the last one its
  // end, the same kernels tell the cut; else it is the widest pause of the device.
  auto type_at = [&](std::size_t i) { return t.kernels[ops.ops[sequence[i]]].type; };
  const std::size_t head = passes.front().layers.front().begin;
  const std::size_t tail_from = passes.back().layers.back().end, tail = sequence.size() - tail_from;
  std::vector<Ns> cuts{INT64_MIN};
  for (std::size_t p = 1; p < passes.size(); ++p) {
    if (passes[p].layers.size() != longest) continue;
    const std::size_t from = passes[p - 1].layers.back().end, to = passes[p].layers.front().begin;
    auto equal = [&](std::size_t a, std::size_t b, std::size_t n) {
      for (std::size_t i = 0; i < n; ++i)
        if (type_at(a + i) != type_at(b + i)) return false;
      return true;
    };
    std::size_t cut = to;
    if (to <= from) {
      // Nothing between them.
    } else if (head > 0 && head <= to - from && equal(to - head, 0, head)) {
      cut = to - head;
    } else if (tail > 0 && tail <= to - from && equal(from, tail_from, tail)) {
      cut = from + tail;
    } else {
      cut = widest_pause(t, ops, sequence, from, to);
    }
    cuts.push_back(t.kernels[ops.ops[sequence[cut]]].start);
  }
  t.steps.clear();
  for (std::size_t i = 0; i < cuts.size(); ++i) t.steps.push_back(cat("pass", i));
  for (Kernel& k : t.kernels)
    k.step = static_cast<std::int32_t>(std::upper_bound(cuts.begin(), cuts.end(), k.start) -
                                       cuts.begin() - 1);
  t.notes.push_back(cat("no Step Id: the rows were cut into ", cuts.size(), " equal passes of ",
                        longest, " layers, named pass0 to pass", cuts.size() - 1));
  return cuts.size();
}

}  // namespace tk
