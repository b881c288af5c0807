"""torch.npu's view of memory: what tensors of the device own is counted, the rest is a setting."""

import os

import torch

from . import library

_GIB = 1 << 30


def total_memory():
    """Bytes of the device: TOKAMAK_NPU_MEMORY in GiB, 64 as on both chips without it."""
    return int(float(os.environ.get("TOKAMAK_NPU_MEMORY", "64")) * _GIB)


def memory_allocated(device=None):
    return library.memory_used()


def max_memory_allocated(device=None):
    return library.memory_peak()


memory_reserved = memory_allocated
max_memory_reserved = max_memory_allocated


def reset_peak_memory_stats(device=None):
    library.reset_memory_peak()


reset_max_memory_allocated = reset_peak_memory_stats


def mem_get_info(device=None):
    total = total_memory()
    return max(total - library.memory_used(), 0), total


def memory_stats(device=None):
    stats = {}
    for kind in ("allocated_bytes", "reserved_bytes", "active_bytes"):
        stats[f"{kind}.all.current"] = library.memory_used()
        stats[f"{kind}.all.peak"] = library.memory_peak()
    return stats


def memory_summary(device=None, abbreviated=False):
    return f"allocated {memory_allocated()} bytes, peak {max_memory_allocated()} bytes"


def empty_cache():
    """There is no cache: memory goes back when the last tensor goes."""


def set_per_process_memory_fraction(fraction, device=None):
    if not 0 <= fraction <= 1:
        raise ValueError(f"a fraction from 0 to 1 is expected, got {fraction}")


def empty_with_swapped_memory(size, *, dtype=None, device=None):
    """Memory of the host that the device reaches; here both are one. Only the device may be
    asked for, as in torch_npu."""
    if device is not None and torch.device(device).type != "npu":
        raise RuntimeError(f"empty_with_swapped_memory is for the device npu, got {device}")
    return torch.zeros(size, dtype=dtype, device=device or "npu")
