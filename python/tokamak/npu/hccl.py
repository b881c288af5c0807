"""HCCL over gloo: a process group "hccl" holds a gloo backend for the host's tensors, and the
collectives of torch on tensors of the device run on their twins there."""

import warnings

import torch
import torch.distributed as dist
from torch.distributed import distributed_c10d

from . import device

_names = {}  # name of a communicator -> its ProcessGroupHCCL


class Options:
    """torch_npu's ProcessGroupHCCL.Options: kept, and of no effect here."""

    def __init__(self, is_high_priority_stream=False):
        self.is_high_priority_stream = is_high_priority_stream
        self.hccl_config = {}
        self.op_timeout = None
        self.global_ranks_in_group = []
        self.group_id = ""


class ProcessGroupHCCL(dist.ProcessGroupGloo):
    Options = Options

    def __init__(self, store, rank, size, timeout, group_id):
        super().__init__(store, rank, size, timeout)
        self.group_id = group_id

    def get_hccl_comm_name(self, rank, init_comm=True):
        """The same on every rank of the group, and of no other group."""
        return f"hccl_group_{self.group_id}"


def _create(options, pg_options):
    backend = ProcessGroupHCCL(
        options.store, options.group_rank, options.group_size, options.timeout, options.group_id
    )
    _names[backend.get_hccl_comm_name(options.group_rank)] = backend  # and keeps the Python object
    return backend


def group(name):
    """The ProcessGroup of a communicator's name (`get_hccl_comm_name`)."""
    if name not in _names:
        known = ", ".join(_names) or "none; init_process_group('hccl') makes the first"
        raise RuntimeError(f"no HCCL communicator is named {name!r}; there are: {known}")
    wanted = _names[name].group_id
    for candidate in distributed_c10d._world.pg_map:
        if candidate.group_name == wanted:
            return candidate
    raise RuntimeError(f"the process group of {name!r} has been destroyed")


def _on_twins(op):
    def kernel(*args, **kwargs):
        for a in args:
            if isinstance(a, torch.ScriptObject) and "ProcessGroup" in str(a._type()):
                # Raises as torch does when the group has no backend for the device.
                dist.ProcessGroup.unbox(a)._get_backend(torch.device("npu"))
        call = device.Twins(op)
        args = [call.argument(a) for a in args]
        kwargs = {k: call.argument(v) for k, v in kwargs.items()}
        call.check_devices()
        return call.result(op(*args, **kwargs))

    return kernel


def install():
    dist.Backend.register_backend("hccl", _create, extended_api=True, devices=["npu", "cpu"])
    lib = torch.library.Library("c10d", "IMPL")
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1"):
        namespace, _, rest = name.partition("::")
        if namespace == "c10d":
            packet, _, overload = rest.partition(".")
            op = getattr(getattr(torch.ops.c10d, packet), overload or "default")
            with warnings.catch_warnings(action="ignore"):  # to replace torch's kernel is the aim
                lib.impl(rest, _on_twins(op), "PrivateUse1", allow_override=True)
    return lib
