"""Runs functions of the given files on abstract values, from the compiled entry inwards.

Statements are here, expressions in expressions.py, calls in calls.py; the rules hook in through
checks/. Each function is analysed once for each kind of arguments that reaches it.
"""

import ast

from . import checks
from .attributes import Attributes, is_phase_name
from .builtin import Builtins
from .calls import Calls
from .expressions import EXPRESSIONS, MAX_NESTING, Expressions
from .functions import Functions
from .library import Library
from .program import Function
from .setup import fills_once, is_counter_name
from .values import (
    FALSE_VALUE,
    FUNCTION,
    HOST,
    LIST,
    NONE_VALUE,
    SYNCED,
    TENSOR,
    TRUE_VALUE,
    UNKNOWN,
    UNKNOWN_VALUE,
    Value,
    join,
    list_of,
    tensor,
)

_FALLS, _LEAVES = 0, 1  # does control come out at the end of a block?


class Interpreter(Functions, Expressions, Attributes, Calls, Library, Builtins):
    def __init__(self, program, reporter, backends, prefill=False):
        self.program = program
        self.reporter = reporter
        self.backends = backends
        self.prefill = prefill  # the phase that is compiled: decode, unless the entry says prefill
        self.frame = None
        self.quiet = 0
        self.filling = 0  # inside a branch that fills what is missing, once
        self.depth = 0
        self.nesting = 0
        self.entry = False
        self.assigns_attribute = False
        self.length_lists = []  # places where a list of lengths goes into an attention operator
        self.handlers = {kind: getattr(self, name) for kind, name in EXPRESSIONS.items()}
        self._memo = {}
        self._contexts = {}
        self._kept = []  # what the keys name by id lives as long as they do

    # -- reporting

    def report(self, rule, node, detail=""):
        if not self.quiet:
            self.reporter.add(
                rule, self.frame.module.source, node, detail, self.frame.function.qualified
            )

    def counter_used(self, node, values):
        """A Python int of the graph's inputs is a bound or a size: each value is a new graph."""
        for v in values:
            if v.root is not None and v.root[0] == "input" and is_counter_name(v.root[1]):
                self.report("python-counter-input", node, v.root[1])
                return

    # -- statements

    def block(self, statements):
        if self.nesting > MAX_NESTING:
            return _FALLS
        self.nesting += 1
        # A block that ends in `raise` is traced only when it fails: nothing in it is a hazard.
        failing = bool(statements) and isinstance(statements[-1], ast.Raise)
        self.quiet += failing
        try:
            for statement in statements:
                handler = _STATEMENTS.get(type(statement))
                if handler is not None and handler(self, statement) == _LEAVES:
                    return _LEAVES
            return _FALLS
        finally:
            self.quiet -= failing
            self.nesting -= 1

    def _expression(self, node):
        if not isinstance(node.value, ast.Constant):
            value = self.evaluate(node.value)
            if isinstance(node.value, ast.Call):
                checks.unused(self, node.value, value)

    def _assign(self, node):
        self.assigns_attribute = isinstance(node.targets[0], ast.Attribute)
        value = self.evaluate(node.value)
        self.assigns_attribute = False
        for target in node.targets:
            self.bind(target, value, node)

    def _annotated_assign(self, node):
        if node.value is not None:
            self.bind(node.target, self.evaluate(node.value), node)

    def _augmented(self, node):
        value = self.binary(node, self.evaluate(node.target), self.evaluate(node.value))
        if isinstance(node.target, ast.Name):
            old = self.frame.env.get(node.target.id)
            if old is not None and old.kind == TENSOR:
                checks.written_in_place(self, node, old, node.target)
                value = tensor(old.root, old.bool_mask)
            elif old is None or node.target.id in self.frame.module.rebound:
                checks.global_written(self, node, node.target.id)
            self.frame.env[node.target.id] = value
        else:
            self.bind(node.target, value, node, augmented=True)

    def bind(self, target, value, node, augmented=False):
        kind = type(target)
        if kind is ast.Name:
            self._bind_name(target.id, value, node)
        elif kind in (ast.Tuple, ast.List):
            self._unpack(target, value, node)
        elif kind is ast.Starred:
            self.bind(target.value, list_of(elem=value), node)
        elif kind is ast.Attribute:
            base = self.evaluate(target.value)
            checks.attribute_written(self, node, target, base, value, augmented)
        elif kind is ast.Subscript:
            base = self.evaluate(target.value)
            index = self.evaluate_index(target)
            checks.subscript_written(self, node, target, base, index, value)
            if base.kind == LIST and base.items is None and value.kind != LIST:
                base.elem = value if base.elem is None else join(base.elem, value)

    def _bind_name(self, name, value, node):
        if (
            value.kind == HOST
            and value.const is not True
            and value.const is not False
            and is_phase_name(name)
        ):
            value = TRUE_VALUE if self.prefill else FALSE_VALUE
        if name in self.frame.module.rebound and self._is_global(name):
            checks.global_written(self, node, name)
        self.frame.written.discard(name)
        self.frame.env[name] = value

    def _is_global(self, name):
        return any(isinstance(s, ast.Global) and name in s.names for s in self.frame.function.nodes)

    def _unpack(self, target, value, node):
        n = len(target.elts)
        starred = any(isinstance(t, ast.Starred) for t in target.elts)
        if value.kind == LIST and value.items is not None and len(value.items) == n and not starred:
            for t, v in zip(target.elts, value.items):
                self.bind(t, v, node)
            return
        item = self.item_of(value)
        checks.unpacked(self, node, target)
        for t in target.elts:
            self.bind(t, item, node)

    def item_of(self, value):
        """What iterating over or unpacking `value` gives."""
        if value.kind == LIST:
            return value.elem if value.elem is not None else UNKNOWN_VALUE
        if value.kind == TENSOR:
            return tensor(value.root, value.bool_mask)
        if value.kind == HOST:
            item = Value(HOST, frozen=value.frozen, grows=value.grows)
            item.shape_of = value.shape_of
            return item
        if value.kind == "modules":
            return value.elem if value.elem is not None else UNKNOWN_VALUE
        if value.kind == UNKNOWN and value.root is not None:
            return Value(UNKNOWN, root=value.root)
        return value if value.kind in (SYNCED, "numpy") else UNKNOWN_VALUE

    def _if(self, node):
        test = self.evaluate(node.test)
        if test.kind == HOST and isinstance(test.const, bool):
            return self.block(node.body if test.const else node.orelse)
        checks.tested(self, node, node.test, test)
        fills = fills_once(node, self.frame)
        if fills == "body":
            self.filling += 1
            try:
                return self._either(node.test, node.body, node.orelse)
            finally:
                self.filling -= 1
        left = self._either(node.test, node.body, node.orelse)
        self.frame.fills_rest = self.frame.fills_rest or fills == "rest"
        return left

    def _either(self, test, body, orelse):
        before = self.frame.env
        self.frame.env = dict(before)
        self._assume(test, True)
        left = self.block(body)
        after_body = self.frame.env
        self.frame.env = before
        self._assume(test, False)
        right = self.block(orelse)
        if left == _LEAVES:
            return right
        if right == _LEAVES:
            self.frame.env = after_body
            return _FALLS
        _join_into(self.frame.env, after_body)
        return _FALLS

    def _assume(self, test, holds):
        """`x is None` and `x is not None` tell what x is on each side."""
        if (
            isinstance(test, ast.Compare)
            and len(test.ops) == 1
            and isinstance(test.left, ast.Name)
            and isinstance(test.comparators[0], ast.Constant)
            and test.comparators[0].value is None
        ):
            name = test.left.id
            is_op = isinstance(test.ops[0], ast.Is)
            if (
                is_op == holds
                and name in self.frame.env
                and isinstance(test.ops[0], (ast.Is, ast.IsNot))
            ):
                self.frame.env[name] = NONE_VALUE

    def _for(self, node):
        iterated = self.evaluate(node.iter)
        unbounded = checks.iterated(self, node, node.iter, iterated)
        self._loop(node, unbounded, lambda: self.bind(node.target, self.item_of(iterated), node))

    def _while(self, node):
        test = self.evaluate(node.test)
        if test.kind == HOST and test.const is False:
            return
        unbounded = checks.tested(self, node, node.test, test)
        self._loop(node, unbounded, lambda: self.evaluate(node.test))

    def _loop(self, node, unbounded, start):
        before = dict(self.frame.env)
        self.frame.unbounded += bool(unbounded)
        for _ in range(2):  # the second round sees what the first left behind
            entered = dict(self.frame.env)
            start()
            self.block(node.body)
            _join_into(self.frame.env, entered)
            if all(self.frame.env[n] is entered[n] for n in entered):
                break
        self.frame.unbounded -= bool(unbounded)
        if unbounded:
            # The loop itself is reported: what it leaves behind goes away with it.
            self.frame.env.update(before)
        self.block(node.orelse)

    def _with(self, node):
        for item in node.items:
            value = self.evaluate(item.context_expr)
            if item.optional_vars is not None:
                self.bind(item.optional_vars, value, node)
        return self.block(node.body)

    def _try(self, node):
        before = dict(self.frame.env)
        left = self.block(node.body)
        if left == _FALLS:
            left = self.block(node.orelse)
        after, self.frame.env = self.frame.env, before
        self.quiet += 1  # a graph has no exceptions: handlers run outside it
        for handler in node.handlers:
            self.block(handler.body)
        self.quiet -= 1
        self.frame.env = after
        final = self.block(node.finalbody)
        return max(left, final)

    def _return(self, node):
        self.frame.results.append(
            self.evaluate(node.value) if node.value is not None else NONE_VALUE
        )
        return _LEAVES

    def _leave(self, node):
        return _LEAVES

    def _assert(self, node):
        test = self.evaluate(node.test)
        checks.tested(self, node, node.test, test)

    def _local_function(self, node):
        function = Function(node, self.frame.module)
        self.frame.env[node.name] = Value(FUNCTION, target=function, owner=self.frame.env)

    def _local_import(self, node):
        for a in node.names:
            name = a.asname or a.name.split(".")[0]
            if isinstance(node, ast.ImportFrom):
                dotted = "." * node.level + (node.module or "") + "." + a.name
            else:
                dotted = a.name if a.asname else name
            self.frame.env[name] = Value("external", dotted=dotted)

    def _match(self, node):
        subject = self.evaluate(node.subject)
        checks.tested(self, node, node.subject, subject)
        before = self.frame.env
        after = []
        for case in node.cases:
            self.frame.env = dict(before)
            if self.block(case.body) == _FALLS:
                after.append(self.frame.env)
        self.frame.env = before
        for env in after:
            _join_into(self.frame.env, env)


def _join_into(env, other):
    """env becomes what holds on both paths."""
    for name, value in other.items():
        mine = env.get(name)
        if mine is None:
            env[name] = value
        elif mine is not value:
            env[name] = join(mine, value)


_STATEMENTS = {
    ast.Expr: Interpreter._expression,
    ast.Assign: Interpreter._assign,
    ast.AnnAssign: Interpreter._annotated_assign,
    ast.AugAssign: Interpreter._augmented,
    ast.If: Interpreter._if,
    ast.For: Interpreter._for,
    ast.AsyncFor: Interpreter._for,
    ast.While: Interpreter._while,
    ast.With: Interpreter._with,
    ast.AsyncWith: Interpreter._with,
    ast.Try: Interpreter._try,
    ast.Return: Interpreter._return,
    ast.Raise: Interpreter._leave,
    ast.Break: Interpreter._leave,
    ast.Continue: Interpreter._leave,
    ast.Assert: Interpreter._assert,
    ast.FunctionDef: Interpreter._local_function,
    ast.Import: Interpreter._local_import,
    ast.ImportFrom: Interpreter._local_import,
}
if hasattr(ast, "Match"):
    _STATEMENTS[ast.Match] = Interpreter._match
if hasattr(ast, "TryStar"):
    _STATEMENTS[ast.TryStar] = Interpreter._try
