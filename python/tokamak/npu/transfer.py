"""Scripts for CUDA: "cuda" is read as "npu", torch.cuda as torch.npu, "nccl" as "hccl"."""

import functools

import torch
import torch.distributed as dist
from torch.overrides import TorchFunctionMode


def _device(value):
    if isinstance(value, str) and value.split(":")[0] == "cuda":
        return "npu" + value[4:]
    if isinstance(value, torch.device) and value.type == "cuda":
        return torch.device("npu", value.index)
    return value


class _CudaIsNpu(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = {k: _device(v) for k, v in (kwargs or {}).items()}
        return func(*map(_device, args), **kwargs)


def _hccl(function):
    @functools.wraps(function)
    def wrapped(*args, **kwargs):
        args = ["hccl" if a == "nccl" else a for a in args]
        return function(*args, **{k: "hccl" if v == "nccl" else v for k, v in kwargs.items()})

    return wrapped


_mode = []


def install():
    if _mode:
        return
    _mode.append(_CudaIsNpu())
    _mode[0].__enter__()
    for name in dir(torch.npu):
        if not name.startswith("_"):
            setattr(torch.cuda, name, getattr(torch.npu, name))
    torch.cuda.CUDAGraph = torch.npu.NPUGraph
    torch.Tensor.cuda = torch.Tensor.npu
    torch.Tensor.is_cuda = torch.Tensor.is_npu
    torch.nn.Module.cuda = torch.nn.Module.npu
    dist.init_process_group = _hccl(dist.init_process_group)
    dist.new_group = _hccl(dist.new_group)
    dist.is_nccl_available = lambda: True
