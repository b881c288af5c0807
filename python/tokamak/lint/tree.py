"""Walking syntax trees, twice as fast as ast.walk: fields without nodes are not looked at."""

import ast

_LEAVES = {
    "ctx",
    "op",
    "ops",
    "id",
    "attr",
    "arg",
    "name",
    "names",
    "module",
    "level",
    "asname",
    "type_comment",
    "kwd_attrs",
    "rest",
    "kind",
    "conversion",
    "simple",
    "is_async",
    "type_params",
    "type_ignores",
}
_FIELDS = {ast.Constant: ()}
if hasattr(ast, "MatchSingleton"):
    _FIELDS[ast.MatchSingleton] = ()


def walk(node):
    """The nodes of a tree, in no promised order; a list."""
    found = []
    stack = [node]
    while stack:
        n = stack.pop()
        found.append(n)
        kind = type(n)
        fields = _FIELDS.get(kind)
        if fields is None:
            fields = _FIELDS[kind] = tuple(f for f in kind._fields if f not in _LEAVES)
        for name in fields:
            child = getattr(n, name, None)
            if child.__class__ is list:
                stack += [c for c in child if c is not None]
            elif child is not None:
                stack.append(child)
    return found


def index_of(subscript):
    """The index of a Subscript."""
    return _unwrapped(subscript.slice)


def index_parts(index):
    """The parts of an index with commas, or None for an index without."""
    if isinstance(index, ast.Tuple):
        return index.elts
    if type(index).__name__ == "ExtSlice":  # Python 3.8
        return [_unwrapped(part) for part in index.dims]
    return None


def _unwrapped(index):
    return index.value if type(index).__name__ == "Index" else index  # Python 3.8
