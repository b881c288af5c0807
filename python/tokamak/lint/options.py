"""Options of the two backends as data: names, values, and pairs that exclude each other.

Source: configs of Ascend/torchair and its npugraph_ex package (2026-11).
"""

_FLAG = (True, False)
_DEFAULTS = {
    "_vllm_aclnn_static_kernel_sym_index": None,
    "_vllm_aclnn_static_kernel_sym_range": None,
}

# torch.compile(backend="npugraph_ex", options={...}): name to its values (None: any).
NPUGRAPH_OPTIONS = {
    "force_eager": _FLAG,
    "use_graph_pool": None,
    "reuse_graph_pool_in_same_fx": _FLAG,
    "capture_limit": None,
    "clone_input": _FLAG,
    "clone_output": _FLAG,
    "static_kernel_compile": _FLAG,
    "disable_static_kernel_compile_cache": _FLAG,
    "frozen_parameter": _FLAG,
    "remove_noop_ops": _FLAG,
    "remove_cat_ops": _FLAG,
    "inplace_pass": _FLAG,
    "input_inplace_pass": _FLAG,
    "pattern_fusion_pass": _FLAG,
    "post_grad_custom_pre_pass": None,
    "post_grad_custom_post_pass": None,
    "dump_tensor_data": _FLAG,
    "data_dump_stage": ("original", "optimized"),
    "data_dump_dir": None,
    "super_kernel_optimize": _FLAG,
    "super_kernel_optimize_options": None,
    "super_kernel_debug_options": None,
    "deadlock_check": _FLAG,
    "capture_error_mode": ("global", "thread_local", "relaxed"),
    "force_recapture": _FLAG,
    "mode": ("npugraph_ex",),
    "unsafe_skip_npugraph_capture_validation": _FLAG,
    **_DEFAULTS,
}

# torchair.CompilerConfig(): groups and their options. None: any value; {}: not looked into.
GE_CONFIG = {
    "mode": ("max-autotune", "reduce-overhead", "npugraph_ex"),
    "post_grad_custom_pre_pass": None,
    "post_grad_custom_post_pass": None,
    "aoe_config": {},
    "aclgraph_config": {"use_custom_pool": None},
    "npugraphex_config": {},
    "debug": {
        "graph_dump": {},
        "data_dump": {},
        "fx_summary": {},
        "run_eagerly": _FLAG,
        "deadlock_check": _FLAG,
        "aclgraph": {
            "disable_reinplace_inplaceable_ops_pass": _FLAG,
            "disable_reinplace_input_mutated_ops_pass": _FLAG,
            "disable_mempool_reuse_in_same_fx": _FLAG,
            "enable_output_clone": _FLAG,
            "static_capture_size_limit": None,
            "clone_input": _FLAG,
            "remove_cat_ops": _FLAG,
        },
    },
    "export": {
        "export_mode": _FLAG,
        "export_path_dir": None,
        "export_name": None,
        "weight_name": None,
        "inputs_name": None,
        "experimental": {},
    },
    "dump_config": {
        "enable_dump": _FLAG,
        "dump_path": None,
        "quant_dumpable": _FLAG,
        "dump_mode": ("input", "output", "all"),
        "dump_step": None,
        "dump_layer": None,
        "dump_data": ("tensor", "stats"),
        "dump_config_path": None,
        "data_dump_stage": ("original", "optimized"),
    },
    "fusion_config": {"fusion_switch_file": None},
    "experimental_config": {
        "cc_parallel_enable": _FLAG,
        "keep_inference_input_mutations": _FLAG,
        "memory_efficiency": _FLAG,
        "frozen_parameter": _FLAG,
        "static_model_ops_lower_limit": None,
        "jit_compile": ("auto",),
        "npu_fx_pass": _FLAG,
        "aot_config_enable_joint_graph": _FLAG,
        "aot_config_output_loss_index": None,
        "topology_sorting_strategy": ("BFS", "DFS", "RDFS", "StableRDFS"),
        "enable_ref_data": _FLAG,
        "enable_view_optimize": _FLAG,
        "remove_noop_ops": _FLAG,
        "tiling_schedule_optimize": _FLAG,
        "pattern_fusion_pass": _FLAG,
        "aclgraph": {},
    },
    "inference_config": {"dynamic_gears_merge_policy": ("zip", "product")},
    "ge_config": {},
}
# With mode="reduce-overhead" or "npugraph_ex" these settings of a GE graph have no effect.
GE_ONLY = {
    "inference_config.dynamic_gears_merge_policy": ("product",),
    "dump_config.enable_dump": (True,),
    "experimental_config.topology_sorting_strategy": ("BFS", "RDFS", "StableRDFS"),
    "experimental_config.cc_parallel_enable": (True,),
    "experimental_config.enable_ref_data": (True,),
    "experimental_config.tiling_schedule_optimize": (True,),
}
# In a GE graph (mode max-autotune) these have none.
CAPTURE_ONLY = {
    "debug.aclgraph.disable_reinplace_input_mutated_ops_pass": (True,),
    "debug.aclgraph.disable_reinplace_inplaceable_ops_pass": (True,),
    "debug.aclgraph.clone_input": (False,),
}

# Public names of the packages.
PACKAGES = {
    "torchair": {
        "CompilerConfig",
        "configs",
        "core",
        "dynamo_export",
        "ge",
        "ge_concrete_graph",
        "get_compiler",
        "get_npu_backend",
        "inference",
        "llm_datadist",
        "logger",
        "npu_export",
        "npu_format_cast_via_cpu",
        "npu_fx_compiler",
        "ops",
        "patch_for_hcom",
        "register_fx_node_ge_converter",
        "register_replacement",
        "scope",
        "use_internal_format_weight",
        "experimental",
        "patterns",
    },
    "torchair.inference": {"cache_compile", "readable_cache", "set_dim_gears"},
    "torchair.scope": {
        "data_dump",
        "limit_core_num",
        "npu_stream_switch",
        "npu_wait_tensor",
        "op_never_timeout",
        "super_kernel",
    },
    "torchair.ops": {
        "npu_create_tagged_event",
        "npu_fused_infer_attention_score",
        "npu_fused_infer_attention_score_v2",
        "npu_print",
        "npu_record_tagged_stream",
        "npu_tagged_event_record",
        "npu_tagged_event_wait",
        "record",
        "wait",
    },
    "torch.npu.npugraph_ex": {
        "CompilerConfig",
        "compile_fx",
        "get_compiler",
        "get_npu_backend",
        "inference",
        "logger",
        "ops",
        "register_replacement",
        "scope",
    },
    "torch.npu.npugraph_ex.inference": {"cache_compile", "readable_cache"},
    "torch.npu.npugraph_ex.scope": {"limit_core_num"},
}
PACKAGES["torch_npu.npu.npugraph_ex"] = PACKAGES["torch.npu.npugraph_ex"]
PACKAGES["npugraph_ex"] = PACKAGES["torch.npu.npugraph_ex"]

# Settings of the recipes' YAML files: (key, value), (key, value) that exclude each other.
RECIPE_PAIRS = [
    (
        ("exe_mode", "ge_graph"),
        ("enable_dynamic_graph", True),
        "a GE graph of the recipes is static: enable_dynamic_graph is ignored",
    ),
    (
        ("exe_mode", "ge_graph"),
        ("enable_static_kernel", True),
        "static kernels are an option of npugraph_ex",
    ),
    (
        ("exe_mode", "eager"),
        ("enable_static_kernel", True),
        "static kernels are an option of npugraph_ex",
    ),
    (("exe_mode", "eager"), ("enable_cache_compile", True), "eager compiles nothing to cache"),
]
EXE_MODES = ("eager", "ge_graph", "npugraph_ex")
