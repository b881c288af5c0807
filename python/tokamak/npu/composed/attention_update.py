"""Lists of shards as one tensor each, which is what the reference merges."""

import torch

from . import composed


@composed("npu_attention_update")
def attention_update(reference, *, lse, local_out, update_type):
    if len(lse) != len(local_out) or not 1 <= len(lse) <= 16:
        raise RuntimeError(
            "npu_attention_update needs lse and local_out of 1 to 16 shards, as many of each, "
            f"got {len(lse)} and {len(local_out)}"
        )
    for name, parts in (("lse", lse), ("local_out", local_out)):
        kinds = {(str(t.dtype).removeprefix("torch."), tuple(t.shape)) for t in parts}
        if len(kinds) > 1:
            raise RuntimeError(
                f"npu_attention_update: {name} has shards of one type and shape, got "
                + " and ".join(f"{dtype}{list(shape)}" for dtype, shape in sorted(kinds))
            )
    return reference(
        lse=torch.stack(list(lse)), local_out=torch.stack(list(local_out)), update_type=update_type
    )
