"""The given files as one program: modules, classes, functions, and what their names mean."""

import ast

from .tree import walk
from .values import EXTERNAL, FUNCTION, UNKNOWN_VALUE, Value


class Function:
    """A function or method with its place."""

    __slots__ = (
        "_nodes",
        "asks_environment",
        "cls",
        "decorators",
        "is_static",
        "module",
        "name",
        "node",
        "params",
        "usage",
    )

    def __init__(self, node, module, cls=None):
        self.node = node
        self.name = node.name
        self.module = module
        self.cls = cls
        self.decorators = [
            dotted_name(d.func if isinstance(d, ast.Call) else d) or "" for d in node.decorator_list
        ]
        self.is_static = "staticmethod" in self.decorators
        a = node.args
        self.params = getattr(a, "posonlyargs", []) + a.args
        self.usage = None  # filled by usage.tensor_params
        self.asks_environment = None  # filled by checks.host
        self._nodes = None

    @property
    def nodes(self):
        """All nodes of its tree."""
        if self._nodes is None:
            self._nodes = walk(self.node)
        return self._nodes

    @property
    def qualified(self):
        return f"{self.cls.name}.{self.name}" if self.cls else self.name

    def decorated_as(self, *names):
        return any(d.rsplit(".", 1)[-1] in names for d in self.decorators)


class Class:
    """A class of the given files. `facts` (what its attributes are) are found on demand."""

    __slots__ = (
        "attributes",
        "bases",
        "facts",
        "fields",
        "methods",
        "module",
        "mutated",
        "name",
        "node",
    )

    def __init__(self, node, module):
        self.node = node
        self.name = node.name
        self.module = module
        self.bases = [dotted_name(b) or "" for b in node.bases]
        self.methods = {}
        self.fields = {}  # annotated at class level: name to annotation
        self.attributes = {}  # assigned at class level: name to node
        self.facts = None
        self.mutated = None  # attributes assigned outside __init__: name to method names
        for item in node.body:
            if isinstance(item, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.methods[item.name] = Function(item, module, self)
            elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                self.fields[item.target.id] = item.annotation
            elif isinstance(item, ast.Assign):
                for t in item.targets:
                    if isinstance(t, ast.Name):
                        self.attributes[t.id] = item.value


class Module:
    """One file: its classes, functions, imports (name to dotted name) and global names."""

    def __init__(self, source):
        self.source = source
        self.classes = {}
        self.functions = {}
        self.imports = {}
        self.globals = {}  # name to the node last assigned at module level
        self.rebound = set()  # names that a function declares `global`
        self.main = []  # statements of the module that are not definitions
        self._main_nodes = None
        self._collect(source.tree.body)
        if "global " in source.text:
            for node in walk(source.tree):
                if isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                    self.rebound |= _rebound(node)

    @property
    def main_nodes(self):
        """The nodes of `main`; definitions inside an `if` or `try` are among them."""
        if self._main_nodes is None:
            self._main_nodes = [n for s in self.main for n in walk(s)]
        return self._main_nodes

    def _collect(self, body):
        for node in body:
            if isinstance(node, ast.ClassDef):
                self.classes[node.name] = Class(node, self)
            elif isinstance(node, (ast.FunctionDef, ast.AsyncFunctionDef)):
                self.functions[node.name] = Function(node, self)
            elif isinstance(node, ast.Import):
                for a in node.names:
                    self.imports[a.asname or a.name.split(".")[0]] = (
                        a.name if a.asname else a.name.split(".")[0]
                    )
            elif isinstance(node, ast.ImportFrom):
                prefix = "." * node.level + (node.module or "")
                for a in node.names:
                    self.imports[a.asname or a.name] = f"{prefix}.{a.name}"
            elif isinstance(node, (ast.If, ast.Try, ast.With)):
                self.main.append(node)
                self._collect(node.body)
                for handler in getattr(node, "handlers", []):
                    self._collect(handler.body)
                self._collect(getattr(node, "orelse", []))
            else:
                self.main.append(node)
                targets = (
                    node.targets
                    if isinstance(node, ast.Assign)
                    else [node.target]
                    if isinstance(node, ast.AnnAssign)
                    else []
                )
                for t in targets:
                    if isinstance(t, ast.Name) and node.value is not None:
                        self.globals[t.id] = node.value


def _rebound(function):
    """The globals that a function binds anew, without those that it fills once (`if X is None`)."""
    names = {n for s in function.body if isinstance(s, ast.Global) for n in s.names}
    if names:
        for node in walk(function):
            if (
                isinstance(node, ast.Compare)
                and isinstance(node.left, ast.Name)
                and isinstance(node.ops[0], (ast.Is, ast.IsNot))
            ):
                names.discard(node.left.id)
    return names


class Program:
    """All given files. Names are looked up in their own module, then through its imports."""

    def __init__(self, sources):
        self.modules = [Module(s) for s in sources]
        self.by_name = {}
        self._stored = None
        for m in self.modules:
            self.by_name.setdefault(m.source.name, []).append(m)

    def classes(self):
        for m in self.modules:
            yield from m.classes.values()

    def functions(self):
        """All functions and methods."""
        for m in self.modules:
            yield from m.functions.values()
            for c in m.classes.values():
                yield from c.methods.values()

    @property
    def stored_from_outside(self):
        """Names of attributes that code sets on other objects than self: `model.pos = i`."""
        if self._stored is None:
            self._stored = set()
            for m in self.modules:
                scopes = [f.nodes for f in m.functions.values()] + [m.main_nodes]
                scopes += [f.nodes for c in m.classes.values() for f in c.methods.values()]
                for nodes in scopes:
                    for n in nodes:
                        if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store):
                            if getattr(n.value, "id", "") != "self":
                                self._stored.add(n.attr)
        return self._stored

    def find_class(self, dotted, module):
        value = self.lookup(dotted, module)
        return value.target if value.kind == FUNCTION and isinstance(value.target, Class) else None

    def lookup(self, name, module):
        """A module-level function, class or import of `module`; UNKNOWN when there is none."""
        head, _, rest = name.partition(".")
        if not rest:
            if head in module.classes:
                return Value(FUNCTION, target=module.classes[head])
            if head in module.functions:
                return Value(FUNCTION, target=module.functions[head])
        if head in module.imports:
            return self._imported(module.imports[head] + ("." + rest if rest else ""), module)
        return UNKNOWN_VALUE

    def _imported(self, dotted, module):
        path, _, name = dotted.rpartition(".")
        for candidate in self.by_name.get(path.rpartition(".")[2], ()):
            # `from .modules import X` and `from models.modules import X`, if modules.py is given.
            if candidate is not module or not path.startswith("."):
                if name in candidate.classes:
                    return Value(FUNCTION, target=candidate.classes[name])
                if name in candidate.functions:
                    return Value(FUNCTION, target=candidate.functions[name])
        return Value(EXTERNAL, dotted=dotted)

    def method(self, cls, name, after=None):
        """The method `name` of `cls` or its bases; with `after`, of the classes after that one."""
        found_after = after is None
        for c in self.ancestry(cls):
            if found_after and name in c.methods:
                return c.methods[name]
            found_after = found_after or c is after
        return None

    def ancestry(self, cls):
        """`cls` and its bases that are given, in method order (depth first, each once)."""
        order, stack = [], [cls]
        while stack:
            c = stack.pop(0)
            if c in order:
                continue
            order.append(c)
            stack = [b for b in (self.find_class(n, c.module) for n in c.bases) if b] + stack
        return order

    def is_module_class(self, cls):
        """Whether it is a torch.nn.Module, as far as the files show."""
        for c in self.ancestry(cls):
            for base in c.bases:
                resolved = self.lookup(base, c.module)
                name = resolved.dotted or base
                if name.startswith("torch.nn.") or name.rsplit(".", 1)[-1] in (
                    "Module",
                    "PreTrainedModel",
                    "GradientCheckpointingLayer",
                    "GenerationMixin",
                ):
                    return True
        return False


def dotted_name(node):
    """`a.b.c` of an expression of names and attributes, else None."""
    parts = []
    while isinstance(node, ast.Attribute):
        parts.append(node.attr)
        node = node.value
    if not isinstance(node, ast.Name):
        return None
    parts.append(node.id)
    return ".".join(reversed(parts))
