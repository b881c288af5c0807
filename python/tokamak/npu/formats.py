"""Formats of memory (ND, NZ, ...). Elements stay where they are: a format is noted by storage, for
get_npu_format and for the limits of operators that ask for it."""

import enum

import torch
from torch.multiprocessing.reductions import StorageWeakRef

from .composed import composed

ND, FRACTAL_NZ = 2, 29
FORMATS = {
    -1: "UNDEFINED",
    0: "NCHW",
    1: "NHWC",
    2: "ND",
    3: "NC1HWC0",
    4: "FRACTAL_Z",
    12: "NC1HWC0_C04",
    16: "HWCN",
    27: "NDHWC",
    29: "FRACTAL_NZ",
    30: "NCDHW",
    32: "NDC1HWC0",
    33: "FRACTAL_Z_3D",
}

Format = enum.IntEnum("Format", {name: number for number, name in FORMATS.items()})

_noted = {}  # address of memory -> (weak reference to a storage there, format)


def note(tensor, fmt):
    storage = tensor.untyped_storage()
    _noted[storage.data_ptr()] = (StorageWeakRef(storage), fmt)
    return tensor


def get_npu_format(tensor):
    address = tensor.untyped_storage().data_ptr()
    reference, fmt = _noted.get(address, (None, ND))
    if reference is not None and reference.expired():
        del _noted[address]
        return ND
    return fmt


@composed("npu_format_cast")
def npu_format_cast(reference, *, input, acl_format, **rest):
    result = reference(input=input, acl_format=acl_format, **rest)
    return note(result, get_npu_format(input) if acl_format == -1 else acl_format)


def npu_format_cast_(tensor, acl_format):
    """In place: the format of the tensor, or that of another tensor."""
    if isinstance(acl_format, torch.Tensor):
        acl_format = get_npu_format(acl_format)
    return note(tensor, int(acl_format))


def empty_with_format(size, *, dtype=None, device=None, acl_format=ND):
    return note(torch.empty(size, dtype=dtype, device=device or "npu"), int(acl_format))
