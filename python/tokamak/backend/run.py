"""A lowered graph, compiled by the engine and run on the memory of torch's tensors."""

import ctypes
import json
import operator

import torch

from . import library
from .library import EngineTensor, check, load
from .lower import Unsupported, lower_graph

KEPT_SIZES = 64


class Compiled:
    """One graph, callable with the FX graph's arguments. Gives the tuple of its results."""

    def __init__(self, gm, static, options):
        self.gm = gm
        self.static = static
        self.threads = options.threads or torch.get_num_threads()
        self.fuse = options.fuse
        self.handle = None
        self.builds = 0
        self.weights = ()
        self.seen = ()  # versions and addresses of the weights that the engine was made with
        self.lower()

    def lower(self, uncounted=frozenset()):
        self.lowered = lowered = lower_graph(self.gm, self.static, uncounted)
        if load().tk_engine_check(lowered.text.encode()):
            raise Unsupported(library.text())
        self.pick_weights = _picker([i for _, i in lowered.weights])
        self.state_index = [i for _, i in lowered.states]
        self.input_index = [i for _, i in lowered.inputs]
        self.symbol_index = [i for _, i in lowered.symbols]
        self.names = [name for name, _ in lowered.symbols]
        self.arrays = {}  # sizes: EngineTensors of the results, and how to make them
        self.state_pointers = (ctypes.c_void_p * max(1, len(self.state_index)))()
        self.input_pointers = (ctypes.c_void_p * max(1, len(self.input_index)))()
        self.last_states = None

    def __del__(self):
        if self.handle is not None and load is not None:  # None when Python is going down
            load().tk_engine_delete(self.handle)

    # -- weights

    def _weights_changed(self, args):
        weights = self.pick_weights(args)
        if not all(map(operator.is_, weights, self.weights)) or len(weights) != len(self.weights):
            return True
        return _state_of(weights) != self.seen

    def _build(self, args):
        """The engine computes what depends on weights only, so it is made anew when they change."""
        if self.handle is not None:
            load().tk_engine_delete(self.handle)
            self.handle = None
        # Inference tensors count no versions: they are read anew in every run.
        weights = self.pick_weights(args)
        if any(w.is_inference() for w in weights):
            nodes = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
            self.lower({n for n, a in zip(nodes, args, strict=True)
                        if isinstance(a, torch.Tensor) and a.is_inference()})
        self.weights = self.pick_weights(args)
        self.seen = _state_of(self.weights)
        weights, keep = library.tensor_array(
            [w.detach() for w in self.weights] + [t for _, t in self.lowered.constants],
            [n for n, _ in self.lowered.weights + self.lowered.constants],
        )
        states, keep_states = library.tensor_array(
            [args[i] for i in self.state_index], [n for n, _ in self.lowered.states]
        )
        self.handle = load().tk_engine_new(
            self.lowered.text.encode(),
            weights,
            len(self.weights) + len(self.lowered.constants),
            states,
            len(self.state_index),
            self.threads,
            int(self.fuse),
        )
        del keep, keep_states
        if not self.handle:
            self.handle = None
            raise library.EngineError(library.text())
        self.builds += 1

    # -- a run

    def __call__(self, *args):
        if self.handle is None or self._weights_changed(args):
            self._build(args)
        symbols = tuple([int(args[i]) for i in self.symbol_index])
        plan = self.arrays.get(symbols)
        if plan is None:
            plan = self._plan_results(symbols)
        symbol_array, specs, outputs = plan
        states = [args[i].data_ptr() for i in self.state_index]
        if states != self.last_states:
            self.state_pointers[: len(states)] = states
            self.last_states = states
        held = []
        for k, i in enumerate(self.input_index):
            x = args[i]
            if not x.is_contiguous():
                x = x.contiguous()
                held.append(x)
            self.input_pointers[k] = x.data_ptr()
        results = [torch.empty_strided(*spec[:2], dtype=spec[2]) for spec in specs]
        for k, r in enumerate(results):
            outputs[k].data = r.data_ptr()
        check(
            load().tk_engine_run(
                self.handle,
                symbol_array,
                self.state_pointers,
                self.input_pointers,
                outputs,
                len(results),
            )
        )
        self._mark_changed(args)
        for i, k in self.lowered.writes:
            args[i].copy_(results[k])
        return tuple([self._result(kind, what, args, results, symbols)
                      for kind, what in self.lowered.outputs])

    def _mark_changed(self, args):
        """The engine writes behind torch's back; who asks for a version sees the change."""
        changed = [args[i] for i in self.lowered.written if not args[i].is_inference()]
        if changed:
            torch._C._autograd._unsafe_set_version_counter(
                tuple(changed), tuple([t._version + 1 for t in changed])
            )

    def _result(self, kind, what, args, results, symbols):
        if kind == "engine":
            return results[what]
        if kind == "input":
            return args[what]
        if kind == "number":
            return _evaluated(what, dict(zip(self.names, symbols, strict=True)))
        return what

    def _plan_results(self, symbols):
        env = dict(zip(self.names, symbols, strict=True))
        specs = []
        for fake in self.lowered.results:
            shape = tuple(_evaluated(s, env) for s in fake.shape)
            strides = tuple(_evaluated(s, env) for s in fake.stride())
            specs.append((shape, strides, fake.dtype))
        outputs = (EngineTensor * max(1, len(specs)))()
        keep = []
        for k, (shape, strides, dtype) in enumerate(specs):
            like = torch.empty_strided(shape, strides, dtype=dtype)
            keep.append(library.describe_tensor(outputs[k], like))
        if len(self.arrays) >= KEPT_SIZES:
            self.arrays.clear()
        self.arrays[symbols] = (library.int64s(symbols), specs, outputs)
        outputs.keep = keep
        return self.arrays[symbols]

    # -- what it is

    def describe(self):
        check(load().tk_engine_describe(self.handle))
        return json.loads(library.text())

    def graph_text(self):
        check(load().tk_engine_graph(self.handle))
        return library.text()

    def profile(self):
        check(load().tk_engine_profile(self.handle))
        return json.loads(library.text())


def _picker(indices):
    if len(indices) == 1:
        return lambda args, i=indices[0]: (args[i],)
    return operator.itemgetter(*indices) if indices else lambda args: ()


def _state_of(weights):
    """What changes when the contents of a weight do, or its memory."""
    return [(w.data_ptr(), w._version) for w in weights]


def _evaluated(size, env):
    if isinstance(size, int):
        return size
    e = size.node.expr
    return int(e.subs({s: env[str(s)] for s in e.free_symbols}))
