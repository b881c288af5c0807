"""How the tensors of a checkpoint lie in a model whose names are others: checkpoint.json.

transformers renames tensors when it loads (block_sparse_moe to mlp, embed_out to lm_head) and puts
experts that are stored one by one into stacked tensors. Its tables say which name becomes which;
the values say which part of the weight that is. Numbers in names are written as *, so that all
layers and experts are one line:

    {"places": {"model.layers.*.mlp.experts.*.up_proj.weight":
                    ["model.layers.*.mlp.experts.gate_up_proj", 1, 2]},
     "unused": ["model.layers.61."], "unplaced": []}

Part 1 of 2 along the first axis, of the expert that the name's last number says. `unused` holds
beginnings of names without a place in the model, `unplaced` those of which it could not be found.
"""

import json
import re
from bisect import bisect_left
from functools import cache

FILE = "checkpoint.json"
_NUMBER = re.compile(r"(?<=\.)\d+(?=\.|$)")


def write(folder, source, model):
    """Writes checkpoint.json, when a name in the safetensors of `source` is not the model's."""
    found = places(source, model)
    if any(found.values()):
        (folder / FILE).write_text(json.dumps(found, indent=1) + "\n")


def places(source, model):
    from safetensors import safe_open

    files = {}
    for path in sorted(source.glob("*.safetensors")):
        with safe_open(path, framework="pt") as file:
            files |= dict.fromkeys(file.keys(), path)

    def read(name):
        with safe_open(files[name], framework="pt") as file:
            return file.get_tensor(name)

    state = model.state_dict()
    rename = cache(_renaming(model, state))
    unused = {name for name in files if rename(name) not in state}
    found = {"places": {}, "unused": _beginnings(unused, files), "unplaced": []}
    kinds = {}  # names that differ in numbers only
    for name in files:
        if name not in unused:
            kinds.setdefault(_pattern(name), []).append(name)
    taken = set()
    for pattern, names in kinds.items():
        target = _pattern(rename(names[0]))
        pairs = [(name, rename(name)) for name in names]
        part = None
        if all(_pattern(new) == target and _same_numbers(name, new) for name, new in pairs):
            samples = [(name, read(name), state[new]) for name, new in (pairs[0], pairs[-1])]
            part = next((p for p in _parts(samples) if (target, *p) not in taken), None)
        if part is None:
            found["unplaced"].append(pattern)
        elif pattern != target or part != (0, 1):
            taken.add((target, *part))
            found["places"][pattern] = [target, *part]
    return found


def _renaming(model, state):
    """The function from a checkpoint's name to the model's, as transformers loads."""
    try:
        from transformers.conversion_mapping import get_model_conversion_mapping
        from transformers.core_model_loading import (
            WeightConverter,
            WeightRenaming,
            rename_source_key,
        )
    except ImportError:  # before transformers 5 no names were changed
        return lambda name: name
    steps = get_model_conversion_mapping(model)
    renamings = [step for step in steps if isinstance(step, WeightRenaming)]
    converters = [step for step in steps if isinstance(step, WeightConverter)]
    prefix = model.base_model_prefix

    def rename(name):
        new = rename_source_key(name, renamings, converters, prefix, state)[0]
        if new not in state and name in state:
            new = rename_source_key(name, [], [], prefix, state)[0]
        return new

    return rename


def _pattern(name):
    return _NUMBER.sub("*", name)


def _same_numbers(name, new):
    """Whether the name has the new one's numbers, and at most one behind them: the expert's."""
    have, want = _NUMBER.findall(name), _NUMBER.findall(new)
    return have[: len(want)] == want and len(have) <= len(want) + 1


def _parts(samples):
    """The (part, number of parts) along the first axis at which all samples hold their tensor."""
    import torch

    def matches(name, tensor, weight, part, parts):
        if weight.dim() == tensor.dim() + 1:
            weight = weight[int(_NUMBER.findall(name)[-1])]
        if parts > 1:
            weight = weight.tensor_split(parts)[part]
        return weight.shape == tensor.shape and torch.equal(weight, tensor.to(weight.dtype))

    _, tensor, weight = samples[0]
    shape = weight.shape[1:] if weight.dim() == tensor.dim() + 1 else weight.shape
    if len(shape) != tensor.dim() or not tensor.dim():
        parts = 1
    else:
        parts = max(1, shape[0] // max(1, tensor.shape[0]))
    for part in range(parts):
        if all(matches(*sample, part, parts) for sample in samples):
            yield part, parts


def _beginnings(unused, names):
    """The shortest beginnings, up to a dot, that all the unused names have and no other name."""
    used = sorted(name for name in names if name not in unused)

    def is_free(start):
        at = bisect_left(used, start)
        return at == len(used) or not used[at].startswith(start)

    starts = ((name[: match.end()] for match in re.finditer(r"\.|$", name)) for name in unused)
    return sorted({next(filter(is_free, ends)) for ends in starts})
