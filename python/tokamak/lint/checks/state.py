"""State that changes between steps: attributes, globals, inputs written in place."""

import ast

from ..setup import is_setup, mutated_attributes
from ..tree import walk
from ..values import (
    FUNCTION,
    HOST,
    LIST,
    MISSING,
    OBJECT,
    SYNCED,
    TENSOR,
    UNKNOWN,
    carries_tensor,
)
from .lists import is_cache

_NOT_IN_PLACE = {"requires_grad_", "retain_grad_", "share_memory_", "register_hook_"}


# -- attributes


def attribute_written(interp, node, target, base, value, augmented):
    function = interp.frame.function
    if base.kind != OBJECT:
        if base.kind == FUNCTION or (base.kind == UNKNOWN and base.frozen):
            interp.report("module-state-mutation", node)
        return
    if getattr(target.value, "id", "") != "self" and not interp.program.is_module_class(
        base.target
    ):
        if not isinstance(target.value, ast.Attribute):
            return  # a plain object in a local name: made here, as the result most likely
    if is_setup(function.name) or interp.quiet:
        interp.remember_attribute(base.target, target.attr, value)
        return
    if interp.filling or interp.frame.fills_rest:
        return
    if (value.kind == HOST and value.const is None) or _is_settings(value):
        return  # the same at every step
    known = _fact(interp, base, target.attr)
    if _is_tensor_state(value) or _is_tensor_state(known):
        if augmented and known is not None and known.kind == TENSOR:
            return  # self.buffer += x writes the buffer where it is
        interp.report("module-state-mutation", node)
    elif (
        augmented or is_integer(known) or is_integer(value) or is_counter(interp, base, target.attr)
    ):
        interp.report("python-int-attribute", node)
    else:
        interp.report("module-state-mutation", node)


def _is_settings(value):
    """A dict of plain values."""
    return value.kind == "dict" and not any(carries_tensor(v) for v in value.const.values())


def _fact(interp, base, name):
    for c in interp.program.ancestry(base.target):
        value = interp.facts(c).get(name)
        if value is not None:
            return value
    return None


def _is_tensor_state(value):
    return value is not None and (value.kind == SYNCED or carries_tensor(value))


def is_integer(value):
    if value is None or value.kind != HOST:
        return False
    if value.const is not MISSING:
        return isinstance(value.const, (int, float)) and not isinstance(value.const, bool)
    return value.shape_of


def is_counter(interp, base, name):
    """An attribute of plain numbers that some method assigns after set-up: a guard that fails."""
    if base.kind != OBJECT:
        return False
    cls = base.target
    for c in interp.program.ancestry(cls):
        if name in mutated_attributes(c) or name in interp.program.stored_from_outside:
            init = c.methods.get("__init__")
            return init is not None and _starts_as_number(init, name)
    return False


def _starts_as_number(init, name):
    for node in init.nodes:
        if isinstance(node, (ast.Assign, ast.AnnAssign)):
            targets = node.targets if isinstance(node, ast.Assign) else [node.target]
            for t in targets:
                if (
                    isinstance(t, ast.Attribute)
                    and t.attr == name
                    and isinstance(node.value, ast.Constant)
                ):
                    v = node.value.value
                    return isinstance(v, (int, float)) and not isinstance(v, bool)
    return False


def compared(interp, node, values):
    for operand in [node.left, *node.comparators]:
        _counter_in(interp, operand, node)


def attribute_index(interp, node, index):
    inner = node.slice
    if isinstance(inner, (ast.Constant, ast.Name)):
        return
    for part in walk(inner):
        if isinstance(part, ast.Attribute):
            _counter(interp, part, node)


def _counter_in(interp, operand, node):
    for part in walk(operand):
        if isinstance(part, ast.Attribute):
            _counter(interp, part, node)


def _counter(interp, attribute, node):
    if not isinstance(attribute.value, ast.Name):
        return
    base = interp.frame.env.get(attribute.value.id)
    if base is not None and is_counter(interp, base, attribute.attr):
        interp.report("python-int-attribute", node)


# -- globals


def global_written(interp, node, name):
    interp.report("module-state-mutation", node)


# -- inputs


def subscript_written(interp, node, target, base):
    if base.kind == TENSOR:
        written_in_place(interp, node, base, target)
    elif base.kind == HOST and base.frozen:
        interp.report("module-state-mutation", node)
    else:
        container_changed(interp, node, target.value)


def container_changed(interp, node, container):
    """`self.list.append(t)`, `self.dict[key] = t`: Python containers of the module."""
    if interp.quiet or interp.filling or is_setup(interp.frame.function.name):
        return
    if isinstance(container, ast.Name) and container.id not in interp.frame.env:
        if interp.global_value(container.id).frozen:
            interp.report("module-state-mutation", node)  # of the file: all steps see it
        return
    if not isinstance(container, ast.Attribute) or not isinstance(container.value, ast.Name):
        return
    base = interp.frame.env.get(container.value.id)
    if base is None or base.kind != OBJECT:
        return
    known = _fact(interp, base, container.attr)
    if known is not None and known.kind in (LIST, "dict"):
        interp.report("module-state-mutation", node)


def written_in_place(interp, node, value, target):
    """`x += 1`, `x[i] = y`, `x.copy_(y)` where x is an input of the graph, or a view of one."""
    root = value.root
    if root is None or root[0] != "input" or value.kind not in (TENSOR, UNKNOWN):
        return
    if is_cache(root[1]) or _names_cache(target):
        return  # caches are inputs that the graph is meant to change
    interp.report("inplace-on-input", node)


def _names_cache(node):
    for part in walk(node):
        if isinstance(part, ast.Name) and is_cache(part.id):
            return True
        if isinstance(part, ast.Attribute) and is_cache(part.attr):
            return True
    return False


def method_in_place(interp, call):
    if call.name in _NOT_IN_PLACE:
        return
    written_in_place(interp, call.node, call.base, call.node.func.value)
