"""Caches that a graph changes are changed where they lie.

AOT autograd hands over functional graphs: a cache comes in, `index_copy` makes a new one, and at
the end `copy_` brings it back. Where nothing else reads the old cache, both are one in-place
operator.
"""

import torch

from .lower import index_copy_fits

aten = torch.ops.aten


def write_in_place(gm):
    """Rewrites gm; returns how many caches are written in place now."""
    count = 0
    for copy in [n for n in gm.graph.nodes if n.target is aten.copy_.default]:
        old, new = copy.args[:2]
        if old.op != "placeholder" or set(old.users) != {copy, new}:
            continue
        call = _as_index_copy(new, old)
        if call is None:
            continue
        dim, index, source = call
        if new.target is aten.index_put.default:
            index = _counted_from_the_front(gm.graph, new, index, old.meta["val"].shape[dim])
        new.target = aten.index_copy_.default
        new.args, new.kwargs = (old, dim, index, source), {}
        gm.graph.erase_node(copy)
        count += 1
    gm.graph.lint()
    gm.recompile()
    return count


def _counted_from_the_front(graph, before, index, size):
    """`cache[:, index] = x` may count from the end, what index_copy does may not. One node for all
    caches that an index is used for."""
    for user in index.users:
        if user.meta.get("tokamak_counted") == size:
            return user.meta["tokamak_whole"]
    with graph.inserting_before(before):

        def add(op, *args):
            node = graph.call_function(op, args)
            values = [a.meta["val"] if isinstance(a, torch.fx.Node) else a for a in args]
            node.meta = {**before.meta, "val": op(*values)}
            return node

        negative = add(aten.lt.Scalar, index, 0)
        whole = add(aten.where.self, negative, add(aten.add.Scalar, index, size), index)
    negative.meta |= {"tokamak_counted": size, "tokamak_whole": whole}
    return whole


def _as_index_copy(new, old):
    """(dim, index, source) when `new` is `old` with parts along one axis replaced."""
    if new.op != "call_function" or not new.args or new.args[0] is not old:
        return None
    if new.target is aten.index_copy.default:
        _, dim, index, source = new.args
        return _call(old, dim, index, source)
    if new.target is aten.index_put.default:
        _, indices, source, *rest = new.args
        if rest and rest[0]:  # it adds
            return None
        used = [i for i, x in enumerate(indices) if x is not None]
        if len(used) == 1:
            return _call(old, used[0], indices[used[0]], source)
    return None


def _call(old, dim, index, source):
    return (dim, index, source) if index_copy_fits(old, dim, index, source) else None
