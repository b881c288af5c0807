"""Which parameters without annotation are tensors, by how the function uses them."""

import ast

from .names import TENSOR_ONLY_ATTRIBUTES

_HOST_CALLS = {"len", "int", "isinstance", "print", "range", "str", "getattr", "hasattr", "type"}


def tensor_params(function, program):
    """Names of the parameters that the body uses as only a tensor can be used."""
    if function.usage is not None:
        return function.usage
    names = {
        p.arg for p in function.params + function.node.args.kwonlyargs if p.annotation is None
    } - {"self", "cls"}
    found = set()
    if names:
        imports = function.module.imports
        for node in function.nodes:
            if isinstance(node, ast.Attribute):
                if (
                    isinstance(node.value, ast.Name)
                    and node.value.id in names
                    and node.attr in TENSOR_ONLY_ATTRIBUTES
                ):
                    found.add(node.value.id)
            elif isinstance(node, ast.Call) and node.args:
                if _takes_tensors(node.func, imports):
                    found.update(
                        a.id for a in node.args[:1] if isinstance(a, ast.Name) and a.id in names
                    )
    function.usage = found
    return found


def _takes_tensors(func, imports):
    """torch.f(x), F.f(x), torch_npu.f(x): the first argument is a tensor, with few exceptions."""
    node = func
    while isinstance(node, ast.Attribute):
        node = node.value
    if not isinstance(node, ast.Name) or not isinstance(func, ast.Attribute):
        return False
    root = imports.get(node.id, "")
    if root.split(".")[0] not in ("torch", "torch_npu", "torchair"):
        return False
    return func.attr not in _NOT_TENSOR_FIRST and not func.attr[:1].isupper()


_NOT_TENSOR_FIRST = {
    "tensor",
    "as_tensor",
    "zeros",
    "ones",
    "empty",
    "full",
    "arange",
    "rand",
    "randn",
    "randint",
    "linspace",
    "eye",
    "cat",
    "concat",
    "stack",
    "compile",
    "device",
    "finfo",
    "iinfo",
    "is_tensor",
    "hstack",
    "vstack",
    "split",
    "from_numpy",
    "manual_seed",
    "stream",
    "set_device",
    "autocast",
    "einsum",
    "mark_static",
    "all_gather",
    "all_to_all",
    "barrier",
    "get_rank",
    "get_world_size",
}
