"""The names of torch_npu's extension that scripts use."""

from . import _distributed_c10d

__all__ = ["_distributed_c10d"]
