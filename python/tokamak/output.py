"""The output folder: complete, or not there."""

import os
import shutil
import tempfile
from contextlib import contextmanager
from pathlib import Path

from .errors import CaptureError

GRAPH = "model.pt2"
_STALE = ("model.safetensors", "model.safetensors.index.json", "checkpoint.json")


def _unusable(message, help):
    return CaptureError("TK1005", message, help=help)


def check(output_dir, source=None):
    """Raises TK1005 when a capture must not or can't be written to `output_dir`."""
    out = Path(output_dir)
    if source is not None and out.exists() and os.path.samefile(out, source):
        raise _unusable(
            f"the output folder {out} is the model's own folder",
            "choose another one: the capture's weights have other names and would replace them",
        )
    if not out.exists():
        return
    if not out.is_dir():
        raise _unusable(f"{out} is a file", "give a folder that is new, empty or a capture")
    if any(out.iterdir()) and not (out / GRAPH).is_file():
        raise _unusable(
            f"{out} has files in it, and is not an earlier capture (no {GRAPH})",
            "give a folder that is new, empty or a capture",
        )


@contextmanager
def writing(output_dir):
    """A temporary folder beside `output_dir` that becomes it when the block ends well.

    Over an earlier capture, its graph is taken away first and the new one put in place last: a
    folder that has a graph has the weights that belong to it.
    """
    out = Path(os.path.abspath(output_dir))
    temporary = None
    try:
        out.parent.mkdir(parents=True, exist_ok=True)
        temporary = Path(tempfile.mkdtemp(prefix=f".{out.name}.", dir=out.parent))
        yield temporary
        os.chmod(temporary, 0o777 & ~_umask())
        if out.is_dir() and any(out.iterdir()):
            _replace_capture(out, temporary)
        else:
            os.replace(temporary, out)
    except OSError as error:
        what = f"{error.strerror or error}" + (f" ({error.filename})" if error.filename else "")
        raise _unusable(
            f"cannot write the capture to {out}: {what}", "see that there is room and permission"
        ) from error
    finally:
        if temporary is not None:
            shutil.rmtree(temporary, ignore_errors=True)


def _umask():
    mask = os.umask(0)
    os.umask(mask)
    return mask


def _replace_capture(out, temporary):
    (out / GRAPH).unlink()
    stale = [out / name for name in _STALE] + list(out.glob("model-*-of-*.safetensors"))
    for path in stale:
        path.unlink(missing_ok=True)
    names = sorted((p.name for p in temporary.iterdir()), key=lambda name: name == GRAPH)
    for name in names:
        os.replace(temporary / name, out / name)
