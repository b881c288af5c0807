// Our own operators as plain PyTorch, for those that a target has no operator for.
#include <map>

#include "emit/files.h"

namespace tk::emit {
namespace {

constexpr std::string_view cache_write = R"py(
def cache_write(cache, states, slot_mapping):
    """Writes one row of states [T, heads, D] to each slot of a paged cache."""
    cache.view(-1, *cache.shape[2:])[slot_mapping] = states
)py";

constexpr std::string_view attend = R"py(
def attend(query, key, value, *, scale, mask, window, softcap, sinks=None):
    """Attention of one request's last queries over all its keys, in float32: [T, heads, D]."""
    groups = query.shape[1] // key.shape[1]
    key, value = (x.float().repeat_interleave(groups, dim=1) for x in (key, value))
    scores = torch.einsum("qhd,khd->hqk", query.float(), key) * scale
    if softcap > 0:
        scores = softcap * torch.tanh(scores / softcap)
    length = key.shape[0]
    keys = torch.arange(length, device=query.device)
    queries = keys[length - query.shape[0] :].unsqueeze(1)
    hidden = keys > queries
    if mask == "window":
        hidden |= keys <= queries - window
    elif mask == "chunk":
        hidden |= keys // window != queries // window
    elif mask == "full":
        hidden = torch.zeros_like(hidden)
    scores = scores.masked_fill(hidden, float("-inf"))
    if sinks is not None:  # a logit that only the denominator sees
        sink = sinks.float().view(-1, 1, 1).expand(-1, scores.shape[1], 1)
        scores = torch.cat((scores, sink), dim=-1)
    weights = scores.softmax(dim=-1)[..., :length]
    return torch.einsum("hqk,khd->qhd", weights, value).to(query.dtype)
)py";

constexpr std::string_view paged_attention = R"py(
def paged_attention(
    query,
    key_cache,
    value_cache,
    block_table,
    query_lens,
    kv_lens,
    query_rope=None,
    key_rope_cache=None,
    sinks=None,
    *,
    scale,
    softcap=0.0,
    mask="causal",
    window=0,
):
    """Packed queries [T, heads, D] over a paged cache; query_lens are running totals."""
    outputs, start = [], 0
    for blocks, end, length in zip(block_table, query_lens, kv_lens):
        queries = query[start:end]
        keys, values = (c[blocks].flatten(0, 1)[:length] for c in (key_cache, value_cache))
        if query_rope is not None:
            rope = key_rope_cache[blocks].flatten(0, 1)[:length]
            keys = torch.cat((keys, rope), dim=-1)
            queries = torch.cat((queries, query_rope[start:end]), dim=-1)
        outputs.append(
            attend(
                queries,
                keys,
                values,
                scale=scale,
                mask=mask,
                window=window,
                softcap=softcap,
                sinks=sinks,
            )
        )
        start = end
    return torch.cat(outputs)
)py";

constexpr std::string_view mla_paged_attention = R"py(
def mla_paged_attention(
    query_nope,
    query_rope,
    latent_cache,
    rope_cache,
    kv_b_weight,
    block_table,
    query_lens,
    kv_lens,
    *,
    scale,
    softcap=0.0,
    mask="causal",
    window=0,
):
    """Multi-head latent attention, keys and values of each head expanded from the latent."""
    heads, nope = query_nope.shape[1:]
    outputs, start = [], 0
    for blocks, end, length in zip(block_table, query_lens, kv_lens):
        latent = latent_cache[blocks].flatten(0, 1)[:length].squeeze(1)
        rope = rope_cache[blocks].flatten(0, 1)[:length].expand(-1, heads, -1)
        key_nope, value = F.linear(latent, kv_b_weight).view(length, heads, -1).tensor_split((nope,), -1)
        key = torch.cat((key_nope, rope), dim=-1)
        query = torch.cat((query_nope[start:end], query_rope[start:end]), dim=-1)
        outputs.append(
            attend(query, key, value, scale=scale, mask=mask, window=window, softcap=softcap)
        )
        start = end
    return torch.cat(outputs)
)py";

constexpr std::string_view gated = R"py(
def gated(merged, act="silu", interleaved=False, limit=7.0, alpha=1.702, up_offset=1.0):
    """act(gate) * up of a product that holds both, side by side or in turns."""
    gate, up = (merged[..., ::2], merged[..., 1::2]) if interleaved else merged.chunk(2, dim=-1)
    if act == "clipped":
        gate, up = gate.clamp(max=limit), up.clamp(-limit, limit)
        return gate * torch.sigmoid(alpha * gate) * (up + up_offset)
    if act == "silu":
        return F.silu(gate) * up
    return F.gelu(gate, approximate="tanh" if act == "gelu_tanh" else "none") * up
)py";

constexpr std::string_view linear_glu = R"py(
def linear_glu(x, weight, bias=None, **activation):
    """A product with gate and up side by side, then act(gate) * up; rounded once."""
    bias = None if bias is None else bias.float()
    return gated(F.linear(x.float(), weight.float(), bias), **activation).to(x.dtype)
)py";

constexpr std::string_view grouped_linear_glu = R"py(
def grouped_linear_glu(x, weight, bias=None, group_list=(), **activation):
    """linear_glu of rows sorted by expert: weight [E, K, 2F], group_list counts the rows of each."""
    outputs = []
    for expert, rows in enumerate(x.split(group_list)):
        merged = rows.float() @ weight[expert].float()
        if bias is not None:
            merged = merged + bias[expert].float()
        outputs.append(gated(merged, **activation).to(x.dtype))
    return torch.cat(outputs)
)py";

}  // namespace

std::string helper_text(std::string_view name) {
  static const std::map<std::string_view, std::string_view> all = {
      {"cache_write", cache_write},
      {"attend", attend},
      {"paged_attention", paged_attention},
      {"mla_paged_attention", mla_paged_attention},
      {"gated", gated},
      {"linear_glu", linear_glu},
      {"grouped_linear_glu", grouped_linear_glu}};
  const auto it = all.find(name);
  return it == all.end() ? "" : std::string(it->second);
}

}  // namespace tk::emit
