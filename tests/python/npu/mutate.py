"""Random changes of a call: of a type, a shape, an attribute, contents; one at a time."""

import limit_oracle as oracle
import torch

DTYPES = [
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.int8,
    torch.uint8,
    torch.int32,
    torch.int64,
    torch.bool,
]
LARGEST = 1 << 20  # elements whose contents are changed


def names_of(operator, limit):
    """Arguments that a limit asks for, through its symbols."""
    symbols = {s["name"]: s["expr"] for s in operator.facts["symbols"]}
    names, literals, exprs = set(), [], [limit["expr"]]
    seen = set()
    while exprs:
        expr = exprs.pop()
        literals += oracle.literals_in(expr)
        for name in oracle.names_in(expr):
            if name in symbols and name not in seen:
                seen.add(name)
                exprs.append(symbols[name])
            names.add(name)
    known = {t["name"] for t in operator.tensors} | {a["name"] for a in operator.attrs}
    return sorted(names & known), literals


def numbers(draw, literals, near=()):
    """Values around what limits speak of, and around what there is."""
    whole = [int(v) for v in literals if isinstance(v, int | float)] + list(near)
    value = draw.one_of([v + d for v in whole for d in (-1, 0, 1)] + [v * 2 for v in near] + [0, 3])
    return max(-(2**63), min(value, 2**63 - 1))


def reshape(t, shape, draw):
    """A tensor of that shape, with the contents that fit; memory of one row where it is large."""
    n = 1
    for s in shape:
        n *= s
    if t.numel() == 0 or n > LARGEST:
        fill = t.flatten()[:1] if t.numel() else torch.ones(1, dtype=t.dtype)
        return fill.view([1] * len(shape)).expand(shape)
    return t.flatten()[torch.arange(n) % t.numel()].view(shape)


def tensor(draw, t, literals):
    kind = draw.size(0, 5)
    if kind == 0:
        return t.to(draw.one_of(DTYPES))
    shape = list(t.shape)
    if kind in (1, 2) and shape:
        axis = draw.size(0, len(shape) - 1)
        shape[axis] = max(0, numbers(draw, literals, [shape[axis]]))
        return reshape(t, shape, draw)
    if kind == 3:
        change = draw.size(0, 3)
        if change == 0:
            shape.insert(draw.size(0, len(shape)), 1)
        elif change == 3:
            shape = [1] * (9 - len(shape)) + shape  # more than there are
        elif change == 1:
            shape = shape[1:]
        else:
            shape = [t.numel()]
        return reshape(t, shape, draw)
    if kind == 4:
        return torch.stack([t, t], -1)[..., 0]  # of other strides
    if t.numel() == 0 or t.numel() > LARGEST or t.dtype == torch.bool:
        return t
    t = t.clone(memory_format=torch.contiguous_format)
    flat = t.view(-1)
    at, other = draw.size(0, len(flat) - 1), draw.size(0, len(flat) - 1)
    how = draw.size(0, 3)
    if how == 0:
        flat[at] = flat[other]
    elif how == 1:
        flat.copy_(flat.flip(0))
    else:
        top = 127 if t.dtype == torch.int8 else 1000 if t.is_floating_point() else 10**6
        value = numbers(
            draw, literals, [int(flat[at].double().nan_to_num(0, 0, 0).clamp(-1e6, 1e6))]
        )
        flat[at] = min(
            max(draw.one_of([value, top, -1]), 0 if t.dtype == torch.uint8 else -128), top
        )
    return t


def host_list(draw, values, literals):
    values = list(values)
    how = draw.size(0, 3)
    if values and isinstance(values[0], torch.Tensor):
        at = draw.size(0, len(values) - 1)
        values[at] = tensor(draw, values[at], literals)
        return values if how else values + values
    if how == 0 or not values:
        values.append(numbers(draw, literals))
    elif how == 1:
        values.pop(draw.size(0, len(values) - 1))
    elif how == 2:
        values.reverse()
    else:
        at = draw.size(0, len(values) - 1)
        old = values[at]
        if isinstance(old, bool):
            values[at] = not old
        elif isinstance(old, int):
            values[at] = numbers(draw, literals, [old])
    return values


def argument(draw, kind, value, literals, others):
    """Another value of an argument of the library's `kind` ("Optional[Tensor]")."""
    optional = kind.startswith("Optional")
    if optional and value is not None and draw.maybe(True, 0.25):
        return None
    if value is None:
        if "Tensor" in kind:
            t = draw.one_of(others)
            t = tensor(draw, t, literals) if draw.maybe(True) else t
            return [t] if "List" in kind else t
        value = [1, 2] if "List" in kind else 1 if "int" in kind else ""
    if isinstance(value, torch.Tensor):
        return tensor(draw, value, literals)
    if isinstance(value, list | tuple) and (value or "Tensor" not in kind):
        return host_list(draw, value, literals)
    if isinstance(value, bool):
        return not value
    if isinstance(value, str):
        return draw.one_of([v for v in literals if isinstance(v, str)] + ["XYZ", ""])
    if isinstance(value, float):
        return draw.one_of([0.0, -1.0, value + 1])
    if isinstance(value, int):
        return numbers(draw, literals, [value])
    return value


def mutated(draw, bound, given, names, literals):
    """`given` with one of `names` changed, sometimes two."""
    given = dict(given)
    kinds = {a.name: str(a.type) for a in bound.arguments}
    names = [n for n in names if n in kinds]
    others = [t for v in given.values() for t in (v if isinstance(v, list) else [v])]
    others = [t for t in others if isinstance(t, torch.Tensor)]
    for _ in range(1 if draw.maybe(True, 0.7) else 2):
        name = draw.one_of(names)
        given[name] = argument(draw, kinds[name], given[name], literals, others)
    return given
