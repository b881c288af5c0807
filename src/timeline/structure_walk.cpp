#include "timeline/structure_walk.h"

#include <algorithm>
#include <iterator>
#include <map>
#include <set>

#include "timeline/decimal.h"

namespace tk {

std::int64_t shape_width(std::string_view shapes) {
  const std::string_view first = shapes.substr(0, shapes.find(';'));
  const std::size_t comma = first.rfind(',');
  return decimal_int(comma == first.npos ? first : first.substr(comma + 1)).value_or(0);
}

std::vector<std::uint32_t> receptions(const Timeline& t, const StepOps& ops) {
  std::vector<std::uint32_t> out;
  for (std::uint32_t op : ops.ops) {
    const Kernel& k = t.kernels[op];
    if (k.core != Core::communication) continue;
    const std::string_view name = t.text(k.name);
    if (name.find("eceive") != name.npos || name.find("ecv") != name.npos) out.push_back(op);
  }
  return out;
}

namespace {

using Counter = std::map<std::int64_t, std::size_t>;

// The walk along one stream.
class StreamWalk {
 public:
  StreamWalk(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
             const std::vector<std::uint32_t>& sequence, std::size_t lo, std::size_t hi)
      : t_(t), ops_(ops), roles_(roles), seq_(sequence), lo_(lo), hi_(hi) {}

  bool find() {
    find_anchors();
    if (anchors_.empty()) return false;
    find_norms();
    drop_head_norms();
    if (norms_.empty()) return false;
    merge_anchors();
    find_cross();
    find_starts();
    // One layer alone stands between two norms.
    if (anchors_.size() == 1 && (norms_.front() > anchors_[0] || norms_.back() < anchors_[0]))
      return false;
    cut();
    return !passes_.empty();
  }

  const std::vector<WalkedPass>& passes() const { return passes_; }
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
    return shape_width(t_.text(product ? at(i).out_shapes : at(i).in_shapes));
  }

  void find_anchors() {
    for (std::size_t i = lo_; i < hi_; ++i)
      if (is_anchor(role(i))) anchors_.push_back(i);
    if (!anchors_.empty()) return;
    // Attention that is not fused: a softmax between two batched matrix multiplications.
    for (std::size_t i = lo_; i < hi_; ++i) {
      if (t_.text(at(i).type).find("oftmax") == std::string_view::npos) continue;
      auto batched_near = [&](std::ptrdiff_t direction) {
        for (std::ptrdiff_t d = 1; d <= 12; ++d) {
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
        ++count[shape_width(t_.text(at(i).in_shapes))];
      }
    std::size_t most = 0;
    for (const auto& [w, n] : count)
      if (n >= most && w > 256) {
        most = n;
        hidden_ = w;
      }
    for (std::size_t i : all) {
      if (shape_width(t_.text(at(i).in_shapes)) != hidden_) continue;
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

  bool any_between(std::size_t from, std::size_t to, bool (*is)(Role)) const {
    for (std::size_t i = from + 1; i < to; ++i)
      if (is(role(i))) return true;
    return false;
  }
  static bool is_product(Role r) {
    return r == Role::matmul || r == Role::prolog || r == Role::grouped_matmul;
  }

  // Norms of q and k as wide as the residual stream (OLMo 2): behind the block's projection, with
  // no product between them and the attention kernel.
  void drop_head_norms() {
    std::vector<std::size_t> kept;
    std::size_t n = 0;
    for (std::size_t a : anchors_) {
      const std::size_t first = kept.size();
      while (n < norms_.size() && norms_[n] < a) kept.push_back(norms_[n++]);
      auto head_norm = [&](std::size_t from, std::size_t norm, std::size_t to) {
        return !any_between(norm, to, is_product) && !any_between(from, norm, is_ffn) &&
               !any_between(from, norm, is_anchor);
      };
      // The last ones first: k's, then q's; one residual norm must stay before them.
      std::size_t drop = 0;
      while (drop < 2 && kept.size() - first > drop) {
        const std::size_t at = kept.size() - 1 - drop;
        const std::size_t from = at > first ? kept[at - 1] : first ? kept[first - 1] : lo_;
        if (!head_norm(from, kept[at], a)) break;
        ++drop;
      }
      // What was reached must be the projection, and a norm before it, or the first layer.
      const std::size_t at = kept.size() - drop;
      const std::size_t from = at > first ? kept[at - 1] : lo_;
      if (drop && (at > first || first == 0) && any_between(from, kept[at], is_product))
        kept.resize(at);
    }
    for (; n < norms_.size(); ++n) kept.push_back(norms_[n]);
    norms_ = std::move(kept);
  }

  // Two attention kernels of a layer with a norm between them, but no MLP: the second reads an
  // encoder's tokens (Whisper, T5). Where mixers of different kinds follow each other like that,
  // and others have an MLP between, each block is a layer of its own (Nemotron-H).
  void find_cross() {
    const std::size_t n = anchors_.size();
    cross_.assign(n, 0);
    std::vector<bool> bare(n);
    std::size_t without = 0, mixed = 0;
    for (std::size_t a = 0; a + 1 < n; ++a) {
      bare[a] = !any_between(last_of_[a], anchors_[a + 1], is_ffn) &&
                norms_between(last_of_[a], anchors_[a + 1]) == 1;
      without += bare[a];
      mixed += bare[a] && (linear_[a] || linear_[a + 1]);
    }
    if (without == 0 || without + 1 >= n) return;
    if (mixed > 0) {
      single_blocks_ = true;
      return;
    }
    std::vector<std::size_t> anchors, last, cross;
    std::vector<bool> linear;
    for (std::size_t a = 0; a < n; ++a) {
      anchors.push_back(anchors_[a]);
      linear.push_back(linear_[a]);
      cross.push_back(0);
      if (bare[a]) {
        ++a;
        cross.back() = anchors_[a];
      }
      last.push_back(last_of_[a]);
    }
    anchors_ = std::move(anchors);
    last_of_ = std::move(last);
    cross_ = std::move(cross);
    linear_ = std::move(linear);
  }

  // A row of a table as wide as the residual stream is looked up, of one longer than the tokens and
  // what experts make of them: a vocabulary's.
  bool is_lookup(std::size_t i, std::int64_t tokens) const {
    std::string_view table = t_.text(at(i).in_shapes);
    table = table.substr(0, table.find(';'));
    const std::size_t comma = table.find(',');
    if (comma == table.npos || decimal_int(table.substr(comma + 1)) != hidden_) return false;
    const std::int64_t rows = decimal_int(table.substr(0, comma)).value_or(0);
    return rows >= 4096 && (tokens < 256 || rows % tokens != 0) &&
           movement_family(t_.text(at(i).type)) == "gather";
  }

  std::int64_t tokens() const {
    std::string_view shape = t_.text(at(norms_.front()).in_shapes);
    shape = shape.substr(0, shape.find(';'));
    std::int64_t rows = 1;
    for (std::size_t comma; (comma = shape.find(',')) != shape.npos; shape.remove_prefix(comma + 1))
      rows *= std::clamp<std::int64_t>(decimal_int(shape.substr(0, comma)).value_or(1), 1, 1 << 15);
    return rows;
  }

  // Passes without a norm at their end (the first stages of a pipeline), or of one layer, begin
  // where tokens are looked up or received. What every layer does is no beginning, unless a token
  // was chosen before it.
  void find_starts() {
    const std::size_t intervals = anchors_.size() - 1;
    starts_.assign(anchors_.size(), 0);
    const std::int64_t rows = tokens();
    std::size_t lookups = 0, drawn = 0, received = 0;
    for (std::size_t a = 0; a < intervals; ++a)
      for (std::size_t i = last_of_[a] + 1; i < anchors_[a + 1]; ++i)
        if (is_lookup(i, rows)) {
          starts_[a] = i;
          ++lookups;
          drawn += any_between(last_of_[a], i, [](Role r) { return r == Role::sampling; });
          break;
        }
    if (lookups * 2 > intervals && drawn < lookups) starts_.assign(anchors_.size(), 0);
    std::vector<std::size_t> places(anchors_.size());
    std::vector<Ns> ends;
    for (std::uint32_t op : receptions(t_, ops_)) ends.push_back(t_.kernels[op].end());
    std::sort(ends.begin(), ends.end());
    for (std::size_t a = 0; a < intervals; ++a) {
      const auto end = std::lower_bound(ends.begin(), ends.end(), at(last_of_[a]).end());
      if (end == ends.end() || *end > at(anchors_[a + 1]).start) continue;
      places[a] = last_of_[a] + 1;
      while (at(places[a]).start < *end && places[a] < anchors_[a + 1]) ++places[a];
      ++received;
    }
    if (received * 2 > intervals) return;
    for (std::size_t a = 0; a < intervals; ++a)
      if (starts_[a] == 0) starts_[a] = places[a];
  }

  void cut() {
    const std::size_t n = anchors_.size();
    // Norms per interval; the usual number says where the last layer ends and where passes meet.
    Counter usual_count;
    for (std::size_t a = 0; a + 1 < n; ++a)
      if (starts_[a] == 0)
        ++usual_count[static_cast<std::int64_t>(norms_between(last_of_[a], anchors_[a + 1]))];
    std::size_t usual = usual_count.empty() ? 2 : 1, most = 0;
    for (const auto& [k, c] : usual_count)
      if (k > 0 && c > most) {
        most = c;
        usual = static_cast<std::size_t>(k);
      }
    // More norms than usual: another pass begins. Unless many intervals are like that: then it is a
    // kind of layer with a norm more.
    auto is_seam = [&](std::size_t a) {
      if (starts_[a]) return true;
      const std::size_t norms = norms_between(last_of_[a], anchors_[a + 1]);
      if (norms <= usual) return false;
      return n < 7 || usual_count[static_cast<std::int64_t>(norms)] * 3 <= n - 1 ||
             any_between(last_of_[a], anchors_[a + 1], [](Role r) { return r == Role::sampling; });
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
    WalkedPass pass;
    for (std::size_t a = 0; a < n; ++a) {
      WalkedLayer layer;
      layer.linear = linear_[a];
      layer.begin = norm_before(anchors_[a]);
      const bool new_pass = a > 0 && is_seam(a - 1);
      // Norms behind the blocks: the first layer of a pass has none before it.
      if (norms_.front() > anchors_[0] && (a == 0 || new_pass))
        layer.begin = anchors_[a] - (anchors_[0] - first_product());
      if (new_pass) {
        passes_.push_back(std::move(pass));
        pass = {};
      }
      const bool last = a + 1 == n || is_seam(a);
      layer.end = last ? norm_after(last_of_[a], usual) : norm_before(anchors_[a + 1]);
      if (layer.end == hi_ && last && !pass.layers.empty()) {
        // No final norm: as long as the layer before it.
        const WalkedLayer& model = pass.layers.back();
        layer.end = std::min(hi_, layer.begin + (model.end - model.begin));
      }
      if (last && starts_[a]) {
        layer.end = std::min(layer.end, starts_[a]);
        if (norms_between(last_of_[a], anchors_[a + 1]) <= usual && !pass.layers.empty()) {
          const WalkedLayer& model = pass.layers.back();
          layer.end = std::min(layer.end, layer.begin + (model.end - model.begin));
        }
      }
      layer.ffn =
          usual >= 2 ? norm_after(last_of_[a], usual >= 4 ? 2 : 1) : after_projection(last_of_[a]);
      if (layer.ffn > layer.end) layer.ffn = layer.end;
      layer.cross = cross_[a] ? norm_before(cross_[a]) : layer.ffn;
      if (single_blocks_ && layer.ffn < layer.end) {
        const std::size_t end = layer.end;
        layer.end = layer.ffn;
        pass.layers.push_back(layer);
        layer.begin = layer.cross = layer.ffn;
        layer.end = end;
        layer.linear = false;
      }
      pass.layers.push_back(layer);
    }
    passes_.push_back(std::move(pass));
  }

  // No norm before the first layer: it begins at its first projection.
  std::size_t first_product() const {
    std::size_t begin = anchors_[0];
    for (std::size_t i = anchors_[0]; i > lo_ && anchors_[0] - i < 64;)
      if (is_product(role(--i))) begin = i;
    return begin;
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
  std::vector<std::size_t> cross_;  // per anchor: attention over an encoder in the same layer, or 0
  std::vector<std::size_t> starts_;  // per anchor: where a pass begins before the next one, or 0
  bool single_blocks_ = false;       // each mixer and each MLP is a layer
  std::int64_t hidden_ = 0;
  std::vector<WalkedPass> passes_;
};

// The first attention kernel from `from` on: a model before it ends there at the latest.
std::size_t next_model(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
                       const std::vector<std::uint32_t>& sequence, std::size_t from) {
  for (std::size_t i = from; i < sequence.size(); ++i) {
    if (is_anchor(roles[t.kernels[ops.ops[sequence[i]]].type])) return i;
  }
  return sequence.size();
}

}  // namespace

Walked walk_layers(const Timeline& t, const StepOps& ops, const std::vector<Role>& roles,
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
      for (WalkedPass pass : walk.passes()) {
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

}  // namespace tk
