"""The host asks the device: reads of values, numpy, copies, printing, the environment."""

import ast

from ..names import CONSTRUCTORS, ENVIRONMENT_CALLS
from ..program import dotted_name
from ..values import (
    HOST,
    HOST_DATA,
    HOST_TENSOR,
    HOST_VALUE,
    MISSING,
    NUMPY,
    NUMPY_VALUE,
    SYNCED,
    SYNCED_VALUE,
    TENSOR,
    TENSOR_VALUE,
    UNKNOWN,
    Value,
    carries_tensor,
    list_of,
    tensor,
)
from . import shapes

_MAY_BE_TENSOR = (TENSOR, UNKNOWN)


def _item(interp, call):
    if call.base.kind in _MAY_BE_TENSOR and not call.args and not call.kwargs:
        interp.report("host-sync-item", call.node)
        return SYNCED_VALUE
    return None


def _tolist(interp, call):
    if call.base.kind in _MAY_BE_TENSOR and not call.args:
        interp.report("host-sync-tolist", call.node)
        return SYNCED_VALUE
    return SYNCED_VALUE if call.base.kind == NUMPY else None


def _cpu(interp, call):
    if call.base.kind in _MAY_BE_TENSOR and not call.args:
        interp.report("host-sync-cpu", call.node)
        return tensor(None, call.base.bool_mask)
    return None


def _to(interp, call):
    base = call.base
    if base.kind not in _MAY_BE_TENSOR:
        return None
    device = call.kwargs.get("device", call.args[0] if call.args else None)
    if device is not None and is_cpu(device):
        interp.report("host-sync-cpu", call.node)
        return tensor(None, base.bool_mask)
    if base.dotted == HOST_DATA and names_device(call):
        interp.report("host-to-device-copy", call.node)
        return TENSOR_VALUE
    return None


def names_device(call):
    """Whether .to(...) moves: a device by keyword, by its name, or the tensor to be like."""
    if "device" in call.kwargs:
        return True
    if not call.node.args:
        return False
    node, value = call.node.args[0], call.args[0] if call.args else None
    if value is not None and value.kind == TENSOR:
        return True
    if value is not None and isinstance(value.const, str):
        return True
    name = node.attr if isinstance(node, ast.Attribute) else getattr(node, "id", "")
    return "device" in name


def _to_device(interp, call):
    if call.base.dotted == HOST_DATA:
        interp.report("host-to-device-copy", call.node)
        return TENSOR_VALUE
    return None


def is_cpu(value):
    return (value.kind == HOST and value.const == "cpu") or value.dotted == "cpu"


def _numpy(interp, call):
    if call.base.kind in _MAY_BE_TENSOR:
        interp.report("numpy", call.node)
        return NUMPY_VALUE
    return None


METHODS = {
    "item": _item,
    "tolist": _tolist,
    "cpu": _cpu,
    "to": _to,
    "npu": _to_device,
    "cuda": _to_device,
    "numpy": _numpy,
}


# -- functions


def _construct(interp, call):
    """torch.tensor(data) and its like: host data, which a device argument or .to() copies over."""
    if not call.dotted.startswith("torch.") or not call.args:
        return None
    data = call.args[0]
    if data.kind == TENSOR and call.name in ("as_tensor", "asarray"):
        return data
    if data.kind == TENSOR:
        return TENSOR_VALUE
    device = call.kwargs.get("device")
    if device is not None and not is_cpu(device) and not _is_none(device):
        interp.report("host-to-device-copy", call.node)
        return TENSOR_VALUE
    return HOST_TENSOR


def _factory(interp, call):
    """torch.arange(n) without a device is made on the host."""
    if not call.dotted.startswith("torch."):
        return None
    shapes.FUNCTIONS[call.name](interp, call)
    return None if "device" in call.kwargs else HOST_TENSOR


def _is_none(value):
    return value.kind == HOST and value.const is None


def _from_numpy(interp, call):
    interp.report("numpy", call.node)
    return HOST_TENSOR


def _device(interp, call):
    if call.dotted == "torch.device" and call.args and call.args[0].const == "cpu":
        return Value(HOST, dotted="cpu")
    return None


FUNCTIONS = {name: _construct for name in CONSTRUCTORS}
FUNCTIONS.update(
    {name: _factory for name in ("arange", "zeros", "ones", "full", "empty", "eye", "linspace")}
)
FUNCTIONS.update(from_numpy=_from_numpy, device=_device)


def package_call(interp, call):
    """Functions that are hazards by their package: numpy, math, logging, the environment."""
    dotted = call.dotted
    if dotted.startswith("numpy."):
        return _numpy_function(interp, call)
    if dotted.startswith("math.") and call.args and call.args[0].kind == TENSOR:
        interp.report("host-sync-item", call.node)
        return SYNCED_VALUE
    if dotted.startswith("math.") and call.args and call.args[0].kind == SYNCED:
        return SYNCED_VALUE
    if dotted in ENVIRONMENT_CALLS:
        interp.report("python-call-in-forward", call.node)
        return HOST_VALUE
    if _asks_version(call.name) and not any(carries_tensor(a) for a in call.args):
        interp.report("python-call-in-forward", call.node)
        return HOST_VALUE
    if dotted.startswith("logging.") or dotted == "warnings.warn":
        _log(interp, call)
        return HOST_VALUE
    if dotted == "pprint.pprint":
        interp.report("print", call.node)
        return HOST_VALUE
    return logger_call(interp, call)


def _numpy_function(interp, call):
    data = [*call.args, *call.kwargs.values()]
    if any(carries_tensor(v) or v.kind in (NUMPY, SYNCED) for v in data):
        interp.report("numpy", call.node)
        return NUMPY_VALUE
    return HOST_VALUE  # numpy on plain numbers is a constant of the graph


_LOG_METHODS = {
    "debug",
    "info",
    "warning",
    "warn",
    "error",
    "critical",
    "exception",
    "log",
    "warning_once",
    "info_once",
}


def logger_call(interp, call):
    """`logger.info(...)`: a logger is known by its name."""
    if call.name in _LOG_METHODS and isinstance(call.node.func, ast.Attribute):
        receiver = call.node.func.value
        name = receiver.attr if isinstance(receiver, ast.Attribute) else getattr(receiver, "id", "")
        if name.lower().lstrip("_").endswith(("logger", "logging", "log")):
            _log(interp, call)
            return HOST_VALUE
    return None


def _log(interp, call):
    if any(_shows_tensor(v) for v in [*call.args, *call.kwargs.values()]):
        interp.report("print", call.node)


def _shows_tensor(value):
    return carries_tensor(value) or value.kind == SYNCED or value.root == ("text", "tensor")


# -- builtins


def _scalar(interp, call):
    if len(call.args) != 1:
        return None
    value = call.args[0]
    if value.kind == TENSOR:
        interp.report("host-sync-item", call.node)
        return SYNCED_VALUE
    return SYNCED_VALUE if value.kind in (SYNCED, NUMPY) else None


def _print(interp, call):
    interp.report("print", call.node)
    return HOST_VALUE


def _str(interp, call):
    if call.args and call.args[0].kind == TENSOR:
        return Value(HOST, const=MISSING, root=("text", "tensor"))
    return None


def _map(interp, call):
    """map(int, t), map(float, [t, ...]): a read for each element."""
    asked = call.node.args[0] if call.node.args else None
    if getattr(asked, "id", "") in ("int", "float", "bool") and len(call.args) == 2:
        data = call.args[1]
        if data.kind == TENSOR or interp.item_of(data).kind == TENSOR:
            interp.report("host-sync-item", call.node)
            return list_of(elem=SYNCED_VALUE)
    return None


def _open(interp, call):
    interp.report("python-call-in-forward", call.node)
    return HOST_VALUE


def _breakpoint(interp, call):
    interp.report("print", call.node)
    return HOST_VALUE


def _iterate(interp, call):
    """list(t), tuple(t), sorted(t), sum(t): a Python loop over the tensor."""
    if call.args and call.args[0].kind == TENSOR and call.name != "sum":
        interp.report("loop-over-tensor", call.node)
        return list_of(elem=TENSOR_VALUE)
    return None


BUILTINS = {
    "int": _scalar,
    "float": _scalar,
    "bool": _scalar,
    "complex": _scalar,
    "map": _map,
    "open": _open,
    "print": _print,
    "str": _str,
    "repr": _str,
    "breakpoint": _breakpoint,
    "list": _iterate,
    "tuple": _iterate,
    "sorted": _iterate,
    "set": _iterate,
}


# -- the environment


def external_read(interp, node, dotted):
    if dotted == "os.environ":
        interp.report("python-call-in-forward", node)


def given_call(interp, node, function):
    """A given function that reads the environment or a version: its call is the hazard."""
    if reads_environment(function) or (
        function.cls is None and _asks_version(function.name) and not function.params
    ):
        interp.report("python-call-in-forward", node)
        return HOST_VALUE
    return None


def _asks_version(name):
    return "version" in name.lower().split("_")


def reads_environment(function):
    """Whether the function is a question to the environment: short, without tensors, and it reads
    os.environ, a version, the platform or the like."""
    if function.asks_environment is None:
        function.asks_environment = _reads_environment(function)
    return function.asks_environment


def _reads_environment(function):
    if function.cls is not None or len(function.node.body) > 12:
        return False
    found = False
    for node in function.nodes:
        if isinstance(node, ast.Attribute):
            if node.attr in ("__version__", "environ"):
                found = True
        elif isinstance(node, ast.Call):
            name = dotted_name(node.func)
            if name is not None:
                head, _, rest = name.partition(".")
                full = function.module.imports.get(head, head) + ("." + rest if rest else "")
                if full in ENVIRONMENT_CALLS:
                    found = True
                elif full.startswith("torch.") and not full.startswith(
                    ("torch.npu.", "torch.cuda.", "torch.backends.", "torch.version.")
                ):
                    return False  # it computes something
    return found
