"""The rules, by family. The interpreter calls the hooks below as it meets each construct.

A hook reports what it finds and, where it knows better than the defaults of calls.py, returns the
value of the expression.
"""

from . import flow, host, lists, npu, shapes, state

# What the code asks a tensor, or anything, by the method's name.
_METHODS = {**shapes.METHODS, **npu.METHODS, **host.METHODS}
# Functions of packages by their last name; each looks at the package itself.
_FUNCTIONS = {**shapes.FUNCTIONS, **npu.FUNCTIONS, **lists.FUNCTIONS, **host.FUNCTIONS}
_BUILTINS = {**host.BUILTINS, **flow.BUILTINS}

tested = flow.tested
iterated = flow.iterated
compared = state.compared
cache_read = npu.cache_read
attribute_written = state.attribute_written
global_written = state.global_written
written_in_place = state.written_in_place
container_changed = state.container_changed
unused = npu.unused
unpacked = npu.unpacked
external_read = host.external_read
given_call = host.given_call


def method_call(interp, call):
    handler = _METHODS.get(call.name)
    if handler is not None:
        value = handler(interp, call)
        if value is not None:
            return value
    if call.name.endswith("_") and not call.name.endswith("__"):
        state.method_in_place(interp, call)
    if call.name.startswith("npu_"):
        return npu.operator(interp, call)
    return host.logger_call(interp, call)


def function_call(interp, call):
    if call.dotted.startswith(("torch.", "torch_npu.", "torchair.")):
        npu.converter(interp, call)
        if "out" in call.kwargs:
            state.written_in_place(interp, call.node, call.kwargs["out"], call.node)
        if call.name.startswith("npu_") or call.name.endswith("_"):
            return npu.operator(interp, call)
    handler = _FUNCTIONS.get(call.name)
    if handler is not None:
        value = handler(interp, call)
        if value is not None:
            return value
    return host.package_call(interp, call)


def unknown_call(interp, call):
    """A function that is not known: only what its name and arguments show."""
    if call.name.startswith("npu_"):
        npu.operator(interp, call)
    elif call.base is None or call.base.kind != "object":
        host.logger_call(interp, call)


def builtin_call(interp, call):
    handler = _BUILTINS.get(call.name)
    return handler(interp, call) if handler is not None else None


def subscript_read(interp, node, base, index):
    state.attribute_index(interp, node, index)
    return shapes.subscript_read(interp, node, base, index)


def subscript_written(interp, node, target, base, index, value):
    state.attribute_index(interp, target, index)
    shapes.subscript_written(interp, node, target, base, index)
    state.subscript_written(interp, node, target, base)
