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
    return reference(
        lse=torch.stack(list(lse)), local_out=torch.stack(list(local_out)), update_type=update_type
    )
