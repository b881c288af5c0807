"""Tensors of the device "npu": torch's private device, whose memory is the host's.

A tensor of the device and its twin on the CPU share memory: each is a DLPack capsule of the other
with another device written on it (src/capi/memory.cpp). An operator of torch on the device is that
operator of the CPU, run on twins; views stay views of the same storage, in-place stays in place.
"""

import ctypes
import functools
import os

import torch
from torch.utils import backend_registration

from ..errors import Error
from . import library

_HOST, _EXTENSION = 1, 12  # DLDeviceType
_CPU_KERNEL = torch._C.DispatchKeySet(torch._C.DispatchKey.CPU)

_api = ctypes.pythonapi
_new_capsule = ctypes.PYFUNCTYPE(
    ctypes.py_object, ctypes.c_void_p, ctypes.c_char_p, ctypes.c_void_p
)(("PyCapsule_New", _api))
_pointer_of = ctypes.PYFUNCTYPE(ctypes.c_void_p, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_GetPointer", _api)
)
_rename = ctypes.PYFUNCTYPE(ctypes.c_int, ctypes.py_object, ctypes.c_char_p)(
    ("PyCapsule_SetName", _api)
)
_FRESH, _USED = b"dltensor", b"used_dltensor"

_current = 0


def current_device():
    return _current


def set_device(index):
    global _current
    _current = index


def _rehome(tensor, device_type, index, counted):
    capsule = torch._C._to_dlpack(tensor)
    pointer = _pointer_of(capsule, _FRESH)
    _rename(capsule, _USED)  # it is owned by the new one
    moved = library.rehome(pointer, device_type, index, counted)
    return torch._C._from_dlpack(_new_capsule(moved, _FRESH, None))


def on_device(tensor):
    return isinstance(tensor, torch.Tensor) and tensor.device.type == "npu"


def to_host(tensor):
    """The CPU tensor over the same memory."""
    return _rehome(tensor.detach(), _HOST, 0, 0)


def to_device(tensor, index=None):
    """The tensor of the device over the same memory, which it owns from now on."""
    index = _current if index is None else index
    return _rehome(tensor, _EXTENSION, index, tensor.untyped_storage().nbytes())


# What is in the shape and strides alone: the CPU's kernels don't touch contents.
_METADATA = {
    torch.ops.aten.as_strided.default,
    torch.ops.aten.view.default,
    torch.ops.aten._reshape_alias.default,
    torch.ops.aten.unfold.default,
    torch.ops.aten.set_.source_Tensor,
    torch.ops.aten.set_.source_Storage,
    torch.ops.aten.set_.source_Storage_storage_offset,
}

# Operators that take tensors of several devices.
_ACROSS_DEVICES = {
    torch.ops.aten.copy_.default,
    torch.ops.aten.index.Tensor,
    torch.ops.aten._index_put_impl_.default,
    torch.ops.aten.set_.source_Tensor,
}


class Twins:
    """One call of an operator on twins: from the device's tensors to the host's, and back."""

    def __init__(self, op):
        self.op = op
        self.twins = {}  # id of a device tensor -> (twin, tensor)
        self.given = {}  # id of a tensor that the operator gets -> what to give back for it
        self.storages = {}  # storage of a twin -> tensor
        self.index = None
        self.host = None  # a CPU tensor among the arguments

    def argument(self, value):
        if isinstance(value, torch.Tensor):
            if value.device.type != "npu":
                if value.dim() > 0 and value.device.type == "cpu":
                    self.host = value
                self.given[id(value)] = value
                return value
            return self._twin(value)
        if isinstance(value, list | tuple):
            return type(value)(map(self.argument, value)) if value else value
        return value

    def _twin(self, tensor):
        if id(tensor) not in self.twins:
            if self.index is None:
                self.index = tensor.device.index
            elif self.index != tensor.device.index:
                self._different(f"npu:{self.index}", tensor.device)
            twin = to_host(tensor)
            self.twins[id(tensor)] = (twin, tensor)
            self.given[id(twin)] = tensor
            self.storages[twin.untyped_storage()._cdata] = tensor
        return self.twins[id(tensor)][0]

    def check_devices(self):
        if self.twins and self.host is not None and self.op not in _ACROSS_DEVICES:
            self._different(f"npu:{self.index}", "cpu")

    def _different(self, one, other):
        raise RuntimeError(
            "Expected all tensors to be on the same device, but found at least two devices, "
            f"{one} and {other}! (when running {self.op})"
        )

    def result(self, value):
        if self.index is None:  # nothing of the device was there
            return value
        if isinstance(value, torch.Tensor):
            if id(value) in self.given:
                return self.given[id(value)]
            source = self.storages.get(value.untyped_storage()._cdata)
            return to_device(value, self.index) if source is None else self._view(value, source)
        if isinstance(value, list | tuple):
            return type(value)(map(self.result, value))
        return value

    def _view(self, value, source):
        if value.dtype != source.dtype:
            return _rehome(value, _EXTENSION, self.index, 0)
        start = value.data_ptr() - source.untyped_storage().data_ptr() if value.numel() else 0
        return torch.ops.aten.as_strided.default.redispatch(
            _CPU_KERNEL, source, value.shape, value.stride(), start // value.element_size()
        )


_PRODUCTS = {
    torch.ops.aten.mm.default,
    torch.ops.aten.bmm.default,
    torch.ops.aten.addmm.default,
    torch.ops.aten.baddbmm.default,
}


def _promoted(op, args):
    """aclnn's products promote their operands (a bf16 row by an f32 weight); the CPU's do not."""
    if op not in _PRODUCTS:
        return args
    dtypes = {a.dtype for a in args if isinstance(a, torch.Tensor)}
    if len(dtypes) < 2 or not all(d.is_floating_point for d in dtypes):
        return args
    wide = functools.reduce(torch.promote_types, dtypes)
    return [a.to(wide) if isinstance(a, torch.Tensor) else a for a in args]


def _fallback(op, *args, **kwargs):
    if op in _METADATA:
        return op.redispatch(_CPU_KERNEL, *args, **kwargs)
    call = Twins(op)
    device_args, device_kwargs = args, dict(kwargs)
    outs = {k: v for k, v in kwargs.items() if on_device(v) and v.numel() == 0 and _written(op, k)}
    args = [call.argument(a) for a in args]
    kwargs = {
        k: torch.empty(0, dtype=v.dtype, device="cpu") if k in outs else call.argument(v)
        for k, v in kwargs.items()
    }
    call.check_devices()
    device = kwargs.get("device")
    if device is not None and torch.device(device).type == "npu":
        call.index = torch.device(device).index or _current
        kwargs["device"] = torch.device("cpu")
    elif device is not None:
        return op(*args, **kwargs)  # from the device to a new tensor elsewhere
    if kwargs.get("pin_memory"):
        kwargs["pin_memory"] = False
    for name, out in outs.items():
        call.given[id(kwargs[name])] = out
        call.index = out.device.index
    args = _promoted(op, args)
    results = _taking_numbers(op, args)(*args, **kwargs)
    for name, out in outs.items():  # an empty out is resized by the operator: it gets new memory
        out.data = to_device(kwargs[name], call.index)
    results = call.result(results)
    if recording is not None:
        record(op, device_args, device_kwargs, results)
    return results


recording = None  # the calls of an NPUGraph that is being captured: (op, args, kwargs, results)


def record(op, args, kwargs, results):
    if op in _LEAVES_THE_DEVICE:
        raise RuntimeError(
            f"{op} needs a value of the device on the host: not permitted when stream is capturing"
        )
    recording.append((op, args, kwargs, results))


# Operators whose results the script sees: they can't be part of a captured graph.
_LEAVES_THE_DEVICE = {
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.equal.default,
    torch.ops.aten.nonzero.default,
}


def _taking_numbers(op, args):
    """Torch hands a Python number over as itself where the schema has a Tensor (x % 128): of the
    operator's overloads the one for numbers is meant then."""
    for value, argument in zip(args, op._schema.arguments, strict=False):
        if isinstance(value, int | float) and str(argument.type) == "Tensor":
            return op._overloadpacket
    return op


def _written(op, name):
    return any(
        a.name == name and a.alias_info is not None and a.alias_info.is_write
        for a in op._schema.arguments
    )


def _resize(tensor, size, *, memory_format=None):
    n = 1
    for s in size:
        n *= s
    if n * tensor.element_size() <= tensor.untyped_storage().nbytes():
        strides, step = [], 1
        for s in reversed(size):
            strides.insert(0, step)
            step *= max(s, 1)
        torch.ops.aten.set_.source_Storage_storage_offset.redispatch(
            _CPU_KERNEL, tensor, tensor.untyped_storage(), tensor.storage_offset(), size, strides
        )
        return tensor
    new = torch.empty(size, dtype=tensor.dtype, device="cpu")
    new.view(-1)[: tensor.numel()].copy_(to_host(tensor).reshape(-1))
    tensor.data = to_device(new, tensor.device.index)
    return tensor


def _copy_from(source, target, non_blocking=False):
    """What copy_ comes to between the device and another one."""
    to = to_host(target) if on_device(target) else target
    to.copy_(to_host(source) if on_device(source) else source)
    return target


_torch_storage_to = torch.storage._to


def _storage_to(storage, device, non_blocking):
    """torch makes a storage of the device with an allocator in C++, which there is none of."""
    if torch.device(device).type != "npu" or storage.device.type == "npu":
        return _torch_storage_to(storage, device, non_blocking)
    copy = torch.empty(storage.nbytes(), dtype=torch.uint8, device="cpu")
    copy.untyped_storage().copy_(storage)
    return to_device(copy, torch.device(device).index).untyped_storage()


class Generator(torch.Generator):
    """Random numbers are the CPU's, so a generator of the device is one of the CPU."""

    def __new__(cls, device="cpu"):
        kind = torch.device(device).type
        return super().__new__(cls, device="cpu" if kind == "npu" else device)


def _pin_memory(tensor, device=None):
    """Memory of the host is the device's already."""
    return tensor


_torch_storage_clone = torch.UntypedStorage.clone


def _storage_clone(storage):
    """As above: of copy.deepcopy and of clones of a storage."""
    if storage.device.type != "npu":
        return _torch_storage_clone(storage)
    whole = torch.empty(0, dtype=torch.uint8, device=storage.device).set_(storage)
    return to_device(to_host(whole).clone(), storage.device.index).untyped_storage()


def _register_kernels():
    """Every operator of torch without a kernel of its own for the device runs on twins."""
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(_fallback, "PrivateUse1")
    aten = torch.library.Library("aten", "IMPL")
    aten.impl("resize_", _resize, "PrivateUse1")
    aten.impl("_copy_from", _copy_from, "PrivateUse1")
    aten.impl("record_stream", lambda tensor, stream: None, "PrivateUse1")
    convolution = torch.ops.aten.convolution.default
    aten.impl("convolution_overrideable", _on_twins(convolution), "PrivateUse1")
    # Left to themselves these make an empty result and resize it: two calls more.
    for name in torch._C._dispatch_get_registrations_for_dispatch_key(
        "CompositeExplicitAutogradNonFunctional"
    ):
        namespace, _, rest = name.partition("::")
        packet, _, overload = rest.partition(".")
        if namespace == "aten" and not name.endswith("out"):
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(rest, _on_twins(op), "PrivateUse1")
    return [everything, aten]


def _on_twins(op):
    return lambda *args, **kwargs: _fallback(op, *args, **kwargs)


def device_count():
    default = "16" if os.environ.get("TOKAMAK_NPU_SOC") == "a3" else "8"
    return int(os.environ.get("TOKAMAK_NPU_DEVICES", default))


def install(module):
    """Makes "npu" the name of the private device; `module` is torch.npu."""
    setup = getattr(backend_registration, "_setup_privateuseone_for_python_backend", None)
    if setup is None:
        raise Error(
            "TK1016",
            f"torch {torch.__version__} has no private device for Python",
            help="use the version that the project is made with: pip install torch==2.13.0",
        )
    setup("npu", backend_module=module)
    torch.storage._to = _storage_to
    torch.UntypedStorage.clone = _storage_clone
    torch.Generator = Generator
    torch.Tensor.pin_memory = _pin_memory
    return _register_kernels()
