"""Finding the place in the model's own source that an exception of torch.export comes from."""

import functools
import inspect
import linecache
import sys
import sysconfig
import traceback
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Place:
    file: str
    line: int
    function: str

    def code(self):
        return linecache.getline(self.file, self.line).strip()


@functools.cache
def _roots():
    import torch

    torch_and_ours = (str(Path(torch.__file__).parent) + "/", str(Path(__file__).parent) + "/")
    generated = ("<string>", "<frozen", "<eval_with_key>")
    return torch_and_ours + generated, sysconfig.get_paths()["stdlib"] + "/"


def is_framework(file):
    """Whether `file` belongs to torch, to us or to Python's library: never the model's fault."""
    ours, stdlib = _roots()
    return file.startswith(ours) or (file.startswith(stdlib) and "-packages/" not in file)


def files_of(model):
    """The source files that define the classes of the model's modules, torch's own left out."""
    files = set()
    for kind in {type(m) for m in model.modules()}:
        try:
            file = inspect.getsourcefile(kind)
        except TypeError:  # a class made in a console has no file
            continue
        if file and not is_framework(file):
            files.add(file)
    return files


def _chain(error):
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def place_of(error, model_files):
    """(place, inner): the innermost frame in the model's files, and the innermost one outside of
    torch where that is another. Either may be None.
    """
    for link in _chain(error):
        frames = [
            Place(f.filename, f.lineno, f.name)
            for f in traceback.extract_tb(link.__traceback__)
            if not is_framework(f.filename)
        ]
        own = [f for f in frames if f.file in model_files]
        if own:
            return own[-1], (frames[-1] if frames[-1] != own[-1] else None)
    return None, None


@contextmanager
def guards_located():
    """Inside, torch notes for each guard on a size the innermost frame outside of torch.

    It would note its own: a specialised dim is reported only after the trace, when the frames of
    the model are gone.
    """
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    original = ShapeEnv._get_user_frame

    def innermost(_self):
        frame = sys._getframe(1)
        while frame is not None and is_framework(frame.f_code.co_filename):
            frame = frame.f_back
        return frame

    ShapeEnv._get_user_frame = innermost
    try:
        yield
    finally:
        ShapeEnv._get_user_frame = original


def _shape_env(error):
    from torch.fx.experimental.symbolic_shapes import ShapeEnv

    for link in _chain(error):
        for frame, _ in traceback.walk_tb(link.__traceback__):
            for value in frame.f_locals.values():
                if isinstance(value, ShapeEnv):
                    return value
    return None


def guard_place(error, model_files):
    """The place of the first guard that the model's files (or what they call) put on a size."""
    env = _shape_env(error)
    places = []
    for guard in env.guards if env is not None else ():
        location = getattr(guard.sloc, "framework_loc", None)
        file = getattr(location, "filename", None)
        if file and not is_framework(file):
            places.append(Place(file, location.lineno, location.name))
    own = [p for p in places if p.file in model_files]
    return (own or places or [None])[0]
