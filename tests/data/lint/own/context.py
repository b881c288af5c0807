# entry: Attention.forward
import torch
from torch import nn

from runtime import get_forward_context

MODE = {"prefill": False}
STATE = None


def set_state(value):
    global STATE
    STATE = value


class Attention(nn.Module):
    def forward(self, x: torch.Tensor, metadata=None):
        context = get_forward_context()
        if context.moe_comm_type == "alltoall":  # expect: global-read-in-graph
            x = x * 2
        y = x if MODE["prefill"] else -x  # expect: global-read-in-graph
        if STATE:  # expect: global-read-in-graph
            y = y + 1
        if metadata is not None and metadata.use_mask:
            y = y + 1
        return y
