"""Calls of the analysed code: into given functions, and of torch, by their names."""

import ast

from . import checks
from .expressions import _EXPRESSIONS
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
from .program import Class
from .values import (
    EXTERNAL,
    FALSE_VALUE,
    FROZEN_VALUE,
    FUNCTION,
    HOST,
    HOST_DATA,
    HOST_TENSOR,
    HOST_VALUE,
    LIST,
    MASK_VALUE,
    NONE_VALUE,
    NUMPY,
    OBJECT,
    SYNCED,
    SYNCED_VALUE,
    TENSOR,
    TENSOR_VALUE,
    TRUE_VALUE,
    UNKNOWN,
    UNKNOWN_VALUE,
    Value,
    carries_tensor,
    constant,
    is_none,
    join,
    list_of,
    tensor,
)

# Decorators whose function runs outside the graph, or is one operator for it.
_OPAQUE = (
    "disable",
    "custom_op",
    "register_fake",
    "impl",
    "triton_op",
    "jit",
    "allow_in_graph",
    "assume_constant_result",
    "dont_skip_tracing_this",
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


class Calls:
    """Mixed into the interpreter."""

    def _call(self, node):
        func = node.func
        if isinstance(func, ast.Name):
            value = self.frame.env.get(func.id)
            if value is None:
                value = self.global_value(func.id)
            if value.kind == UNKNOWN and func.id in _BUILTINS:
                return self._builtin(node, func.id)
            return self._call_value(node, value, func.id)
        if isinstance(func, ast.Attribute):
            if _is_super(func.value):
                return self._call_super(node, func.attr)
            base = self.evaluate(func.value)
            if base.kind == EXTERNAL:
                return self._call_value(
                    node, Value(EXTERNAL, dotted=f"{base.dotted}.{func.attr}"), func.attr
                )
            if base.kind == OBJECT or (base.kind == FUNCTION and isinstance(base.target, Class)):
                return self._call_method(node, base, func.attr)
            return self._method(node, base, func.attr)
        return self._call_value(node, self.evaluate(func), "")

    def _arguments(self, node):
        args, kwargs, splat = [], {}, False
        for a in node.args:
            if isinstance(a, ast.Starred):
                value = self.evaluate(a.value)
                if value.kind == LIST and value.items is not None:
                    args += value.items
                else:
                    splat = True
                    if value.kind != UNKNOWN:
                        args.append(self.item_of(value))
                continue
            args.append(self.evaluate(a))
        for k in node.keywords:
            value = self.evaluate(k.value)
            if k.arg is not None:
                kwargs[k.arg] = value
            elif value.kind == "dict":
                kwargs.update({n: v for n, v in value.const.items() if isinstance(n, str)})
                splat = True
            else:
                splat = True
        return args, kwargs, splat

    def _call_value(self, node, value, name):
        if value.kind == FUNCTION:
            return self._call_given(node, value)
        args, kwargs, splat = self._arguments(node)
        if value.kind == EXTERNAL:
            call = Call(
                node,
                value.dotted.rpartition(".")[2],
                args,
                kwargs,
                dotted=value.dotted,
                splat=splat,
            )
            if call.name in (
                "default",
                "Tensor",
                "out",
                "int",
                "overload",
            ) and value.dotted.startswith("torch.ops."):
                call.dotted = value.dotted.rpartition(".")[0]
                call.name = call.dotted.rpartition(".")[2]
            return self._external(call)
        if value.kind == OBJECT:
            return self.call_object(node, value, args, kwargs)
        if value.kind in (TENSOR, "torch module"):
            return TENSOR_VALUE
        if value.kind == "modules":
            return self._call_modules(node, value, args, kwargs)
        if name in CONTEXT_FUNCTIONS:
            return FROZEN_VALUE
        checks.unknown_call(self, Call(node, name, args, kwargs))
        return TENSOR_VALUE if name.startswith("npu_") else UNKNOWN_VALUE

    # -- given functions

    def _call_given(self, node, value):
        target = value.target
        args, kwargs, _ = self._arguments(node)
        if isinstance(target, Class):
            made = Value(OBJECT, target=target)
            init = self.program.method(target, "__init__")
            if init is not None and not self.program.is_module_class(target) and self.depth < 8:
                self.facts(target)
            return made
        if target.decorated_as(*_OPAQUE):
            return TENSOR_VALUE if target.decorated_as("custom_op", "triton_op") else UNKNOWN_VALUE
        if target.name in CONTEXT_FUNCTIONS:
            return FROZEN_VALUE
        known = checks.given_call(self, node, target)
        if known is not None:
            return known
        if not self.prefill and "prefill" in target.name.lower().split("_"):
            return self._other_phase(value, target, args, kwargs)
        owner = value.owner if isinstance(value.owner, Value) else None
        if isinstance(value.owner, dict):
            return self._call_local(target, value.owner, args, kwargs)
        return self.invoke(target, owner, self._match_arguments(target, args, kwargs))

    def _other_phase(self, value, target, args, kwargs):
        """Decode is compiled: what is called prefill runs eagerly, behind a test not understood."""
        self.quiet += 1
        try:
            owner = value.owner if isinstance(value.owner, Value) else None
            return self.invoke(target, owner, self._match_arguments(target, args, kwargs))
        finally:
            self.quiet -= 1

    def _call_local(self, function, env, args, kwargs):
        """A function defined in the function that runs: it sees that one's names."""
        bound = self._match_arguments(function, args, kwargs)
        outer_env, self.frame.env = self.frame.env, dict(env)
        outer_results, self.frame.results = self.frame.results, []
        if self.depth >= 40:
            self.frame.env, self.frame.results = outer_env, outer_results
            return UNKNOWN_VALUE
        self.depth += 8  # local functions are not memoised: few levels are enough
        try:
            for p in function.params + function.node.args.kwonlyargs:
                self.frame.env[p.arg] = bound.get(p.arg) or self._parameter(function, p)
            self.block(function.node.body)
            results = self.frame.results
        finally:
            self.depth -= 8
            self.frame.env, self.frame.results = outer_env, outer_results
        result = NONE_VALUE if not results else results[0]
        for r in results[1:]:
            result = join(result, r)
        return result

    def _match_arguments(self, function, args, kwargs):
        params = self._parameters(function)
        positional = params[: len(params) - len(function.node.args.kwonlyargs)]
        bound = {p.arg: a for p, a in zip(positional, args)}
        names = {p.arg for p in params}
        bound.update({n: v for n, v in kwargs.items() if n in names})
        return bound

    def _call_super(self, node, name):
        args, kwargs, _ = self._arguments(node)
        function, owner = self.frame.function, self.frame.owner
        if function.cls is None or owner is None or owner.target is None:
            return UNKNOWN_VALUE
        method = self.program.method(owner.target, name, after=function.cls)
        if method is None:
            return UNKNOWN_VALUE
        return self.invoke(method, owner, self._match_arguments(method, args, kwargs))

    def _call_method(self, node, base, name):
        cls = base.target
        method = self.program.method(cls, name)
        if method is not None:
            return self._call_given(
                node, Value(FUNCTION, target=method, owner=base if base.kind == OBJECT else None)
            )
        if name in ("__call__",):
            args, kwargs, _ = self._arguments(node)
            return self.call_object(node, base, args, kwargs)
        if base.kind == OBJECT:
            value = self.attribute(base, name)
            if value.kind != UNKNOWN:
                return self._call_value(node, value, name)
            args, kwargs, splat = self._arguments(node)
            if name == "register_buffer":
                return self._register_buffer(base, args)
            call = Call(node, name, args, kwargs, base, splat=splat)
            checks.unknown_call(self, call)
            if name.startswith("npu_"):
                return TENSOR_VALUE
            # A submodule that is not known: given tensors it gives tensors, most likely.
            return UNKNOWN_VALUE
        return UNKNOWN_VALUE

    def call_object(self, node, value, args, kwargs):
        """`module(x)`: its forward, or __call__ of a plain class."""
        for name in ("forward", "__call__"):
            method = self.program.method(value.target, name)
            if method is not None:
                if method.decorated_as(*_OPAQUE):
                    return UNKNOWN_VALUE
                return self.invoke(method, value, self._match_arguments(method, args, kwargs))
        return UNKNOWN_VALUE

    def _call_modules(self, node, value, args, kwargs):
        """nn.Sequential: one module after the other."""
        result = args[0] if args else UNKNOWN_VALUE
        for module in value.items or ():
            if module.kind == OBJECT:
                result = self.call_object(node, module, [result], {})
            else:
                result = TENSOR_VALUE
        return result

    def _register_buffer(self, base, args):
        if args and args[0].kind == HOST and isinstance(args[0].const, str):
            value = args[1] if len(args) > 1 else NONE_VALUE
            known = TENSOR_VALUE if value.kind in (TENSOR, UNKNOWN) or is_none(value) else value
            self.remember_attribute(base.target, args[0].const, known)
        return NONE_VALUE

    # -- methods of values that are not given objects

    def _method(self, node, base, name):
        args, kwargs, splat = self._arguments(node)
        call = Call(node, name, args, kwargs, base, splat=splat)
        if base.kind == LIST and name in _LIST_METHODS:
            if name in ("append", "extend", "insert", "pop", "clear", "remove"):
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

    # -- builtins

    def _builtin(self, node, name):
        args, kwargs, splat = self._arguments(node)
        call = Call(node, name, args, kwargs, dotted=f"builtins.{name}", splat=splat)
        known = checks.builtin_call(self, call)
        if known is not None:
            return known
        first = args[0] if args else None
        if name in ("list", "tuple", "sorted", "reversed", "set") and first is not None:
            if first.kind == LIST:
                copy = list_of(elem=first.elem, items=first.items)
                copy.sites = list(first.sites)
                copy.unbounded = first.unbounded
                if (
                    not copy.sites
                    and name == "list"
                    and copy.elem is not None
                    and copy.elem.kind == TENSOR
                ):
                    copy.sites.append(node)
                return copy
            return (
                first if first.kind in (HOST, SYNCED, NUMPY) else list_of(elem=self.item_of(first))
            )
        if name in ("list", "tuple", "set"):
            return list_of()
        if name == "dict":
            return Value("dict", const=dict(kwargs))
        if name == "enumerate" and first is not None:
            return list_of(elem=list_of(items=[HOST_VALUE, self.item_of(first)]))
        if name == "zip":
            return list_of(elem=list_of(items=[self.item_of(a) for a in args]))
        if name in ("any", "all") and first is not None and first.kind == TENSOR:
            return SYNCED_VALUE
        if name in ("max", "min", "sum", "abs", "round", "pow", "divmod"):
            return self._arithmetic(args)
        if name == "isinstance":
            return self._isinstance(node, args)
        if name == "getattr" and len(args) > 1:
            return self._getattr(node, args)
        if name == "hasattr":
            return HOST_VALUE
        if name == "next" and first is not None:
            return self.item_of(first)
        if name == "range":
            value = Value(HOST, frozen=any(a.frozen for a in args))
            return value
        if name in ("len", "str", "repr", "type", "id", "callable", "issubclass", "hash"):
            return HOST_VALUE
        if any(a.kind == SYNCED for a in args):
            return SYNCED_VALUE
        return HOST_VALUE if all(a.kind == HOST for a in args) else UNKNOWN_VALUE

    def _arithmetic(self, args):
        flat = [self.item_of(a) if a.kind == LIST else a for a in args]
        if any(a.kind == TENSOR for a in flat):
            return TENSOR_VALUE
        if any(a.kind == SYNCED for a in flat):
            return SYNCED_VALUE
        if flat and all(a.kind == HOST for a in flat):
            value = Value(
                HOST, frozen=any(a.frozen for a in flat), grows=any(a.grows for a in flat)
            )
            value.shape_of = any(a.shape_of for a in flat)
            return value
        return UNKNOWN_VALUE

    def _isinstance(self, node, args):
        if len(node.args) < 2 or args[0].kind not in (TENSOR, LIST):
            return HOST_VALUE
        names = ast.dump(node.args[1])
        if args[0].kind == TENSOR:
            return constant("Tensor" in names)
        known = any(n in names for n in ("'list'", "'tuple'", "'List'", "'Sequence'"))
        return TRUE_VALUE if known else FALSE_VALUE if "Tensor" in names else HOST_VALUE

    def _getattr(self, node, args):
        if args[0].kind == OBJECT and isinstance(args[1].const, str):
            return self.attribute(args[0], args[1].const)
        if isinstance(args[1].const, str):
            fake = ast.copy_location(
                ast.Attribute(value=node.args[0], attr=args[1].const, ctx=ast.Load()), node
            )
            self.quiet += 1
            value = self.evaluate(fake)
            self.quiet -= 1
            return value
        return Value(UNKNOWN, frozen=args[0].frozen)


def _is_super(node):
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )


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
_BUILTINS = {
    "abs",
    "all",
    "any",
    "bool",
    "callable",
    "dict",
    "divmod",
    "enumerate",
    "float",
    "getattr",
    "hasattr",
    "hash",
    "id",
    "input",
    "int",
    "isinstance",
    "issubclass",
    "iter",
    "len",
    "list",
    "map",
    "max",
    "min",
    "next",
    "open",
    "pow",
    "print",
    "range",
    "repr",
    "reversed",
    "round",
    "set",
    "setattr",
    "slice",
    "sorted",
    "str",
    "sum",
    "tuple",
    "type",
    "zip",
    "breakpoint",
    "exec",
    "eval",
}
_EXPRESSIONS[ast.Call] = Calls._call
