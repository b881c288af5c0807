"""Calls of the analysed code: what is called, with which arguments; given functions are entered."""

import ast

from . import checks
from .builtin import BUILTINS
from .library import Call
from .names import CONTEXT_FUNCTIONS
from .program import Class
from .values import (
    EXTERNAL,
    FROZEN_VALUE,
    FUNCTION,
    HOST,
    LIST,
    NONE_VALUE,
    OBJECT,
    TENSOR,
    TENSOR_VALUE,
    UNKNOWN,
    UNKNOWN_VALUE,
    Value,
    is_none,
    join,
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


class Calls:
    """Mixed into the interpreter."""

    def _call(self, node):
        func = node.func
        if isinstance(func, ast.Name):
            value = self.frame.env.get(func.id)
            if value is None:
                value = self.global_value(func.id)
            if value.kind == UNKNOWN and func.id in BUILTINS:
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


def _is_super(node):
    return (
        isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "super"
    )
