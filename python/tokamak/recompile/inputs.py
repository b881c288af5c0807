"""The inputs of a step, flattened to what guards look at."""

from ..errors import Error


class Tensor:
    """A contiguous tensor input.

    `static`: dims (or True for all) that torch._dynamo.mark_static was called for; `dynamic`: those
    of mark_dynamic. `address` tells storages apart: the same number is the same memory; None is
    memory that may move. `parameter`: a weight or buffer of the module.
    """

    __slots__ = ("address", "dtype", "dynamic", "parameter", "shape", "static")

    def __init__(
        self, shape, dtype="float32", static=(), dynamic=(), address=None, parameter=False
    ):
        self.shape = tuple(shape)
        if not all(isinstance(n, int) and n >= 0 for n in self.shape):
            raise Error(
                "TK1106",
                f"a shape has sizes of 0 and more, got {self.shape}",
                help="give a tuple of integers",
            )
        self.dtype = dtype
        self.static = _dims(static, self.shape)
        self.dynamic = _dims(dynamic, self.shape)
        self.address = address
        self.parameter = parameter

    def __repr__(self):
        return f"Tensor({self.shape}, {self.dtype})"


def _dims(dims, shape):
    if dims is True:
        return frozenset(range(len(shape)))
    if isinstance(dims, int) and dims is not False:
        dims = (dims,)
    marked = frozenset(d % len(shape) if -len(shape) <= d < len(shape) else d for d in (dims or ()))
    outside = [d for d in marked if d not in range(len(shape))]
    if outside:
        raise Error(
            "TK1106",
            f"a tensor of shape {shape} has no dimension {outside[0]}",
            help="mark dimensions that are there",
        )
    return marked


def describe(torch_tensor, **marks):
    """The Tensor that stands for a torch.Tensor."""
    return Tensor(
        tuple(torch_tensor.shape),
        str(torch_tensor.dtype).replace("torch.", ""),
        address=torch_tensor.data_ptr(),
        **marks,
    )


def flatten(inputs, prefix=""):
    """{"x": Tensor, "lengths": [5, 6]} to pairs of source and leaf; a list or dict is a leaf of its
    length or keys, followed by its items."""
    leaves = []
    for name, value in inputs.items():
        _flatten(f"{prefix}{name}", value, leaves)
    return leaves


class Structure:
    """A list, tuple or dict: its kind and its length or keys are guarded."""

    __slots__ = ("key",)

    def __init__(self, key):
        self.key = key


def _flatten(source, value, leaves):
    if isinstance(value, (list, tuple)):
        leaves.append((source, Structure((type(value).__name__, len(value)))))
        for i, item in enumerate(value):
            _flatten(f"{source}[{i}]", item, leaves)
    elif isinstance(value, dict):
        leaves.append((source, Structure(("dict", tuple(value)))))
        for k, item in value.items():
            _flatten(f"{source}[{k!r}]", item, leaves)
    elif value is None or isinstance(value, (Tensor, bool, int, float, str)):
        leaves.append((source, value))
    else:
        raise Error(
            "TK1106",
            f"{source} is a {type(value).__name__}",
            help="inputs are Tensor, int, float, bool, str, None, and lists, tuples and "
            "dicts of those; describe() turns a torch.Tensor into one",
        )
