"""What engines computed from weights, merged products for instance, shared by a model's graphs.

A weight is known by its address, its version and its form. The pool keeps the memory of its
weights, so that an address cannot come to mean another weight while the pool lives.
"""

import weakref

from .library import load

_open = weakref.WeakSet()


class Pool:
    def __init__(self):
        self.handle = load().tk_engine_pool_new()
        self.held = {}  # name: tensor

    def __del__(self):
        if load is not None:  # None when Python is going down
            load().tk_engine_pool_delete(self.handle)

    def add(self, weights):
        for name, w in zip(names_of(weights), weights, strict=True):
            self.held[name] = w.detach()


def names_of(weights):
    """A name for each that says what it holds; two views of the same have two names."""
    names, seen = [], {}
    for w in weights:
        version = "" if w.is_inference() else w._version
        name = f"{w.data_ptr():x}.{version} {tuple(w.shape)} {w.stride()} {w.dtype}"
        seen[name] = seen.get(name, 0) + 1
        names.append(name if seen[name] == 1 else f"{name} again {seen[name] - 1}")
    return names


def pool_for(weights):
    """The pool of a model that these weights are of, or a new one."""
    names = set(names_of(weights))
    for pool in _open:
        if not names.isdisjoint(pool.held):
            break
    else:
        pool = Pool()
        _open.add(pool)
    pool.add(weights)
    return pool


def close(pool):
    """Nothing joins it any more: some of its weights have changed."""
    _open.discard(pool)
