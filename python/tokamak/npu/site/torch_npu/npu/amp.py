"""torch.npu.amp: torch.amp for the device."""

import functools

import torch

autocast = functools.partial(torch.amp.autocast, "npu")
GradScaler = functools.partial(torch.amp.GradScaler, "npu")

__all__ = ["GradScaler", "autocast"]
