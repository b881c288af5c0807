"""tokamak lint: hazards of graph mode in Python modelling code, found before it runs.

Needs the standard library only. `python -m tokamak.lint --help`.
"""

from .linter import lint

__all__ = ["lint"]
