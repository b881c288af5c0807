"""Layers are found in the kernel sequences of several kinds of models and runtimes.

The sequences are written as a serving engine's kernels look: names, shapes, streams, collectives.
Durations are invented; only the structure is tested.
"""

import json

import pytest
from test_profile import command, run  # noqa: F401  (a fixture)

HEAD = (
    "Step Id,Name,Type,Accelerator Core,Start Time(us),Duration(us),Wait Time(us),Block Num,"
    "Stream ID,Task ID,Input Shapes,Input Data Types,Output Shapes\n"
)


class Writer:
    def __init__(self):
        self.rows, self.time, self.step = [], 1_000_000, 0

    def add(self, kind, shapes="", stream=2, name=None, ns=5000):
        core = "AI_CORE" if "MatMul" in kind else "AI_VECTOR_CORE"
        if "Attention" in kind or "Grouped" in kind:
            core = "MIX_AIC"
        if kind.startswith("hcom"):
            core, stream = "COMMUNICATION", "N/A"
        self.time += 500
        cell = f'"""{shapes}"""' if shapes else "N/A"
        start = f"17861022{self.time // 1000:08d}.{self.time % 1000:03d}"
        task = "N/A" if stream == "N/A" else len(self.rows)
        self.rows.append(
            f"{self.step},{name or kind},{kind},{core},{start}\t,{ns / 1000:.3f},0,1,{stream},"
            f"{task},{cell},DT_BF16,N/A\n"
        )
        self.time += ns

    def each(self, *kinds, shapes="4,64"):
        for kind in kinds:
            self.add(kind, shapes)

    def write(self, folder, steps=True):
        folder.mkdir()
        text = HEAD + "".join(self.rows)
        if not steps:
            text = "".join(line.split(",", 1)[1] for line in text.splitlines(keepends=True))
        (folder / "kernel_details.csv").write_text(text)


def norm(w, first, width=2048, kind="AddRmsNorm"):
    w.add("RmsNorm" if first else kind, f"8,{width};{width}")


def tensor_parallel_moe(w, layers=12):
    """vLLM-like: head norms of q and k, all-reduce after attention and after the experts."""
    w.add("GatherV3", "151936,2048;8")
    for layer in range(layers):
        norm(w, layer == 0)
        w.add("MatMulV2", "8,2048;5120,2048")
        w.each("RmsNorm", "RmsNorm", shapes="256,128;128")
        w.each("RopeWithSinCosCache", "ReshapeAndCacheNdKernel", "FusedInferAttentionScore")
        w.add("MatMulV2", "8,4096;2048,4096")
        w.add("hcom_allReduce_", name=f"hcom_allReduce__9_{layer}_1")
        norm(w, False)
        w.add("MatMulV2", "8,2048;128,2048")
        w.each(
            "MoeGatingTopKSoftmax", "MoeInitRoutingV2", "GroupedMatmul", "SwiGlu", "GroupedMatmul"
        )
        w.add("MoeTokenUnpermute", "64,2048")
        w.add("hcom_allReduce_", name=f"hcom_allReduce__9_{layer}_2")
    norm(w, False)
    w.add("MatMulV2", "8,2048;151936,2048")
    w.add("ArgMaxV2", "8,151936")
    w.time += 400_000


def latent_layer(w, layer):
    norm(w, layer == 0, 7168)
    w.each("MlaPrologV2", "FusedInferAttentionScore", "TransposeBatchMatMul", "DynamicQuant")
    w.add("QuantBatchMatmulV3", "4,16384;16384,7168")
    norm(w, False, 7168)
    if layer < 3:
        w.each("DynamicQuant", "QuantBatchMatmulV3", "DequantSwigluQuant", "QuantBatchMatmulV3")
    else:
        w.each("MatMulV3", "MoeGatingTopK", "MoeDistributeDispatchV2", "GroupedMatmulSwigluQuant")
        w.each("GroupedMatmul", "MoeDistributeCombineV2")


def latent_with_mtp(w):
    w.add("GatherV2", "129280,7168;4")
    for layer in range(10):
        latent_layer(w, layer)
    norm(w, False, 7168)
    w.each("MatMulV3", "ArgMaxV2", "GatherV2")
    w.each("RmsNorm", "RmsNorm", shapes="4,7168;7168")
    w.each("ConcatD", "MatMulV3")
    latent_layer(w, 9)
    norm(w, False, 7168)
    w.each("MatMulV3", "ArgMaxV2")


def primitive_norm(w):
    w.each("Cast", "Pow", "ReduceMean", "Adds", "Rsqrt", "Mul", "Cast", "Mul", shapes="1,1,2048")


def eager_unfused(w):
    w.add("GatherV2", "32000,2048;1")
    for _ in range(8):
        primitive_norm(w)
        w.each("MatMulV2", "MatMulV2", "MatMulV2", "Neg", "ConcatD", "Mul", "BatchMatMulV2", "Muls")
        w.each("SoftmaxV2", "Cast", "BatchMatMulV2", "Transpose", "MatMulV2", "Add")
        primitive_norm(w)
        w.each("MatMulV2", "Swish", "MatMulV2", "Mul", "MatMulV2", "Add")
    primitive_norm(w)
    w.each("MatMulV2", "ArgMaxV2")


def hybrid(w):
    """Three layers of linear attention to one of full attention; a shared expert beside."""
    w.add("GatherV2", "150000,2048;4")
    for layer in range(12):
        norm(w, layer == 0)
        w.add("MatMulV2", "4,2048;2048,12288")
        if layer % 4 == 3:
            w.each("RmsNorm", "RmsNorm", shapes="64,256;256")
            w.each("RopeWithSinCosCache", "ScatterPaKvCache", "FusedInferAttentionScore", "Mul")
        else:
            w.each("_causal_conv1d_update_kernel", "fused_sigmoid_gating_delta_rule_update_kernel")
            w.each("RmsNorm", "Swish", "Mul", shapes="128,128;128")
        w.add("MatMulV2", "4,4096;4096,2048")
        norm(w, False)
        w.each("MatMulV2", "MoeGatingTopKSoftmax", "MoeInitRoutingV3", "GroupedMatmul", "SwiGlu")
        w.each("GroupedMatmul", "MoeTokenUnpermute")
        for kind, shapes in (("MatMulV2", "4,2048;2048,1024"), ("SwiGlu", "4,1024")):
            w.add(kind, shapes, stream=5)
        w.add("MatMulV2", "4,512;512,2048", stream=5)
    norm(w, False)
    w.add("MatMulV2", "4,2048;2048,150000")


CASES = {
    # kinds of blocks with their number; kernels before, between and after the layers
    "tensor-parallel": (
        tensor_parallel_moe,
        {"self_attn": 12, "moe": 12},
        {"main": 12},
        (1, 0, 3),
    ),
    "latent-mtp": (
        latent_with_mtp,
        {"mla": 11, "dense_mlp": 3, "moe": 8},
        {"main": 10, "mtp_head": 1},
        (1, 8, 3),
    ),
    "eager": (eager_unfused, {"self_attn": 8, "dense_mlp": 8}, {"main": 8}, (1, 0, 10)),
    "hybrid": (hybrid, {"linear_attn": 9, "self_attn": 3, "moe": 12}, {"main": 12}, (1, 0, 2)),
}


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "no-steps"])
@pytest.mark.parametrize("case", CASES)
def test_layers(command, tmp_path, case, steps):  # noqa: F811
    make, kinds, phases, rest = CASES[case]
    w = Writer()
    for step in range(3):
        w.step = step
        make(w)
    w.write(tmp_path / "p", steps)
    run(command, tmp_path / "p", "-o", tmp_path / "run")
    draft = json.loads((tmp_path / "run" / "structure_draft.json").read_text())
    found = {}
    for component in draft["components"]:
        found[component["type"]] = found.get(component["type"], 0) + 1
    assert found == kinds
    assert {p["name"]: p["layers"] for p in draft["structure_spec"]["phases"]} == phases
    assert tuple(len(draft["unowned_ops"][k]) for k in ("pre", "between", "post")) == rest


def test_a_projection_on_another_stream_is_no_output(command, tmp_path):  # noqa: F811
    """The latent's projection runs beside the queries', before attention (BD-66)."""
    w = Writer()
    for layer in range(6):
        norm(w, layer == 0, 7168)
        w.add("MatMulV2", "8,7168;7168,576", stream=5)
        w.add("KvRmsNormRopeCache", "8,1,1,576;512", stream=5)
        w.add("QuantBatchMatmulV3", "8,7168;7168,24576")
        w.each("FusedInferAttentionScore")
        w.add("QuantBatchMatmulV3", "8,16384;16384,7168")
        norm(w, False, 7168)
        w.each("MatMulV2", "SwiGlu", "MatMulV2")
    norm(w, False, 7168)
    w.write(tmp_path / "p")
    run(command, tmp_path / "p", "-o", tmp_path / "run", "--label", "x", "--no-split")
    rules = json.loads((tmp_path / "run" / "x_spec.json").read_text())["component_clusters"]["mla"]
    by_name = {c["cluster"]: c["rules"] for c in rules}
    assert {r["op_name"] for r in by_name["qkv proj"]} == {"MatMulV2", "QuantBatchMatmulV3"}
    assert [r["op_name"] for r in by_name["out proj"]] == ["QuantBatchMatmulV3"]
