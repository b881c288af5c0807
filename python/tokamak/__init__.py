"""Tokamak: capture a PyTorch LLM here, optimise and run it with the `tokamak` command.

Importing this package loads neither torch nor transformers; `capture` and `explain` do, when they
are called. Where torch is loaded already, torch.compile(model, backend="tokamak") is made known to
it; where tokamak is installed as a package, torch finds the backend by itself.
"""

import sys

from .binary import find_binary
from .errors import CaptureError, Error

__version__ = "0.1.0"
__all__ = ["CaptureError", "Error", "__version__", "capture", "explain", "find_binary"]
__all__ += ["register_backend"]


def capture(model, output_dir, **options):
    """Writes one forward of `model` to `output_dir` as a graph and its weights.

    `model` is a torch.nn.Module or the path of a Hugging Face folder. The options are those of
    `tokamak.export.capture`, which see. Raises CaptureError.
    """
    from .export import capture as run

    return run(model, output_dir, **options)


def explain(model, inputs, **options):
    """What becomes of `model` under torch.compile(backend="tokamak"): graph breaks, recompilations
    and operators that PyTorch runs, with file:line. See `tokamak.backend.explain`."""
    from .backend import explain as run

    return run(model, inputs, **options)


def register_backend():
    """Makes torch.compile(backend="tokamak") known, as importing tokamak after torch does."""
    from .backend.registration import register

    register()


if "torch" in sys.modules:
    register_backend()
