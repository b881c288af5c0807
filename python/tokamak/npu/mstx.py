"""torch.npu.mstx: marks and ranges of the profiler. There is no timeline, so none is written."""

import contextlib
import itertools

_ids = itertools.count(1)
_open = set()


def mark(message, stream=None, domain="default"):
    _text(message)


def range_start(message, stream=None, domain="default"):
    _text(message)
    number = next(_ids)
    _open.add(number)
    return number


def range_end(range_id, domain="default"):
    if range_id not in _open:
        raise RuntimeError(f"mstx: no range {range_id!r} is open")
    _open.remove(range_id)


@contextlib.contextmanager
def mstx_range(message, stream=None, domain="default"):
    """As `with mstx_range("decode"):`, or as a decorator."""
    number = range_start(message, stream, domain)
    try:
        yield
    finally:
        range_end(number, domain)


def _text(message):
    if not isinstance(message, str):
        raise TypeError(f"mstx: the message must be a str, got {type(message).__name__}")
