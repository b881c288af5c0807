"""Writing tensors as safetensors, one at a time, without a second copy of them in memory."""

import json
import os
from dataclasses import dataclass

from .errors import CaptureError

HEADER_ALIGNMENT = 64  # the data of every file begins at a multiple of this
CHUNK_BYTES = 64 << 20


def _type_names():
    import torch

    return {
        torch.float64: "F64",
        torch.float32: "F32",
        torch.float16: "F16",
        torch.bfloat16: "BF16",
        torch.int64: "I64",
        torch.int32: "I32",
        torch.int16: "I16",
        torch.int8: "I8",
        torch.uint8: "U8",
        torch.bool: "BOOL",
        torch.complex64: "C64",
        torch.float8_e4m3fn: "F8_E4M3",
        torch.float8_e5m2: "F8_E5M2",
    }


@dataclass
class Layout:
    """Which file each tensor is in; `aliases` maps a second name of a tensor to its first."""

    shards: list[list[str]]
    aliases: dict[str, str]


def storage_key(tensor):
    """Equal for two tensors that are the same elements in memory."""
    return (
        tensor.untyped_storage()._cdata,
        tensor.storage_offset(),
        tuple(tensor.shape),
        tensor.stride(),
        tensor.dtype,
    )


def check(tensors):
    """Raises TK1010 for a tensor that a safetensors file can't hold."""
    import torch

    names = _type_names()
    for name, tensor in tensors.items():
        kind = None
        if not isinstance(tensor, torch.Tensor):
            kind = f"a {type(tensor).__name__}, not a tensor"
        elif tensor.is_meta:
            kind = "on the meta device: it has no values"
        elif tensor.layout != torch.strided:
            kind = f"of the layout {tensor.layout}"
        elif tensor.is_quantized or tensor.dtype not in names:
            kind = f"of the type {tensor.dtype}"
        elif type(tensor.data) is not torch.Tensor:
            kind = f"a tensor subclass, {type(tensor.data).__name__}"
        elif tensor.device.type != "cpu":
            kind = f"on the device {tensor.device}"
        if kind is not None:
            raise CaptureError(
                "TK1010",
                f"the weight '{name}' can't be stored: it is {kind}",
                help="load the model as plain tensors on the CPU before the capture",
            )


def plan(tensors, shard_bytes):
    """Decides the layout: aliases first, then shards of at most `shard_bytes` (or one tensor)."""
    first = {}
    aliases = {}
    shards = [[]]
    used = 0
    for name, tensor in tensors.items():
        key = storage_key(tensor)
        if tensor.numel() and key in first:
            aliases[name] = first[key]
            continue
        first[key] = name
        size = tensor.numel() * tensor.element_size()
        if used and used + size > shard_bytes:
            shards.append([])
            used = 0
        shards[-1].append(name)
        used += size
    return Layout(shards, aliases)


def file_names(count):
    if count == 1:
        return ["model.safetensors"]
    return [f"model-{i + 1:05}-of-{count:05}.safetensors" for i in range(count)]


def _header(names, tensors, metadata):
    types = _type_names()
    entries = {"__metadata__": metadata}
    at = 0
    for name in names:
        tensor = tensors[name]
        end = at + tensor.numel() * tensor.element_size()
        entries[name] = {
            "dtype": types[tensor.dtype],
            "shape": list(tensor.shape),
            "data_offsets": [at, end],
        }
        at = end
    text = json.dumps(entries, separators=(",", ":"), ensure_ascii=True).encode()
    text += b" " * (-(len(text) + 8) % HEADER_ALIGNMENT)
    return len(text).to_bytes(8, "little") + text


def _bytes_of(tensor):
    """The elements in row-major order; a view of the tensor's memory when it is contiguous."""
    import torch

    flat = tensor.detach().contiguous().reshape(-1)
    return memoryview(flat.view(torch.uint8).numpy()) if flat.numel() else memoryview(b"")


def write(folder, tensors, shard_bytes, progress):
    """Writes `tensors` (name to tensor) into `folder`; returns the Layout.

    Wider elements come first in a file, so that each tensor begins at a multiple of its element
    size. The order is otherwise that of `tensors`.
    """
    check(tensors)
    layout = plan(tensors, shard_bytes)
    files = file_names(len(layout.shards))
    total = 0
    weight_map = {}
    for file, shard in zip(files, layout.shards, strict=True):
        names = sorted(shard, key=lambda name: -tensors[name].element_size())
        aliases = {a: name for a, name in layout.aliases.items() if name in set(shard)}
        metadata = {"format": "pt", "tokamak.aliases": json.dumps(aliases, sort_keys=True)}
        with open(os.path.join(folder, file), "wb") as out:
            out.write(_header(names, tensors, metadata))
            for name in names:
                data = _bytes_of(tensors[name])
                for at in range(0, len(data), CHUNK_BYTES):
                    out.write(data[at : at + CHUNK_BYTES])
                total += len(data)
            out.flush()
            os.fsync(out.fileno())
        weight_map |= dict.fromkeys([*names, *aliases], file)
        if len(files) > 1:
            progress.say(f"  wrote {file}")
    if len(files) > 1:
        index = {
            "metadata": {"total_size": total, "tokamak.aliases": layout.aliases},
            "weight_map": weight_map,
        }
        with open(os.path.join(folder, "model.safetensors.index.json"), "w") as out:
            json.dump(index, out, indent=1, sort_keys=True)
    return layout
