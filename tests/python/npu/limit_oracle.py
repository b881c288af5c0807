"""Limits of operators (src/graph/limits.h) evaluated once more, by Python itself.

Their language is Python's, so `eval` is the second opinion; what differs is said here: the absent
(None) has no attributes and fails comparisons, the extremes of no values meet all, lists are
tuples, `is` is `==`.
"""

import ast
import functools
import itertools
import math
import re

import torch

DTYPES = {
    "fp32": torch.float32,
    "fp16": torch.float16,
    "bf16": torch.bfloat16,
    "fp64": torch.float64,
    "int64": torch.int64,
    "int32": torch.int32,
    "int16": torch.int16,
    "int8": torch.int8,
    "uint8": torch.uint8,
    "bool": torch.bool,
}


class Unknown(Exception):
    """The expression asks what a call does not say ("phase")."""


class Absent:
    """An argument that is not there, and all that is derived from it."""

    def _self(self, *_):
        return self

    def _false(self, *_):
        return False

    def __eq__(self, other):
        return other is None or isinstance(other, Absent)

    def __hash__(self):
        return 0

    def __iter__(self):
        return iter(())

    __getattr__ = __getitem__ = _self
    __bool__ = __lt__ = __le__ = __gt__ = __ge__ = __contains__ = _false
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _self
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = _self


class Any:
    """The extreme of no values: what is asked of all of them holds."""

    def _self(self, *_):
        return self

    def _true(self, *_):
        return True

    __hash__ = None
    __eq__ = __ne__ = __lt__ = __le__ = __gt__ = __ge__ = _true
    __add__ = __radd__ = __sub__ = __rsub__ = __mul__ = __rmul__ = _self
    __floordiv__ = __rfloordiv__ = __mod__ = __rmod__ = __truediv__ = __rtruediv__ = _self


ABSENT = Absent()


class Row(tuple):
    """A list: what is past its end is absent."""

    def __getitem__(self, at):
        if isinstance(at, slice):
            if isinstance(at.start, Absent) or isinstance(at.stop, Absent):
                raise Unknown(at)
            return Row(super().__getitem__(at))
        if isinstance(at, Absent) or not -len(self) <= at < len(self):
            return ABSENT
        return super().__getitem__(at)

    def __add__(self, other):
        return Row(super().__add__(other))


class Argument:
    """A tensor: its type, and its contents as a flat list."""

    def __init__(self, t):
        self._t = t
        self.dtype, self.ndim, self.numel = t.dtype, t.dim(), t.numel()
        self.itemsize, self.shape = t.itemsize, Row(t.shape)
        self.contiguous = t.is_contiguous()

    @functools.cached_property
    def items(self):
        if self.ndim > 8:
            raise Unknown("contents")
        return Row(self._t.flatten().tolist())

    def __iter__(self):
        return iter(self.items)

    def __len__(self):
        return self.numel

    def __getitem__(self, at):
        return self.items[at]

    def __bool__(self):
        return True

    def __eq__(self, other):
        return isinstance(other, Argument) and self.items == other.items

    __hash__ = None


def _passed_on(function):
    def called(*args):
        if any(isinstance(a, Absent | Any) for a in args):
            return args[0]
        return function(*args)

    return called


def _extreme(function):
    def called(*args):
        items = args if len(args) > 1 else tuple(args[0])
        if isinstance(args[0], Absent) or any(isinstance(a, Absent) for a in items):
            return ABSENT
        if not items or any(isinstance(a, Any) for a in items):
            return Any()
        return function(items)

    return called


FUNCTIONS = {
    "abs": lambda v: Any() if isinstance(v, Absent | Any) else abs(v),
    "ceil": lambda v: Any() if isinstance(v, Absent | Any) else math.ceil(v),
    "len": _passed_on(len),
    "sum": _passed_on(sum),
    "prod": _passed_on(math.prod),
    "max": _extreme(max),
    "min": _extreme(min),
    "all": _passed_on(all),
    "any": _passed_on(any),
    "diff": _passed_on(lambda t: Row(b - a for a, b in itertools.pairwise((0, *t)))),
    "increasing": _passed_on(lambda t: all(a < b for a, b in itertools.pairwise(t))),
    "nondecreasing": _passed_on(lambda t: all(a <= b for a, b in itertools.pairwise(t))),
    "unique": _passed_on(lambda t: len(set(t)) == len(tuple(t))),
}


class _Rewrite(ast.NodeTransformer):
    def visit_List(self, node):
        return self.visit_Tuple(ast.Tuple(node.elts, ast.Load()))

    def visit_Tuple(self, node):
        self.generic_visit(node)
        return ast.Call(ast.Name("Row", ast.Load()), [node], []) if node.elts else node

    def visit_Compare(self, node):
        self.generic_visit(node)
        kinds = {ast.Is: ast.Eq, ast.IsNot: ast.NotEq}
        node.ops = [kinds.get(type(op), type(op))() for op in node.ops]
        return node


@functools.cache
def compiled(expr):
    tree = _Rewrite().visit(ast.parse(expr, mode="eval"))
    return compile(ast.fix_missing_locations(tree), expr, "eval")


def names_in(expr):
    return {n.id for n in ast.walk(ast.parse(expr, mode="eval")) if isinstance(n, ast.Name)}


def literals_in(expr):
    nodes = ast.walk(ast.parse(expr, mode="eval"))
    values = [n.value for n in nodes if isinstance(n, ast.Constant)]
    return [v for v in values if v is not None and not isinstance(v, bool)]


@functools.cache
def defaults(schema):
    """Attributes with a default other than None, from the operator's own schema."""
    found = re.findall(r"(\w+)(?:\[\])?\??(?:\[\]\?)? (\w+)=(\"[^\"]*\"|\[[^\]]*\]|[^,)]+)", schema)
    values = {}
    for kind, name, text in found:
        if text in ("true", "false"):
            values[name] = text == "true"
        elif text != "None" and kind != "dtype":
            values[name] = ast.literal_eval(text)
    return values


class Names(dict):
    """What an expression may name, for one call; symbols are evaluated when they are asked for."""

    def __init__(self, operator, tensors, attrs, soc, facts):
        super().__init__()
        self.symbols = {s["name"]: s["expr"] for s in operator.facts["symbols"]}
        self.given = defaults(operator.schema) | {"soc": soc, "graph": False} | facts
        self.given |= {a["name"]: None for a in operator.attrs if a["name"] not in self.given}
        self.given |= {k: v for k, v in attrs.items() if v is not None}
        for described, t in zip(operator.tensors, tensors, strict=True):
            self.given[described["name"]] = None if t is None else Argument(t)

    def __missing__(self, name):
        if name in self.symbols:
            value = eval(compiled(self.symbols[name]), {"__builtins__": {}}, self)
        elif name in self.given:
            value = self.given[name]
        elif name in DTYPES:
            value = DTYPES[name]
        elif name in FUNCTIONS or name == "Row":
            value = FUNCTIONS.get(name, Row)
        else:
            raise Unknown(name)
        value = ABSENT if value is None else value
        self[name] = Row(value) if isinstance(value, list | tuple) else value
        return self[name]


def violated(operator, tensors, attrs, soc, facts, among=None):
    """Ids of the limits that do not hold on soc; those that ask for what is unknown hold."""
    names = Names(operator, tensors, attrs, soc, facts)
    found = set()
    for limit in operator.facts["limits"] if among is None else among:
        if limit["soc"] in ("", soc):
            try:
                if not eval(compiled(limit["expr"]), {"__builtins__": {}}, names):
                    found.add(limit["id"])
            except Unknown:
                pass
            except ZeroDivisionError:  # a size of 0: a value that is absent
                found.add(limit["id"])
    return found
