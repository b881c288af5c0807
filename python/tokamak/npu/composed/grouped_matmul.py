"""One x and a list of weights, one a group, as the one weight [groups, K, N] of the reference."""

import torch

from . import composed

# Lists with an entry for each weight.
_PER_WEIGHT = ("weight", "bias", "scale", "offset", "antiquant_scale", "antiquant_offset")


@composed("npu_grouped_matmul")
def grouped_matmul(reference, **given):
    groups = len(given["weight"])
    if len(given["x"]) != 1 or groups < 2:
        return reference(**given)
    for name in _PER_WEIGHT:
        parts = given[name]
        if not parts:
            continue
        if len(parts) != groups or any(t.shape != parts[0].shape for t in parts):
            raise RuntimeError(
                f"npu_grouped_matmul needs with one x {groups} tensors of one shape in {name}, "
                f"got {', '.join(str(list(t.shape)) for t in parts)}"
            )
        given[name] = [torch.stack(list(parts))]
    return reference(**given)
