"""Expressions of the analysed code, as abstract values."""

import ast

from . import checks
from .attributes import is_phase_name
from .program import Function
from .tree import index_of, index_parts
from .values import (
    FALSE_VALUE,
    FROZEN_VALUE,
    FUNCTION,
    HOST,
    HOST_DATA,
    HOST_TENSOR,
    HOST_VALUE,
    LIST,
    MASK_VALUE,
    MISSING,
    NUMPY,
    NUMPY_VALUE,
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
    is_none,
    join,
    list_of,
    tensor,
)

MAX_NESTING = 600  # of statements and expressions, over all calls; real code has half of it


class Expressions:
    """Mixed into the interpreter: evaluate(node) gives a Value and reports what it meets."""

    def evaluate(self, node):
        handler = self.handlers.get(type(node))
        if handler is None:
            return UNKNOWN_VALUE
        if self.nesting > MAX_NESTING:
            return UNKNOWN_VALUE
        self.nesting += 1
        value = handler(node)
        self.nesting -= 1
        return value

    def _constant(self, node):
        return constant(node.value)

    def _name(self, node):
        value = self.frame.env.get(node.id)
        if value is None:
            return self.global_value(node.id)
        return checks.cache_read(self, node, value) if self.frame.written else value

    # -- subscripts

    def evaluate_index(self, node):
        """The index of a Subscript; slices are evaluated for their bounds."""
        return self._index(index_of(node))

    def _index(self, index):
        if isinstance(index, ast.Slice):
            bounds = [
                self.evaluate(b) for b in (index.lower, index.upper, index.step) if b is not None
            ]
            return Value("slice", items=bounds)
        parts = index_parts(index)
        if parts is not None:
            return list_of(items=[self._index(i) for i in parts])
        return self.evaluate(index)

    def _subscript(self, node):
        base = self.evaluate(node.value)
        index = self.evaluate_index(node)
        handled = checks.subscript_read(self, node, base, index)
        if handled is not None:
            return handled
        kind = base.kind
        if kind == LIST:
            if (
                base.items is not None
                and index.kind == HOST
                and isinstance(index.const, int)
                and -len(base.items) <= index.const < len(base.items)
            ):
                return base.items[index.const]
            if index.kind == "slice":
                return list_of(elem=base.elem)
            return base.elem if base.elem is not None else UNKNOWN_VALUE
        if kind == TENSOR:
            basic = _is_basic(index)
            return tensor(base.root if basic else None, base.bool_mask, base.grows and basic)
        if isinstance(index.const, str) and is_phase_name(index.const):
            return TRUE_VALUE if self.prefill else FALSE_VALUE
        if kind == HOST:
            value = Value(HOST, frozen=base.frozen, grows=base.grows)
            value.shape_of = base.shape_of
            return value
        if kind in (SYNCED, NUMPY):
            return base
        if kind == "modules":
            return base if index.kind == "slice" else self.item_of(base)
        if kind == "dict":
            if index.kind == HOST and index.const in base.const:
                return base.const[index.const]
            return base.elem if base.elem is not None else UNKNOWN_VALUE
        return Value(UNKNOWN, root=base.root, frozen=base.frozen)

    # -- operators

    def _binop(self, node):
        return self.binary(node, self.evaluate(node.left), self.evaluate(node.right))

    def binary(self, node, left, right):
        kinds = (left.kind, right.kind)
        if TENSOR in kinds:
            if all(v.kind != TENSOR or v.dotted == HOST_DATA for v in (left, right)):
                return HOST_TENSOR
            logical = isinstance(node.op, (ast.BitAnd, ast.BitOr, ast.BitXor))
            mask = logical and all(v.bool_mask or v.kind != TENSOR for v in (left, right))
            return MASK_VALUE if mask else TENSOR_VALUE
        if SYNCED in kinds:
            return SYNCED_VALUE
        if NUMPY in kinds:
            return NUMPY_VALUE
        if LIST in kinds:
            return self._list_binary(node, left, right)
        if kinds == (HOST, HOST):
            value = Value(HOST, frozen=left.frozen or right.frozen, grows=left.grows or right.grows)
            value.shape_of = left.shape_of or right.shape_of
            value.root = left.root or right.root
            return value
        if HOST in kinds and UNKNOWN in kinds:
            return Value(UNKNOWN, frozen=left.frozen or right.frozen)
        return UNKNOWN_VALUE

    def _list_binary(self, node, left, right):
        if left.kind == LIST and right.kind == LIST:
            merged = list_of(
                elem=left.elem
                if right.elem is None
                else right.elem
                if left.elem is None
                else join(left.elem, right.elem)
            )
        else:
            source = left if left.kind == LIST else right
            merged = list_of(elem=source.elem)
        for v in (left, right):
            if v.kind == LIST:
                merged.sites += v.sites
                merged.unbounded = merged.unbounded or v.unbounded
        if not merged.sites and merged.elem is not None and merged.elem.kind == TENSOR:
            merged.sites.append(node)
        return merged

    def _unary(self, node):
        value = self.evaluate(node.operand)
        if isinstance(node.op, ast.Not):
            if value.kind == HOST and value.const is not MISSING:
                return constant(not value.const)
            if value.kind == TENSOR:
                return SYNCED_VALUE  # `not t` reads t; the test around it is what is reported
            if value.kind == SYNCED:
                return value
            return Value(HOST, frozen=value.frozen)
        if value.kind == TENSOR:
            return MASK_VALUE if value.bool_mask else TENSOR_VALUE
        if (
            value.kind == HOST
            and isinstance(node.op, ast.USub)
            and isinstance(value.const, (int, float))
        ):
            return constant(-value.const)
        if value.kind == HOST:
            return Value(HOST, frozen=value.frozen, grows=value.grows)
        return value

    def _boolop(self, node):
        is_and = isinstance(node.op, ast.And)
        result = None
        for operand in node.values:
            value = self.evaluate(operand)
            if operand is not node.values[-1] and value.kind == TENSOR:
                checks.tested(self, operand, operand, value)  # the last one is only handed on
            if value.kind == HOST and value.const is not MISSING:
                if bool(value.const) != is_and:
                    return value if result is None or result.kind == HOST else result
                result = value if result is None else result
                continue
            if result is None or (result.kind == HOST and result.const is not MISSING):
                result = value
            elif result.kind in (TENSOR, SYNCED) or value.kind in (TENSOR, SYNCED):
                result = SYNCED_VALUE  # and/or ask a tensor for its truth
            elif result.frozen or value.frozen:
                result = FROZEN_VALUE
            else:
                result = join(result, value)
        return result

    def _compare(self, node):
        left = self.evaluate(node.left)
        rights = [self.evaluate(c) for c in node.comparators]
        op = node.ops[0]
        if isinstance(op, (ast.Is, ast.IsNot)):
            return self._identity(left, rights[0], isinstance(op, ast.Is))
        values = [left, *rights]
        checks.compared(self, node, values)
        if isinstance(op, (ast.In, ast.NotIn)):
            if left.kind in (TENSOR, SYNCED):
                return SYNCED_VALUE
            if any(v.frozen for v in values):
                return FROZEN_VALUE
            return HOST_VALUE
        if any(v.kind == TENSOR for v in values):
            return MASK_VALUE
        if any(v.kind == SYNCED for v in values):
            return SYNCED_VALUE
        if any(v.kind == NUMPY for v in values):
            return NUMPY_VALUE
        if all(v.kind in (HOST, LIST) for v in values):
            folded = _fold(op, left, rights[0]) if len(rights) == 1 else None
            if folded is not None:
                return folded
            return Value(HOST, frozen=any(v.frozen for v in values))
        return Value(UNKNOWN, frozen=any(v.frozen for v in values))

    def _identity(self, left, right, is_op):
        if is_none(right):
            if is_none(left):
                return constant(is_op)
            if left.root is not None and left.root[0] == "limit":
                return constant(not is_op)
            if left.kind in (TENSOR, LIST, OBJECT, FUNCTION) or (
                left.kind == HOST and left.const is not MISSING
            ):
                return constant(not is_op)
            return Value(HOST, frozen=left.frozen)
        return HOST_VALUE

    def _ifexp(self, node):
        test = self.evaluate(node.test)
        if test.kind == HOST and isinstance(test.const, bool):
            return self.evaluate(node.body if test.const else node.orelse)
        checks.tested(self, node, node.test, test)
        return join(self.evaluate(node.body), self.evaluate(node.orelse))

    # -- displays

    def _sequence(self, node):
        items = []
        for element in node.elts:
            if isinstance(element, ast.Starred):
                value = self.evaluate(element.value)
                if value.kind == LIST and value.items is not None:
                    items += value.items
                    continue
                return list_of(elem=self.item_of(value))
            items.append(self.evaluate(element))
        made = list_of(items=items)
        if isinstance(node, ast.List) and any(i.kind == TENSOR for i in items):
            made.sites.append(node)
        if isinstance(node, ast.List) and not items:
            made.items = None  # it will be appended to
        return made

    def _dict(self, node):
        values = [self.evaluate(v) for v in node.values]
        for k in node.keys:
            if k is not None:
                self.evaluate(k)
        names = {}
        for i, k in enumerate(node.keys):
            if isinstance(k, ast.Constant):
                names[k.value] = values[i]
        return Value("dict", const=names)

    def _comprehension(self, node):
        outer = self.frame.env
        self.frame.env = dict(outer)
        unbounded = False
        for generator in node.generators:
            iterated = self.evaluate(generator.iter)
            unbounded = checks.iterated(self, generator.iter, generator.iter, iterated) or unbounded
            self.bind(generator.target, self.item_of(iterated), node)
            for condition in generator.ifs:
                test = self.evaluate(condition)
                unbounded = checks.tested(self, condition, condition, test) or unbounded
        if isinstance(node, ast.DictComp):
            self.evaluate(node.key)
            elem = self.evaluate(node.value)
        else:
            elem = self.evaluate(node.elt)
        self.frame.env = outer
        if isinstance(node, ast.DictComp):
            return Value("dict", const={}, elem=elem)
        made = list_of(elem=elem)
        made.unbounded = bool(unbounded)
        if elem.kind == TENSOR:
            made.sites.append(node)
        return made

    def _formatted(self, node):
        for part in node.values:
            if isinstance(part, ast.FormattedValue):
                value = self.evaluate(part.value)
                if value.kind == TENSOR:
                    return Value(HOST, const=MISSING, root=("text", "tensor"))
        return HOST_VALUE

    def _starred(self, node):
        return self.evaluate(node.value)

    def _named(self, node):
        value = self.evaluate(node.value)
        self.bind(node.target, value, node)
        return value

    def _lambda(self, node):
        """As a local function that returns the expression."""
        made = getattr(node, "function", None)  # of the tree, so that no other takes its id
        if made is not None:
            return Value(FUNCTION, target=made, owner=self.frame.env)
        body = ast.copy_location(ast.Return(value=node.body), node.body)
        function = ast.FunctionDef(
            name="<lambda>", args=node.args, body=[body], decorator_list=[], returns=None
        )
        node.function = Function(ast.copy_location(function, node), self.frame.module)
        return Value(FUNCTION, target=node.function, owner=self.frame.env)

    def _await(self, node):
        return self.evaluate(node.value)

    def _yield(self, node):
        if node.value is not None:
            self.frame.results.append(list_of(elem=self.evaluate(node.value)))
        return UNKNOWN_VALUE

    def _slice(self, node):
        return self._index(node)


def _is_basic(index):
    """Whether an index makes a view."""
    if index.kind == LIST and index.items is not None:
        return all(_is_basic(i) for i in index.items)
    return index.kind in ("slice", HOST, SYNCED, UNKNOWN)


def _fold(op, left, right):
    if MISSING in (left.const, right.const) or left.kind != HOST or right.kind != HOST:
        return None
    if isinstance(op, ast.Eq):
        return constant(left.const == right.const)
    if isinstance(op, ast.NotEq):
        return constant(left.const != right.const)
    return None


EXPRESSIONS = {
    ast.Constant: "_constant",
    ast.Name: "_name",
    ast.Attribute: "_attribute",
    ast.Subscript: "_subscript",
    ast.BinOp: "_binop",
    ast.UnaryOp: "_unary",
    ast.BoolOp: "_boolop",
    ast.Compare: "_compare",
    ast.IfExp: "_ifexp",
    ast.Tuple: "_sequence",
    ast.List: "_sequence",
    ast.Set: "_sequence",
    ast.Dict: "_dict",
    ast.ListComp: "_comprehension",
    ast.SetComp: "_comprehension",
    ast.GeneratorExp: "_comprehension",
    ast.DictComp: "_comprehension",
    ast.JoinedStr: "_formatted",
    ast.Starred: "_starred",
    ast.NamedExpr: "_named",
    ast.Lambda: "_lambda",
    ast.Await: "_await",
    ast.Yield: "_yield",
    ast.YieldFrom: "_yield",
    ast.Slice: "_slice",
    ast.Call: "_call",
}
