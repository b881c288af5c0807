"""Functions of the analysed code: what their parameters are, and when each is analysed."""

import ast

from .attributes import is_phase_name
from .tree import index_of
from .usage import tensor_params
from .values import (
    FALSE_VALUE,
    FUNCTION,
    HOST,
    HOST_VALUE,
    NONE_VALUE,
    OBJECT,
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

MAX_DEPTH = 40  # of calls
MAX_CONTEXTS = 8  # kinds of arguments that one function is analysed for


class Frame:
    """One function while it is analysed."""

    def __init__(self, function, owner):
        self.function = function
        self.module = function.module
        self.owner = owner  # Value of `self`
        self.env = {}
        self.results = []
        self.fills_rest = False  # after `if self.x is not None: return self.x`
        self.unbounded = 0  # inside so many loops whose trip count depends on data
        self.written = set()  # names and storages of caches that a fused operator wrote


class Functions:
    """Mixed into the interpreter."""

    def run_entry(self, function, owner=None):
        """Analyses `function` as what is compiled: its parameters are the graph's inputs."""
        owner = owner or (Value(OBJECT, target=function.cls) if function.cls else None)
        self.entry = True
        args = {}
        for arg in self._parameters(function):
            args[arg.arg] = self._parameter(function, arg, root=("input", arg.arg))
        self.entry = False
        return self.invoke(function, owner, args)

    def _parameters(self, function):
        params = list(function.params)
        if function.cls is not None and not function.is_static and params:
            params = params[1:]
        return params + function.node.args.kwonlyargs

    def _parameter(self, function, arg, root=None):
        """What a parameter is, by its annotation, else by how the function uses it."""
        if is_phase_name(arg.arg):
            return TRUE_VALUE if self.prefill else FALSE_VALUE
        if arg.annotation is not None:
            value = self.annotated(arg.annotation, function.module, root)
            if value is not None:
                return value
        if arg.arg in tensor_params(function, self.program):
            return tensor(root)
        return Value(UNKNOWN, root=root)

    def annotated(self, node, module, root=None):
        """The value that an annotation promises, or None."""
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            try:
                node = ast.parse(node.value, mode="eval").body
            except SyntaxError:
                return None
        name, inside = _annotation(node)
        if name in ("Optional", "Final", "Annotated"):
            return self.annotated(inside[0], module, root) if inside else None
        if name == "Union":
            known = [
                self.annotated(n, module, root)
                for n in inside
                if not (isinstance(n, ast.Constant) and n.value is None)
            ]
            known = [k for k in known if k is not None]
            return known[0] if len(known) == 1 else None
        if name == "BoolTensor":
            return tensor(root, bool_mask=True)
        if name in ("Tensor", "Parameter") or name.endswith("Tensor"):
            return tensor(root)
        if name in ("int", "bool", "float", "str", "dtype", "device", "Size", "SymInt"):
            return HOST_VALUE if name != "int" or root is None else Value(HOST, root=root)
        if name in ("List", "list", "Tuple", "tuple", "Sequence", "Iterable"):
            elem = self.annotated(inside[0], module, root) if inside else None
            return list_of(elem=elem if elem is not None else Value(UNKNOWN, root=root))
        if name == "ndarray":
            return Value("numpy")
        cls = self.program.find_class(name, module)
        return Value(OBJECT, target=cls, root=root) if cls is not None else None

    def invoke(self, function, owner, args):
        """Analyses one call; `args` by parameter name. Returns what it gives back."""
        key = (
            id(function),
            owner.key() if owner is not None else None,
            tuple(sorted((n, v.key()) for n, v in args.items())),
            self.quiet > 0,
            self.filling > 0,
        )
        if key in self._memo:
            return self._memo[key]
        contexts = self._contexts.setdefault(id(function), [])
        if len(contexts) >= MAX_CONTEXTS or self.depth >= MAX_DEPTH:
            return self._memo[contexts[-1]] if contexts else UNKNOWN_VALUE
        contexts.append(key)
        self._kept.append((function, owner, args))
        self._memo[key] = UNKNOWN_VALUE  # of a recursive call
        outer, self.frame = self.frame, Frame(function, owner)
        nesting = self.nesting
        self.depth += 1
        try:
            self._bind_parameters(function, owner, args)
            self.block(function.node.body)
            results = self.frame.results
        finally:
            self.depth -= 1
            self.nesting = nesting
            self.frame = outer
        result = NONE_VALUE if not results else results[0]
        for r in results[1:]:
            result = join(result, r)
        self._memo[key] = result
        return result

    def _bind_parameters(self, function, owner, args):
        env = self.frame.env
        names = function.params
        if function.cls is not None and not function.is_static and names:
            if function.decorated_as("classmethod"):
                env[names[0].arg] = Value(FUNCTION, target=function.cls)
            else:
                env[names[0].arg] = (
                    owner if owner is not None else Value(OBJECT, target=function.cls)
                )
        a = function.node.args
        defaults = {p.arg: d for p, d in zip(reversed(function.params), reversed(a.defaults))}
        defaults.update({p.arg: d for p, d in zip(a.kwonlyargs, a.kw_defaults) if d is not None})
        for p in self._parameters(function):
            given = args.get(p.arg)
            if given is None and p.arg in defaults and isinstance(defaults[p.arg], ast.Constant):
                given = constant(defaults[p.arg].value)
            elif given is None or (given.kind == UNKNOWN and not is_none(given)):
                root = given.root if given is not None else None
                given = self._parameter(function, p, root)
            if given.kind == HOST and given.const not in (True, False) and is_phase_name(p.arg):
                given = TRUE_VALUE if self.prefill else FALSE_VALUE
            env[p.arg] = given
        if a.vararg:
            env[a.vararg.arg] = list_of(elem=UNKNOWN_VALUE)
        if a.kwarg:
            env[a.kwarg.arg] = UNKNOWN_VALUE


def _annotation(node):
    """("Optional", [node of Tensor]) of Optional[torch.Tensor]; `X | None` is a Union."""
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.BitOr):
        return "Union", [node.left, node.right]
    inside = []
    if isinstance(node, ast.Subscript):
        index = index_of(node)
        inside = list(index.elts) if isinstance(index, ast.Tuple) else [index]
        node = node.value
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return name, inside
