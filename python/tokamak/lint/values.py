"""What the analysis knows about a Python value without running the code."""

# Kinds. A value of the kind UNKNOWN is never the cause of a finding by itself.
TENSOR = "tensor"  # on the device
SYNCED = "synced"  # a Python scalar or list that was read from a tensor
HOST = "host"  # any other plain Python value: a size, a flag, a dtype, a configuration
LIST = "list"  # a Python list or tuple
NUMPY = "numpy"
OBJECT = "object"  # an instance of a class of the given files (`target`)
FUNCTION = "function"  # a function or class of the given files (`target`), maybe bound (`owner`)
EXTERNAL = "external"  # a name of a package, as `dotted`
UNKNOWN = "unknown"
# Besides, without facts of their own: "modules" (ModuleList, Sequential: `elem`, `items`), "torch
# module" (gives tensors), "dict" (`const` by key, else `elem`), "slice" (`items`: its bounds).


class _Missing:
    def __repr__(self):
        return "MISSING"


MISSING = _Missing()  # "no constant is known"; None is a constant


class Value:
    """One abstract value. Immutable but for LIST, which grows as the code appends to it."""

    __slots__ = (
        "bool_mask",
        "const",
        "dotted",
        "elem",
        "frozen",
        "grows",
        "items",
        "kind",
        "owner",
        "root",
        "shape_of",
        "sites",
        "target",
        "unbounded",
    )

    def __init__(
        self,
        kind,
        const=MISSING,
        bool_mask=False,
        root=None,
        elem=None,
        items=None,
        target=None,
        owner=None,
        dotted=None,
        frozen=False,
        grows=False,
    ):
        self.kind = kind
        self.const = const
        self.bool_mask = bool_mask  # TENSOR of dtype bool
        self.root = root  # ("input", name) or ("attribute", name): storage that it is a view of
        self.elem = elem  # LIST: what an item is
        self.items = items  # LIST of known length: its items
        self.target = target
        self.owner = owner
        self.dotted = dotted
        self.frozen = frozen  # HOST read from global state
        self.grows = grows  # TENSOR longer at each step, or HOST size of one
        self.sites = []  # LIST: the nodes that put tensors into it
        self.unbounded = False  # LIST whose length depends on tensor data
        self.shape_of = False  # HOST: a shape, or a size out of one

    def key(self):
        """What tells two arguments apart for the analysis of the function that gets them."""
        const = self.const if isinstance(self.const, (bool, int, str, type(None))) else MISSING
        if self.kind == LIST:
            elem = self.elem.key() if self.elem is not None else None
            items = tuple(i.kind for i in self.items) if self.items is not None else None
            return (LIST, elem, items)
        return (
            self.kind,
            type(const),
            const,
            self.bool_mask,
            self.root,
            self.grows,
            self.frozen,
            id(self.target),
            self.dotted,
        )


TENSOR_VALUE = Value(TENSOR)
MASK_VALUE = Value(TENSOR, bool_mask=True)
HOST_DATA = "host data"  # `dotted` of a TENSOR that lies in host memory
HOST_TENSOR = Value(TENSOR, dotted=HOST_DATA)
SYNCED_VALUE = Value(SYNCED)
HOST_VALUE = Value(HOST)
FROZEN_VALUE = Value(HOST, frozen=True)
NUMPY_VALUE = Value(NUMPY)
UNKNOWN_VALUE = Value(UNKNOWN)
NONE_VALUE = Value(HOST, const=None)
TRUE_VALUE = Value(HOST, const=True)
FALSE_VALUE = Value(HOST, const=False)


def constant(value):
    if value is None:
        return NONE_VALUE
    if value is True:
        return TRUE_VALUE
    if value is False:
        return FALSE_VALUE
    return Value(HOST, const=value)


def tensor(root=None, bool_mask=False, grows=False):
    if root is None and not grows:
        return MASK_VALUE if bool_mask else TENSOR_VALUE
    return Value(TENSOR, root=root, bool_mask=bool_mask, grows=grows)


def list_of(elem=None, items=None):
    if items is not None and elem is None:
        elem = join_all(items) if items else None
    return Value(LIST, elem=elem, items=items)


def is_none(value):
    return value.kind == HOST and value.const is None


def carries_tensor(value):
    return value.kind == TENSOR or (
        value.kind == LIST and value.elem is not None and carries_tensor(value.elem)
    )


def join_all(values):
    result = values[0]
    for v in values[1:]:
        result = join(result, v)
    return result


def join(a, b):
    """The value after two paths meet: what holds on either, where a tensor outweighs a default."""
    if a is b:
        return a
    if a.kind == b.kind:
        return _join_same_kind(a, b)
    for one, other in ((a, b), (b, a)):
        if is_none(other):
            return one
        # `residual = 0` on one path and a tensor on the other: it is used as a tensor.
        if one.kind in (TENSOR, SYNCED) and other.kind == HOST:
            return one
    return UNKNOWN_VALUE


def _join_same_kind(a, b):
    if a.kind == LIST:
        elem = a.elem if b.elem is None else b.elem if a.elem is None else join(a.elem, b.elem)
        items = None
        if a.items is not None and b.items is not None and len(a.items) == len(b.items):
            items = [join(a.items[i], b.items[i]) for i in range(len(a.items))]
        merged = Value(LIST, elem=elem, items=items)
        merged.sites = a.sites + [s for s in b.sites if s not in a.sites]
        merged.unbounded = a.unbounded or b.unbounded
        return merged
    if a.kind == TENSOR:
        root = a.root or b.root
        mask = a.bool_mask and b.bool_mask
        grows = a.grows or b.grows
        return (
            a
            if (a.root, a.bool_mask, a.grows) == (root, mask, grows)
            else tensor(root, mask, grows)
        )
    if a.kind == HOST:
        same = type(a.const) is type(b.const) and a.const == b.const
        if same and a.frozen == b.frozen:
            return a
        merged = Value(
            HOST,
            const=a.const if same else MISSING,
            frozen=a.frozen or b.frozen,
            grows=a.grows or b.grows,
        )
        merged.shape_of = a.shape_of and b.shape_of
        return merged
    if a.kind in (SYNCED, NUMPY, UNKNOWN):
        return a
    same = a.target is b.target and a.dotted == b.dotted
    return a if same else UNKNOWN_VALUE
