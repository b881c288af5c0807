"""What became of each graph that was compiled, for tokamak.explain and for the tests."""

import logging

log = logging.getLogger("tokamak")

graphs = []
"""A GraphReport for each graph since the last clear()."""


class GraphReport:
    def __init__(self, n_nodes):
        self.n_nodes = n_nodes
        self.parts = []  # Compiled, those that the engine runs
        self.fallbacks = []  # Reason, what PyTorch runs
        self.in_place = 0  # caches that are written where they lie
        self.seconds = 0.0

    @property
    def whole(self):
        """Whether the engine runs all of it."""
        return not self.fallbacks and len(self.parts) == 1

    def warn(self):
        if not self.fallbacks:
            return
        lines = [f"tokamak: PyTorch runs {len(self.fallbacks)} of {self.n_nodes} operators:"]
        lines += [f"  {reason}" for reason in self.fallbacks[:10]]
        if len(self.fallbacks) > 10:
            lines.append(f"  and {len(self.fallbacks) - 10} more (tokamak.explain lists all)")
        log.warning("\n".join(lines))


def clear():
    graphs.clear()
