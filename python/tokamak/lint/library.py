"""What the methods and functions of torch, and of Python's containers, give."""

from . import checks
from .names import (
    ASKS_VALUES,
    BOOL_RESULTS,
    CONSTRUCTORS,
    CONTEXT_FUNCTIONS,
    HOST_FUNCTIONS,
    HOST_METHODS,
    KEEPS_DTYPE,
    VIEWS,
)
from .values import (
    FALSE_VALUE,
    FROZEN_VALUE,
    HOST,
    HOST_DATA,
    HOST_TENSOR,
    HOST_VALUE,
    LIST,
    MASK_VALUE,
    NONE_VALUE,
    NUMPY,
    SYNCED,
    SYNCED_VALUE,
    TENSOR,
    TENSOR_VALUE,
    TRUE_VALUE,
    UNKNOWN,
    UNKNOWN_VALUE,
    Value,
    carries_tensor,
    join,
    list_of,
    tensor,
)

_TRACING = {"is_compiling", "is_torchdynamo_compiling", "is_dynamo_compiling"}
_NOT_TRACING = {"is_tracing", "is_scripting", "is_in_onnx_export", "is_exporting"}
_TORCH = ("torch.", "torch_npu.", "torchair.", "npugraph_ex.", "einops.", "custom_ops.")
_LIST_METHODS = {"append", "extend", "insert", "pop", "copy", "clear", "remove", "index", "count"}


class Call:
    """One call with its evaluated arguments. `dotted` names a function of a package."""

    __slots__ = ("args", "base", "dotted", "kwargs", "name", "node", "splat")

    def __init__(self, node, name, args, kwargs, base=None, dotted="", splat=False):
        self.node = node
        self.name = name
        self.args = args
        self.kwargs = kwargs
        self.base = base
        self.dotted = dotted
        self.splat = splat  # has *args or **kwargs whose contents are not known

    def argument(self, position, name):
        """The argument at `position` (methods: after the tensor itself) or called `name`."""
        if name in self.kwargs:
            return self.kwargs[name]
        return self.args[position] if 0 <= position < len(self.args) else None


_CHANGES_CONTAINER = {"append", "extend", "insert", "pop", "clear", "remove", "update", "add"}


class Library:
    """Mixed into the interpreter."""

    def _method(self, node, base, name):
        args, kwargs, splat = self._arguments(node)
        call = Call(node, name, args, kwargs, base, splat=splat)
        if base.kind == LIST and name in _LIST_METHODS:
            if name in _CHANGES_CONTAINER:
                checks.container_changed(self, node, node.func.value)
            return self._list_method(call)
        if base.kind == "dict":
            if name in ("update", "pop", "setdefault", "clear"):
                checks.container_changed(self, node, node.func.value)
            return self._dict_method(call)
        known = checks.method_call(self, call)
        if known is not None:
            return known
        if base.kind == TENSOR:
            return self._tensor_method(call)
        if base.kind == HOST and base.frozen and name in _CHANGES_CONTAINER:
            checks.container_changed(self, node, node.func.value)
        if base.kind == HOST:
            return Value(HOST, frozen=base.frozen)
        if base.kind in (SYNCED, NUMPY):
            return base
        if base.kind == "modules":
            return list_of(elem=self.item_of(base))
        if base.kind == UNKNOWN:
            if name in VIEWS and base.root is not None:
                return Value(UNKNOWN, root=base.root)
            if name in ("eq", "ne", "lt", "gt", "le", "ge", "isnan", "isinf"):
                return MASK_VALUE
            if name.startswith("npu_") or name in _MAKES_TENSOR:
                return TENSOR_VALUE
            if name in CONTEXT_FUNCTIONS:
                return FROZEN_VALUE
            return Value(UNKNOWN, frozen=base.frozen)
        return UNKNOWN_VALUE

    def _tensor_method(self, call):
        name, base = call.name, call.base
        if name in HOST_METHODS:
            value = Value(HOST, grows=base.grows)
            value.shape_of = name in ("size", "numel")
            return value
        if base.dotted == HOST_DATA and name not in ("max", "min", "topk", "sort"):
            return HOST_TENSOR
        if name in ASKS_VALUES:
            return SYNCED_VALUE
        if name in BOOL_RESULTS:
            return MASK_VALUE
        if name in ("to", "type_as", "view") and any(_is_bool_dtype(a) for a in call.args):
            return MASK_VALUE
        if name in VIEWS:
            value = tensor(base.root, base.bool_mask, base.grows)
            return (
                list_of(elem=value)
                if name in ("chunk", "split", "unbind", "tensor_split")
                else value
            )
        if name in ("topk", "sort", "aminmax", "kthvalue", "mode", "frexp"):
            return list_of(items=[TENSOR_VALUE, TENSOR_VALUE])
        if name in ("max", "min", "median", "cummax", "cummin") and (call.args or call.kwargs):
            return (
                TENSOR_VALUE
                if call.args and call.args[0].kind == TENSOR
                else list_of(items=[TENSOR_VALUE, TENSOR_VALUE])
            )
        if name in KEEPS_DTYPE and base.bool_mask:
            return MASK_VALUE
        if name.endswith("_") and not name.endswith("__"):
            return base
        return TENSOR_VALUE

    def _list_method(self, call):
        base, name = call.base, call.name
        if name in ("append", "extend", "insert") and call.args:
            value = call.args[-1] if name != "extend" else self.item_of(call.args[0])
            if value.kind == LIST:
                value = list_of(elem=value.elem)  # a copy: a list may be put into itself
            base.elem = value if base.elem is None else join(base.elem, value)
            base.items = None
            if carries_tensor(value) and call.node not in base.sites:
                base.sites.append(call.node)
            if self.frame.unbounded:
                base.unbounded = True
            return NONE_VALUE
        if name == "pop":
            return base.elem if base.elem is not None else UNKNOWN_VALUE
        if name == "copy":
            return base
        return HOST_VALUE

    def _dict_method(self, call):
        base = call.base
        if call.name == "update":
            base.const.update(call.kwargs)
            for a in call.args:
                if a.kind == "dict":
                    base.const.update(a.const)
            return NONE_VALUE
        if call.name in ("get", "pop", "setdefault"):
            if call.args and call.args[0].kind == HOST and call.args[0].const in base.const:
                return base.const[call.args[0].const]
            return base.elem if base.elem is not None else UNKNOWN_VALUE
        if call.name in ("values", "items"):
            return list_of(elem=base.elem if base.elem is not None else UNKNOWN_VALUE)
        return UNKNOWN_VALUE

    # -- functions of packages

    def _external(self, call):
        name, dotted = call.name, call.dotted
        if name in _TRACING:
            return TRUE_VALUE
        if name in _NOT_TRACING:
            return FALSE_VALUE
        known = checks.function_call(self, call)
        if known is not None:
            return known
        if name in CONTEXT_FUNCTIONS:
            return FROZEN_VALUE
        if dotted.startswith("torch.nn.") and name[:1].isupper():
            return self._torch_module(call)
        if dotted.startswith(_TORCH):
            return self._torch_function(call)
        if dotted.startswith(("math.", "os.", "sys.", "operator.", "time.", "random.")):
            return HOST_VALUE
        if dotted == "copy.deepcopy" and call.args:
            return call.args[0]
        # A class of another package, in a model: a module, which gives tensors for tensors.
        return Value("torch module", dotted=dotted) if name[:1].isupper() else UNKNOWN_VALUE

    def _torch_module(self, call):
        """torch.nn.X(...): a module, or a container of given ones."""
        if call.name in ("Parameter", "Buffer", "UninitializedParameter"):
            return TENSOR_VALUE
        if call.name in ("ModuleList", "ModuleDict", "Sequential"):
            elem = None
            if call.name == "Sequential":
                elem = list_of(items=call.args) if call.args else None
            elif call.args:
                elem = call.args[0]
            made = Value("modules", elem=None, dotted=call.name)
            if elem is not None and elem.kind == LIST:
                made.elem = elem.elem
                made.items = elem.items if call.name == "Sequential" else None
            return made
        if call.name == "ParameterList":
            return list_of(elem=TENSOR_VALUE)
        return Value("torch module", dotted=call.dotted)

    def _torch_function(self, call):
        name = call.name
        if name in ASKS_VALUES and any(a.kind == TENSOR for a in call.args):
            return SYNCED_VALUE
        if (
            name in HOST_FUNCTIONS
            or name.startswith("is_")
            or call.dotted.startswith(
                (
                    "torch.distributed.get_",
                    "torch.npu.",
                    "torch.cuda.",
                    "torch.compiler.",
                    "torch._dynamo.",
                )
            )
        ):
            return HOST_VALUE
        if name[:1].isupper() and name not in CONSTRUCTORS:
            return UNKNOWN_VALUE
        first = call.args[0] if call.args else None
        if name in BOOL_RESULTS or (
            name
            in CONSTRUCTORS
            | {"zeros", "ones", "full", "zeros_like", "ones_like", "full_like", "empty"}
            and _is_bool_dtype(call.kwargs.get("dtype"))
        ):
            return MASK_VALUE
        if first is not None and first.kind == TENSOR:
            if name in VIEWS:
                value = tensor(first.root, first.bool_mask, first.grows)
                return (
                    list_of(elem=value)
                    if name in ("chunk", "split", "unbind", "tensor_split")
                    else value
                )
            if name in KEEPS_DTYPE and first.bool_mask:
                return MASK_VALUE
        if name in ("topk", "sort", "aminmax", "kthvalue"):
            return list_of(items=[TENSOR_VALUE, TENSOR_VALUE])
        if name in ("max", "min", "median", "cummax", "cummin") and (
            "dim" in call.kwargs or (len(call.args) > 1 and call.args[1].kind == HOST)
        ):
            return list_of(items=[TENSOR_VALUE, TENSOR_VALUE])
        if name in ("broadcast_tensors", "meshgrid", "unbind", "split", "chunk"):
            return list_of(elem=TENSOR_VALUE)
        return TENSOR_VALUE


def _is_bool_dtype(value):
    return value is not None and (
        value.dotted in ("torch.bool", "builtins.bool") or value.const == "bool"
    )


_MAKES_TENSOR = {
    "new_zeros",
    "new_empty",
    "new_ones",
    "new_full",
    "unsqueeze",
    "contiguous",
    "index_select",
    "masked_fill",
    "softmax",
    "permute",
    "transpose",
    "reshape",
    "view",
    "squeeze",
    "flatten",
    "clone",
    "detach",
    "bfloat16",
    "half",
    "float",
}
