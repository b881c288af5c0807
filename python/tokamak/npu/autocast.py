"""torch.autocast("npu"): torch has the casts of its own devices only, so they are made here.

Products run in the type that autocast asks for, what needs range or precision in float32, as
torch_npu lists them; all else in the type that comes.
"""

import torch

_LOWER = (
    "matmul mm bmm linear addmm addbmm baddbmm addmv addr mv prelu conv1d conv2d conv3d "
    "conv_transpose1d conv_transpose2d.input conv_transpose3d.input convolution "
    "scaled_dot_product_attention"
).split()
_FLOAT = (
    "softmax.int log_softmax.int layer_norm exp log pow.Tensor_Scalar pow.Tensor_Tensor cumsum "
    "prod sum sum.dim_IntList nll_loss mse_loss binary_cross_entropy_with_logits "
    "cosine_similarity norm.Scalar rsqrt"
).split()
_KEY = "AutocastPrivateUse1"
_WITHOUT = torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)


def _cast(value, dtype):
    if isinstance(value, torch.Tensor):
        casts = value.is_floating_point() and value.dtype != torch.float64
        return value.to(dtype) if casts and value.device.type == "npu" else value
    if isinstance(value, list | tuple):
        return type(value)(_cast(v, dtype) for v in value)
    return value


def _kernel(op, dtype):
    def kernel(*args, **kwargs):
        to = dtype or torch.get_autocast_dtype("npu")
        with torch._C._ExcludeDispatchKeyGuard(_WITHOUT):
            return op(*_cast(args, to), **{k: _cast(v, to) for k, v in kwargs.items()})

    return kernel


def register():
    everything = torch.library.Library("_", "IMPL")
    everything.fallback(torch.library.fallthrough_kernel, _KEY)
    aten = torch.library.Library("aten", "IMPL")
    for names, dtype in ((_LOWER, None), (_FLOAT, torch.float32)):
        for name in names:
            packet, _, overload = name.partition(".")
            op = getattr(getattr(torch.ops.aten, packet), overload or "default")
            aten.impl(name, _kernel(op, dtype), _KEY)
    return [everything, aten]
