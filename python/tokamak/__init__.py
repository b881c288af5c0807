"""Tokamak: capture a PyTorch LLM here, optimise and run it with the `tokamak` command.

Importing this package loads neither torch nor transformers; `capture` does, when it is called.
"""

from .binary import find_binary
from .errors import CaptureError, Error

__version__ = "0.1.0"
__all__ = ["CaptureError", "Error", "__version__", "capture", "find_binary"]


def capture(model, output_dir, **options):
    """Writes one forward of `model` to `output_dir` as a graph and its weights.

    `model` is a torch.nn.Module or the path of a Hugging Face folder. The options are those of
    `tokamak.export.capture`, which see. Raises CaptureError.
    """
    from .export import capture as run

    return run(model, output_dir, **options)
