"""Makes cases.txt and cases.bin: calls of aten operators with the results of PyTorch.

    python make_cases.py          (torch 2.13; writes beside this file)

src/ops/cases_test.cpp runs them. A case is a block of lines:

    case aten.add.Tensor [symbolic] [shape_only]
    in self bf16 [2, 3] strides [3, 1] at 0 of 64   a tensor: bytes 0.. of cases.bin, which hold 64
    attr alpha 2                                    as in the text form of graphs
    out bf16 [2, 3] at 64

A view's strides count in elements; "at" is where its first element lies. `symbolic`: sizes 5 and 7
may be taken as symbols B and S. `shape_only`: the values are undefined.
"""

import math
import pathlib

import torch

HERE = pathlib.Path(__file__).parent
NAMES = {
    torch.float32: "f32",
    torch.float16: "f16",
    torch.bfloat16: "bf16",
    torch.float64: "f64",
    torch.int64: "i64",
    torch.int32: "i32",
    torch.int16: "i16",
    torch.int8: "i8",
    torch.uint8: "u8",
    torch.bool: "bool",
    torch.complex64: "c64",
}
# Where and how memory lies: no part of the operators here.
DROPPED = {"device", "layout", "pin_memory", "memory_format", "non_blocking", "generator"}
F32, F16, BF16, F64 = torch.float32, torch.float16, torch.bfloat16, torch.float64
I64, I32, I8, U8, BOOL, C64 = (
    torch.int64,
    torch.int32,
    torch.int8,
    torch.uint8,
    torch.bool,
    torch.complex64,
)

torch.manual_seed(1)
lines: list[str] = []
blob = bytearray()
places: dict[bytes, int] = {}  # of what blob holds already


def put(tensor: torch.Tensor) -> tuple[int, int]:
    """Appends the memory that a view spans; returns where its first element is, and the end."""
    size = tensor.element_size()
    span = 0
    if tensor.numel():
        span = sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride(), strict=True)) + 1
    flat = torch.as_strided(tensor.detach(), (span,), (1,), tensor.storage_offset())
    data = flat.contiguous().view(torch.uint8).numpy().tobytes() if span else b""
    if data not in places:
        blob.extend(bytes(-len(blob) % 16))
        places[data] = len(blob)
        blob.extend(data)
    return places[data], places[data] + span * size


def text(value) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, int):
        return str(value)
    if isinstance(value, float):
        if math.isinf(value) or math.isnan(value):
            return {True: "-inf", False: "inf"}[value < 0] if math.isinf(value) else "nan"
        return repr(value)
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, torch.dtype):
        return NAMES[value]
    if isinstance(value, list | tuple):
        return "[" + ", ".join(text(v) for v in value) + "]"
    raise TypeError(value)


def case(target: str, *args, symbolic=False, shape_only=False, **kwargs) -> None:
    packet, overload = target.split(".") if "." in target else (target, "default")
    op = getattr(getattr(torch.ops.aten, packet), overload)
    results = op(*args, **kwargs)
    if isinstance(results, torch.Tensor):
        results = [results]
    flags = " symbolic" * symbolic + " shape_only" * shape_only
    lines.append(f"case aten.{packet}.{overload}{flags}")
    values = dict(kwargs)
    for arg, value in zip(op._schema.arguments, args, strict=False):
        values[arg.name] = value

    def tensor_line(name: str, t: torch.Tensor) -> None:
        start, end = put(t)
        lines.append(
            f"in {name} {NAMES[t.dtype]} {text(list(t.shape))} "
            f"strides {text(list(t.stride()))} at {start} of {end - start}"
        )

    for name, value in values.items():
        if value is None or name in DROPPED:
            continue
        if isinstance(value, torch.Tensor):
            tensor_line(name, value)
        elif isinstance(value, list | tuple) and any(isinstance(v, torch.Tensor) for v in value):
            for v in value:
                lines.append(f"in {name} none") if v is None else tensor_line(name, v)
        else:
            lines.append(f"attr {name} {text(value)}")
    for r in results:
        start, _ = put(r.resolve_conj().contiguous())
        lines.append(f"out {NAMES[r.dtype]} {text(list(r.shape))} at {start}")


def rnd(*shape, dtype=F32, low=-2.0, high=2.0) -> torch.Tensor:
    if dtype == BOOL:
        return torch.rand(shape) < 0.5
    if dtype == C64:
        return torch.complex(rnd(*shape), rnd(*shape))
    if not dtype.is_floating_point:
        return torch.randint(int(low), int(high) + 1, shape, dtype=dtype)
    return (torch.rand(shape, dtype=F64) * (high - low) + low).to(dtype)


def ids(*shape, n, dtype=I64) -> torch.Tensor:
    return torch.randint(0, n, shape, dtype=dtype)


def strided(*shape, dtype=F32, low=-2.0, high=2.0) -> torch.Tensor:
    """A view whose last two axes are swapped in memory, inside a larger tensor."""
    swapped = (*shape[:-2], shape[-1] + 1, shape[-2])
    t = rnd(*swapped, dtype=dtype, low=low, high=high)
    return t[..., 1:, :].transpose(-1, -2)


SPECIAL = torch.tensor([0.0, -0.0, 1.0, -1.0, math.inf, -math.inf, math.nan, 1e-8, 40.0, -40.0])


def unary() -> None:
    ranges = {
        "log": (0.01, 4),
        "log2": (0.01, 4),
        "log10": (0.01, 4),
        "log1p": (-0.9, 4),
        "sqrt": (0, 4),
        "rsqrt": (0.01, 4),
        "reciprocal": (0.3, 3),
        "tan": (-1, 1),
    }
    names = """
        exp exp2 expm1 log log1p log2 log10 sqrt rsqrt reciprocal sin cos tan atan sinh cosh tanh
        sigmoid erf silu mish relu hardswish hardsigmoid log_sigmoid sign floor ceil round trunc
        neg abs isnan isinf logical_not gelu leaky_relu elu softplus hardtanh square isfinite
        relu6 selu nan_to_num asin acos
    """
    ranges["asin"] = ranges["acos"] = (-0.9, 0.9)
    for name in names.split():
        low, high = ranges.get(name, (-3, 3))
        case(name, rnd(5, 7, low=low, high=high), symbolic=True)
        case(name, strided(3, 5, 4, low=low, high=high))
        case(name, rnd(300, dtype=BF16, low=low, high=high))
        case(name, rnd(9, dtype=F16, low=low, high=high))
        case(name, rnd(4, dtype=F64, low=low, high=high))
        # torch's vectorised gelu gives NaN for an infinity, its plain one does not
        case(name, SPECIAL[:4] if name == "gelu" else SPECIAL)
    for name in ["exp", "sqrt", "sigmoid", "cos", "tanh", "log1p", "rsqrt"]:
        case(name, rnd(2, 3, dtype=I64, low=1, high=5))
        case(name, rnd(6, dtype=BOOL))
    for name in ["neg", "abs", "sign", "relu", "floor", "isnan", "square", "bitwise_not"]:
        case(name, rnd(5, dtype=I64, low=-9, high=9))
        case(name, rnd(2, 2, dtype=I32, low=-9, high=9))
        case(name, rnd(2, 2, dtype=I8, low=-9, high=9))
    case("bitwise_not", rnd(6, dtype=BOOL))
    case("logical_not", rnd(6, dtype=BOOL))
    case("logical_not", rnd(6, dtype=I64))
    case("neg", rnd(2, 3, dtype=C64))
    case("abs", rnd(2, 3, dtype=C64))
    case("round", torch.tensor([0.5, 1.5, 2.5, -0.5, -1.5]))
    x = rnd(4, 6)
    for dtype in (F32, BF16, F16):
        case("gelu", x.to(dtype), approximate="tanh")
        case("leaky_relu", x.to(dtype), 0.2)
        case("elu", x.to(dtype), 0.5, 2.0, 1.5)
        case("softplus", (x * 10).to(dtype), 2.0, 15.0)
        case("hardtanh", x.to(dtype), -0.5, 0.75)
        case("threshold", x.to(dtype), 0.5, 2.0)
        case("celu", x.to(dtype), 0.7)
        case("glu", x.to(dtype))
        case("glu", x.to(dtype), 0)
    case("nan_to_num", SPECIAL, 1.5, 9.0, -9.0)
    case("nan_to_num", SPECIAL.to(BF16))


def binary() -> None:
    pairs = [
        (rnd(5, 7), rnd(5, 7)),
        (rnd(5, 1, 7), rnd(7)),
        (strided(3, 4, 2), rnd(4, 2)),
        (rnd(3, 4, dtype=BF16), rnd(3, 4, dtype=BF16)),
        (rnd(3, 4, dtype=BF16), rnd(1, 4)),
        (rnd(3, 4, dtype=BF16), torch.tensor(1.2345)),
        (torch.tensor(0.3), rnd(3, dtype=F16)),
        (rnd(4, dtype=I64, low=1, high=9), rnd(4, low=1)),
        (rnd(4, dtype=F64), rnd(4)),
    ]
    whole = [
        (rnd(2, 6, dtype=I64, low=-20, high=20), torch.tensor([1, -1, 2, 3, -3, 7])),
        (rnd(4, dtype=I32, low=-9, high=9), torch.tensor(3)),
        (rnd(4, dtype=U8, low=0, high=200), torch.tensor([3, 4, 5, 250], dtype=U8)),
    ]
    for name in ["add", "sub", "mul", "div", "remainder", "fmod"]:
        for i, (a, b) in enumerate(pairs + whole):
            case(f"{name}.Tensor", a, b, symbolic=i == 0)
    for name in ["floor_divide", "maximum", "minimum", "atan2", "logaddexp"]:
        for a, b in pairs if name == "logaddexp" else pairs + whole:
            if name == "logaddexp" and (a.dtype != b.dtype or a.dtype == I64):
                continue
            case(name, a, b)
    for a, b in [
        (rnd(3, low=0.1), rnd(3)),
        (rnd(2, 3, dtype=BF16, low=0.1), rnd(3, dtype=BF16)),
        (rnd(3, dtype=I64, low=-3, high=3), torch.tensor([0, 3, 5])),
    ]:
        case("pow.Tensor_Tensor", a, b)
    for e in [2, 3, 0.5, -1.0, 2.0, 1.7, 0, -0.5]:
        case("pow.Tensor_Scalar", rnd(3, 4, low=0.2), e)
        case("pow.Tensor_Scalar", rnd(9, dtype=BF16, low=0.2), e)
    case("pow.Tensor_Scalar", rnd(5, dtype=I64, low=-3, high=3), 3)
    case("pow.Tensor_Scalar", rnd(5, dtype=I64, low=1, high=3), 0.5)
    case("pow.Tensor_Scalar", torch.tensor([-2.0, 0.0, 4.0, -8.0]), 3)
    case("pow.Scalar", 2, rnd(4))
    case("pow.Scalar", 10000.0, rnd(2, 4))
    case("pow.Scalar", 2, torch.tensor([0, 1, 5]))
    for s in [2, 0.3, -1.5]:
        for dtype in (F32, BF16, F16, I64):
            x = rnd(2, 5, dtype=dtype, low=-9, high=9)
            for name in ["add", "sub", "mul", "div"]:
                case(f"{name}.Tensor", x, s)
            case("rsub.Scalar", x, s)
            case("remainder.Scalar", x, s)
            case("fmod.Scalar", x, s)
            case("floor_divide.Scalar", x, s)
    case("mul.Tensor", rnd(4, dtype=BOOL), 3)
    case("add.Tensor", rnd(4, dtype=BOOL), rnd(4, dtype=BOOL))
    case("mul.Tensor", rnd(4, dtype=BOOL), rnd(4, dtype=BOOL))
    case("add.Tensor", rnd(3), rnd(3), alpha=2.5)
    case("add.Tensor", rnd(3, dtype=BF16), rnd(3, dtype=BF16), alpha=0.3)
    case("sub.Tensor", rnd(3, dtype=I64), rnd(3, dtype=I64), alpha=3)
    case("rsub.Tensor", rnd(3), rnd(2, 3), alpha=2)
    for mode in ["floor", "trunc"]:
        for a, b in [*pairs[:4], *whole]:
            case("div.Tensor_mode", a, b, rounding_mode=mode)
        case("div.Tensor_mode", rnd(9, low=-9, high=9), 0.7, rounding_mode=mode)
        case("div.Tensor_mode", rnd(9, dtype=I64, low=-9, high=9), 2, rounding_mode=mode)
    case("div.Tensor", torch.tensor([1.0, 0.0, -1.0]), torch.tensor([0.0, 0.0, 0.0]))
    case("mul.Tensor", rnd(2, 3, dtype=C64), rnd(3, dtype=C64))
    case("add.Tensor", rnd(2, 3, dtype=C64), rnd(3, dtype=C64))
    case("mul.Tensor", rnd(2, 3, dtype=C64), rnd(3))
    case("div.Tensor", rnd(3, dtype=C64), rnd(3, dtype=C64))
    nan = torch.tensor([math.nan, 1.0, 2.0])
    for name in ["maximum", "minimum"]:
        case(name, nan, nan.flip(0))


def logic() -> None:
    for name in ["eq", "ne", "lt", "le", "gt", "ge"]:
        a = rnd(5, 7, dtype=I64, low=0, high=3)
        case(f"{name}.Tensor", a, rnd(7, dtype=I64, low=0, high=3), symbolic=True)
        case(f"{name}.Tensor", SPECIAL, SPECIAL.flip(0))
        case(f"{name}.Tensor", rnd(4, dtype=BF16), rnd(2, 4))
        case(f"{name}.Tensor", strided(3, 4, dtype=I64), torch.tensor(1))
        case(f"{name}.Scalar", a, 1)
        case(f"{name}.Scalar", rnd(6, dtype=BOOL), 1)
        case(f"{name}.Scalar", rnd(6, dtype=BF16), 0.1)
        case(f"{name}.Scalar", SPECIAL, math.inf)
        case(f"{name}.Scalar", a, 0.5)
    for name in ["logical_and", "logical_or", "logical_xor"]:
        case(name, rnd(5, 1, dtype=BOOL), rnd(7, dtype=BOOL), symbolic=True)
        case(name, rnd(4, dtype=I64), rnd(4))
        case(name, SPECIAL, SPECIAL.flip(0))
    for name in ["bitwise_and", "bitwise_or", "bitwise_xor", "__and__", "__or__", "__xor__"]:
        case(f"{name}.Tensor", rnd(5, 1, dtype=BOOL), rnd(7, dtype=BOOL), symbolic=True)
        case(f"{name}.Tensor", rnd(3, dtype=I64, low=0, high=99), rnd(3, dtype=I32, low=0, high=9))
        case(f"{name}.Scalar", rnd(3, dtype=I64, low=-99, high=99), 6)
    for name in ["bitwise_left_shift", "bitwise_right_shift"]:
        case(f"{name}.Tensor", rnd(4, dtype=I64, low=-99, high=99), torch.tensor([0, 1, 5, 63]))
        case(f"{name}.Tensor", rnd(2, 4, dtype=I32, low=-99, high=99), torch.tensor([0, 1, 5, 40]))
        case(f"{name}.Tensor_Scalar", rnd(4, dtype=U8, low=0, high=99), 2)
    for name in ["__lshift__", "__rshift__"]:
        case(f"{name}.Tensor", rnd(4, dtype=I64, low=-99, high=99), torch.tensor([0, 1, 5, 9]))
        case(f"{name}.Scalar", rnd(4, dtype=I32, low=-99, high=99), 2)
        case(f"{name}.Scalar", rnd(2, 2, dtype=I64, low=-99, high=99), 3)


def ternary() -> None:
    c = rnd(5, 1, dtype=BOOL)
    case("where.self", c, rnd(5, 7), rnd(7), symbolic=True)
    case("where.self", c, strided(5, 3, dtype=BF16), torch.tensor(1.5))
    case("where.self", c, rnd(5, 2, dtype=I64), rnd(5, 2, dtype=I32))
    case("where.ScalarSelf", c, 1.5, rnd(5, 2, dtype=BF16))
    case("where.ScalarOther", c, rnd(5, 2), -math.inf)
    case("where.ScalarOther", c, rnd(5, 2, dtype=I64), 3)
    case("where.Scalar", c, 1.0, 0.0)
    case("where.Scalar", c, 1, 0)
    for dtype in (F32, BF16, I64, BOOL):
        case("masked_fill.Scalar", rnd(2, 5, 7, dtype=dtype), c, 1)
    case("masked_fill.Scalar", rnd(5, 7), rnd(5, 7, dtype=BOOL), -math.inf, symbolic=True)
    case("masked_fill.Tensor", rnd(5, 7), rnd(7, dtype=BOOL), torch.tensor(0.5))
    case("masked_fill.Tensor", rnd(5, 7, dtype=BF16), rnd(7, dtype=BOOL), torch.tensor(0.3))
    x = torch.cat([rnd(6), torch.tensor([math.nan, math.inf])])
    for t in (x, x.to(BF16), strided(3, 4), rnd(5, dtype=I64, low=-9, high=9)):
        case("clamp", t, -1, 1)
        case("clamp", t, -1)
        case("clamp", t, None, 1)
        case("clamp_min", t, 0)
        case("clamp_max", t, 0)
        case("clamp_min.Tensor", t, torch.ones_like(t))
        case("clamp_max.Tensor", t, torch.ones_like(t))
        case("clamp.Tensor", t, torch.zeros_like(t), torch.ones_like(t))
    case("clamp", rnd(5, dtype=I64, low=-9, high=9), 0.5, 2.5)
    case("clamp", rnd(5), 1.0, -1.0)
    case("clamp.Tensor", rnd(3, 4), None, rnd(4))
    case("clamp", rnd(4, dtype=BF16), -0.3, 0.3)
    for dtype in (F32, BF16, F16):
        case("lerp.Scalar", rnd(3, 4, dtype=dtype), rnd(4, dtype=dtype), 0.3)
        case("lerp.Scalar", rnd(3, 4, dtype=dtype), rnd(4, dtype=dtype), 0.8)
        case("lerp.Tensor", rnd(3, 4, dtype=dtype), rnd(4, dtype=dtype), rnd(3, 1, dtype=dtype))
        a, b = rnd(4, dtype=dtype), rnd(3, 1, dtype=dtype, low=0.5)
        case("addcmul", rnd(3, 4, dtype=dtype), a, b, value=0.7)
        case("addcdiv", rnd(3, 4, dtype=dtype), a, b, value=0.7)
    case("addcmul", rnd(3, dtype=I64), rnd(3, dtype=I64), rnd(3, dtype=I64), value=2)


def reduce() -> None:
    mats = [rnd(5, 7), strided(2, 3, 4), rnd(3, 300, dtype=BF16), rnd(4, 5, dtype=F16), rnd(6)]
    for i, x in enumerate(mats):
        for name in ["sum", "mean"]:
            case(f"{name}.dim" if name == "mean" else "sum.dim_IntList", x, [-1], symbolic=i == 0)
            case(f"{name}.dim" if name == "mean" else "sum.dim_IntList", x, [0], True)
            case(name, x)
        case("prod.dim_int", x[..., :6], -1)
        case("prod", x[0] if x.dim() == 1 else x[0, ..., :5])
        for name in ["amax", "amin"]:
            case(name, x, [-1], True)
            case(name, x)
        for name in ["argmax", "argmin"]:
            case(name, x, -1)
            case(name, x, 0, True)
            case(name, x)
        for name in ["max", "min"]:
            case(f"{name}.dim", x, -1, symbolic=i == 0)
            case(f"{name}.dim", x, 0, True)
            case(name, x)
        for name in ["any", "all"]:
            case(f"{name}.dim", x > 0, -1)
            case(f"{name}.dims", x > -1.9, [0], True)
            case(name, x > -1.9)
            case(name, x)
        for name in ["var", "std"]:
            case(f"{name}.dim", x, [-1], True, True)
            case(f"{name}.dim", x, [0], False)
            case(f"{name}.correction", x, [-1], correction=0, keepdim=True)
            case(f"{name}", x)
        case("norm.ScalarOpt_dim", x, 2, [-1], True)
        case("norm.Scalar", x, 2)
        for p in [2, 1, 0, math.inf, -math.inf, 3.5]:
            case("linalg_vector_norm", x, p, [-1])
        case("logsumexp", x, [-1], True)
        case("logsumexp", x, [0])
        case("var_mean.correction", x, [-1], correction=1, keepdim=True)
        case("std_mean.correction", x, [-1], correction=0)
        case("count_nonzero.dim_IntList", x > 0, [-1])
    case("norm.ScalarOpt_dim_dtype", rnd(3, 4, dtype=BF16), 2, [-1], True, dtype=F32)
    case("var_mean.dim", rnd(3, 4), [-1], False, True)
    case("sum.dim_IntList", rnd(3, 4, 5), [0, -1])
    case("sum.dim_IntList", rnd(3, 4, 5, dtype=I64), [1], dtype=F32)
    case("sum", rnd(9, dtype=BOOL))
    case("sum.dim_IntList", rnd(3, 4, dtype=BF16), [-1], dtype=F32)
    case("sum.dim_IntList", rnd(3, 4, dtype=C64), [-1])
    case("mean.dim", rnd(3, 4, dtype=BF16), [-1], True, dtype=F32)
    case("mean", rnd(3, 4, dtype=I64), dtype=F32)
    case("prod.dim_int", rnd(3, 4, dtype=I64, low=1, high=3), 1, True)
    case("amax", rnd(3, 4, dtype=I64), [0, 1])
    case("max.other", rnd(3, 4), rnd(4))
    case("min.other", rnd(3, 4, dtype=I64), rnd(4, dtype=I64))
    case("max.dim", SPECIAL, 0)
    case("argmax", SPECIAL)
    case("argmin", torch.tensor([3, 1, 1, 2]))
    case("amin", SPECIAL)
    case("mean", torch.tensor(2.5))
    case("any", torch.zeros(0, dtype=BOOL))
    case("all", torch.zeros(0, dtype=BOOL))
    case("sum", torch.zeros(0))
    case("logsumexp", torch.tensor([[-math.inf, -math.inf], [math.inf, 1.0]]), [1])
    for dtype in (F32, BF16, F16):
        x = rnd(2, 5, 7, dtype=dtype, low=-9, high=9)
        case("softmax.int", x, -1, symbolic=True)
        case("softmax.int", x, 1)
        case("softmax.int", x, -1, F32)
        case("log_softmax.int", x, -1)
        case("log_softmax.int", x, 0)
        case("_softmax", x, -1, False)
        case("_log_softmax", x, 1, False)
        case("cumsum", x, -1)
        case("cumsum", x, 0, dtype=F32)
        case("cumprod", x, 1)
    case("softmax.int", strided(3, 4), -1)
    case("_softmax", strided(2, 3, 4), 0, False)
    case("_log_softmax", rnd(4), 0, False)
    case("log_softmax.int", rnd(3, 4, dtype=BF16), -1, F32)
    case("softmax.int", torch.tensor([[-math.inf, 1.0, -math.inf]]), -1)
    case("cumsum", rnd(5, 7, dtype=I64), 1, symbolic=True)
    case("cumsum", rnd(5, dtype=BOOL), 0)
    case("cumsum", rnd(5, dtype=I32), 0)
    case("cumprod", rnd(5, dtype=I64), 0)


def norms() -> None:
    for dtype in (F32, BF16, F16):
        x = rnd(5, 7, 8, dtype=dtype)
        w, b = rnd(8, dtype=dtype), rnd(8, dtype=dtype)
        case("layer_norm", x, [8], w, b, symbolic=True)
        case("layer_norm", x, [8])
        case("layer_norm", x, [7, 8], None, rnd(7, 8, dtype=dtype), 1e-3)
        case("native_layer_norm", x, [8], w, b, 1e-5)
        case("native_layer_norm", x, [7, 8], None, None, 1e-5)
        case("rms_norm", x, [8], w, 1e-6, symbolic=True)
        case("rms_norm", x, [8], w)
        case("rms_norm", x * 0.001, [8])
        case("group_norm", rnd(2, 6, 5, dtype=dtype), 3, rnd(6, dtype=dtype), rnd(6, dtype=dtype))
        case("group_norm", rnd(2, 6, 3, 2, dtype=dtype), 2)
        stats = rnd(6, dtype=dtype), rnd(6, dtype=dtype, low=0.5)
        case(
            "batch_norm",
            rnd(2, 6, 5, dtype=dtype),
            rnd(6, dtype=dtype),
            rnd(6, dtype=dtype),
            *stats,
            False,
            0.1,
            1e-5,
            False,
        )
        case("batch_norm", rnd(3, 6, dtype=dtype), None, None, *stats, False, 0.1, 1e-3, False)
    case("native_layer_norm", strided(3, 4, 5), [5], rnd(5), rnd(5), 1e-5)


def products() -> None:
    for dtype in (F32, BF16, F16):

        def r(*shape, dtype=dtype):
            return rnd(*shape, dtype=dtype, low=-1, high=1)

        def s(*shape, dtype=dtype):
            return strided(*shape, dtype=dtype, low=-1, high=1)

        case("linear", r(5, 7, 16), r(24, 16), symbolic=True)
        case("linear", r(5, 7, 16), r(24, 16), r(24))
        case("linear", s(3, 4), r(5, 4), r(5))
        case("linear", r(4), r(5, 4))
        case("linear", r(2, 4), r(4))
        case("linear", r(2, 600), s(19, 600))
        case("matmul", r(5, 7, 4), r(4, 6), symbolic=True)
        case("matmul", r(4), r(4))
        case("matmul", r(4), r(2, 4, 3))
        case("matmul", r(2, 5, 4), r(4))
        case("matmul", r(2, 1, 5, 4), s(3, 4, 6))
        case("mm", s(5, 4), r(4, 33))
        case("mm", r(1, 4), s(4, 5))
        case("mm", r(13, 520), r(520, 17))
        case("bmm", s(3, 5, 4), r(3, 4, 6))
        case("bmm", r(5, 2, 7), r(5, 7, 3), symbolic=True)
        case("bmm", r(1, 3, 3), s(1, 3, 3))
        case("addmm", r(6), r(5, 4), r(4, 6))
        case("addmm", r(5, 6), s(5, 4), s(4, 6), beta=0.5, alpha=2.0)
        case("addmm", r(5, 1), r(5, 4), r(4, 6), beta=0)
        case("baddbmm", r(1, 6), r(2, 5, 4), r(2, 4, 6))
        case("baddbmm", r(2, 5, 6), s(2, 5, 4), r(2, 4, 6), beta=0.25, alpha=0.5)
        case("baddbmm", r(2, 1, 1), r(2, 5, 4), r(2, 4, 6), alpha=3)
        case("mv", r(5, 4), r(4))
        case("mv", s(5, 4), r(4))
        case("dot", r(9), r(9))
        case("dot", r(3), r(3))
        case("outer", r(5), r(7), symbolic=True)
        case("outer", r(3), r(2))
        for eq, shapes in {
            "bhqd,bhkd->bhqk": [(2, 3, 5, 4), (2, 3, 7, 4)],
            "ij,jk": [(3, 4), (4, 5)],
            "bij->bji": [(2, 3, 4)],
            "ii->i": [(3, 3)],
            "ij->": [(3, 4)],
            "...d,de->...e": [(2, 3, 4), (4, 5)],
            "bshd,tcgd->bshtcg": [(1, 2, 2, 3), (2, 1, 2, 3)],
            "i,j->ij": [(3,), (4,)],
            "ab,bc,cd->ad": [(2, 3), (3, 4), (4, 5)],
            "bn,bnd->bd": [(3, 4), (3, 4, 5)],
            "abc,acd->bd": [(2, 3, 4), (2, 4, 5)],
        }.items():
            case("einsum", eq, [r(*shape) for shape in shapes])
        case("einsum", "bij,bjk->bik", [s(3, 4, 2), s(3, 2, 5)])
        q, k, v = r(2, 4, 5, 8), r(2, 4, 7, 8), r(2, 4, 7, 6)
        sdpa = "scaled_dot_product_attention"
        case(sdpa, q, k, v, symbolic=True)
        case(sdpa, q, k, v, rnd(5, 7, dtype=BOOL) | (torch.arange(7) == 0))
        case(sdpa, q, k, v, r(2, 1, 5, 7), scale=0.3)
        case(sdpa, q, k[:, :, :5], v[:, :, :5], is_causal=True)
        case(sdpa, q.transpose(1, 2).contiguous().transpose(1, 2), k, v)
        case(sdpa, q, k[:, :2], v[:, :2], enable_gqa=True)
        case(sdpa, q[0], k[0], v[0])
    case("matmul", rnd(3, 4, dtype=I64), rnd(4, 2, dtype=I64))
    case("matmul", rnd(3, 4, dtype=F64), rnd(4, 2, dtype=F64))
    case("matmul", rnd(3, 4, dtype=C64), rnd(4, 2, dtype=C64))
    case("mm", torch.zeros(3, 0), torch.zeros(0, 4))
    case("scaled_dot_product_attention", *(rnd(1, 2, 3, 4, dtype=F64) for _ in range(3)))
    offs = torch.tensor([3, 3, 8, 10], dtype=I32)
    x = rnd(10, 16, dtype=BF16)
    case("_grouped_mm", x, rnd(4, 16, 24, dtype=BF16), offs)
    case("_grouped_mm", x, rnd(4, 24, 16, dtype=BF16).transpose(1, 2), offs)
    case("_grouped_mm", rnd(2, 5, 16, dtype=BF16), rnd(2, 16, 8, dtype=BF16))


def indices() -> None:
    for dtype in (F32, BF16):
        w = rnd(11, 6, dtype=dtype)
        case("embedding", w, ids(5, 7, n=11), symbolic=True)
        case("embedding", w, ids(3, n=11, dtype=I32), 0)
        case("embedding", strided(9, 4, dtype=dtype), ids(2, 2, n=9))
        x = rnd(4, 5, 6, dtype=dtype)
        i, j = ids(3, n=4), ids(3, n=5)
        for index in (
            [i],
            [i, j],
            [None, j],
            [None, j, ids(3, n=6)],
            [i, None, ids(3, n=6)],
            [i[:, None], j[None]],
            [ids(2, 2, n=4) - 4],
            [torch.tensor(1), j],
            [i, j, ids(3, n=6)],
        ):
            case("index.Tensor", x, index)
            shape = x[tuple(slice(None) if k is None else k for k in index)].shape
            case("index_put", x, index, rnd(*shape, dtype=dtype))
            case("index_put", x, index, rnd(*shape, dtype=dtype), True)
        case("index_put", x, [i], torch.tensor(1.0, dtype=dtype))
        case("index.Tensor", strided(4, 5, dtype=dtype), [ids(2, 3, n=4)])
        case("index_select", x, 1, ids(4, n=5))
        case("index_select", x, -1, torch.tensor(2))
        case("index_select", strided(4, 5, dtype=dtype), 0, ids(3, n=4, dtype=I32))
        g = ids(4, 2, 6, n=5)
        case("gather", x, 1, g)
        case("gather", x, -1, ids(2, 3, 4, n=6))
        case("gather", strided(4, 5, dtype=dtype), -1, ids(4, 3, n=5))
        case("take_along_dim", x, g, 1)
        case("take_along_dim", x, ids(1, 5, 6, n=4), 0)
        case("take_along_dim", x, ids(7, n=x.numel()))
        unique = torch.argsort(torch.rand(4, 5, 6), 1)[:, :2]
        src = rnd(4, 2, 6, dtype=dtype)
        case("scatter.src", x, 1, unique, src)
        case("scatter.value", x, 1, unique, 1.5)
        case("scatter.value", strided(4, 5, dtype=dtype), -1, ids(4, 2, n=5), 0)
        case("scatter.reduce", x, 1, g, src, reduce="add")
        case("scatter_add", x, 1, g, src)
        case("scatter_add", strided(4, 5, dtype=dtype), -1, ids(4, 3, n=5), rnd(4, 3, dtype=dtype))
        case("scatter_add", rnd(9, dtype=dtype), 0, ids(20, n=9), rnd(20, dtype=dtype))
        for how in ["sum", "prod", "amax", "amin", "mean"]:
            case("scatter_reduce.two", x, 1, g, src, how)
            case("scatter_reduce.two", x, 1, g, src, how, include_self=False)
        case("index_add", x, 1, ids(3, n=5), rnd(4, 3, 6, dtype=dtype))
        case("index_add", x, -1, ids(3, n=6), rnd(4, 5, 3, dtype=dtype), alpha=2)
        case("index_add", rnd(5, dtype=dtype), 0, ids(9, n=5), rnd(9, dtype=dtype))
        case("index_copy", x, 1, torch.tensor([4, 0]), rnd(4, 2, 6, dtype=dtype))
        case("index_copy", x, -1, torch.tensor([1, 2, 0]), rnd(4, 5, 3, dtype=dtype))
        case("index_copy", rnd(5, dtype=dtype), 0, torch.tensor([1]), rnd(1, dtype=dtype))
        case("slice_scatter", x, rnd(4, 2, 6, dtype=dtype), 1, 1, 3)
        case("slice_scatter", x, rnd(4, 5, 3, dtype=dtype), -1, 0, None, 2)
        case("slice_scatter", x, rnd(1, 5, 6, dtype=dtype), 0, -1)
        case("select_scatter", x, rnd(4, 6, dtype=dtype), 1, -2)
        case("select_scatter", x, rnd(5, 6, dtype=dtype), 0, 3)
        case("select_scatter", x, rnd(4, 5, dtype=dtype), -1, 0)
        case("copy", x, rnd(5, 1))
        s = rnd(4, 5, 6, dtype=dtype)
        for d in (-1, 1):
            case("sort", s, d)
            case("sort.stable", (s * 2).round(), stable=True, dim=d, descending=True)
            case("topk", s, 3, d)
            case("topk", s, 2, d, False)
        case("argsort", s)
        case("argsort.stable", (s * 2).round(), stable=True, dim=0, descending=True)
        case("topk", s, 5, 1)
    case("copy", rnd(3, dtype=I64), rnd(3))
    case("copy", rnd(5, 7), rnd(7), symbolic=True)
    case("sort", SPECIAL)
    case("sort.stable", SPECIAL, stable=True, descending=True)
    case("argsort.stable", rnd(20, dtype=I64), stable=True)
    case("index_put", rnd(6, dtype=I64), [torch.tensor([1, 1, 3])], torch.tensor([5, 6, 7]), True)
    case("index_put", torch.zeros(3, 4, dtype=BOOL), [torch.tensor([1])], torch.tensor(True))
    case("scatter.value", torch.zeros(3, 4, dtype=I64), 1, ids(3, 1, n=4), 1)
    case("scatter_add", torch.zeros(4, dtype=I64), 0, ids(9, n=4), torch.ones(9, dtype=I64))
    case("gather", rnd(3, 4, dtype=I64), 0, ids(2, 4, n=3))
    case("gather", rnd(3, dtype=BOOL), 0, ids(5, n=3))
    for x in (ids(20, n=8).float(), rnd(50), rnd(30, dtype=F64)):
        case("histc", x, 8, 0, 7)
        case("histc", x, 5)
        case("histc", x, 4, -1, 1)
    case("bincount", ids(20, n=6), None, 6)
    case("bincount", torch.tensor([0, 3, 3]), torch.tensor([0.5, 1.0, 2.0]), 5)
    case("bincount", ids(9, n=3, dtype=I32), None, 4)
    case("one_hot", ids(5, 7, n=4), 4, symbolic=True)
    case("one_hot", ids(3, n=4), 6)
    case("one_hot", torch.tensor(2), 3)


def views() -> None:
    for x in (rnd(5, 7, 8), strided(5, 7, 8, dtype=BF16), rnd(5, 7, 8, dtype=I64)):
        sym = x.is_contiguous()
        case("select.int", x, 1, 2, symbolic=sym)
        case("select.int", x, -1, -1)
        case("select.int", x, 0, 0)
        for args in [
            (0,),
            (1, 1),
            (-1, 4),
            (-1, None, 4),
            (1, -3, -1),
            (1, 2, 100),
            (2, 1, 8, 3),
            (0, 0, 2**63 - 1),
            (1, 5, 2),
        ]:
            case("slice.Tensor", x, *args, symbolic=sym)
        case("narrow", x, 1, 2, 3, symbolic=sym)
        case("narrow", x, -1, -3, 2)
        case("narrow", x, 0, 0, 5)
        case("transpose.int", x, 0, 1, symbolic=sym)
        case("transpose.int", x, -1, -2)
        case("transpose.int", x, 1, 1)
        case("swapaxes", x, 0, -1)
        case("permute", x, [2, 0, 1], symbolic=sym)
        case("permute", x, [-1, -2, -3])
        case("permute", x, [0, 1, 2])
        case("movedim.intlist", x, [0], [-1])
        case("movedim.intlist", x, [0, 2], [1, 0])
        case("movedim.int", x, 1, 0)
        case("t", x[0])
        case("t", x[0, 0])
        case("t", x[:, 0])
        case("numpy_T", x[0])
        case("numpy_T", x[1])
        case("numpy_T", x[:, 1])
        case("mT", x)
        case("mT", x[0])
        case("mT", x[:, :1])
        case("reshape", x, [5, 7, 2, 4], symbolic=sym)
        case("reshape", x, [-1, 8], symbolic=sym)
        case("reshape", x, [280])
        case("reshape", x, [5, -1])
        case("flatten.using_ints", x, symbolic=sym)
        case("flatten.using_ints", x, 1, symbolic=sym)
        case("flatten.using_ints", x, -3, -2)
        case("unflatten.int", x, -1, [2, -1], symbolic=sym)
        case("unflatten.int", x, 2, [4, 2])
        case("unflatten.int", x, 0, [1, 5])
        case("unsqueeze", x, 0, symbolic=sym)
        case("unsqueeze", x, -1)
        case("unsqueeze", x, 2)
        y = x[:, :1, :1]
        case("squeeze", y, symbolic=sym)
        case("squeeze.dim", y, 1)
        case("squeeze.dim", y, 0)
        case("squeeze.dims", y, [1, -1])
        case("expand", y, [5, 7, 8], symbolic=sym)
        case("expand", y, [-1, 3, -1])
        case("expand", y, [2, 5, 7, 8])
        case("expand_as", y, x)
        case("expand_as", x[0], x)
        case("expand_as", x[:1, :, :1], x)
        case("view_as", x.contiguous(), torch.zeros(5, 56))
        case("view_as", x.contiguous(), torch.zeros(280))
        case("view_as", x.contiguous(), torch.zeros(35, 8))
        case("diagonal", x)
        case("diagonal", x, 1, 1, 2)
        case("diagonal", x, -2, -1, 0)
        case("unfold", x, 1, 3, 2)
        case("unfold", x, -1, 8, 1)
        case("unfold", x, 0, 2, 3)
        for name in ["alias", "detach", "contiguous", "clone", "lift_fresh_copy"]:
            case(name, x, symbolic=sym)
        case("dropout", x.to(F32), 0.5, False)
        for dtype in (F32, BF16, F16, I64, I32, BOOL, F64, I8):
            case("_to_copy", x, dtype=dtype)
            case("to.dtype", x, dtype, symbolic=sym)
        case("type_as", x, rnd(1, dtype=F16))
        case("split.Tensor", x, 4, -1, symbolic=sym)
        case("split.Tensor", x, 3, 1)
        case("split_with_sizes", x, [3, 5], 2, symbolic=sym)
        case("split_with_sizes", x, [1, 0, 4], 0)
        case("split_with_sizes", x, [7], 1)
        case("chunk", x, 2, -1, symbolic=sym)
        case("chunk", x, 3, 1)
        case("chunk", x, 4, 0)
        case("tensor_split.sections", x, 3, 1)
        case("tensor_split.sections", x, 2, -1)
        case("tensor_split.indices", x, [2, 3], 1)
        case("unbind.int", x, 2, symbolic=sym)
        case("unbind.int", x)
        case("unbind.int", x, -2)
        case("flip", x, [0])
        case("flip", x, [-1, 1], symbolic=sym)
        case("flip", x, [0, 1, 2])
        case("roll", x, [2], [1])
        case("roll", x, [-3, 1], [-1, 0], symbolic=sym)
        case("roll", x, [5])
        case("repeat", x[:2, :2, :2], [2, 1, 3])
        case("repeat", x, [2, 1, 1, 1], symbolic=sym)
        case("repeat", x[:1], [3, 1, 1])
        case("tile", x[:2, :2, :2], [2, 3])
        case("tile", x, [2, 1, 1, 1])
        case("tile", x[0, 0], [2])
        case("repeat_interleave.self_int", x, 3, 1, symbolic=sym)
        case("repeat_interleave.self_int", x, 2, -1)
        case("repeat_interleave.self_int", x[0, :2], 2)
        for name in ["triu", "tril"]:
            case(name, x, symbolic=sym)
            case(name, x, 2)
            case(name, x[0], -1)
        case("constant_pad_nd", x, [1, 2], 3)
        case("constant_pad_nd", x, [0, 0, 2, -3], symbolic=sym)
        case("constant_pad_nd", x, [-1, -1, 1, 1, -2, 0])
        case("pad", x, [1, 0, 0, 2])
        case("pad", x, [1, 1], "constant", 0.0)
        case("pad", x, [-1, 3])
        case("diff", x)
        case("diff", x, 2, 1)
        case("diff", x, 1, 1, x[:, :1], x[:, :2], symbolic=sym)
        case("zeros_like", x, symbolic=sym)
        case("ones_like", x, dtype=F32)
        case("empty_like", x, shape_only=True, symbolic=sym)
        case("full_like", x, 3)
        case("full_like", x, 2.5, dtype=F16)
        case("new_zeros", x, [5, 7], symbolic=sym)
        case("new_ones", x, [2, 3], dtype=BOOL)
        case("new_empty", x, [3], shape_only=True)
        case("new_full", x, [2, 2], 7)
        case("fill.Scalar", x, 3)
        case("fill.Tensor", x, torch.tensor(2.0))
        case("cat", [x, x[:, :3]], 1)
        case("cat", [x, x, x], -1, symbolic=sym)
        case("cat", [x])
        case("stack", [x, x * 2], 0, symbolic=sym)
        case("stack", [x, x * 2], -1)
        case("stack", [x[0]], 1)
        case("hstack", [x, x[:, :2]])
        case("hstack", [x[0, 0], x[0, 1]])
        case("hstack", [x])
    case("to.dtype", torch.tensor([1.7, -1.7, 3.5, 0.0]), I64)
    case("to.dtype", torch.tensor([1.7, -1.7, math.nan, 0.0]), BOOL)
    case("type_as", rnd(3, dtype=I64), rnd(1, dtype=BF16))
    case("type_as", rnd(5, 7), rnd(1, dtype=BF16), symbolic=True)
    case("contiguous", rnd(3, 4).t())
    case("view", rnd(5, 7, 8), [5, 7, 4, 2], symbolic=True)
    case("view", rnd(5, 7, 8), [-1, 8], symbolic=True)
    case("view", strided(5, 7, 8), [5, 7, 2, 2, 2])
    case("view", torch.zeros(0, 4), [2, 0])
    case("_unsafe_view", rnd(5, 7, 8), [35, 8])
    case("_unsafe_view", rnd(5, 7, 8), [5, -1])
    case("_unsafe_view", rnd(5, 7, 8, dtype=BF16), [5, 7, 8], symbolic=True)
    case("cat", [torch.zeros(0), rnd(2, 3)], 0)
    case("cat", [rnd(2, 3), rnd(2, 3, dtype=BF16)], 0)
    case("cat", [rnd(2, 3, dtype=I64), rnd(2, 3, dtype=BF16)], 1)
    case("squeeze", rnd(1, 1))
    case("meshgrid.indexing", [rnd(3), rnd(4)], indexing="ij")
    case("meshgrid.indexing", [rnd(3), rnd(4), rnd(2)], indexing="xy")
    case("meshgrid", [rnd(5), rnd(7)])
    case("as_strided", rnd(3, 4), [2, 2], [4, 1], 1)
    case("as_strided", rnd(12), [3, 3, 2], [2, 1, 3])
    case("as_strided", rnd(5, dtype=BF16), [5, 3], [1, 0])
    case("diff", rnd(6, dtype=BOOL))
    case("diff", torch.arange(5), 1, -1, torch.tensor([-1]))


def makers() -> None:
    for name in ["zeros", "ones"]:
        case(name, [5, 7], symbolic=True)
        case(name, [3], dtype=I64)
        case(name, [], dtype=BF16)
    case("empty.memory_format", [5, 7], symbolic=True, shape_only=True)
    case("empty.memory_format", [0, 2], dtype=BF16, shape_only=True)
    case("empty.memory_format", [3], dtype=I64, shape_only=True)
    case("full", [5, 7], 1.5, symbolic=True)
    case("full", [2], 3)
    case("full", [2], True)
    case("full", [2, 2], -math.inf, dtype=BF16)
    case("arange", 7, symbolic=True)
    case("arange", 3.5)
    case("arange", 5, dtype=F32)
    case("arange.start", 5, 7)
    case("arange.start", -1.5, 3)
    case("arange.start_step", 0, 7, 2)
    case("arange.start_step", 9, -2, -3)
    case("arange.start_step", 0, 16, 2, dtype=F32)
    case("arange.start_step", 0.0, 1.0, 0.1)
    case("linspace", 0, 1, 5)
    case("linspace", -3.0, 2.5, 8, dtype=F64)
    case("linspace", 2, 9, 1)
    case("eye", 3)
    case("eye.m", 2, 4, dtype=BOOL)
    case("eye.m", 5, 3)
    case("scalar_tensor", 2.5)
    case("scalar_tensor", 3, dtype=I64)
    case("scalar_tensor", -math.inf, dtype=BF16)
    for name in ["tril_indices", "triu_indices"]:
        case(name, 3, 4)
        case(name, 4, 3, 1)
        case(name, 4, 4, -1)


def complexes() -> None:
    z = rnd(3, 4, dtype=C64)
    case("view_as_complex", rnd(5, 7, 2), symbolic=True)
    case("view_as_complex", rnd(3, 4, 2).transpose(0, 1))
    case("view_as_complex", rnd(2))
    case("view_as_real", z)
    case("view_as_real", z.t())
    case("view_as_real", z[:, 1])
    case("complex", rnd(5, 7), rnd(5, 7), symbolic=True)
    case("complex", rnd(3, 1), rnd(4))
    case("complex", strided(3, 4), rnd(4))
    case("polar", rnd(5, 7, low=0), rnd(5, 7), symbolic=True)
    case("polar", torch.ones(3, 1), rnd(4))
    case("polar", torch.ones_like(strided(3, 4)), strided(3, 4))
    for name in ["real", "imag"]:
        case(name, z)
        case(name, z.t())
        case(name, z[1])
    for name in ["conj", "_conj"]:
        case(name, z)
        case(name, z.t())
        case(name, z[:, 0])
    case("cos", rnd(2))


def convolutions() -> None:
    for dtype in (F32, BF16):
        x = rnd(2, 4, 9, dtype=dtype)
        case("conv1d", x, rnd(6, 4, 3, dtype=dtype), rnd(6, dtype=dtype))
        case("conv1d", x, rnd(4, 1, 4, dtype=dtype), None, [1], [3], [1], 4)
        case("conv1d", x, rnd(6, 2, 2, dtype=dtype), None, [2], [1], [2], 2)
        y = rnd(2, 3, 6, 5, dtype=dtype)
        case("conv2d", y, rnd(4, 3, 3, 2, dtype=dtype), rnd(4, dtype=dtype), [2, 1], [1, 0])
        case("conv2d", y, rnd(4, 3, 1, 1, dtype=dtype))
        case("conv2d", y, rnd(6, 1, 2, 2, dtype=dtype), None, [1, 1], [0, 0], [2, 2], 3)
        case("convolution", x, rnd(6, 4, 3, dtype=dtype), None, [1], [0], [1], False, [0], 1)
        case(
            "convolution",
            x,
            rnd(4, 1, 4, dtype=dtype),
            rnd(4, dtype=dtype),
            [1],
            [3],
            [1],
            False,
            [0],
            4,
        )
        case(
            "convolution",
            y,
            rnd(4, 3, 2, 2, dtype=dtype),
            None,
            [2, 2],
            [1, 1],
            [1, 1],
            False,
            [0, 0],
            1,
        )


if __name__ == "__main__":
    for part in (
        unary,
        binary,
        logic,
        ternary,
        reduce,
        norms,
        products,
        indices,
        views,
        makers,
        complexes,
        convolutions,
    ):
        part()
    (HERE / "cases.txt").write_text("\n".join(lines) + "\n")
    (HERE / "cases.bin").write_bytes(bytes(blob))
    print(sum(line.startswith("case ") for line in lines), "cases,", len(blob), "bytes")
