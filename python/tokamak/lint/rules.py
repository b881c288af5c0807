"""The rules as data: id, level, message, fix, why, and examples that a test runs.

Levels: break (the graph breaks, or compiling fails with fullgraph=True), recompile (a new
compilation or capture when a value changes), wrong-result (it runs, and the result differs),
slow (a hint; it does not count for the exit code).
"""

from .examples import EXAMPLES
from .options import CAPTURE_ONLY, GE_CONFIG, GE_ONLY, NPUGRAPH_OPTIONS, RECIPE_PAIRS

BREAK, RECOMPILE, WRONG, SLOW = "break", "recompile", "wrong-result", "slow"
LEVELS = (BREAK, RECOMPILE, WRONG, SLOW)
BOTH = ("npugraph_ex", "ge_graph")
GE = ("ge_graph",)
NPUGRAPH = ("npugraph_ex",)


class Rule:
    __slots__ = ("backends", "bad", "fix", "good", "id", "level", "message", "why")

    def __init__(self, id, level, backends, message, fix, why):
        self.id = id
        self.level = level
        self.backends = backends
        self.message = message
        self.fix = fix
        self.why = why
        self.bad, self.good = EXAMPLES[id]


_ALL = [
    # -- the host reads the device
    Rule(
        "host-sync-item",
        BREAK,
        BOTH,
        "the value of a tensor is read by the host",
        "keep it a tensor, make it an input of the graph, or use a constant bound",
        "`.item()`, `int(t)`, `float(t)` and `bool(t)` wait for the device and hand a number to "
        "Python. A captured graph has no Python in it: Dynamo breaks the graph here, or with "
        "fullgraph=True traces a symbol without a value, which the NPU backends cannot take.",
    ),
    Rule(
        "host-sync-tolist",
        RECOMPILE,
        BOTH,
        "a tensor is turned into a Python list",
        "pass the tensor on (GE: torchair.ops), or pass the list as an input of the graph",
        "`.tolist()` waits for the device, and each element of the list becomes a guard: one "
        "compilation for each step.",
    ),
    Rule(
        "host-sync-cpu",
        BREAK,
        BOTH,
        "a tensor is copied to the host",
        "keep it on the device; make host values inputs of the graph",
        '`.cpu()` and `.to("cpu")` wait for the device. Capture does not allow it.',
    ),
    Rule(
        "numpy",
        BREAK,
        BOTH,
        "numpy works on the data of a tensor",
        "use the torch function of the same name, or compute it outside the graph",
        "numpy runs on the host: the data must leave the device and come back.",
    ),
    Rule(
        "host-to-device-copy",
        BREAK,
        BOTH,
        "a tensor is made from host data inside the graph",
        "make it once in __init__ (register_buffer), or make it an input of the graph",
        "`torch.tensor(data, device=...)` copies from pageable host memory; a captured graph "
        "repeats the copy of the values of capture, or capture fails.",
    ),
    Rule(
        "print",
        BREAK,
        BOTH,
        "printing inside the graph",
        "print outside the graph; in a GE graph use torchair.ops.npu_print",
        "`print` and logging of tensors need values on the host.",
    ),
    Rule(
        "python-call-in-forward",
        RECOMPILE,
        BOTH,
        "the environment or a version is asked inside the graph",
        "ask once in __init__ and keep the answer as a constant",
        "What a call into the environment gives is frozen at capture, or guarded at every step.",
    ),
    Rule(
        "device-sync",
        BREAK,
        BOTH,
        "the device is synchronised inside the graph",
        "synchronise outside the graph; order streams with events",
        "Capture does not allow stream or device synchronisation.",
    ),
    # -- control flow and shapes that depend on data
    Rule(
        "data-dependent-branch",
        BREAK,
        BOTH,
        "a branch depends on the values of a tensor",
        "use torch.where, or a mode argument that is bound before capture",
        "Both sides cannot be in one captured graph, so the graph breaks where Python decides.",
    ),
    Rule(
        "data-dependent-shape",
        BREAK,
        BOTH,
        "a shape depends on the values of a tensor",
        "keep the full shape and mask the values, or pad to a fixed size",
        "nonzero, one-argument where, boolean indexing, unique and sizes read from tensors have "
        "results whose shape is known only after the device has run: a break, or with "
        "fullgraph=True a symbol without a value, which the NPU backends cannot take.",
    ),
    Rule(
        "dynamic-slice-by-tensor",
        BREAK,
        BOTH,
        "a slice bound comes from a tensor",
        "use index_select or gather with a computed index",
        "A slice bound must be a number when the graph is built.",
    ),
    Rule(
        "loop-over-tensor",
        BREAK,
        BOTH,
        "a Python loop over a tensor",
        "use a tensor expression for all elements at once",
        "The loop is unrolled at capture, and its length is fixed or unknown then.",
    ),
    Rule(
        "module-indexed-by-tensor",
        BREAK,
        BOTH,
        "a module or list element is chosen by a tensor value",
        "stack the weights and use index_select or a grouped matmul",
        "Which Python object is used must be known when the graph is built.",
    ),
    Rule(
        "shape-dependent-slice",
        RECOMPILE,
        BOTH,
        "a slice bound is the size of a tensor that grows from step to step",
        "keep the tensor at its full size and pass the valid length as a tensor",
        "Each new size is a new graph.",
    ),
    # -- lists
    Rule(
        "python-list-of-tensors",
        BREAK,
        BOTH,
        "a Python list of tensors for a collective, or of a length that depends on data",
        "allocate one tensor and write into it",
        "The list is Python state that the graph backends cannot take.",
    ),
    Rule(
        "collective-with-list",
        BREAK,
        BOTH,
        "a collective takes a Python list of tensors",
        "use the form on one tensor: dist.all_gather_into_tensor, dist.all_to_all_single, "
        "dist.reduce_scatter_tensor",
        "The list forms cannot be traced; the forms on one tensor enter the graph.",
    ),
    # -- state
    Rule(
        "bool-mask-assignment",
        BREAK,
        BOTH,
        "values are assigned through a boolean mask",
        "multiply by the mask, or use torch.where or masked_fill",
        "`x[mask] = v` becomes index_put with a boolean index, which GE refuses and which finds "
        "the positions on the host elsewhere.",
    ),
    Rule(
        "inplace-on-input",
        WRONG,
        BOTH,
        "an input of the graph is written in place",
        "return the new value, or declare it as a cache that the graph changes",
        "Replay copies inputs into buffers of the graph, so that the caller may not see the "
        "write, or a new address means a new capture.",
    ),
    Rule(
        "module-state-mutation",
        RECOMPILE,
        BOTH,
        "state of the module changes in forward",
        "write into a buffer of fixed size with copy_(), or make it an argument and a result",
        "A new object in an attribute changes an address or a guard at each step.",
    ),
    Rule(
        "python-int-attribute",
        RECOMPILE,
        BOTH,
        "a Python number that changes between steps is part of the graph",
        "count outside the graph, or keep the number in a tensor that is an input",
        "Python numbers are constants of a graph: a new value is a new compilation.",
    ),
    Rule(
        "python-counter-input",
        RECOMPILE,
        BOTH,
        "a Python counter among the inputs is a bound or a size",
        "pass positions as a tensor and pick rows with index_select",
        "With dynamic=False each value is a new graph; as a symbol it is a new graph key.",
    ),
    Rule(
        "global-read-in-graph",
        WRONG,
        BOTH,
        "a branch depends on global state",
        "make it an argument that is bound before capture, or put it into a custom operator",
        "The captured graph keeps the branch that was taken at capture, whatever the state is "
        "later.",
    ),
    # -- caches
    Rule(
        "cat-onto-cache",
        RECOMPILE,
        BOTH,
        "a cache grows by concatenation",
        "allocate it at its maximum length, write in place, and pass the valid length",
        "Every step has a new shape and a new address.",
    ),
    Rule(
        "cache-read-after-inplace",
        WRONG,
        GE,
        "a cache is read after a fused operator wrote it, not through the operator's result",
        "use the caches that the operator returns",
        "The schema of the operator does not say that it writes: in a GE graph the read may see "
        "the old values.",
    ),
    Rule(
        "unused-result-of-cache-update",
        WRONG,
        GE,
        "the caches that a fused operator returns are ignored",
        "take the returned caches and use them from there on",
        "In a GE graph only the results order what follows after the write.",
    ),
    # -- backends
    Rule(
        "random-op",
        BREAK,
        NPUGRAPH,
        "random numbers inside a captured graph",
        "draw them outside and pass them in; pass training=False to dropout",
        "npugraph_ex cannot capture operators of the random number generator.",
    ),
    Rule(
        "backward",
        BREAK,
        NPUGRAPH,
        "a backward pass inside a captured graph",
        "capture inference only",
        "npugraph_ex captures inference only.",
    ),
    Rule(
        "unsupported-converter",
        BREAK,
        GE,
        "an operator has no converter to Ascend IR",
        "express it with operators that have one (maximum chains for cummax), or use npugraph_ex",
        "A GE graph is built of Ascend IR; an operator without a converter ends compilation.",
    ),
    Rule(
        "length-type",
        BREAK,
        BOTH,
        "a length argument has the wrong type for its operator",
        "torch_npu: a list of int and dynamic=True; GE: torchair.ops with an int64 tensor; see "
        "the schema of the operator",
        "The schema says list or tensor, and torchair.ops exists in GE graphs only.",
    ),
    Rule(
        "length-name",
        BREAK,
        BOTH,
        "a keyword of the other version of the attention operator",
        "use the names of the schema of the operator that is called",
        "npu_fused_infer_attention_score and its _v2 have different names for the same thing.",
    ),
    Rule(
        "omitted-attention-argument",
        WRONG,
        BOTH,
        "the attention operator is called without its head count or scale",
        "write both: the defaults are 1 head and scale 1.0",
        "Left out, they fall back silently.",
    ),
    Rule(
        "wrong-dynamic",
        RECOMPILE,
        BOTH,
        "a list of lengths goes into the graph with dynamic=False",
        "compile with dynamic=True, or (GE) use torchair.ops with a tensor and dynamic=False",
        "With dynamic=False every value of the list is a constant: a compilation for each step.",
    ),
    Rule(
        "missing-mark-static",
        SLOW,
        GE,
        "dynamic=True without mark_static: the whole GE graph has dynamic shapes",
        "call torch._dynamo.mark_static on every tensor input whose shape stays",
        "Only lists of lengths should be symbols; a dynamic GE graph tiles every operator on "
        "the host.",
    ),
    Rule(
        "two-modes-one-entry",
        RECOMPILE,
        BOTH,
        "one compiled function runs in two modes",
        "compile an entry for each mode: prefill() and decode()",
        "Each mode is a compilation of its own, and a cached function may be traced only once.",
    ),
    Rule(
        "cache-compile",
        BREAK,
        BOTH,
        "cache_compile is used in a way that it cannot cache",
        "give it an undecorated method of a module, once, instead of torch.compile",
        "It needs a bound, undecorated method that is traced once; it replaces torch.compile.",
    ),
    Rule(
        "option-pair",
        BREAK,
        BOTH,
        "two settings exclude each other",
        "choose one of them; the page lists the pairs",
        "The backend refuses the pair or ignores one of the two.",
    ),
    Rule(
        "unknown-option",
        BREAK,
        BOTH,
        "the backend has no such option",
        "use a name of the list on the page",
        "An unknown option is an error when the graph is compiled.",
    ),
    Rule(
        "unknown-attribute",
        BREAK,
        BOTH,
        "the package has no such name",
        "use the name that is suggested",
        "It is an AttributeError at run time.",
    ),
    Rule(
        "custom-op-without-meta",
        BREAK,
        BOTH,
        "a custom operator has no meta (shape) function",
        'register one: @torch.library.register_fake, or @impl(library, name, "Meta")',
        "Without it neither backend can trace the operator.",
    ),
]
RULES = {r.id: r for r in _ALL}


def page(rule):
    """docs/lint/<rule>.md, whole."""
    backends = "both backends" if len(rule.backends) == 2 else rule.backends[0]
    return (
        f"# {rule.id}\n\nLevel **{rule.level}**, {backends}.\n\n{_sentence(rule.message)}. "
        f"{rule.why}\n\n## Bad\n\n```python\n{rule.bad.strip()}\n```\n\n"
        f"## Good\n\n```python\n{rule.good.strip()}\n```\n\n## Fix\n\n"
        f"{_sentence(rule.fix)}.\n{_notes(rule.id)}\n"
        f"To keep a line as it is: `# tokamak: ignore[{rule.id}]`.\n"
    )


def _sentence(text):
    return text[0].upper() + text[1:]


def _notes(rule):
    """What the page of a rule lists besides."""
    if rule == "unknown-option":
        names = ", ".join(f"`{n}`" for n in NPUGRAPH_OPTIONS if not n.startswith("_"))
        groups = ", ".join(f"`{n}`" for n in GE_CONFIG)
        return f"\nOptions of npugraph_ex: {names}.\n\nOf torchair.CompilerConfig: {groups}.\n"
    if rule == "option-pair":
        lines = [f"- `{a}: {x}` with `{b}: {y}`: {why}" for (a, x), (b, y), why in RECIPE_PAIRS]
        lines += [f"- `mode` of a capture with `{n}`: no effect" for n in GE_ONLY]
        lines += [f'- `mode="max-autotune"` with `{n}`: no effect' for n in CAPTURE_ONLY]
        lines += [
            '- `backend="npugraph_ex"` with `mode=`',
            "- `use_graph_pool` with `reuse_graph_pool_in_same_fx=True`",
            "- `set_dim_gears` without `dynamic=True`, with a gear of 0 or 1, or above 100",
        ]
        return "\n" + "\n".join(lines) + "\n"
    return ""
