"""npugraph_ex: which captured graph a step replays, and when it captures anew."""

from ..errors import Error
from .inputs import Tensor


class CaptureOptions:
    """`updatable`: inputs that only the updatable arguments of attention operators take (their
    lengths are re-written at replay); `mutated`: inputs written in place, whose address is part of
    the graph. `core_limits`: the stream core limit of each step, when it changes."""

    __slots__ = (
        "capture_limit",
        "clone_input",
        "core_limits",
        "force_recapture",
        "frozen_parameter",
        "mutated",
        "updatable",
    )

    def __init__(
        self,
        updatable=(),
        mutated=(),
        capture_limit=64,
        clone_input=True,
        frozen_parameter=False,
        force_recapture=False,
        core_limits=None,
    ):
        if not isinstance(capture_limit, int) or capture_limit < 1:
            raise Error(
                "TK1106",
                f"capture_limit is {capture_limit}",
                help="it is 1 or more (64 when not set)",
            )
        self.updatable = frozenset(updatable)
        self.mutated = frozenset(mutated)
        self.capture_limit = capture_limit
        self.clone_input = clone_input
        self.frozen_parameter = frozen_parameter
        self.force_recapture = force_recapture
        self.core_limits = core_limits


class Captures:
    """The captured graphs of all compilations of one function."""

    def __init__(self, options):
        self.options = options
        self.count = {}  # entry: captures so far
        self.eager = set()  # entries that exceeded the limit
        self._graphs = {}  # (entry, key): the addresses that it was captured with

    def step(self, entry, leaves, index):
        """The reason why this step captures, or None when it replays or runs eagerly."""
        if id(entry) in self.eager:
            return None
        options = self.options
        key = (id(entry), self._key(entry, leaves))
        addresses = self._addresses(leaves, index)
        known = self._graphs.get(key)
        if known is None:
            why = "a new graph key" if self.count.get(id(entry)) else "the first run"
            named = self._symbols(entry, leaves)
            if self.count.get(id(entry)) and named:
                why += ": " + ", ".join(f"{n}={v}" for n, v in named)
        elif options.force_recapture:
            why = "force_recapture"
        else:
            why = next(
                (
                    f"the {what} of {name} changed"
                    for (what, name), a in addresses.items()
                    if known.get((what, name)) != a or a is None
                ),
                None,
            )
        if why is None:
            return None
        self.count[id(entry)] = self.count.get(id(entry), 0) + 1
        if self.count[id(entry)] > options.capture_limit:
            self.eager.add(id(entry))
            return None
        self._graphs[key] = addresses
        return why

    def _key(self, entry, leaves):
        return tuple(self._symbols(entry, leaves))

    def _symbols(self, entry, leaves):
        """Names and values of the symbolic inputs that are part of the key."""
        values = dict(leaves)
        found = []
        for symbol in entry.symbols:
            source, dim = symbol if isinstance(symbol, tuple) else (symbol, None)
            if source.split("[")[0] in self.options.updatable:
                continue
            value = values[source]
            if dim is None:
                found.append((source, value))
            else:
                found.append((f"{source}.size({dim})", value.shape[dim]))
        return found

    def _addresses(self, leaves, index):
        options = self.options
        found = {}
        for source, value in leaves:
            if not isinstance(value, Tensor):
                continue
            name = source.split("[")[0]
            if name in options.mutated or (value.parameter and not options.frozen_parameter):
                # A parameter without an address is taken to stay where it is.
                fixed = value.parameter and value.address is None
                found["address", source] = 0 if fixed else value.address
        if options.core_limits is not None:
            found["core limit", "the stream"] = options.core_limits[index]
        return found
