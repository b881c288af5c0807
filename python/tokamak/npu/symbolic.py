"""Sizes that are not numbers yet (torch.SymInt), in the notation of graphs and back."""

import itertools
import operator

import torch

_FUNCTIONS = {
    "floordiv": operator.floordiv,
    "mod": operator.mod,
    "min": torch.sym_min,
    "max": torch.sym_max,
}


_fixed = {}  # symbol -> number, while it is tried


def _expression(e):
    """A sympy expression as the text of a size; KeyError when there is no such notation."""
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        return str(_fixed.get(e.name, e.name))
    name = type(e).__name__
    parts = [_expression(a) for a in e.args]
    if name == "Add":
        return "(" + " + ".join(parts) + ")"
    if name == "Mul":
        return "*".join(parts)
    if name == "Pow" and e.args[1].is_Integer and int(e.args[1]) > 0:
        return "*".join([parts[0]] * int(e.args[1]))
    call = {"FloorDiv": "floordiv", "Mod": "mod", "PythonMod": "mod", "Min": "min", "Max": "max"}
    return f"{call[name]}({', '.join(parts)})"


def text(size):
    """A size (int or torch.SymInt) as graphs spell it."""
    if not isinstance(size, torch.SymInt):
        return str(int(size))
    try:
        return _expression(size.node.expr)
    except KeyError as error:
        raise RuntimeError(f"a size of {size} has no notation for operators here") from error


def sizes_of(tensors, attrs):
    """The symbols among the sizes of the tensors and attributes, by name."""
    found = {}
    for t in tensors:
        if t is not None:
            _collect(t.shape, found)
    for value in attrs.values():
        _collect(value if isinstance(value, list | tuple) else [value], found)
    return found


def _collect(sizes, found):
    for size in sizes:
        if isinstance(size, torch.SymInt):
            env = size.node.shape_env
            for symbol in size.node.expr.free_symbols:
                if symbol.name not in found:
                    hint = env.backed_var_to_val.get(symbol)  # none: only known when it runs
                    hint = None if hint is None else int(hint)
                    found[symbol.name] = env.create_symintnode(symbol, hint=hint)


def evaluate(size, sizes):
    """What graphs spell, as an int or a torch.SymInt of the symbols in `sizes`."""
    if size.lstrip("-").isdigit():
        return int(size)
    return eval(size, {"__builtins__": {}}, {**_FUNCTIONS, **sizes})


def guarded(infer, tensors, attrs):
    """infer(), with as few sizes taken as the number that they have now as it needs: a size that
    must equal another is not known to be equal while both are symbols. torch guards on those."""
    try:
        return infer()
    except RuntimeError:
        sizes = sizes_of(tensors, attrs)
        hints = {n: s.node.hint for n, s in sizes.items() if s.node.hint is not None}
        for n in range(1, len(hints) + 1):
            for names in itertools.combinations(hints, n):
                if _fits(infer, {name: hints[name] for name in names}):
                    for name in names:
                        int(sizes[name])  # the guard
                    return infer()
        raise


def _fits(infer, numbers):
    _fixed.update(numbers)
    try:
        infer()
        return True
    except RuntimeError:
        return False
    finally:
        _fixed.clear()
