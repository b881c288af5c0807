"""Python lists of tensors, and the collectives and concatenations that take them."""

import ast

from ..names import LIST_COLLECTIVES
from ..tree import index_of, index_parts
from ..values import LIST, TENSOR, TENSOR_VALUE, UNKNOWN


def _collective(interp, call):
    if not call.dotted.startswith(("torch.distributed", "torch_npu.distributed", "deepspeed.comm")):
        return None
    lists = []
    for position in LIST_COLLECTIVES[call.name]:
        if position < len(call.args):
            lists.append(call.args[position])
    lists += [v for n, v in call.kwargs.items() if n.endswith("list") or n.endswith("lists")]
    python_lists = [v for v in lists if v.kind == LIST]
    if not python_lists:
        return None
    interp.report("collective-with-list", call.node, call.name)
    for value in python_lists:
        _report_sites(interp, value)
    return TENSOR_VALUE


def _report_sites(interp, value):
    for site in value.sites:
        interp.report("python-list-of-tensors", site)


def _concatenate(interp, call):
    """torch.cat and its like of a list whose length depends on data, or onto a cache."""
    if not call.dotted.startswith("torch.") or not call.args:
        return None
    value = call.args[0]
    if value.kind != LIST:
        return None
    if value.unbounded:
        if value.sites:
            _report_sites(interp, value)
        else:
            interp.report("python-list-of-tensors", call.node)
        return TENSOR_VALUE
    if call.name != "stack" and value.items is not None:
        return _onto_cache(interp, call, value)
    return None


def _onto_cache(interp, call, value):
    from ..values import tensor

    nodes = getattr(call.node.args[0], "elts", [])
    if len(nodes) != len(value.items) or len(nodes) < 2:
        return None
    first = value.items[0]
    of_cache = first.root is not None and first.root[0] == "input" and is_cache(str(first.root[1]))
    whole = isinstance(nodes[0], ast.Name)
    if (cache_name(nodes[0]) or (of_cache and whole)) and first.kind in (TENSOR, UNKNOWN):
        if not interp.assigns_attribute:
            interp.report("cat-onto-cache", call.node)
        return tensor(grows=True)
    return None


def cache_name(node):
    """Whether an expression names a cache, whole: `past_key`, `self.k_cache`, `past[0]`."""
    while isinstance(node, ast.Subscript):
        index = index_of(node)
        if isinstance(index, ast.Slice) or index_parts(index) is not None:
            return False  # a window of it
        node = node.value
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return is_cache(name)


def is_cache(name):
    name = name.lower()
    if name.startswith(("num_", "n_", "cached_")):
        return False
    words = name.replace("-", "_").split("_")
    if "cache" in words or "caches" in words or name.endswith("cache"):
        return True
    # past_key_values, past_k, past; past_values of a time series are none.
    return "past" in words and (
        len(words) == 1 or bool({"key", "keys", "kv", "k", "v", "value"} & set(words))
    )


FUNCTIONS = {name: _collective for name in LIST_COLLECTIVES}
FUNCTIONS.update(
    cat=_concatenate,
    concat=_concatenate,
    concatenate=_concatenate,
    stack=_concatenate,
    hstack=_concatenate,
    vstack=_concatenate,
)
