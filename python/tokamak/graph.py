"""From a module to an ExportedProgram, or to an error that names the place in its source."""

import contextlib
import io
import logging
import re
import warnings

from .errors import CaptureError
from .source import files_of, guard_place, guards_located, place_of

BATCH, SEQUENCE = "batch", "sequence"
MAX_BATCH = 65536


def wrapper(model, keywords):
    """A module (input_ids, position_ids) -> logits around `model`, whose weights it names model.*.

    `keywords`: call it as transformers' models are called, without a cache.
    """
    import torch

    class NoCache(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.model = model

        def forward(self, input_ids, position_ids):
            if keywords:
                out = self.model(input_ids=input_ids, position_ids=position_ids, use_cache=False)
            else:
                out = self.model(input_ids, position_ids)
            if isinstance(out, (tuple, list)):
                return out[0]
            return getattr(out, "logits", out)

    return NoCache()


def example(batch, sequence):
    import torch

    ids = torch.zeros(batch, sequence, dtype=torch.int64)
    return ids, torch.arange(sequence).expand(batch, sequence).contiguous()


def trace(module, inputs, max_length):
    """Exports the wrapper `module`; batch and sequence stay symbolic. Raises CaptureError."""
    model_files = files_of(module.model)
    try:
        program = _export(module, inputs, max_length)
    except Exception as error:
        raise _explain(error, module, inputs, max_length, model_files) from error
    _check_outputs(program)
    _check_pure(program)
    return program


def _export(module, inputs, max_length):
    import torch

    batch = torch.export.Dim(BATCH, min=1, max=MAX_BATCH)
    sequence = torch.export.Dim(SEQUENCE, min=1, max=max_length)
    dims = {0: batch, 1: sequence}
    with torch.no_grad(), _quiet():
        return torch.export.export(module, inputs, dynamic_shapes=(dims, dims), strict=False)


@contextlib.contextmanager
def _quiet():
    """Keeps torch's dumps of half-made graphs off the terminal; the error says what matters."""
    logger = logging.getLogger("torch")
    level = logger.level
    logger.setLevel(logging.CRITICAL)
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        logger.setLevel(level)


def _explain(error, module, inputs, max_length, model_files):
    kinds = {type(link).__name__ for link in (error, error.__cause__, error.__context__)}
    text = str(error)
    if "ConstraintViolationError" in kinds or "Constraints violated" in text:
        return _specialised(error, module, inputs, max_length, model_files)
    place, inner = place_of(error, model_files)
    if "GuardOnDataDependentSymNode" in kinds or "data-dependent" in text:
        found = re.search(r"(?:expression|data-dependent) ([^\n]*?)(?: \(unhinted|\.  |\n|$)", text)
        what = f" ({found[1].strip()})" if found else ""
        return _at(
            place,
            inner,
            "TK1006",
            f"the forward depends on the values of a tensor{what}",
            "compute it with tensor operations (torch.where, masks), or from config.json; "
            ".item(), int(), bool(), `if` and loops over a tensor's values can't be in a graph",
        )
    eager = _eager_error(module, inputs)
    if eager is not None:
        place, inner = place_of(eager, model_files)
        return _at(
            place,
            inner,
            "TK1009",
            f"the model's own forward fails: {type(eager).__name__}: {_first_line(eager)}",
            "make model(input_ids, position_ids) run for int64 inputs of the shape "
            f"{list(inputs[0].shape)} first",
        )
    return _at(
        place,
        inner,
        "TK1008",
        f"torch.export can't follow the forward: {type(error).__name__}: {_first_line(error)}",
        "replace the call by torch operations that have no such limit",
    )


def _eager_error(module, inputs):
    import torch

    try:
        with torch.no_grad(), _quiet():
            module(*inputs)
    except Exception as error:
        return error
    return None


def _first_line(error):
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return lines[0][:300] if lines else "no message"


def _at(place, inner, code, message, help):
    notes = []
    if place is not None:
        notes.append(f"in {place.function}: {place.code()}" if place.code() else place.function)
    if inner is not None:
        notes.append(f"reached through {inner.file}:{inner.line} in {inner.function}")
    file, line = (place.file, place.line) if place else (None, None)
    return CaptureError(code, message, file=file, line=line, notes=notes, help=help)


def _specialised(error, module, inputs, max_length, model_files):
    """A dim that the code fixes or bounds. The trace is made again, watching for where."""
    text = str(error)
    try:
        with guards_located():
            _export(module, inputs, max_length)
    except Exception as again:
        error = again
    place = guard_place(error, model_files)
    fixed = re.search(
        r"marked (\w+) as dynamic but your code specialized it to be a constant \((\d+)\)", text
    )
    bound = re.search(rf"{SEQUENCE} = Dim\('{SEQUENCE}'(?:, min=\d+)?, max=(\d+)\)", text)
    guard = re.search(r"satisfy the generated guard (.*?)\.?\n", text + "\n")
    if fixed:
        dim, value = fixed[1], fixed[2]
        message = f"the {dim} size is fixed to {value} by the forward; it must stay free"
        help = (
            f"take sizes from the tensors (x.shape) and use -1 in view and reshape, not {value}; "
            f"don't compare the {dim} size with a number"
        )
    elif bound:
        message = f"the forward takes another path for sequences longer than {bound[1]}"
        help = f"capture one path only: --max-length {bound[1]} (max_length={bound[1]})"
    elif guard and guard[1].endswith(f"] != {max_length}"):
        message = f"the forward does not hold for sequences of exactly {max_length}"
        help = f"capture shorter ones: --max-length {max_length - 1} (max_length={max_length - 1})"
    else:
        message = "the forward holds only for some sizes" + (f": {guard[1]}" if guard else "")
        help = "make it hold for every batch and sequence size (pad inside, or mask)"
    return _at(place, None, "TK1007", message, help)


def _check_outputs(program):
    outputs = next(n for n in program.graph.nodes if n.op == "output").args[0]
    inputs = [n for n in program.graph.nodes if n.op == "placeholder"][-2:]
    value = outputs[0].meta.get("val") if len(outputs) == 1 and outputs[0] is not None else None
    sizes = list(inputs[0].meta["val"].shape)
    shape = list(getattr(value, "shape", ()))
    if len(shape) == 3 and value.is_floating_point() and str(shape[:2]) == str(sizes):
        return
    found = f"{len(outputs)} values" if value is None else f"a {value.dtype} tensor {shape}"
    raise CaptureError(
        "TK1009",
        f"the forward returns {found}; expected are logits [batch, sequence, vocabulary]",
        help="return the logits, or an object with .logits, or a tuple that begins with them",
    )


def _check_pure(program):
    """No input, weight or buffer is written to. The exported graph is not functional: a write is
    an operator such as add_ on a placeholder, or on a view of one.
    """
    signature = program.graph_signature
    names = {**signature.inputs_to_parameters, **signature.inputs_to_buffers}
    origin = {}
    for node in program.graph.nodes:
        if node.op == "placeholder":
            origin[node] = node
        schema = getattr(node.target, "_schema", None)
        if node.op != "call_function" or schema is None:
            continue
        for argument, value in zip(schema.arguments, node.args, strict=False):
            root = origin.get(value) if isinstance(value, type(node)) else None
            if argument.alias_info is None or root is None:
                continue
            origin[node] = root
            if argument.alias_info.is_write:
                raise _impure(names.get(root.name, root.name), node)


def _impure(name, node):
    trace = node.meta.get("stack_trace") or ""
    places = re.findall(r'File "([^"]+)", line (\d+)', trace)
    file, line = places[-1] if places else (None, None)
    return CaptureError(
        "TK1011",
        f"the forward changes its input or weight '{name}' ({node.target})",
        file=file,
        line=int(line) if line else None,
        help="capture a forward without state: no cache, no counters, out-of-place operations",
    )
