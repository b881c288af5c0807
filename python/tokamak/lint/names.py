"""What the names of torch mean to the analysis. Data only; sources: PyTorch 2.13, torch_npu 2.14."""

# Attributes and methods that give a plain Python value.
HOST_ATTRIBUTES = {
    "device", "dtype", "grad_fn", "is_cuda", "is_floating_point", "is_leaf", "is_npu", "itemsize",
    "layout", "names", "nbytes", "ndim", "requires_grad", "shape",
}
HOST_METHODS = {
    "data_ptr", "dim", "element_size", "get_device", "is_complex", "is_contiguous",
    "is_floating_point", "is_same_size", "is_shared", "ndimension", "nelement", "numel", "size",
    "storage_offset", "stride", "type", "untyped_storage",
}

# Read on a parameter, these show that it is a tensor.
TENSOR_ONLY_ATTRIBUTES = {
    "T", "abs", "add_", "all", "amax", "any", "argsort", "exp", "float", "max", "mean", "min",
    "pow", "prod", "relu", "rsqrt", "sigmoid", "sqrt", "std", "sum", "tanh", "to", "type_as", "argmax", "bfloat16", "bool", "chunk", "clamp", "clone", "contiguous",
    "copy_", "cpu", "cumsum", "detach", "device", "dim", "div_", "dtype", "expand", "fill_",
    "flatten", "gather", "half", "index_add_", "index_copy_", "index_select", "is_contiguous",
    "item", "long", "masked_fill", "masked_fill_", "masked_select", "matmul", "mT", "mul_", "ndim",
    "new_empty", "new_ones", "new_zeros", "nonzero", "norm", "npu", "numel", "permute", "repeat",
    "repeat_interleave", "reshape", "scatter_", "scatter_add_", "shape", "size", "softmax",
    "squeeze", "sub_", "tolist", "topk", "transpose", "tril", "triu", "unbind", "unique",
    "unsqueeze", "view", "view_as", "zero_",
}

# Methods and functions whose result is a view of their first argument.
VIEWS = {
    "T", "as_strided", "chunk", "data", "detach", "diagonal", "expand", "expand_as", "flatten",
    "mT", "movedim", "narrow", "permute", "reshape", "select", "split", "squeeze", "swapaxes",
    "t", "tensor_split", "transpose", "unbind", "unflatten", "unfold", "unsqueeze", "view",
    "view_as",
}

# Results of dtype bool.
BOOL_RESULTS = {
    "bool", "eq", "equal_", "ge", "greater", "greater_equal", "gt", "isclose", "isfinite", "isin",
    "isinf", "isnan", "isneginf", "isposinf", "le", "less", "less_equal", "logical_and",
    "logical_not", "logical_or", "logical_xor", "lt", "ne", "not_equal", "all", "any",
    "bitwise_not_of_bool",
}
# These keep the dtype of their argument.
KEEPS_DTYPE = VIEWS | {"clone", "contiguous", "repeat", "roll", "flip", "gather", "index_select",
                       "tril", "triu", "cpu", "npu", "cuda", "broadcast_to", "repeat_interleave"}

# torch.X that gives a plain Python value, or that the analysis need not follow.
HOST_FUNCTIONS = {
    "broadcast_shapes", "can_cast", "device", "finfo", "get_default_dtype", "iinfo", "is_complex",
    "is_floating_point", "is_grad_enabled", "is_inference_mode_enabled", "is_tensor", "numel",
    "promote_types", "result_type", "Size",
}
CONSTRUCTORS = {"tensor", "as_tensor", "asarray", "Tensor", "LongTensor", "IntTensor",
                "FloatTensor", "BoolTensor", "HalfTensor", "BFloat16Tensor", "scalar_tensor"}
# Functions and methods that take sizes: in which positions (of functions), all of a method's.
SIZED_FUNCTIONS = {"arange", "empty", "eye", "full", "linspace", "ones", "rand", "randn", "zeros",
                   "randint"}
SIZED_METHODS = {"expand", "new_empty", "new_full", "new_ones", "new_zeros", "repeat", "reshape",
                 "resize_", "split", "split_with_sizes", "unflatten", "view", "narrow", "chunk"}

RANDOM_FUNCTIONS = {"bernoulli", "multinomial", "normal", "poisson", "rand", "rand_like",
                    "randint", "randint_like", "randn", "randn_like", "randperm", "manual_seed"}
RANDOM_METHODS = {"bernoulli", "bernoulli_", "cauchy_", "exponential_", "geometric_",
                  "log_normal_", "multinomial", "normal_", "random_", "uniform_"}

SYNCHRONISES = {"synchronize", "current_stream.synchronize", "barrier", "monitored_barrier"}

# Collectives that take Python lists of tensors, with the positions of those.
LIST_COLLECTIVES = {
    "all_gather": (0,), "all_to_all": (0, 1), "gather": (1,), "reduce_scatter": (1,),
    "scatter": (1,), "all_gather_object": (0,), "broadcast_object_list": (0,),
    "all_gather_coalesced": (0,), "all_reduce_coalesced": (0,),
}
REPLACES_COLLECTIVE = {
    "all_gather": "dist.all_gather_into_tensor", "all_to_all": "dist.all_to_all_single",
    "reduce_scatter": "dist.reduce_scatter_tensor",
}

# Fused operators of torch_npu that write caches without saying so in their schema, with the
# positions and names of the caches and of the results that stand for them
# (torch_npu 2.14 schemas: no (a!) on these arguments).
CACHE_WRITERS = {
    "npu_kv_rmsnorm_rope_cache": {"arguments": {5: "k_cache", 6: "ckv_cache"}, "results": (0, 1)},
    "npu_mla_prolog": {"arguments": {10: "kv_cache", 11: "kr_cache"}, "results": (2, 3)},
    "npu_mla_prolog_v2": {"arguments": {10: "kv_cache", 11: "kr_cache"}, "results": (2, 3)},
}
# Fused operators that say in their schema which arguments they write, with their positions.
MUTATED_ARGUMENTS = {
    "npu_mla_prolog_v3": (9, 10), "npu_kv_rmsnorm_rope_cache_v2": (5, 6),
    "npu_qkv_rms_norm_rope_cache": (6, 7, 8), "npu_add_rms_norm_v2": (0, 1),
    "scatter_update_": (0,), "npu_scatter_nd_update_": (0,), "npu_scatter_pa_kv_cache": (2, 3),
    "npu_quant_scatter_": (0,), "npu_recurrent_gated_delta_rule": (),
}

ENVIRONMENT_CALLS = {
    "os.getenv", "os.environ.get", "os.environ.setdefault", "os.environ.copy", "os.getpid",
    "os.cpu_count", "os.path.exists", "os.listdir", "platform.machine", "platform.node",
    "platform.platform", "platform.processor", "platform.python_version", "platform.system",
    "platform.uname", "platform.version", "socket.gethostname", "importlib.metadata.version",
    "importlib.util.find_spec", "pkg_resources.get_distribution", "importlib_metadata.version",
    "sys.getsizeof", "time.time", "time.perf_counter", "time.monotonic", "time.time_ns",
    "time.perf_counter_ns", "datetime.datetime.now", "random.random", "random.randint",
    "random.choice", "packaging.version.parse", "torch.npu.get_device_name",
    "torch.cuda.get_device_name", "torch.npu.get_device_properties",
    "torch.cuda.get_device_properties", "torch.cuda.get_device_capability",
    "torch_npu.npu.get_device_name", "torch_npu.npu.get_soc_version",
    "torch.npu.mem_get_info", "torch.npu.memory_allocated", "torch.cuda.memory_allocated",
    "torch.npu.is_available", "torch.cuda.is_available",
}

# Attention operators by their version: what their length arguments are called (torch_npu schemas).
ATTENTION_V1 = {"npu_fused_infer_attention_score"}
ATTENTION_V2 = {"npu_fused_infer_attention_score_v2"}
V1_TO_V2 = {"actual_seq_lengths": "actual_seq_qlen", "actual_seq_lengths_kv": "actual_seq_kvlen",
            "num_heads": "num_query_heads", "scale": "softmax_scale",
            "softmax_lse_flag": "return_softmax_lse"}
# Length arguments that are SymInt[]? or int[]? in the schema: Python lists only.
LIST_LENGTHS = {
    "npu_fused_infer_attention_score": ("actual_seq_lengths", "actual_seq_lengths_kv",
                                        "actual_shared_prefix_len"),
    "npu_fused_infer_attention_score_v2": ("actual_seq_qlen", "actual_seq_kvlen"),
    "npu_incre_flash_attention": ("actual_seq_lengths",),
    "npu_prompt_flash_attention": ("actual_seq_lengths", "actual_seq_lengths_kv"),
    "npu_fusion_attention": ("actual_seq_qlen", "actual_seq_kvlen"),
}
# Length arguments that are Tensor? in the schema.
TENSOR_LENGTHS = {
    "npu_lightning_indexer": ("actual_seq_lengths_query", "actual_seq_lengths_key"),
    "npu_quant_lightning_indexer": ("actual_seq_lengths_query", "actual_seq_lengths_key"),
    "npu_sparse_flash_attention": ("actual_seq_lengths_query", "actual_seq_lengths_kv"),
    "npu_kv_quant_sparse_flash_attention": ("actual_seq_lengths_query", "actual_seq_lengths_kv"),
    "npu_mla_prolog_v3": ("actual_seq_len",),
    "npu_recurrent_gated_delta_rule": ("actual_seq_lengths",),
    "npu_chunk_gated_delta_rule": ("actual_seq_lengths",),
}

# Functions that read a context which the host sets between the steps.
CONTEXT_FUNCTIONS = {"get_forward_context", "get_forward_metadata", "get_attn_metadata",
                     "get_current_context", "get_context", "get_batch_context"}
