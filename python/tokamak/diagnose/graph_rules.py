"""What goes wrong in graph mode, as it reads in a log: sign, cause, what to do (GM-41, GM-42).

Formats are those of PyTorch's Dynamo, torchair, torch_npu and the CANN runtime; the codes and their
meanings are from their public error lists.
"""

import re
from dataclasses import dataclass

DECIDES, NAMES, FOLLOWS = 3, 2, 1  # how much a line says about the cause


@dataclass(frozen=True)
class Rule:
    """`sign` has groups that `cause` and `fix` may name as {group}."""

    id: str
    kind: str  # class of GM-41
    sign: re.Pattern
    cause: str
    fix: str
    weight: int = DECIDES


def _rule(id, kind, sign, cause, fix, weight=DECIDES):
    return Rule(id, kind, re.compile(sign), cause, fix, weight)


_LENGTHS = r"actual_(?:shared_prefix_)?(?:seq_)?(?:lengths(?:_kv|_query|_key)?|qlen|kvlen|len)"

RULES = (
    _rule(
        "length-type-list",
        "length-type",
        rf"(?:'(?P<name>{_LENGTHS})'.*(?:must be|Expected a value of type|expected).*"
        r"(?:tuple of ints|SymInt|[Ll]ist\[int\]|int\[\]).*Tensor)",
        "{name} is given as a Tensor, and the schema of the operator that is called takes a list of int",
        "npugraph_ex: give a list[int] (the host lists of the forward metadata) and compile with "
        "dynamic=True; ge_graph: call torchair.ops.npu_fused_infer_attention_score, which takes an "
        "int64 Tensor, with dynamic=False (GM-20)",
    ),
    _rule(
        "length-type-tensor",
        "length-type",
        rf"(?:'(?P<name>{_LENGTHS})'.*(?:must be|Expected a value of type|expected) .*Tensor.*list)",
        "{name} is given as a list, and the schema of the operator that is called takes a Tensor",
        "give an int64 Tensor; with npugraph_ex dynamic=False then (GM-20)",
    ),
    _rule(
        "wrong-keyword",
        "arguments",
        r"(?P<op>\w*npu_\w+)\(?\)?.*(?:[Uu]nknown keyword argument|unexpected keyword argument|got an unexpected keyword) "
        r"'?(?P<name>\w+)'?",
        "{op} has no argument {name}",
        "v1 of fused attention: actual_seq_lengths, actual_seq_lengths_kv, num_heads, scale; v2: "
        "actual_seq_qlen, actual_seq_kvlen, num_query_heads, softmax_scale (GM-21)",
    ),
    _rule(
        "torchair-outside-ge",
        "mode",
        r"torchair\S*ops\S* .*(?:only|not).*(?:support|graph)|"
        r"npu_define_\w+.*ERR03007|ERR03007.*(?:eager|torchair\.ops)",
        "an operator of torchair.ops is called outside a region that GE compiles",
        "call the operator of torch_npu there, or compile the region with the GE backend of "
        "torchair (GM-20)",
    ),
    _rule(
        "converter",
        "converter",
        r"(?P<op>(?:torch\.ops\.)?\w+\.\w+(?:\.\w+)?) ge_converter is not implemented",
        "{op} has no converter from FX to Ascend IR, so ge_graph cannot compile it",
        "write it with operators that have one (unrolled elementwise operators, amax, torch.where), "
        "register one with torchair.register_fx_node_ge_converter, or use npugraph_ex (GM-11)",
    ),
    _rule(
        "unsupported-operator",
        "unsupported-operator",
        r"[Uu]nsupported operator:? ?'?(?P<op>[\w.:]+)'?|"
        r"No supported Ops kernel and engine are found for \[?(?P<op2>\w+)\]?",
        "{op}{op2} is not there for this backend or this device",
        "look it up with `tokamak ops search`, and replace it or keep it outside the captured region",
    ),
    _rule(
        "bool-mask-write",
        "data-dependent",
        r"While executing .*call_function\[target=torch\.ops\.aten\.(?P<op>index_put_?|masked_scatter_?|nonzero|"
        r"masked_select|_unique2?|unique\w*|index)\S*\]",
        "aten.{op} with a boolean mask has a result or a write whose shape depends on data",
        "multiply with the mask (x * mask.to(x.dtype)) or use torch.where; a gather needs a fixed "
        "number of indices (GM-10)",
    ),
    _rule(
        "data-dependent",
        "data-dependent",
        r"GuardOnDataDependentSymNode|[Cc]ould not (?:guard on|extract specialized integer from) "
        r"data-dependent|DataDependentOutputException|DynamicOutputShapeException|"
        r"[Dd]ata[- ]dependent (?:branching|jump|control flow|operator)|"
        r"[Dd]ynamic shape operator|Tensor\.item\(\)|torch\.\S*item\b.*(?:graph break|unsupported)|"
        r"aten\._local_scalar_dense",
        "the captured code reads a value of a tensor on the host or branches on it",
        "keep the value in a tensor, give it to the region as an input, or bind it before capture; "
        "`tokamak lint` finds the lines (GM-10)",
    ),
    _rule(
        "graph-break",
        "graph-break",
        r"Graph break\b|torch\._dynamo\.exc\.(?:Unsupported|UserError)|graph break in user code|"
        r"Graph Break Reason",
        "Dynamo cannot trace a statement, so the region is not one graph",
        "rewrite the statement that the log names; `tokamak lint` gives the rewrite (GM-10, GM-11)",
        NAMES,
    ),
    _rule(
        "recompile-limit",
        "recompile-limit",
        r"hit (?:config\.)?(?P<name>recompile_limit|cache_size_limit|accumulated_recompile_limit)|"
        r"recompile_limit reached|FailOnRecompileLimitHit",
        "so many recompilations that Dynamo gave up; without fullgraph the function runs eagerly "
        "from then on",
        "remove what changes between steps; raising the limit only puts it off (GM-23)",
    ),
    _rule(
        "task-queue",
        "environment",
        r"Do not support TASK_QUEUE_ENABLE ?= ?2 during NPU graph capture",
        "TASK_QUEUE_ENABLE=2 cannot be used while a graph is being captured",
        "export TASK_QUEUE_ENABLE=1 (GM-05)",
    ),
    _rule(
        "stream-resources",
        "capture-resources",
        r"\b(?P<code>20700[5789]|20701[0-2]|EL00(?:0[689]|1[0-3]))\b|[Ss]tream resources are insufficient",
        "the graphs that are captured need more streams, events or model slots than the device has",
        "capture fewer or smaller sizes, whole decode graphs instead of pieces, fewer streams in a "
        "graph; running eagerly only confirms it",
    ),
    _rule(
        "capture-limit",
        "capture-limit",
        r"capture_limit|(?:number of )?captur\w*.{0,40}(?:exceed|over|more than).{0,20}limit|"
        r"static_capture_size_limit",
        "more graphs were captured than capture_limit allows: they are released and the region runs "
        "eagerly from then on",
        "find what makes a new graph key in every step (a size or an int that is not an updatable "
        "argument); fewer buckets; only then a higher limit (GM-31)",
    ),
    _rule(
        "random-in-capture",
        "not-capturable",
        r"(?:captur\w+|graph mode).{0,80}(?:random|philox|[Gg]enerator|dropout|multinomial|exponential_)|"
        r"(?:[Rr]andom operator|philox|CPUGenerator|NPUGenerator|[Gg]enerator|multinomial|dropout).{0,80}captur",
        "a random operator is inside the captured region",
        "take it out (sample outside), switch dropout off (model.eval()) (GM-11)",
    ),
    _rule(
        "sync-in-capture",
        "not-capturable",
        r"(?:[Ss]ynchroni[sz]e|aclrtSynchronize\w+|aclrtMemcpy\b|\.item\(\)|\.cpu\(\)).{0,80}"
        r"(?:captur|107027|107030|107041)|(?:107041|CAPTURE_MODE_BLOCK_ASYNC)",
        "the captured region synchronises with the host or copies to it",
        "no .item(), .cpu(), print, synchronize or copy from pageable memory in the region (GM-11)",
    ),
    _rule(
        "capture-broken",
        "not-capturable",
        r"\b(?P<code>107005|10702[4-9]|10703[0-46-8]|10704[016]|207019|507903)\b|"
        r"(?:operation )?not (?:permitted|supported|allowed)\b.{0,40}captur|captur\w+ (?:is )?not supported|"
        r"(?:EE1007|EE4001)\b",
        "an operation is not allowed while the graph is captured",
        "look at the operator in front of the error: random operators, host reads, a stream that was "
        "not joined, a custom operator without capture support (GM-10, GM-11)",
    ),
    _rule(
        "static-kernel-ge",
        "options",
        r"(?:static_kernel\w*|aclgraph\w*static\w*).{0,80}(?:only|not).{0,60}(?:npugraph_ex|aclgraph|reduce-overhead|GE|ge_graph|max-autotune)",
        "static kernels are asked for under ge_graph",
        "they exist for npugraph_ex only; GE's static graphs are static already (GM-42)",
    ),
    _rule(
        "option",
        "options",
        r"(?:has no (?:option|attribute)|[Uu]nknown option|unsupported option|not a valid option|"
        r"[Uu]nexpected (?:option|key))\W+(?P<name>[\w.]+).{0,120}",
        "{name} is not an option of this backend",
        "see the options of the version that is installed; `tokamak lint` names the nearest (GM-35, GM-36)",
        NAMES,
    ),
    _rule(
        "collectives",
        "collectives",
        r"(?:hcom|c10d|all_?reduce|all_?gather|all_?to_?all|reduce_?scatter|HcclCommunicator)\w*.{0,80}"
        r"(?:not (?:supported|captured|registered)|no converter|graph break)|patch_for_hcom",
        "a collective was not taken into the graph",
        "call torchair.patch_for_hcom() before compiling, and see that the versions of torch and "
        "torch_npu have functional collectives (GM-36)",
    ),
    _rule(
        "cache-traced-twice",
        "compile-cache",
        r"cache_compile.{0,80}(?:twice|more than once|traced|second)|(?:[Cc]ache|compiled).{0,60}"
        r"(?:is|was) (?:deleted|removed|not hit|missed|invalid)|Skip cache as",
        "the compile cache cannot serve the function: it was traced twice, or its key changed",
        "one function per entry (prefill, decode, each draft model); same directory, function name, "
        "shapes, dtypes and options as when it was written; clear it after an upgrade (GM-38)",
    ),
    _rule(
        "dynamic-gears",
        "options",
        r"EF2003\b|set_dim_gears.{0,80}(?:dynamic|invalid|exceed)|145013\b",
        "the graph wants static shapes, or a size is not among the compiled gears",
        "pad to a compiled size; gears need dynamic=True and sizes of at least 2 (GM-36)",
    ),
    _rule(
        "ge-not-supported",
        "mode",
        r"ERR03007",
        "a feature of the graph is not supported in this mode",
        'the statement under "Original traceback" is the one to rewrite (GM-11)',
        NAMES,
    ),
    _rule(
        "shape-in-graph",
        "static-shape",
        r"(?:[Dd]im \d+ of \w+ ?\(?\d+\)?.{0,40}(?:mismatch|!=)|expected \w+ shape \[[\d, ]+\], got \[[\d, ]+\]|"
        r"\bmismatch, expected .* shape)",
        "two operands disagree in size; eager mode may have tolerated it by a dynamic shape",
        "build the operand from the sizes of this rank (batch per rank, not the global batch) and of "
        "the phase that is captured",
    ),
    _rule(
        "operator-limit",
        "operator-constraint",
        r"only supports? \{?[\w, {}]+\}?|is not equal to the batchSize|must be (?:a multiple|divisible)|"
        r"not in (?:the )?(?:range|list) |should be (?:in|one of|less|equal)",
        "an operator is called outside its documented range",
        "evaluate the call with `tokamak ops check` and change the size or layout that it names",
        NAMES,
    ),
    _rule(
        "out-of-memory",
        "memory",
        r"NPU out of memory|OutOfMemoryError|Tried to allocate [\d.]+ [GM]iB|\b(?:207001|245000|245002)\b",
        "the memory of the device is used up",
        "fewer capture sizes (each graph keeps its input buffers), one pool for the graphs of a "
        "function (reuse_graph_pool_in_same_fx), a smaller cache (GM-33)",
    ),
    _rule(
        "inner",
        "inner",
        r"\bE[A-Z]9999\b|\bERR\d{5}\b|error code (?:is|:) ?\d{6}|BackendCompilerFailed|Compile graph failed|"
        r"GetWorkspace failed|[Tt]iling failed|do tiling failed",
        "wraps another error",
        "read the lines around it",
        FOLLOWS,
    ),
    _rule(
        "exception",
        "exception",
        r"^(?:[\w.]+\.)?(?P<name>[A-Z]\w*(?:Error|Exception|Hit|Failed|Interrupt)): ?(?P<text>.+)",
        "{name}: {text}",
        "no rule knows this error: look at the first traceback of the log",
        FOLLOWS,
    ),
)

# What a recompilation for each kind of guard calls for (GM-10, GM-22, GM-25).
RECOMPILE_FIXES = {
    "list element": "a list of ints is fixed value by value: npugraph_ex: dynamic=True; ge_graph: keep it "
    "an int64 Tensor and call torchair.ops.npu_fused_infer_attention_score with dynamic=False",
    "list length": "the length of a list is structure, never a symbol: pad it to the batch",
    "number": "an int that changes per step is fixed under dynamic=False: pass a Tensor, or compile with "
    "dynamic=True; a counter of the module (self.step) belongs outside the region",
    "shape": "fix the shape (pad to the batch or to a bucket), or compile with dynamic=True; sizes 0 and 1 "
    "always compile for themselves",
    "object": "an object or its presence changes between calls: allocate it once and update it in place; "
    "one entry point per mode",
    "dtype": "give the same dtype in each call; cast before the region",
    "device": "give the same device in each call",
    "stride": "give the same layout in each call (contiguous()), or copy into a buffer that stays",
    "rank": "give the same number of dimensions in each call",
    "grad mode": "call it in the same mode each time: torch.inference_mode() or no_grad() around all of them",
    "other": "make what the guard names the same in each call",
}
