"""torchair: torch.compile for NPUs; here what is captured runs eagerly."""

from tokamak.npu.compiled import (
    CompilerConfig,
    get_compiler,
    get_npu_backend,
    inference,
    scope,
)

from . import configs, ge_concrete_graph, ops

__all__ = [
    "CompilerConfig",
    "configs",
    "ge_concrete_graph",
    "get_compiler",
    "get_npu_backend",
    "inference",
    "ops",
    "patch_for_hcom",
    "scope",
    "use_internal_format_weight",
]


def patch_for_hcom():
    """Collectives can be captured as they are."""


def use_internal_format_weight(model):
    """Weights stay where they are: a format is a note here."""
