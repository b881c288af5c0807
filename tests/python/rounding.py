"""Which steps of a 16-bit model hang on its own roundings: a router's near-tie, mostly."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

RUNS = 16
COPIES = ("clone", "cat", "stack", "embedding", "index", "gather")  # no arithmetic, no rounding


class _OtherRoundings(TorchDispatchMode):
    """Every computed 16-bit value is moved by up to half a unit in its last place and rounded
    again, as another order of a sum does, or one rounding where the model has two.
    """

    def __init__(self, seed):
        super().__init__()
        self.generator = torch.Generator().manual_seed(seed)

    def __torch_dispatch__(self, func, types, args=(), kwargs=None):
        value = func(*args, **(kwargs or {}))
        name = func.overloadpacket.__name__
        if func.is_view or name in COPIES or getattr(value, "dtype", None) != torch.bfloat16:
            return value
        noise = torch.rand(value.shape, generator=self.generator) * 2 - 1
        return (value.float() * (1 + torch.finfo(value.dtype).eps / 2 * noise)).to(value.dtype)


def spread(program, case):
    """How far the model's own logits of each row and step are from the golden ones, of the largest
    of those, with other roundings of every value: the most of RUNS runs, [rows, steps].
    """
    wanted = case["decode_ids"]
    ids = torch.cat((case["input_ids"], wanted[:, :-1]), 1)
    positions = torch.arange(ids.shape[1]).expand_as(ids)
    golden = case["decode_logits"].float()
    model, most = program.module(), torch.zeros(wanted.shape)
    for seed in range(RUNS):
        with torch.no_grad(), _OtherRoundings(seed):
            found = model(ids, positions)
        found = found[0] if isinstance(found, (tuple, list)) else found
        error = (found[:, -wanted.shape[1] :].float() - golden).abs().amax(-1)
        most = torch.maximum(most, error / golden.abs().max())
    return most
