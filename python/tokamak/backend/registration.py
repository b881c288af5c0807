"""The name "tokamak" for torch.compile. Nothing is loaded until a model is compiled."""

from importlib.metadata import EntryPoint

from torch._dynamo.backends import registry

GROUP = "torch_dynamo_backends"  # of the entry point in pyproject.toml


def register():
    """Again is nothing."""
    registry._lazy_import()  # torch looks for its own names only while it has none
    if registry._BACKENDS.get("tokamak") is None and "tokamak" not in registry._COMPILER_FNS:
        registry._BACKENDS["tokamak"] = EntryPoint("tokamak", "tokamak.backend:tokamak", GROUP)
