"""Python's own functions on abstract values."""

import ast

from . import checks
from .library import Call
from .values import (
    FALSE_VALUE,
    HOST,
    HOST_VALUE,
    LIST,
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
    constant,
    list_of,
)

BUILTINS = {
    "abs",
    "all",
    "any",
    "bool",
    "callable",
    "complex",
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


class Builtins:
    """Mixed into the interpreter."""

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
        if name == "setattr" and len(args) == 3:
            return self._setattr(node, args)
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

    def _setattr(self, node, args):
        if isinstance(args[1].const, str):
            target = ast.Attribute(value=node.args[0], attr=args[1].const, ctx=ast.Store())
            checks.attribute_written(
                self, node, ast.copy_location(target, node), args[0], args[2], False
            )
        return NONE_VALUE

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
