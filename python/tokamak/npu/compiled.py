"""torchair and npugraph_ex: what torch.compile captures is run as it was captured, eagerly. Options
are checked for their names and have no effect on results."""

import contextlib
import difflib
import types

import torch


class _Options:
    """A group of settings: names that the library knows can be set, others are refused."""

    _known = ()

    def __init__(self):
        for name, default in self._known:
            value = default() if isinstance(default, type) else default
            object.__setattr__(self, name, value)

    def __setattr__(self, name, value):
        if name not in dict(self._known):
            known = ", ".join(sorted(dict(self._known)))
            raise AttributeError(f"{type(self).__name__} has no option '{name}'; it has {known}")
        object.__setattr__(self, name, value)


class _Debug(_Options):
    class _Graph(_Options):
        _known = (("enabled", False), ("type", "txt"), ("path", "./"))

    class _DataDump(_Options):
        _known = (("enable", False), ("type", "npy"), ("path", "./"), ("filter", None))

    class _FxSummary(_Options):
        _known = (("enabled", False), ("type", "csv"), ("skip_compile", True))

    class _Aclgraph(_Options):
        _known = (
            ("disable_reinplace_inplaceable_ops_pass", False),
            ("disable_reinplace_input_mutated_ops_pass", False),
            ("disable_mempool_reuse_in_same_fx", False),
            ("enable_output_clone", False),
            ("clone_input", True),
            ("static_capture_size_limit", 64),
        )

    _known = (
        ("graph_dump", _Graph),
        ("data_dump", _DataDump),
        ("fx_summary", _FxSummary),
        ("aclgraph", _Aclgraph),
        ("run_eagerly", False),
    )


class _Experimental(_Options):
    _known = (
        ("frozen_parameter", False),
        ("tiling_schedule_optimize", False),
        ("topology_sorting_strategy", "DFS"),
        ("cc_parallel_enable", False),
        ("keep_inference_input_mutations", True),
        ("memory_efficiency", False),
        ("separate_atomic_clean", True),
        ("npu_fx_pass", False),
        ("aot_config_enable_joint_graph", False),
        ("aot_config_output_loss_index", 0),
        ("enable_ref_data", False),
        ("jit_compile", "auto"),
        ("enable_single_stream", False),
        ("oo_level", "O3"),
        ("oo_constant_folding", None),
        ("oo_dead_code_elimination", None),
        ("static_model_ops_lower_limit", None),
        ("pattern_fusion_pass", True),
        ("enable_view_optimize", True),
        ("remove_noop_ops", True),
        ("remove_cat_ops", True),
    )


class _Fusion(_Options):
    _known = (("fusion_switch_file", None),)


class _Inference(_Options):
    _known = (("dynamic_gears_merge_policy", "zip"), ("use_internal_format_weight", False))


class _Export(_Options):
    _known = (("export_mode", False), ("export_name", ""), ("weight_externalized", False))


class _Dump(_Options):
    _known = (
        ("enable_dump", False),
        ("dump_path", "./"),
        ("dump_mode", "all"),
        ("quant_dumpable", False),
        ("dump_step", ""),
        ("dump_layer", ""),
        ("dump_data", "tensor"),
        ("dump_config_path", ""),
    )


class _Aclgraph(_Options):
    _known = (("kernel_aot_optimization", True), ("use_custom_pool", None))


class _Ge(_Options):
    _known = (("enable_single_stream", False), ("oo_level", "O3"), ("optimization_switch", None))


class CompilerConfig(_Options):
    _known = (
        ("debug", _Debug),
        ("experimental_config", _Experimental),
        ("fusion_config", _Fusion),
        ("inference_config", _Inference),
        ("export", _Export),
        ("dump_config", _Dump),
        ("aclgraph_config", _Aclgraph),
        ("aclgraph", _Aclgraph),
        ("ge_config", _Ge),
        ("mode", "max-autotune"),
        ("post_grad_custom_pre_pass", None),
        ("post_grad_custom_post_pass", None),
    )


def _run_eagerly(gm, example_inputs, **options):
    return gm.forward


def get_npu_backend(*, compiler_config=None, custom_decompositions=None):
    """A backend for torch.compile."""
    if compiler_config is not None and not isinstance(compiler_config, CompilerConfig):
        raise TypeError(
            f"compiler_config must be a CompilerConfig, got {type(compiler_config).__name__}"
        )
    return _run_eagerly


def get_compiler(compiler_config=None):
    return get_npu_backend(compiler_config=compiler_config)


def cache_compile(func, *, config=None, dynamic=True, cache_dir=None, **options):
    """The library keeps the compiled graph in cache_dir; here there is none to keep."""
    if not callable(func):
        raise TypeError(f"cache_compile takes a method of a module, got {type(func).__name__}")
    return torch.compile(func, dynamic=dynamic, fullgraph=True, backend=_run_eagerly)


inference = types.SimpleNamespace(
    cache_compile=cache_compile,
    readable_cache=lambda cache_bin, **options: "",
    set_dim_gears=lambda tensor, dim_gears: None,
)


@contextlib.contextmanager
def _anything(*args, **kwargs):
    yield


def npu_wait_tensor(tensor, dependency):
    return tensor


scope = types.SimpleNamespace(
    super_kernel=_anything,
    npu_stream_switch=_anything,
    limit_core_num=_anything,
    npu_wait_tensor=npu_wait_tensor,
    op_never_timeout=_anything,
    data_dump=_anything,
)


# Of torch_npu 2.14's npugraph_ex.
NPUGRAPH_OPTIONS = (
    "capture_error_mode",
    "capture_limit",
    "clone_input",
    "clone_output",
    "data_dump_dir",
    "data_dump_stage",
    "deadlock_check",
    "disable_static_kernel_compile_cache",
    "dump_tensor_data",
    "force_eager",
    "force_recapture",
    "frozen_parameter",
    "inplace_pass",
    "input_inplace_pass",
    "pattern_fusion_pass",
    "post_grad_custom_post_pass",
    "post_grad_custom_pre_pass",
    "remove_cat_ops",
    "remove_noop_ops",
    "reuse_graph_pool_in_same_fx",
    "static_kernel_compile",
    "super_kernel_optimize",
    "super_kernel_optimize_options",
    "super_kernel_debug_options",
    "unsafe_skip_npugraph_capture_validation",
    "use_graph_pool",
)


def _npugraph_ex(gm, example_inputs, *, options=None, **others):
    for name in options or {}:
        if name not in NPUGRAPH_OPTIONS:
            close = difflib.get_close_matches(name, NPUGRAPH_OPTIONS, n=1)
            hint = f"; did you mean {close[0]}?" if close else ""
            raise ValueError(f"Unknown option '{name}' of npugraph_ex{hint}")
    if (limit := (options or {}).get("capture_limit", 64)) < 1:
        raise ValueError(f"capture_limit is {limit}, expected at least 1")
    return _run_eagerly(gm, example_inputs)


def register_backends():
    """torch.compile(..., backend="npu" or "npugraph_ex")."""
    torch._dynamo.register_backend(_run_eagerly, "npu")
    torch._dynamo.register_backend(_npugraph_ex, "npugraph_ex")
