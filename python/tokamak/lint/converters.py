"""Operators that cannot be turned into Ascend IR.

Source: the converters of Ascend/torchair (2026-11). An operator is here when all its overloads end
in "ge_converter is not implemented", PyTorch does not decompose it before it reaches the backend,
and models use it; copies that only debug (isnan) or that break the graph anyway are left out.
"""

# By what a model calls: torch.X, torch.linalg.X, torch.special.X, torch.nn.functional.X, t.X().
_WITHOUT = {
    "addbmm",
    "amax",
    "amin",
    "aminmax",
    "bitwise_left_shift",
    "bitwise_right_shift",
    "bucketize",
    "cdist",
    "copysign",
    "count_nonzero",
    "cummax",
    "cummin",
    "cumprod",
    "digamma",
    "fmod",
    "frac",
    "gcd",
    "heaviside",
    "hypot",
    "index_fill",
    "index_reduce",
    "lcm",
    "lgamma",
    "logaddexp",
    "logaddexp2",
    "logcumsumexp",
    "mvlgamma",
    "nanmedian",
    "nansum",
    "nextafter",
    "renorm",
    "rot90",
    "scatter_reduce",
    "sinc",
    "take",
    "trace",
    "unfold",
    "vdot",
    "xlogy",
}
_PACKAGES = (
    "torch.fft.",
    "torch.linalg.cholesky",
    "torch.linalg.eig",
    "torch.linalg.svd",
    "torch.linalg.det",
    "torch.linalg.inv",
    "torch.linalg.lu",
    "torch.linalg.qr",
    "torch.linalg.solve",
    "torch.special.bessel",
    "torch.special.entr",
    "torch.special.erfcx",
    "torch.special.i",
    "torch.special.log_ndtr",
    "torch.special.zeta",
)

METHODS = _WITHOUT | {f"{n}_" for n in _WITHOUT}

# Fused operators: no converter of that name in torchair.
NPU_WITHOUT_CONVERTER = {
    "npu_advance_step_flashattn",
    "npu_convert_weight_to_int4pack",
    "npu_gelu_mul",
    "npu_layer_norm_eval",
    "npu_moe_token_permute",
    "npu_moe_token_unpermute",
    "npu_mrope",
    "npu_rms_norm_quant",
    "npu_silu",
    "npu_swiglu_quant",
    "npu_top_k_top_p",
}


def is_missing(dotted, name):
    """Whether torch.<...>.<name> ends in an operator that GE cannot take."""
    if dotted.startswith(_PACKAGES):
        return True
    package = dotted.rpartition(".")[0]
    return name in METHODS and package in (
        "torch",
        "torch.nn.functional",
        "torch.ops.aten",
        "torch.special",
        "torch.linalg",
    )
