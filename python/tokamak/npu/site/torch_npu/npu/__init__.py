"""torch.npu."""

from tokamak.npu import mstx
from tokamak.npu.graphs import (
    NPUGraph,
    graph,
    graph_pool_handle,
    is_current_stream_capturing,
    make_graphed_callables,
)
from tokamak.npu.memory import (
    empty_cache,
    max_memory_allocated,
    max_memory_reserved,
    mem_get_info,
    memory_allocated,
    memory_reserved,
    memory_stats,
    memory_summary,
    reset_max_memory_allocated,
    reset_peak_memory_stats,
    set_per_process_memory_fraction,
)
from tokamak.npu.runtime import *  # noqa: F403
from tokamak.npu.runtime import _is_in_bad_fork, _lazy_init
from tokamak.npu.streams import (
    Event,
    ExternalEvent,
    Stream,
    current_stream,
    default_stream,
    set_stream,
    stream,
)

from . import amp, npugraph_ex

__all__ = [
    "Event",
    "ExternalEvent",
    "NPUGraph",
    "Stream",
    "_is_in_bad_fork",
    "_lazy_init",
    "amp",
    "current_stream",
    "default_stream",
    "empty_cache",
    "graph",
    "graph_pool_handle",
    "is_current_stream_capturing",
    "make_graphed_callables",
    "max_memory_allocated",
    "max_memory_reserved",
    "mem_get_info",
    "memory_allocated",
    "memory_reserved",
    "memory_stats",
    "memory_summary",
    "mstx",
    "npugraph_ex",
    "reset_max_memory_allocated",
    "reset_peak_memory_stats",
    "set_per_process_memory_fraction",
    "set_stream",
    "stream",
]
