# entry: Attention.forward
# backend: npugraph_ex
# GM-20, GM-21: types and names of lengths.
import torch
import torch_npu
import torchair
from torch import nn


class Attention(nn.Module):
    def forward(self, q, k, v, lengths: torch.Tensor, host_lengths: list[int], index_lens):
        a, _ = torch_npu.npu_fused_infer_attention_score(
            q, k, v, actual_seq_lengths_kv=host_lengths, num_heads=8, scale=0.1)
        b, _ = torch_npu.npu_fused_infer_attention_score(  # expect: length-type
            q, k, v, actual_seq_lengths_kv=lengths, num_heads=8, scale=0.1)
        c, _ = torch.ops.npu.npu_fused_infer_attention_score_v2(
            q, k, v, actual_seq_kvlen=host_lengths, num_query_heads=8, softmax_scale=0.1)
        d, _ = torchair.ops.npu_fused_infer_attention_score(  # expect: length-type
            q, k, v, actual_seq_lengths_kv=lengths, num_heads=8, scale=0.1)
        e, _ = torch_npu.npu_fused_infer_attention_score_v2(  # expect: length-name
            q, k, v, actual_seq_lengths_kv=host_lengths, num_query_heads=8, softmax_scale=0.1)
        f, _ = torch_npu.npu_fused_infer_attention_score_v2(  # expect: omitted-attention-argument
            q, k, v, actual_seq_kvlen=host_lengths, num_query_heads=8)
        g = torch_npu.npu_sparse_flash_attention(q, k, v, actual_seq_lengths_kv=lengths)
        h = torch_npu.npu_sparse_flash_attention(  # expect: length-type
            q, k, v, actual_seq_lengths_kv=[1, 2])
        i, _ = torch_npu.npu_fused_infer_attention_score(
            q, k, v, actual_seq_lengths_kv=index_lens, num_heads=8, scale=0.1)
        return a, b, c, d, e, f, g, h, i
