"""NPUGraph: the calls of the device between begin and end are noted, and replay makes them again
into the same memory."""

import torch

from . import device


class NPUGraph:
    def __init__(self, keep_graph=False):
        self._calls = None

    def capture_begin(self, pool=None, capture_error_mode="global", **options):
        if device.recording is not None:
            raise RuntimeError("a graph is being captured already")
        device.recording = []

    def capture_end(self):
        if device.recording is None:
            raise RuntimeError("capture_end without capture_begin")
        self._calls, device.recording = device.recording, None

    def replay(self):
        if self._calls is None:
            raise RuntimeError("the graph has not been captured")
        for op, args, kwargs, results in self._calls:
            again = op(*args, **kwargs)
            for old, new in zip(_tensors(results), _tensors(again), strict=True):
                if old is not new:
                    _write(old, new)

    def update(self, cpu_update_input=None):
        """Host lists of attention and the like: taken anew from `cpu_update_input`, one dict for
        each call that has those keywords, in order."""
        updates = list(cpu_update_input or [])
        for i, (op, args, kwargs, results) in enumerate(self._calls):
            if updates and set(updates[0]) <= set(kwargs):
                self._calls[i] = (op, args, kwargs | updates.pop(0), results)
        if updates:
            raise RuntimeError(f"no call of the graph takes {', '.join(updates[0])}")

    def reset(self):
        self._calls = None

    def pool(self):
        return (0, id(self))

    def debug_dump(self, path):
        with open(path, "w", encoding="utf-8") as f:
            f.writelines(f"{getattr(op, '__name__', op)}\n" for op, *_ in self._calls)


class graph:
    """with torch.npu.graph(g): ... runs the block once and captures it."""

    def __init__(self, npu_graph, pool=None, stream=None, capture_error_mode="global", **options):
        self.npu_graph, self.pool, self.mode = npu_graph, pool, capture_error_mode

    def __enter__(self):
        self.npu_graph.capture_begin(self.pool, self.mode)

    def __exit__(self, *exc):
        self.npu_graph.capture_end()


def make_graphed_callables(callables, sample_args, num_warmup_iters=3, **options):
    """Callables that do what the given ones do: a replay and a call have the same results here."""
    if isinstance(callables, tuple) and len(callables) != len(sample_args):
        raise RuntimeError(
            f"{len(callables)} callables need as many sample_args, found {len(sample_args)}"
        )
    return callables


def graph_pool_handle():
    return (0, 0)


def is_current_stream_capturing():
    return device.recording is not None


def _tensors(results):
    if isinstance(results, torch.Tensor):
        return [results]
    if isinstance(results, list | tuple):
        return [t for r in results for t in _tensors(r)]
    return []


def _write(old, new):
    """A result is written where it was; views of the same memory need nothing."""
    if old.data_ptr() != new.data_ptr():
        device.to_host(old).copy_(device.to_host(new))
