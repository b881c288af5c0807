"""A lowered graph, compiled by the engine and run on the memory of torch's tensors."""

import json
import operator
import os
import threading

import torch
from torch.autograd.graph import increment_version

from . import library
from .library import check, load
from .lower import Unsupported, lower_graph
from .pool import close, names_of, pool_for
from .report import log

# Without a frame of Python for each: models have hundreds of weights and caches.
ADDRESS = torch._C.TensorBase.data_ptr
VERSION = operator.attrgetter("_version")
STRIDES = torch._C.TensorBase.stride
FORM = operator.attrgetter("shape", "dtype")

KEPT_SIZES = 64
KEPT_MODELS = 4


class Engine:
    """The engine's side of a graph, made for certain weights: what depends on them only is computed
    beforehand."""

    def __init__(self, part, weights, states):
        lowered = part.lowered
        constants = [t for _, t in lowered.constants]
        self.weights = weights
        self.seen = _versions(weights)
        self.pool = pool_for([*weights, *constants])
        names = names_of([*weights, *constants])
        memory = [w.detach() for w in weights] + constants
        weight_array, keep = library.tensor_array(memory, names)
        state_array, keep_states = library.tensor_array(states, [n for n, _ in lowered.states])
        self.handle = load().tk_engine_new(
            lowered.text(names).encode(),
            *(weight_array, len(names), state_array, len(states)),
            *(part.threads, int(part.fuse), self.pool.handle),
            os.fsencode(part.plan_cache) if part.plan_cache else None,
        )
        del keep, keep_states
        if not self.handle:
            raise library.EngineError(library.text())
        if warning := part.plan_cache and library.text():
            log.warning("tokamak: %s", warning)

    def __del__(self):
        if getattr(self, "handle", None) and load is not None:  # None when Python is going down
            load().tk_engine_delete(self.handle)

    def is_for(self, weights):
        return all(map(operator.is_, weights, self.weights))


def _versions(weights):
    """What changes when the contents of a weight do, or its memory."""
    return list(map(ADDRESS, weights)), list(map(VERSION, weights))


class Arguments:
    """The EngineTensors of a run's states or inputs: what the tensors are, not what the graph says
    of them, so that the engine sees when they differ."""

    def __init__(self, n):
        self.n = n
        self.array = (library.EngineTensor * max(1, n))()
        self.forms = self.addresses = self.keep = None

    def fill(self, tensors):
        forms = list(map(FORM, tensors)), list(map(STRIDES, tensors))
        addresses = list(map(ADDRESS, tensors))
        if forms != self.forms:
            pairs = zip(self.array, tensors, strict=False)
            self.keep = [library.describe_tensor(to, t) for to, t in pairs]
            self.forms = forms
        elif addresses != self.addresses:
            for to, address in zip(self.array, addresses, strict=False):
                to.data = address
        self.addresses = addresses


class Compiled:
    """One graph, callable with the FX graph's arguments. Gives the tuple of its results."""

    def __init__(self, gm, static, options):
        self.gm = gm
        self.static = static
        self.threads = options.threads or torch.get_num_threads()
        self.fuse = options.fuse
        self.plan_cache = options.plan_cache
        self.lock = threading.Lock()  # the arrays of pointers are one set
        self.engines = []  # for the models that share this graph; the last used first
        self.builds = 0
        self.lower()

    def lower(self, uncounted=frozenset()):
        self.lowered = lowered = lower_graph(self.gm, self.static, uncounted)
        if load().tk_engine_check(lowered.text().encode()):
            raise Unsupported(library.text())
        self.pick_weights = _picker([i for _, i in lowered.weights])
        self.state_index = [i for _, i in lowered.states]
        self.pick_states = _picker(self.state_index)
        self.pick_written = _picker(lowered.written)
        self.pick_inputs = _picker([i for _, i in lowered.inputs])
        self.symbol_index = [(i, axis) for _, i, axis in lowered.symbols]
        self.names = [name for name, *_ in lowered.symbols]
        self.arrays = {}  # sizes: EngineTensors of the results, and how to make them
        self.states = Arguments(len(lowered.states))
        self.inputs = Arguments(len(lowered.inputs))
        kinds = {kind for kind, _ in lowered.outputs}
        self.results_alone = [k for _, k in lowered.outputs] if kinds <= {"engine"} else None

    # -- weights

    def _engine(self, args):
        weights = self.pick_weights(args)
        for k, engine in enumerate(self.engines):
            if not engine.is_for(weights):
                continue
            if _versions(weights) == engine.seen:
                if k:
                    self.engines.insert(0, self.engines.pop(k))
                return engine
            close(engine.pool)  # what was computed from them is of no more use
            del self.engines[k]
            break
        return self._build(args, weights)

    def _build(self, args, weights):
        # Inference tensors count no versions: they are read anew in every run.
        if any(w.is_inference() for w in weights):
            nodes = [n for n in self.gm.graph.nodes if n.op == "placeholder"]
            pairs = zip(nodes, args, strict=True)
            self.lower({n for n, a in pairs if isinstance(a, torch.Tensor) and a.is_inference()})
            self.engines.clear()
            weights = self.pick_weights(args)
        self.engines.insert(0, Engine(self, weights, [args[i] for i in self.state_index]))
        del self.engines[KEPT_MODELS:]
        self.builds += 1
        return self.engines[0]

    # -- a run

    def __call__(self, *args):
        with self.lock:
            return self._run(args)

    def _run(self, args):
        engine = self._engine(args)
        symbols = tuple(
            [int(args[i]) if axis is None else args[i].shape[axis] for i, axis in self.symbol_index]
        )
        plan = self.arrays.get(symbols)
        if plan is None:
            plan = self._plan_results(symbols)
        symbol_array, specs, outputs = plan
        self.states.fill(self.pick_states(args))
        inputs = [x.contiguous() for x in self.pick_inputs(args)]  # held until the run is over
        self.inputs.fill(inputs)
        results = [torch.empty_strided(*spec[:2], dtype=spec[2]) for spec in specs]
        for k, r in enumerate(results):
            outputs[k].data = r.data_ptr()
        check(
            load().tk_engine_run(
                *(engine.handle, symbol_array, len(symbols)),
                *(self.states.array, self.states.n, self.inputs.array, self.inputs.n),
                *(outputs, len(results)),
            )
        )
        # The engine writes behind torch's back; who asks for a version sees the change.
        increment_version(self.pick_written(args))
        for i, k in self.lowered.writes:
            args[i].copy_(results[k])
        if self.results_alone is not None:
            return tuple([results[k] for k in self.results_alone])
        values = dict(zip(self.names, symbols, strict=True))
        return tuple([_result(*out, args, results, values) for out in self.lowered.outputs])

    def _plan_results(self, symbols):
        values = dict(zip(self.names, symbols, strict=True))
        specs = []
        for fake in self.lowered.results:
            shape = tuple(_evaluated(s, values) for s in fake.shape)
            strides = tuple(_evaluated(s, values) for s in fake.stride())
            specs.append((shape, strides, fake.dtype))
        outputs, keep = library.tensor_array(
            [torch.empty_strided(*spec[:2], dtype=spec[2]) for spec in specs]
        )
        outputs.keep = keep
        if len(self.arrays) >= KEPT_SIZES:
            self.arrays.clear()
        self.arrays[symbols] = (library.int64s(symbols), specs, outputs)
        return self.arrays[symbols]

    # -- what it is: of the engine that was used last

    @property
    def pool(self):
        return self.engines[0].pool

    def describe(self):
        check(load().tk_engine_describe(self.engines[0].handle))
        return json.loads(library.text())

    def graph_text(self):
        check(load().tk_engine_graph(self.engines[0].handle))
        return library.text()

    def profile(self):
        """The launches of one more run, with their times. What was run last must still be there."""
        check(load().tk_engine_profile(self.engines[0].handle))
        return json.loads(library.text())


def _result(kind, what, args, results, values):
    if kind == "engine":
        return results[what]
    if kind == "input":
        return args[what]
    return _evaluated(what, values) if kind == "number" else what


def _picker(indices):
    if len(indices) == 1:
        return lambda args, i=indices[0]: (args[i],)
    return operator.itemgetter(*indices) if indices else lambda args: ()


def _evaluated(size, values):
    if isinstance(size, int):
        return size
    e = size.node.expr
    return int(e.subs({s: values[str(s)] for s in e.free_symbols}))
