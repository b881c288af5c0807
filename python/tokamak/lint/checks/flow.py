"""Python control flow that depends on the values of tensors, or on state frozen at capture."""

from ..values import HOST, LIST, NUMPY, SYNCED, SYNCED_VALUE, TENSOR, UNKNOWN


def tested(interp, node, test, value):
    """The test of if, while, assert, a conditional expression or a comprehension. Returns whether
    it depends on tensor values."""
    if value.kind in (TENSOR, SYNCED):
        interp.report("data-dependent-branch", test)
        return True
    if value.frozen and value.kind in (HOST, UNKNOWN):
        interp.report("global-read-in-graph", test)
    return False


def iterated(interp, node, iterable, value):
    """What a for statement or a comprehension runs over. Returns whether the number of rounds
    depends on tensor values."""
    if value.kind == TENSOR:
        interp.report("loop-over-tensor", iterable)
        return True
    if value.kind == LIST:
        if value.root == ("range", "tensor"):
            interp.report("loop-over-tensor", iterable)
            return True
        if value.root == ("zip", "tensor"):
            interp.report("loop-over-tensor", iterable)
            return True
        return value.unbounded
    return False


def _range(interp, call):
    """range(n) with n out of a tensor: a loop whose length depends on data."""
    if any(a.kind in (TENSOR, SYNCED, NUMPY) for a in call.args):
        from ..values import Value

        return Value(LIST, elem=SYNCED_VALUE, root=("range", "tensor"))
    return None


def _wraps(interp, call):
    """enumerate(t), zip(t, ...), reversed(t): loops over the tensor in them."""
    from ..values import HOST_VALUE, Value, list_of

    inner = [
        a
        for a in call.args
        if a.kind == TENSOR
        or (a.kind == LIST and a.root in (("range", "tensor"), ("zip", "tensor")))
    ]
    if not inner:
        return None
    items = [interp.item_of(a) for a in call.args]
    if call.name == "enumerate":
        elem = list_of(items=[HOST_VALUE, items[0]])
    else:
        elem = list_of(items=items) if call.name == "zip" else items[0]
    return Value(LIST, elem=elem, root=("zip", "tensor"))


BUILTINS = {"range": _range, "enumerate": _wraps, "zip": _wraps, "reversed": _wraps}
