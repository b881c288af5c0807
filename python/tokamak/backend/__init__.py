"""torch.compile(model, backend="tokamak"): see docs/torch-compile.md."""

from .compiler import EngineError, tokamak
from .explain import explain

__all__ = ["EngineError", "explain", "register", "tokamak"]


def register():
    """Makes the name "tokamak" known to torch.compile; again is nothing."""
    from torch._dynamo.backends import registry

    if registry._COMPILER_FNS.get("tokamak") is not tokamak:
        registry.register_backend(compiler_fn=tokamak, name="tokamak")
