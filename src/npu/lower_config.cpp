#include "npu/lower_config.h"

#include <algorithm>
#include <map>

#include "base/error.h"
#include "npu/config_sizes.h"
#include "npu/config_step.h"
#include "npu/emit_kernels.h"
#include "npu/routing.h"

namespace tk {
namespace {

class Lowering {
 public:
  Lowering(const ConfigSizes& sizes, const ConfigStep& step) : c_(sizes), s_(step), e_(&out_) {
    for (std::int64_t* degree : {&s_.dense_tp, &s_.o_proj_tp, &s_.lm_head_tp, &s_.embed_tp})
      if (*degree == 0) *degree = s_.attn_tp;
    check_step(c_, s_);
  }

  Step run() {
    const std::int64_t parts = std::min(s_.micro_batches, s_.sequences);
    std::vector<Part> work;
    for (std::int64_t i = 0; i < parts; ++i) {
      Part p;
      p.sequences = s_.sequences / parts + (i < s_.sequences % parts ? 1 : 0);
      p.tokens = p.sequences * s_.query_len;
      p.stream = static_cast<int>(i) * streams_of_a_part;
      work.push_back(p);
    }
    for (Part& p : work) {
      embed(&p, "model.embed_tokens");
      ngrams(&p);
    }
    for (std::size_t i = 0; i < c_.layers.size(); ++i)
      for (Part& p : work) layer(&p, cat("model.layers.", i), c_.layers[i]);
    Part whole = joined(work);
    head(&whole, "lm_head", s_.prefill);
    for (std::int64_t d = 0; d < s_.drafts; ++d) draft(&whole, d);
    e_.vector("ArgMaxV2", "sampler", Family::routing, {whole.x}, out_.bytes_of(whole.x) * 2, 0);
    out_.input_bytes = s_.sequences * s_.query_len * 24;
    for (const KernelWork& k : out_.kernels())
      out_.updates += k.family == Family::attention ? 1 : 0;
    return std::move(out_);
  }

 private:
  // Its main stream, one for collectives, one for work beside it, one for collectives of that.
  static constexpr int streams_of_a_part = 4;
  struct Part {
    std::int64_t sequences = 0, tokens = 0;
    int stream = 0;
    int x = 0;         // what the next operator reads
    int residual = 0;  // bf16 [tokens, copies * hidden]
  };

  // The head works on all sequences at once.
  Part joined(const std::vector<Part>& parts) {
    if (parts.size() == 1) return parts[0];
    Part all;
    std::vector<int> hidden;
    for (const Part& p : parts) {
      all.sequences += p.sequences;
      all.tokens += p.tokens;
      hidden.insert(hidden.end(), {p.x, p.residual});
    }
    e_.stream = 0;
    e_.comm_stream = 1;
    all.x = act(all, c_.hidden);
    e_.vector("ConcatD", "model", Family::pointwise, hidden, all.tokens * c_.hidden * 4, 0, all.x);
    all.residual = all.x;
    return all;
  }

  int act(const Part& p, std::int64_t width, double bytes = 2) {
    return out_.tensor(TensorKind::activation,
                       static_cast<std::int64_t>(static_cast<double>(p.tokens * width) * bytes));
  }

  // A product with a weight, quantised when the weights are.
  int linear(const std::string& module, int x, std::int64_t rows, std::int64_t k, std::int64_t n,
             int weight_bits, int act_bits) {
    return e_.linear(module, x, rows, k, n, weight_bits, act_bits);
  }
  int lin(const std::string& module, int x, std::int64_t rows, std::int64_t k, std::int64_t n) {
    return linear(module, x, rows, k, n, s_.linear_bits, s_.activation_bits);
  }

  void embed(Part* p, const std::string& module) {
    e_.stream = p->stream;
    const int table = e_.weight(module, c_.vocab * c_.hidden * 2 / s_.embed_tp);
    p->residual = act(*p, c_.hidden);
    e_.gather("GatherV2", module, table, p->tokens * c_.hidden * 2, p->residual);
    if (s_.embed_tp > 1)
      e_.collective(sim::CollectiveKind::all_reduce, module, p->residual, s_.embed_tp,
                    p->tokens * c_.hidden * 2);
    p->x = p->residual;
  }

  void ngrams(Part* p) {
    const std::string module = "model.ngram_embeddings";
    e_.stream = p->stream;
    for (std::int64_t i = 0; i < s_.ngrams.small_operators - 3 * s_.ngrams.lookups; ++i)
      e_.vector("Mul", module, Family::pointwise, {p->x}, p->tokens * 16, 1);
    for (std::int64_t i = 0; i < s_.ngrams.lookups; ++i) {
      const std::string at = cat(module, ".", i);
      const int row = act(*p, s_.ngrams.width);
      const std::int64_t bytes = p->tokens * s_.ngrams.width * 2;
      e_.gather("GatherV2", at, e_.weight(at + ".table", bytes), bytes, row);
      const int y = linear(at + ".proj", row, p->tokens, s_.ngrams.width, c_.hidden, 16, 16);
      p->x = e_.add(at, p->x, y, act(*p, c_.hidden), p->tokens * c_.hidden);
    }
    p->residual = p->x;
  }

  void norm(Part* p, const std::string& module, bool add) {
    const int y = act(*p, c_.hidden);
    std::vector<int> in{p->x};
    if (add && p->residual != p->x) in.push_back(p->residual);
    if (!s_.fused) {
      norm_operators(module, in, p->tokens, c_.hidden, y);
      if (add) p->residual = p->x;
      p->x = y;
      return;
    }
    e_.norm(add ? "AddRmsNorm" : "RmsNorm", module, in, p->tokens, c_.hidden, y);
    if (add) p->residual = p->x;
    p->x = y;
  }

  // A chain of element-wise kernels, each over all of `elements`; the last one writes y.
  void chain(const std::string& module, const std::vector<const char*>& types, int x,
             std::int64_t elements, int bytes, int y) {
    for (std::size_t i = 0; i < types.size(); ++i) {
      const bool last = i + 1 == types.size();
      const int to = last ? y : out_.tensor(TensorKind::activation, elements * bytes);
      e_.vector(types[i], module, Family::pointwise, {x}, elements * bytes * 2, 0, to);
      x = to;
    }
  }

  // RMSNorm as PyTorch runs it: in float32, a kernel for each operator.
  void norm_operators(const std::string& module, const std::vector<int>& in, std::int64_t rows,
                      std::int64_t width, int y) {
    int x = in[0];
    if (in.size() > 1) {
      const int sum = out_.tensor(TensorKind::activation, rows * width * 2);
      x = e_.add(module, in[0], in[1], sum, rows * width);
    }
    chain(module, {"Cast", "Pows", "ReduceMeanD", "Mul", "Cast", "Mul"}, x, rows * width, 4, y);
  }

  // Hyper-connections: copies of the hidden state are mixed before and after each part.
  void mix_copies(Part* p, const std::string& module, bool before) {
    if (c_.copies <= 1) return;
    const std::int64_t wide = c_.copies * c_.hidden;
    const int all = act(*p, wide);
    if (before) {
      const int w =
          linear(module + ".hc", all, p->tokens, wide, c_.copies * (2 + c_.copies), 32, 32);
      const int y = act(*p, c_.hidden);
      e_.vector("HcSplitSinkhorn", module, Family::pointwise, {w}, p->tokens * 2048, p->tokens, w);
      e_.vector("HcPre", module, Family::pointwise, {all, w}, p->tokens * wide * 8, p->tokens, y);
      p->x = y;
    } else {
      const int y = act(*p, wide);
      e_.vector("HcPost", module, Family::pointwise, {all, p->x}, p->tokens * wide * 12, p->tokens,
                y);
    }
  }

  double seen(std::int64_t limit = 0) const {
    const double mean =
        static_cast<double>(s_.kv_len) + (static_cast<double>(s_.query_len) + 1) / 2;
    return limit > 0 ? std::min(mean, static_cast<double>(limit)) : mean;
  }

  void layer(Part* p, const std::string& module, const LayerSizes& l) {
    e_.stream = p->stream;
    e_.comm_stream = p->stream + 1;
    for (std::int64_t b = 0; b < l.blocks; ++b) {
      const std::string at = l.blocks > 1 ? cat(module, ".block", b) : module;
      mix_copies(p, at + ".self_attn", true);
      norm(p, at + ".input_layernorm", true);
      attention(p, at + ".self_attn", l);
      mix_copies(p, at + ".self_attn", false);
      mix_copies(p, at + ".mlp", true);
      norm(p, at + ".post_attention_layernorm", true);
      const int x = p->x;
      // Experts beside a second block run on its stream when streams are used.
      if (l.experts && b == 0 && l.blocks > 1) {
        const int y = experts(p, module + ".mlp", x, s_.streams);
        pending_ = y;
      }
      int y = -1;
      if (l.dense) y = dense(p, at + ".mlp", x, c_.inner, s_.dense_bits);
      if (l.experts && l.blocks == 1) {
        const int routed = experts(p, at + ".mlp", x, false);
        y = y < 0 ? routed
                  : e_.add(at + ".mlp", y, routed, act(*p, c_.hidden), p->tokens * c_.hidden);
      }
      if (l.blocks > 1 && b + 1 == l.blocks && pending_ >= 0) {
        y = e_.add(module + ".mlp", y, pending_, act(*p, c_.hidden), p->tokens * c_.hidden);
        pending_ = -1;
      }
      p->x = y;
      mix_copies(p, at + ".mlp", false);
    }
  }

  void attention(Part* p, const std::string& module, const LayerSizes& l) {
    switch (l.attention) {
      case AttentionKind::latent:
        return latent(p, module, l.index);
      case AttentionKind::linear:
        return delta(p, module);
      case AttentionKind::compressed:
        return compressed(p, module, l);
      case AttentionKind::full:
        return grouped_query(p, module, c_.full_kv_heads, c_.full_head_dim, 0);
      case AttentionKind::sliding:
        return grouped_query(p, module, c_.kv_heads, c_.head_dim, c_.window);
    }
  }

  void grouped_query(Part* p, const std::string& module, std::int64_t all_kv, std::int64_t dim,
                     std::int64_t window) {
    const std::int64_t heads = c_.heads / s_.attn_tp;
    const std::int64_t kv = std::max<std::int64_t>(1, all_kv / s_.attn_tp);
    const int qkv = lin(module + ".qkv_proj", p->x, p->tokens, c_.hidden, (heads + 2 * kv) * dim);
    const int q = act(*p, heads * dim);
    if (s_.fused) {
      e_.vector("ApplyRotaryPosEmb", module, Family::rope, {qkv},
                p->tokens * (heads + kv) * dim * 16, 0, q);
    } else {  // x * cos + cat(-x2, x1) * sin, of queries and of keys
      for (const std::int64_t n : {heads, kv})
        chain(module, {"Mul", "Neg", "ConcatD", "Mul", "Add"}, qkv, p->tokens * n * dim, 2, q);
      const int wide = act(*p, 2 * heads * dim);  // keys and values of each query head
      e_.vector("BroadcastTo", module, Family::pointwise, {qkv}, p->tokens * heads * dim * 4, 0,
                wide);
    }
    const int cache =
        e_.cache(module, 2 * p->sequences * (s_.kv_len + s_.query_len) * kv * dim * s_.kv_bits / 8);
    e_.cache_write(module, qkv, cache, 2 * p->tokens * kv * dim * s_.kv_bits / 8);
    const double n = seen(window);
    const int y = act(*p, heads * dim);
    e_.attention("FusedInferAttentionScore", module, {q}, cache, y,
                 {p->sequences * kv, s_.query_len * heads / kv, n, dim, dim}, p->sequences,
                 2 * static_cast<double>(kv * dim) * reach(n) * s_.kv_bits / 8);
    output(p, module, y, heads * dim, c_.heads * dim);
  }

  // Keys of a sequence that some query of the step reads.
  double reach(double mean_seen) const {
    return std::min(static_cast<double>(s_.kv_len + s_.query_len),
                    mean_seen + static_cast<double>(s_.query_len) / 2);
  }

  // o_proj over the ranks that split it; rows of several data-parallel groups meet there.
  void output(Part* p, const std::string& module, int y, std::int64_t mine, std::int64_t all) {
    const std::int64_t spread_rows = std::max<std::int64_t>(1, s_.o_proj_tp / s_.attn_tp);
    if (spread_rows > 1) {
      e_.collective(sim::CollectiveKind::all_to_all, module, y, s_.o_proj_tp, p->tokens * mine * 2);
      const int rows = out_.tensor(TensorKind::activation, p->tokens * mine * 2);
      e_.copy("Transpose", module, y, rows, p->tokens * mine * 2);
      p->x = lin(module + ".o_proj", rows, p->tokens * spread_rows, all / s_.o_proj_tp, c_.hidden);
      e_.collective(sim::CollectiveKind::reduce_scatter, module, p->x, s_.o_proj_tp,
                    p->tokens * spread_rows * c_.hidden * 2);
      return;
    }
    p->x = lin(module + ".o_proj", y, p->tokens, mine, c_.hidden);
    if (s_.attn_tp > 1)
      e_.collective(sim::CollectiveKind::all_reduce, module, p->x, s_.attn_tp,
                    p->tokens * c_.hidden * 2);
  }

  void latent(Part* p, const std::string& module, bool index) {
    const std::int64_t heads = c_.heads / s_.attn_tp;
    const std::int64_t width = c_.kv_lora + c_.rope;
    int q_in = p->x;
    std::int64_t q_k = c_.hidden;
    const int x = p->x;
    if (c_.q_lora > 0) {
      const int a = lin(module + ".q_a_proj", x, p->tokens, c_.hidden, c_.q_lora);
      q_in = act(*p, c_.q_lora);
      e_.norm("RmsNorm", module + ".q_a_layernorm", {a}, p->tokens, c_.q_lora, q_in);
      q_k = c_.q_lora;
    }
    const int q = lin(module + ".q_b_proj", q_in, p->tokens, q_k, heads * (c_.nope + c_.rope));
    const int kv = lin(module + ".kv_a_proj", x, p->tokens, c_.hidden, width);
    e_.vector("InterleaveRope", module, Family::rope, {q}, p->tokens * heads * c_.rope * 16, 0, q);
    const int cache =
        e_.cache(module, p->sequences * (s_.kv_len + s_.query_len) * width * s_.kv_bits / 8);
    e_.cache_write(module, kv, cache, p->tokens * width * s_.kv_bits / 8);
    const bool sparse = c_.index_topk > 0;
    if (sparse && index) indexer(p, module, x, q_in, q_k, s_.kv_len + s_.query_len);
    const bool absorbed = !s_.prefill || sparse;
    const int y = act(*p, heads * c_.v_dim);
    if (!absorbed) {
      const std::int64_t rows = p->sequences * (s_.kv_len + s_.query_len);
      const int full =
          lin(module + ".kv_b_proj", kv, rows, c_.kv_lora, heads * (c_.nope + c_.v_dim));
      e_.attention("FlashAttentionScore", module, {q, full}, cache, y,
                   {p->sequences * heads, s_.query_len, seen(), c_.nope + c_.rope, c_.v_dim},
                   p->sequences, 0);
    } else {
      const int absorbed_q = act(*p, heads * c_.kv_lora);
      e_.per_head(module + ".kv_b_proj.k", q, heads, p->tokens, c_.nope, c_.kv_lora, absorbed_q);
      const int latent_y = act(*p, heads * c_.kv_lora);
      const double n = sparse ? seen(c_.index_topk) : seen();
      // Each token picks keys of its own when they are picked; else a sequence's are read once.
      const std::int64_t readers = sparse ? p->tokens : p->sequences;
      e_.attention(sparse ? "SparseFlashAttention" : "FusedInferAttentionScore", module,
                   {absorbed_q}, cache, latent_y,
                   {readers, (sparse ? 1 : s_.query_len) * heads, n, width, c_.kv_lora}, readers,
                   static_cast<double>(width) * (sparse ? n : reach(n)) * s_.kv_bits / 8);
      e_.per_head(module + ".kv_b_proj.v", latent_y, heads, p->tokens, c_.kv_lora, c_.v_dim, y);
    }
    output(p, module, y, heads * c_.v_dim, c_.heads * c_.v_dim);
  }

  void indexer(Part* p, const std::string& module, int x, int q_in, std::int64_t q_k,
               std::int64_t keys) {
    const std::string at = module + ".indexer";
    const int q = lin(at + ".wq_b", q_in, p->tokens, q_k, c_.index_heads * c_.index_dim);
    const int k = lin(at + ".wk", x, p->tokens, c_.hidden, c_.index_dim);
    const int w = linear(at + ".weights_proj", x, p->tokens, c_.hidden, c_.index_heads, 16, 16);
    e_.vector("ApplyRotaryPosEmb", at, Family::rope, {q, k},
              p->tokens * c_.index_heads * c_.rope * 16, 0, q);
    const int cache = e_.cache(at, p->sequences * keys * c_.index_dim * s_.kv_bits / 8);
    e_.cache_write(at, k, cache, p->tokens * c_.index_dim * s_.kv_bits / 8);
    const int picked = act(*p, c_.index_topk, 4);
    const double n = std::min(static_cast<double>(keys), seen());
    e_.attention("LightningIndexer", at, {q, w}, cache, picked,
                 {p->sequences, s_.query_len * c_.index_heads, n, c_.index_dim, 0, 2, s_.kv_bits},
                 p->sequences, static_cast<double>(c_.index_dim) * n * s_.kv_bits / 8);
  }

  void compressed(Part* p, const std::string& module, const LayerSizes& l) {
    const std::int64_t heads = c_.heads / s_.attn_tp;
    const std::int64_t dim = c_.head_dim;
    const int x = p->x;
    const int a = lin(module + ".wq_a", x, p->tokens, c_.hidden, c_.q_lora);
    const int q_in = act(*p, c_.q_lora);
    e_.norm("RmsNorm", module + ".q_norm", {a}, p->tokens, c_.q_lora, q_in);
    const int q = lin(module + ".wq_b", q_in, p->tokens, c_.q_lora, heads * dim);
    const int kv = lin(module + ".wkv", x, p->tokens, c_.hidden, dim);
    e_.vector("InterleaveRope", module, Family::rope, {q, kv},
              p->tokens * (heads + 1) * c_.rope * 16, 0, q);
    const std::int64_t past = s_.kv_len + s_.query_len;
    const std::int64_t compressed = l.compress > 0 ? past / l.compress : 0;
    const std::int64_t window = std::min(c_.window, past);
    if (l.compress > 0) {
      const int in =
          linear(module + ".compressor", x, p->tokens, c_.hidden, (l.index ? 4 : 2) * dim, 16, 16);
      e_.vector("Compressor", module, Family::norm, {in}, p->tokens * 4 * dim * 16, 0, in);
    }
    if (l.index) indexer(p, module, x, q_in, c_.q_lora, std::max<std::int64_t>(1, compressed));
    const std::int64_t old = l.index ? std::min(c_.index_topk, compressed) : compressed;
    const double n = static_cast<double>(std::max<std::int64_t>(1, window + old));
    const int cache =
        e_.cache(module, p->sequences * (window + compressed + 1) * dim * s_.kv_bits / 8);
    e_.cache_write(module, kv, cache, p->tokens * dim * s_.kv_bits / 8);
    const int y = act(*p, heads * dim);
    const std::int64_t readers = l.index ? p->tokens : p->sequences;
    e_.attention("SparseFlashAttention", module, {q}, cache, y,
                 {readers, heads * (l.index ? 1 : s_.query_len), n, dim, dim}, readers,
                 static_cast<double>(dim) * n * s_.kv_bits / 8);
    e_.vector("InterleaveRope", module, Family::rope, {y}, p->tokens * heads * c_.rope * 16, 0, y);
    const std::int64_t groups = std::max<std::int64_t>(1, c_.o_groups / s_.attn_tp);
    const int low = act(*p, groups * c_.o_lora);
    e_.per_head(module + ".wo_a", y, groups, p->tokens, heads * dim / groups, c_.o_lora, low);
    output(p, module, low, groups * c_.o_lora, c_.o_groups * c_.o_lora);
  }

  void delta(Part* p, const std::string& module) {
    const std::int64_t kh = c_.linear_k_heads / s_.attn_tp;
    const std::int64_t vh = c_.linear_v_heads / s_.attn_tp;
    const std::int64_t conv = 2 * kh * c_.linear_k_dim + vh * c_.linear_v_dim;
    const std::int64_t out = vh * c_.linear_v_dim;
    const int qkvz = lin(module + ".in_proj_qkvz", p->x, p->tokens, c_.hidden, conv + out);
    const int ba = linear(module + ".in_proj_ba", p->x, p->tokens, c_.hidden, 2 * vh, 16, 16);
    const int mixed = act(*p, conv);
    e_.vector("CausalConv1dUpdate", module, Family::pointwise, {qkvz}, p->tokens * conv * 40, 0,
              mixed);
    const std::int64_t state = p->sequences * vh * c_.linear_k_dim * c_.linear_v_dim * 4;
    const int memory = e_.cache(module, state);
    const int y = act(*p, out);
    e_.recurrent("RecurrentGatedDeltaRule", module, {mixed, ba}, memory, y, state,
                 static_cast<double>(state) * 4 * static_cast<double>(s_.query_len));
    const int z = act(*p, out);
    e_.norm("RmsNormGated", module + ".norm", {y, qkvz}, p->tokens * vh, c_.linear_v_dim, z);
    output(p, module, z, out, c_.linear_v_heads * c_.linear_v_dim);
  }

  int dense(Part* p, const std::string& module, int x, std::int64_t inner, int bits,
            bool whole = false) {
    const std::int64_t degree = whole ? 1 : s_.dense_tp;
    const std::int64_t spread_rows = std::max<std::int64_t>(1, degree / s_.attn_tp);
    const std::int64_t rows = p->tokens * spread_rows;
    const int abits = bits == 16 ? 16 : 8;
    int in = x;
    if (spread_rows > 1) {
      in = out_.tensor(TensorKind::activation, rows * c_.hidden * 2);
      e_.copy("Identity", module, x, in, p->tokens * c_.hidden * 2);
      e_.collective(sim::CollectiveKind::all_gather, module, in, degree, rows * c_.hidden * 2);
    }
    const std::int64_t width = std::max<std::int64_t>(1, inner / degree);
    const int up = linear(module + ".gate_up_proj", in, rows, c_.hidden, 2 * width, bits, abits);
    const int mid = out_.tensor(TensorKind::activation, rows * width * 2);
    if (s_.fused) {
      e_.vector(bits == 16 ? "SwiGlu" : "DequantSwigluQuant", module, Family::pointwise, {up},
                rows * width * 32, rows, mid);
      e_.mark_quantised(mid);
    } else {
      chain(module, {"Swish", "Mul"}, up, rows * width, 2, mid);
    }
    const int y = linear(module + ".down_proj", mid, rows, width, c_.hidden, bits, abits);
    if (spread_rows > 1) {
      e_.collective(sim::CollectiveKind::reduce_scatter, module, y, degree, rows * c_.hidden * 2);
    } else if (degree > 1) {
      e_.collective(sim::CollectiveKind::all_reduce, module, y, degree, rows * c_.hidden * 2);
    }
    return y;
  }

  int act_of(std::int64_t rows, std::int64_t row_bytes) {
    return out_.tensor(TensorKind::activation, rows * row_bytes);
  }

  // Rows for each expert are exchanged, summed for each rank and read by the host: the splits of
  // the all_to_all that follows.
  void read_splits(const std::string& module, std::int64_t ranks) {
    const int counts = act_of(1, c_.n_experts * 8);
    e_.collective(sim::CollectiveKind::all_to_all, module, counts, ranks, c_.n_experts * 8);
    e_.vector("Pack", module, Family::pointwise, {counts}, c_.n_experts * 32, 1, counts);
    for (int i = 0; i < 2; ++i)
      e_.vector("ReduceSum", module, Family::pointwise, {counts}, c_.n_experts * 16, 1, counts);
    e_.read_by_host();
  }

  int experts(Part* p, const std::string& module, int x, bool beside) {
    const int home = e_.stream;
    const int home_comm = e_.comm_stream;
    // On the collectives' stream of the block that it is beside it would hold that up.
    if (beside) {
      e_.stream = p->stream + 2;
      e_.comm_stream = p->stream + 3;
    }
    const std::int64_t all = c_.n_experts + c_.zero_experts;
    const int logits = linear(module + ".gate", x, p->tokens, c_.hidden, all, 32, 32);
    const int picked = act(*p, c_.topk, 12);
    e_.vector("MoeGatingTopK", module + ".gate", Family::routing, {logits}, p->tokens * all * 24,
              p->tokens, picked);
    const bool exchanged = s_.ep > 1;
    // The dispatch of decode counts rows on the device and answers for zero experts itself; an
    // all_to_all of a prefill takes its splits from the host.
    const bool by_splits = exchanged && s_.prefill;
    const std::int64_t rows_of_rank =
        std::max<std::int64_t>(1, p->tokens * c_.topk * c_.n_experts / all);
    const std::int64_t zero_rows =
        by_splits ? std::max<std::int64_t>(0, p->tokens * c_.topk - rows_of_rank) : 0;
    const int act_bits = s_.expert_activation_bits;
    // Ranks that share tokens send a part each.
    const std::int64_t share = exchanged ? s_.attn_tp : 1;
    const std::int64_t sent = std::max<std::int64_t>(1, (rows_of_rank + zero_rows) / share);
    const std::int64_t groups = exchanged ? s_.attn_dp : 1;
    const std::int64_t ranks = std::min(s_.ep, c_.n_experts);
    Spread sp = spread(c_.n_experts, exchanged ? ranks : 1, rows_of_rank * groups, s_.zipf,
                       s_.even_experts);
    // Without one that knows zero experts, what picked them goes to expert 0 with weight 0
    // (hicann/cann-recipes-infer, _forward_ep_prefill of LongCat): all ranks wait for that one.
    sp.rows += zero_rows * groups;
    const double to_first =
        static_cast<double>(zero_rows) / static_cast<double>(rows_of_rank + zero_rows);
    int rows =
        out_.tensor(TensorKind::activation, std::max(sent, sp.rows) * c_.hidden * act_bits / 8);
    e_.vector("MoeInitRouting", module, Family::routing, {x, picked}, sent * c_.hidden * 4, 0,
              rows);
    if (by_splits) read_splits(module, ranks);
    if (exchanged)
      e_.exchange(sim::CollectiveKind::dispatch, module, rows, ranks,
                  sent * c_.hidden * act_bits / 8, s_.zipf, to_first);
    if (by_splits) {  // in the order of ranks so far
      const int ordered = act_of(sp.rows, c_.hidden * act_bits / 8);
      e_.copy("MoeReRouting", module, rows, ordered, sp.rows * c_.hidden * act_bits / 8);
      rows = ordered;
    }
    int shared = -1;
    if (c_.shared_inner > 0 && !s_.shared_elsewhere) {
      const int back = e_.stream;
      if (s_.streams) e_.stream = p->stream + 2;
      shared = dense(p, module + ".shared_experts", x, c_.shared_inner, s_.dense_bits, s_.ep > 1);
      e_.stream = back;
    }
    const std::int64_t inner = std::max<std::int64_t>(1, c_.expert_inner / s_.moe_tp);
    const std::int64_t local = std::max<std::int64_t>(1, c_.n_experts / ranks);
    const int up = e_.grouped(module + ".experts.gate_up", rows, sp, local, c_.hidden, 2 * inner,
                              s_.expert_bits, act_bits);
    const int mid = out_.tensor(TensorKind::activation, sp.rows * inner * 2);
    e_.vector(act_bits == 8 ? "DequantSwigluQuant" : "SwiGlu", module + ".experts",
              Family::pointwise, {up}, sp.rows * inner * 32, sp.rows, mid);
    int down = e_.grouped(module + ".experts.down", mid, sp, local, inner, c_.hidden,
                          s_.expert_bits, act_bits);
    if (by_splits) {
      const int sorted = act_of(sp.rows, 4);
      e_.vector("Sort", module, Family::routing, {picked}, sp.rows * 64, 0, sorted);
      const int back = act_of(sp.rows, c_.hidden * 2);
      e_.copy("IndexSelect", module, down, back, sp.rows * c_.hidden * 2);
      down = back;
    }
    if (exchanged)
      e_.exchange(sim::CollectiveKind::combine, module, down, ranks, sent * c_.hidden * 2, s_.zipf,
                  to_first);
    const int y = act(*p, c_.hidden);
    std::vector<int> in{down, picked};
    if (shared >= 0) in.push_back(shared);
    e_.vector("MoeFinalizeRouting", module, Family::gather, in, sent * c_.hidden * 8, 0, y);
    if (exchanged && s_.attn_tp > 1)
      e_.collective(sim::CollectiveKind::all_gather, module, y, s_.attn_tp,
                    p->tokens * c_.hidden * 2);
    if (!exchanged && s_.moe_tp > 1)
      e_.collective(sim::CollectiveKind::all_reduce, module, y, s_.moe_tp,
                    p->tokens * c_.hidden * 2);
    e_.stream = home;
    e_.comm_stream = home_comm;
    return y;
  }

  void head(Part* p, const std::string& module, bool last_only) {
    e_.stream = p->stream;
    norm(p, module + ".norm", true);
    const int hidden = p->x;
    const std::int64_t own = last_only ? p->sequences : p->tokens;
    const std::int64_t spread_rows = std::max<std::int64_t>(1, s_.lm_head_tp / s_.attn_tp);
    const std::int64_t rows = own * spread_rows;
    const int in = out_.tensor(TensorKind::activation, rows * c_.hidden * 2);
    e_.copy("GatherV2", module, hidden, in, own * c_.hidden * 2);
    if (spread_rows > 1)
      e_.collective(sim::CollectiveKind::all_gather, module, in, s_.lm_head_tp,
                    rows * c_.hidden * 2);
    const std::int64_t words = c_.vocab / s_.lm_head_tp;
    const int logits = linear(module, in, rows, c_.hidden, words, 16, 16);
    if (spread_rows > 1) {
      e_.collective(sim::CollectiveKind::all_to_all, module, logits, s_.lm_head_tp,
                    rows * words * 2);
    } else if (s_.lm_head_tp > 1) {
      e_.collective(sim::CollectiveKind::all_gather, module, logits, s_.lm_head_tp,
                    rows * c_.vocab * 2);
    }
    p->residual = hidden;
    p->x = logits;
  }

  // A draft layer of multi-token prediction: the token just picked, its embedding beside the hidden
  // state, one layer, the head again.
  void draft(Part* p, std::int64_t i) {
    const int hidden = p->residual;
    const std::string module = cat("model.mtp.", i);
    Part d = *p;
    e_.stream = p->stream;
    e_.vector("ArgMaxV2", module, Family::routing, {p->x}, out_.bytes_of(p->x) * 2, 0);
    embed(&d, "model.embed_tokens");
    norm(&d, module + ".enorm", false);
    const int both = act(d, 2 * c_.hidden);
    e_.vector("ConcatD", module, Family::pointwise, {d.x, hidden}, d.tokens * c_.hidden * 4, 0,
              both);
    // All drafts use one layer's weights.
    d.x = lin("model.mtp.eh_proj", both, d.tokens, 2 * c_.hidden, c_.hidden);
    d.residual = d.x;
    layer(&d, "model.mtp.layer", c_.layers.back());
    head(&d, "lm_head", false);
    *p = d;
  }

  const ConfigSizes& c_;
  ConfigStep s_;
  Step out_;
  EmitKernels e_;
  int pending_ = -1;  // of experts beside a second block
};

}  // namespace

Step lower_config(const std::string& json, const std::string& file, const ConfigStep& step) {
  const ConfigSizes sizes = config_sizes(json, file);
  return Lowering(sizes, step).run();
}

}  // namespace tk
