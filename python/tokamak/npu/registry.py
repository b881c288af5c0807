"""torch.ops.npu.*: every operator of the C++ side under the library's own signature.

The dispatcher of torch checks names, kinds and counts of arguments against that signature, so a
wrong call fails with the dispatcher's own error. What it lets through is bound by name to the
operator's schema, checked against the operator's limits with the contents at hand, and run.
"""

import os
import re
import warnings

import torch

from . import composed, device, formats, library, symbolic

SOCS = ("a2", "a3")

# torch's numbers of dtypes, as arguments of kind int have them ("dst_type").
_DTYPE_CODES = {
    0: torch.uint8,
    1: torch.int8,
    2: torch.int16,
    3: torch.int32,
    4: torch.int64,
    5: torch.float16,
    6: torch.float32,
    7: torch.float64,
    11: torch.bool,
    15: torch.bfloat16,
}
# The other way, with the types that only name how results are quantised.
_CODES = {dtype: code for code, dtype in _DTYPE_CODES.items()} | {
    torch.qint8: 12,
    torch.quint8: 13,
    torch.qint32: 14,
    torch.quint4x2: 16,
}


_WEIGHTS = ("weight", "x2", "w", "weight1")


def soc():
    name = os.environ.get("TOKAMAK_NPU_SOC", "a2")
    if name not in SOCS:
        raise RuntimeError(f"TOKAMAK_NPU_SOC is {name!r}, expected one of {', '.join(SOCS)}")
    return name


def _strict():
    return os.environ.get("TOKAMAK_NPU_STRICT", "0") not in ("", "0")


class Bound:
    """One signature of the library, bound to the operator that computes it."""

    def __init__(self, operator, signature):
        self.operator = operator
        self.schema = torch._C.parse_schema("npu::" + signature)
        self.arguments = list(self.schema.arguments)
        self.tensors = [t["name"] for t in operator.tensors]
        self.kinds = {a["name"]: a["kind"].rstrip("?") for a in operator.attrs}
        self._warned = False

    def fill(self, args, kwargs):
        """All arguments by name, those left out with their default."""
        given = dict(zip((a.name for a in self.arguments), args, strict=False)) | kwargs
        return {
            a.name: given.get(a.name, a.default_value if a.has_default_value() else None)
            for a in self.arguments
        }

    def bind(self, given):
        """(tensors in the order of the operator's schema, attributes by name)."""
        tensors, attrs = [None] * len(self.tensors), {}
        for a in self.arguments:
            value = given[a.name]
            if a.name in self.tensors:
                tensors[self.tensors.index(a.name)] = _as_tensors(value)
            elif a.name in self.kinds:
                if value is None and isinstance(a.default_value, str):
                    value = ""  # None is not the default here; operators say what it means
                attrs[a.name] = self._attribute(a.name, value)
            elif not (a.has_default_value() and value == a.default_value) and value is not None:
                raise RuntimeError(
                    f"{self.operator.name}: the emulation does not know the argument "
                    f"'{a.name}' (got {value!r}); leave it out"
                )
        return tensors, attrs

    def _attribute(self, name, value):
        if self.kinds[name] == "dtype" and isinstance(value, int):
            if value not in _DTYPE_CODES:
                raise RuntimeError(
                    f"{self.operator.name}: '{name}' is {value}, a dtype that the emulation "
                    f"does not have; it has {', '.join(map(str, _DTYPE_CODES.values()))}"
                )
            return _DTYPE_CODES[value]
        if self.kinds[name] == "int" and isinstance(value, torch.dtype):
            if value not in _CODES:
                raise RuntimeError(f"{self.operator.name}: '{name}' cannot be {value}")
            return _CODES[value]
        if isinstance(value, list | tuple):
            return [int(v) if isinstance(v, bool) else v for v in value]
        return value

    def results(self, values):
        """What the library returns: the first of the operator's results.

        Numbers among them (the state of a dropout that is off) are 0."""
        n = len(self.schema.returns)
        if n == 0:
            return None
        numbers = [0 for r in self.schema.returns if str(r.type) == "int"]
        values = [*values[: n - len(numbers)], *numbers]
        return values[0] if n == 1 else tuple(values[:n])

    def named(self):
        """Says once that the operator is not documented for the chip; an error when strict."""
        if self._warned and not _strict():
            return
        facts = self.operator.facts
        word = facts[soc()]
        if word.startswith("no") and not word.startswith("not named"):
            raise RuntimeError(f"{self.operator.name} is not supported on {soc()}: {word}")
        if facts["documented"] and word.startswith("yes"):
            return
        reason = (
            f"its document does not name {soc()}"
            if word == "not named"
            else f"for {soc()} its source ({facts['source']}) says: {word}"
        )
        if _strict():
            raise RuntimeError(f"{self.operator.name}: {reason} (TOKAMAK_NPU_STRICT is set)")
        self._warned = True
        warnings.warn(f"{self.operator.name}: {reason}", stacklevel=3)

    def facts(self, tensors):
        """What limits may ask beyond the call itself."""
        known = {"graph": False}
        for name, t in zip(self.tensors, tensors, strict=False):
            if name in _WEIGHTS and isinstance(t, torch.Tensor) and not t.is_meta:
                known["weight_nz"] = formats.get_npu_format(t) == formats.FRACTAL_NZ
        return known

    def check_limits(self, tensors, attrs, contents):
        self.named()
        facts = self.facts(tensors) if contents else {}
        violated = self.operator.check(tensors, attrs, soc(), facts, contents)
        if violated:
            raise RuntimeError(
                "\n".join(_violation(self.operator.name, v) for v in violated)
                + "\n[ERROR] ERR01001 OPS invalid parameter"
            )


def _violation(name, v):
    text = f"{name}: check {v['id']} failed on {soc()}: {v['expr']}"
    if v["why"]:
        text += f" ({v['why']})"
    if v["values"]:
        text += f"\n  found {v['values']}"
    if "change" in v:
        c = v["change"]
        text += f"\n  smallest legal change: {c['name']} from {c['from']} to {c['to']}"
    return text


def _as_tensors(value):
    """Tensors as they are; a host list of lengths becomes a tensor; an empty list is none."""
    if value is None or isinstance(value, torch.Tensor):
        return value
    if len(value) == 0:
        return None
    if isinstance(value[0], torch.Tensor):
        return list(value)
    return torch.tensor(value, dtype=torch.int64)


def _as_lengths(value):
    """A host list as a tensor of its length: asking for its numbers would make them constants."""
    if isinstance(value, list | tuple) and value and not isinstance(value[0], torch.Tensor):
        return torch.empty(len(value), dtype=torch.int64, device="meta")
    return value


def _each(bound, tensors, attrs, one):
    """Runs `one` for a call; with longer lists of tensors once for each of their elements."""
    lists = [t for t in tensors if isinstance(t, list)]
    if not lists:
        return one(tensors, attrs)
    if bound.operator.tensors[-1]["list"]:
        return one([*tensors[:-1], *(tensors[-1] or [])], attrs)
    n = len(lists[0])
    if any(len(t) != n for t in lists):
        sizes = ", ".join(
            f"{name} of {len(t)}"
            for name, t in zip(bound.tensors, tensors, strict=True)
            if isinstance(t, list)
        )
        raise RuntimeError(
            f"{bound.operator.name}: lists of one length are expected, found {sizes}"
        )
    runs = [one([t[i] if isinstance(t, list) else t for t in tensors], attrs) for i in range(n)]
    first_is_list = str(bound.schema.returns[0].type) == "List[Tensor]"
    if first_is_list:
        return [[r[0] for r in runs]]
    if n > 1:
        raise RuntimeError(f"{bound.operator.name}: {n} tensors in a list give several results")
    return runs[0]


def _run(bound, given):
    tensors, attrs = bound.bind(given)

    def one(tensors, attrs):
        bound.check_limits(tensors, attrs, contents=True)
        return bound.operator.run(tensors, attrs)

    with torch.no_grad():
        return bound.results(_each(bound, tensors, attrs, one))


def _infer(bound, given):
    """The same call on tensors without contents (meta, FakeTensor)."""
    given = {k: _as_lengths(v) if k in bound.tensors else v for k, v in given.items()}
    tensors, attrs = bound.bind(given)

    def one(tensors, attrs):
        bound.check_limits(tensors, attrs, contents=False)
        where = next(t.device for t in tensors if t is not None)
        types = symbolic.guarded(lambda: bound.operator.infer(tensors, attrs), tensors, attrs)
        results = []
        for i, (dtype, shape) in enumerate(types):
            update = bound.operator.updates[i] if i < len(bound.operator.updates) else -1
            changed = tensors[update] if update >= 0 else None
            new = changed is None
            results.append(torch.empty(shape, dtype=dtype, device=where) if new else changed)
        return results

    return bound.results(_each(bound, tensors, attrs, one))


def _kernel(bound):
    made = composed.COMPOSED.get(bound.operator.name)

    def reference(**given):
        return _run(bound, bound.fill((), given))

    def check(**given):
        bound.check_limits(*bound.bind(bound.fill((), given)), contents=True)

    reference.check = check

    def on_host(*args, **kwargs):
        given = bound.fill(args, kwargs)
        return _run(bound, given) if made is None else made(reference, **given)

    def kernel(*args, **kwargs):
        call = device.Twins(bound.operator.name)
        host_args = [call.argument(a) for a in args]
        host_kwargs = {k: call.argument(v) for k, v in kwargs.items()}
        call.check_devices()
        results = call.result(on_host(*host_args, **host_kwargs))
        if device.recording is not None:
            device.record(kernel, args, kwargs, results)
        return results

    return kernel


def _fake(bound):
    def fake(*args, **kwargs):
        return _infer(bound, bound.fill(args, kwargs))

    return fake


# Attention whose lists of lengths are tensors in a GE graph: torchair.ops has them.
GRAPH_FORMS = ("npu_fused_infer_attention_score", "npu_fused_infer_attention_score_v2")
_LENGTHS = re.compile(r"(?:Sym)?[iI]nt\[\]\? (actual_\w+)")


def register_graph_forms(lib):
    """Defines GRAPH_FORMS in `lib`, with the library's signatures but for the lengths."""
    for operator in library.operators().values():
        if operator.name in GRAPH_FORMS:
            (signature,) = operator.facts["signature"].splitlines()
            signature = _LENGTHS.sub(r"Tensor? \1", signature)
            bound = Bound(operator, signature)
            lib.define(signature)
            lib.impl(operator.name, _kernel(bound), "CompositeExplicitAutograd")
            lib._register_fake(operator.name, _fake(bound))


def register(lib):
    """Defines every operator that has facts in `lib`, a torch.library.Library of namespace npu."""
    composed.load()
    for operator in library.operators().values():
        if operator.facts is None:
            continue
        for signature in operator.facts["signature"].splitlines():
            bound = Bound(operator, signature)
            lib.define(signature)
            overload = bound.schema.overload_name
            name = operator.name + (f".{overload}" if overload else "")
            lib.impl(name, _kernel(bound), "CompositeExplicitAutograd")
            lib._register_fake(name, _fake(bound))
