"""An FX graph of core ATen as a graph in Tokamak's text form (docs/text-form.md)."""

import math
import operator

import sympy
import torch

from ..dtypes import DTYPES
from .library import operators
from .places import place_of, text_of

aten = torch.ops.aten

# What says nothing about values: where a result lies, how it is laid out, and gradients.
IGNORABLE = {
    *("device", "layout", "pin_memory", "memory_format", "non_blocking", "copy"),
    *("requires_grad", "padding_idx", "sparse", "scale_grad_by_freq", "implicit", "unsafe"),
}
# What PyTorch makes of scaled_dot_product_attention on a CPU. It takes fewer key heads than query
# heads, and its second result is for gradients.
FLASH = "aten._scaled_dot_product_flash_attention_for_cpu"
IN_PLACE = {"aten.index_copy_": "tk.index_write", "aten.copy_": "tk.assign"}
REWRITTEN = {"aten.scaled_dot_product_attention", "aten.native_layer_norm", "aten.layer_norm"}
"""The rewrites make them into operators that have a kernel."""

SMALL = 1 << 14
"""Results of this many elements may be computed by an operator's reference, one by one."""


class Unsupported(Exception):
    """Why a node cannot be lowered; a reason for a person, not an error."""


def packet_name(target):
    return str(target.overloadpacket) if isinstance(target, torch._ops.OpOverload) else str(target)


# -- values


def sym_text(size):
    """An int or SymInt as the text form has it."""
    if isinstance(size, int):
        return str(size)
    return expr_text(size.node.expr)


def expr_text(e):
    if e.is_Integer:
        return str(int(e))
    if e.is_Symbol:
        return str(e)
    if e.is_Add:
        return "(" + " + ".join(expr_text(a) for a in e.args) + ")"
    if e.is_Mul:
        return "*".join(f"({expr_text(a)})" if a.is_Add else expr_text(a) for a in e.args)
    if e.is_Pow and e.exp.is_Integer and 0 < int(e.exp) < 8:
        return "*".join([f"({expr_text(e.base)})"] * int(e.exp))
    name = type(e).__name__
    known = {"FloorDiv": "floordiv", "CleanDiv": "floordiv", "PythonMod": "mod", "Mod": "mod"}
    if name in known:
        return f"{known[name]}({expr_text(e.args[0])}, {expr_text(e.args[1])})"
    if isinstance(e, sympy.Max | sympy.Min) or name in ("Max", "Min"):
        out = expr_text(e.args[0])
        for a in e.args[1:]:
            out = f"{'max' if 'Max' in name else 'min'}({out}, {expr_text(a)})"
        return out
    raise Unsupported(f"a size {e}, a {name}")


def number_of(x):
    """The value of an argument that may be a node for a symbolic number."""
    if isinstance(x, torch.fx.Node):
        x = x.meta["val"]
    if isinstance(x, torch.SymInt | torch.SymFloat | torch.SymBool):
        e = x.node.expr
        if isinstance(x, torch.SymInt):
            return x
        if e.is_number:
            return float(e) if isinstance(x, torch.SymFloat) else bool(e)
        raise Unsupported(f"a number {e} that depends on sizes")
    return x


def attr_text(value, kind):
    value = number_of(value)
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int) and kind == "float":
        value = float(value)
    if isinstance(value, int | torch.SymInt):
        return sym_text(value)
    if isinstance(value, float):
        if math.isnan(value) or math.isinf(value):
            return str(value)
        text = repr(value)
        return text if any(c in text for c in ".e") else text + ".0"
    if isinstance(value, str):
        return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'
    if isinstance(value, torch.dtype):
        if value not in DTYPES:
            raise Unsupported(f"{value}")
        return DTYPES[value]
    if isinstance(value, list | tuple):
        kind = "float" if kind == "float" or any(isinstance(v, float) for v in value) else kind
        return "[" + ", ".join(attr_text(v, kind) for v in value) + "]"
    raise Unsupported(f"an argument {value!r}")


def type_text(tensor):
    if not isinstance(tensor, torch.Tensor):
        raise Unsupported(f"a value of type {type(tensor).__name__}")
    if tensor.device.type != "cpu":
        raise Unsupported(f"a tensor on {tensor.device}")
    if tensor.layout != torch.strided or tensor.is_quantized:
        raise Unsupported(f"a tensor of layout {tensor.layout}")
    if tensor.dtype not in DTYPES:
        raise Unsupported(f"elements of type {tensor.dtype}")
    if tensor.dim() > 8:
        raise Unsupported(f"a tensor of {tensor.dim()} axes")
    return f"{DTYPES[tensor.dtype]}[{', '.join(sym_text(s) for s in tensor.shape)}]"


# -- nodes


def constant_of(gm, node):
    """The tensor of a get_attr node."""
    value = gm
    for name in node.target.split("."):
        value = getattr(value, name)
    type_text(value)
    return value


def is_write(node):
    return node.op == "call_function" and packet_name(node.target) in IN_PLACE


def is_number(node):
    """A node that computes sizes: it is no part of the graph, its value is known by its symbols."""
    return not isinstance(node.meta.get("val"), torch.Tensor | list | tuple)


def lower_call(node):
    """(operator, tensors, attributes, number of results); a tensor is a node or None. Raises
    Unsupported."""
    if not isinstance(node.target, torch._ops.OpOverload):
        raise Unsupported(f"{node.target}")
    theirs = packet_name(node.target)
    if theirs in IN_PLACE:
        return _lower_in_place(node, IN_PLACE[theirs])
    if theirs == FLASH:
        return _lower_flash(node)
    op = operators().get(theirs)
    if op is None:
        raise Unsupported(f"no operator {theirs}")
    if node.target._schema.is_mutable:
        raise Unsupported(f"{theirs} changes its input")
    values = node.meta["val"]
    results = list(values) if isinstance(values, list | tuple) else [values]
    for value in results:
        type_text(value)
    tensors, attrs = _arguments(node, op)
    if theirs == "aten.index_copy" and _may_take_over(node):
        return "tk.index_write", tensors, attrs, 1
    # What depends on nothing is computed once.
    if any(t is not None for t in tensors) or not all(_is_static(r) for r in results):
        _affordable(op, results)
    return theirs, tensors, attrs, len(results)


def _may_take_over(node):
    """An index_copy into something that the graph has just made, in the form of tk.index_write: the
    engine writes there when nothing else needs the old contents, and copies them otherwise."""
    old = node.args[0]
    return not old.all_input_nodes and old.op == "call_function" and index_copy_fits(*node.args)


def index_copy_fits(old, dim, index, source):
    if not isinstance(source, torch.fx.Node) or not isinstance(index, torch.fx.Node):
        return False
    cache, ids, rows = (n.meta["val"] for n in (old, index, source))
    if ids.dtype != torch.int64 or ids.dim() != 1 or rows.dtype != cache.dtype:
        return False
    want = list(cache.shape)
    want[dim] = ids.shape[0]
    return list(rows.shape) == want


def _lower_flash(node):
    names = [a.name for a in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    query, key, value = (given[name] for name in ("query", "key", "value"))
    mask = given.get("attn_mask")
    if given.get("dropout_p"):
        raise Unsupported("attention with dropout")
    if any(u.target is not operator.getitem or u.args[1] != 0 for u in node.users):
        raise Unsupported(f"{FLASH} is asked for more than attention")
    for x in (query, key, value, mask):
        if x is not None:
            type_text(x.meta["val"])
    shape = query.meta["val"].shape
    causal = attr_text(given.get("is_causal", False), "bool")
    if shape[1] == key.meta["val"].shape[1]:
        attrs = {"is_causal": causal}
        if given.get("scale") is not None:
            attrs["scale"] = attr_text(given["scale"], "float")
        return "aten.scaled_dot_product_attention", [query, key, value, mask], attrs, 1
    scale = given.get("scale")
    if scale is None and not isinstance(shape[3], int):
        raise Unsupported("attention over heads of a size that is not fixed")
    scale = attr_text(scale if scale is not None else shape[3] ** -0.5, "float")
    return "tk.attention", [query, key, value, mask, None], {"scale": scale, "causal": causal}, 1


def _affordable(op, results):
    if op["kernel"] or op["view"] or op["name"] in REWRITTEN:
        return
    for value in results:
        if any(not isinstance(s, int) for s in value.shape) or value.numel() > SMALL:
            raise Unsupported(f"no kernel for {op['name']}, and {tuple(value.shape)} is much to do")


def _arguments(node, op):
    names = [a.name for a in node.target._schema.arguments]
    given = dict(zip(names, node.args, strict=False)) | dict(node.kwargs)
    tensor_names = {t["name"]: t for t in op.get("tensors") or []}
    kinds = {a["name"]: a["kind"] for a in op.get("attrs") or []}
    tensors = dict.fromkeys(tensor_names)
    attrs = {}
    for name, value in given.items():
        if value is None:
            continue
        if _is_tensor(value):
            if name not in tensors:
                raise Unsupported(f"{op['name']} with the argument {name!r}, a tensor")
            tensors[name] = value
        elif name in kinds:
            attrs[name] = attr_text(value, kinds[name])
        elif name in tensors and isinstance(value, list | tuple) and not value:
            continue
        elif name not in IGNORABLE:
            raise Unsupported(f"{op['name']} with the argument {name!r}")
    flat = []
    for name, value in tensors.items():
        if tensor_names[name]["list"]:
            flat += list(value or ())
        else:
            flat.append(value)
    for x in flat:
        if x is not None:
            type_text(x.meta["val"])
    return flat, attrs


def _is_tensor(value):
    if isinstance(value, torch.fx.Node):
        return isinstance(value.meta.get("val"), torch.Tensor)
    if isinstance(value, list | tuple):
        return any(_is_tensor(v) for v in value)
    return False


def _lower_in_place(node, name):
    cache = node.args[0]
    if cache.op != "placeholder":
        raise Unsupported(f"{packet_name(node.target)} of something that is not an input")
    if name == "tk.index_write" and not _lies_as_told(cache.meta["val"]):
        raise Unsupported(f"{cache.name} is changed in place, of open sizes, and not contiguous")
    if name == "tk.index_write":
        _, dim, index, source = node.args
        if dim < 0:
            dim += cache.meta["val"].dim()
        return name, [cache, index, source], {"dim": str(dim)}, 1
    return name, list(node.args[:2]), {}, 1


# -- the graph


class Lowered:
    """A graph's text and how its inputs and outputs correspond to those of the FX graph."""

    def __init__(self):
        self.header, self.weight_lines, self.body = "", [], ""
        self.symbols = []  # (name, index of a placeholder, its axis of that size or None: a number)
        self.weights = []  # (name, index of the placeholder)
        self.constants = []  # (name, tensor) that the FX graph holds itself
        self.states = []
        self.inputs = []
        self.outputs = []  # of the FX graph: ("engine", i), ("input", index), ("none", None), ...
        self.results = []  # FakeTensors of the engine's outputs
        self.written = []  # indices of the placeholders that are changed where they lie
        self.writes = []  # (index of a placeholder, engine output that is copied to it)
        self.n_nodes = 0

    def text(self, names=None):
        """The graph, with its weights called `names`: those of weights, then those of constants."""
        called = [n for n, _ in self.weights + self.constants]
        names = dict(zip(called, names or called, strict=True))
        lines = [f'  weight %{n}: {kind} "{names[n]}"\n' for n, kind in self.weight_lines]
        return "".join([self.header, *lines, self.body])


def lower_graph(gm, static, uncounted=frozenset()):
    """The Lowered of a GraphModule. `static` are the placeholders whose memory stays, parameters
    and buffers; `uncounted` those of them whose changes cannot be seen, so that nothing may be
    computed from them beforehand. Raises Unsupported."""
    out = Lowered()
    placeholders = [n for n in gm.graph.nodes if n.op == "placeholder"]
    index = {n: i for i, n in enumerate(placeholders)}
    result = next(n for n in gm.graph.nodes if n.op == "output")
    states, late = _written(gm)
    header, body = [], []
    symbols = set()
    ids = {}  # FX node, or (node, i) for a part of a list, to the value's name
    for node in placeholders:
        value = node.meta["val"]
        if isinstance(value, torch.SymInt):
            # A part of a graph may be given one symbol by several arguments.
            if value.node.expr.is_Symbol and str(value.node.expr) not in symbols:
                symbols.add(str(value.node.expr))
                out.symbols.append((str(value.node.expr), index[node], None))
            continue
        if isinstance(value, int | float | bool):
            continue
        kind = type_text(value)
        ids[node] = node.name
        stays = node in static and node not in late and _is_static(value)
        if node in states or (stays and node in uncounted):
            out.states.append((node.name, index[node]))
            body.append(f'  state %{node.name}: {kind} "{node.name}"')
        elif stays:
            out.weights.append((node.name, index[node]))
            out.weight_lines.append((node.name, kind))
        else:
            out.inputs.append((node.name, index[node]))
            header.append(f"%{node.name}: {kind}")
    _find_symbols(out, placeholders)
    out.written = [index[n] for n in placeholders if n in states]
    ranges = [f"  range {name} 0 9223372036854775807" for name, *_ in out.symbols]
    for node in gm.graph.nodes:
        if node.op == "get_attr":
            tensor = constant_of(gm, node)
            ids[node] = node.name
            out.constants.append((node.name, tensor))
            out.weight_lines.append((node.name, type_text(tensor)))
        if node.op != "call_function" or node in late.values():
            continue
        if node.target is operator.getitem:
            ids[node] = ids[node.args[0], node.args[1]]
        elif not is_number(node) or node.target in (aten.copy_.default,):
            body.append(_statement(node, ids))
            out.n_nodes += 1
    returned = []

    def returns(node):
        returned.append(f"%{ids[node]}")
        out.results.append(node.meta["val"])
        return len(returned) - 1

    for x in result.args[0]:
        if not isinstance(x, torch.fx.Node):
            out.outputs.append(("constant", x))
        elif x in index:
            out.outputs.append(("input", index[x]))
        elif is_write(x):  # the cache itself
            out.outputs.append(("input", index[x.args[0]]))
        elif isinstance(x.meta["val"], torch.Tensor):
            out.outputs.append(("engine", returns(x)))
        else:
            out.outputs.append(("number", x.meta["val"]))
    for node, copy in late.items():
        out.writes.append((index[node], returns(copy.args[1])))
    if not returned:  # a graph that only writes gives something all the same
        if not out.inputs:
            raise Unsupported("a graph without results")
        returns(placeholders[out.inputs[0][1]])
    out.header = "\n".join([f"graph @main({', '.join(header)}) {{", *ranges, ""])
    out.body = "\n".join([*body, f"  return {', '.join(returned)}", "}", ""])
    return out


def _find_symbols(out, placeholders):
    """Sizes that no argument gives as a number: they are those of tensors, in a part of a graph."""
    known = {name for name, *_ in out.symbols}
    used = set()
    for i, node in enumerate(placeholders):
        value = node.meta["val"]
        if not isinstance(value, torch.Tensor):
            continue
        for axis, size in enumerate(value.shape):
            if isinstance(size, int):
                continue
            used |= {str(s) for s in size.node.expr.free_symbols}
            if size.node.expr.is_Symbol and str(size.node.expr) not in known:
                known.add(str(size.node.expr))
                out.symbols.append((str(size.node.expr), i, axis))
    if used - known:
        raise Unsupported(f"the size {min(used - known)} is not an argument")
    out.symbols.sort()


def _is_static(value):
    return all(isinstance(s, int) for s in (*value.shape, *value.stride()))


def _lies_as_told(value):
    """Memory with open sizes that is written in place is contiguous memory."""
    return _is_static(value) or value.is_contiguous()


def _statement(node, ids):
    name, tensors, attrs, n = lower_call(node)
    # A list of results, even of one, is taken apart by getitem.
    if isinstance(node.meta["val"], list | tuple):
        results = [f"{node.name}_r{i}" for i in range(n)]
        ids.update({(node, i): r for i, r in enumerate(results)})
    else:
        results = [node.name]
        ids[node] = node.name
    inputs = ", ".join("none" if t is None else f"%{ids[t]}" for t in tensors)
    text = f"  {', '.join(f'%{r}' for r in results)} = {name}({inputs})"
    if attrs:
        text += " {" + ", ".join(f"{k}={v}" for k, v in attrs.items()) + "}"
    return f"{text}  {text_of(place_of(node))}".rstrip()


def _written(gm):
    """(placeholders written where they lie, {placeholder: its copy_} of those that are written
    after the run, from a result: their sizes or types are not fixed)."""
    states, late = set(), {}
    for node in gm.graph.nodes:
        if not is_write(node):
            continue
        if node.target is aten.copy_.default and not _same_kind(node):
            late[node.args[0]] = node
        else:
            states.add(node.args[0])
    return states - set(late), late


def _same_kind(copy):
    to, source = (a.meta["val"] for a in copy.args[:2])
    return to.dtype == source.dtype and to.shape == source.shape and _is_static(to)
