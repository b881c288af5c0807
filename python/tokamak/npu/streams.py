"""torch.npu streams and events. Work is done when it is asked for, in the order of the script, so
a stream is a name and an event a point in time; waiting for either is over at once."""

import contextlib
import itertools
import time

import torch

from . import device

_DEVICE_TYPE = 20  # PrivateUse1
_ids = itertools.count(1)


class Stream(torch.Stream):
    def __new__(cls, device=None, priority=0, **kwargs):
        index = _index(device)
        kwargs.setdefault("stream_id", next(_ids))
        stream = super().__new__(cls, device_index=index, device_type=_DEVICE_TYPE, **kwargs)
        stream.priority = priority
        return stream

    @property
    def npu_stream(self):
        return self.stream_id

    def synchronize(self):
        pass

    def query(self):
        return True

    def wait_event(self, event):
        event.wait(self)

    def wait_stream(self, stream):
        pass

    def record_event(self, event=None):
        event = Event() if event is None else event
        event.record(self)
        return event

    def set_data_preprocess_stream(self, enabled=True):
        pass

    def __enter__(self):
        self._before = current_stream()
        set_stream(self)
        return self

    def __exit__(self, *exc):
        set_stream(self._before)

    def __repr__(self):
        return f"<torch_npu.npu.Stream device=npu:{self.device_index} npu_stream={self.stream_id}>"


class Event:
    def __init__(self, enable_timing=False, blocking=False, interprocess=False, external=False):
        self.enable_timing = enable_timing
        self._time = None

    def record(self, stream=None):
        self._time = time.perf_counter()

    def wait(self, stream=None):
        pass

    def query(self):
        return True

    def synchronize(self):
        pass

    def reset(self, stream=None):
        self._time = None

    def elapsed_time(self, end_event):
        """Milliseconds between two records, of this machine."""
        for event in (self, end_event):
            if not event.enable_timing:
                raise RuntimeError("elapsed_time needs events made with enable_timing=True")
            if event._time is None:
                raise RuntimeError("elapsed_time needs both events to be recorded")
        return (end_event._time - self._time) * 1000

    def __repr__(self):
        return f"<torch_npu.npu.Event {id(self):#x}>"


class ExternalEvent(Event):
    def __init__(self):
        super().__init__(external=True)


def _index(of):
    if of is None:
        return device.current_device()
    if isinstance(of, int):
        return of
    index = torch.device(of).index
    return device.current_device() if index is None else index


_default = {}
_current = {}


def default_stream(device=None):
    index = _index(device)
    if index not in _default:
        _default[index] = Stream(index, stream_id=0)
    return _default[index]


def current_stream(device=None):
    index = _index(device)
    return _current.get(index) or default_stream(index)


def set_stream(stream):
    _current[stream.device_index] = stream


@contextlib.contextmanager
def stream(stream):
    if stream is None:
        yield
        return
    with stream:
        yield
