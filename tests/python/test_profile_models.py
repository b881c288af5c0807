"""Layers of models and runtimes of other kinds than those of test_profile_structure (BD-52, BD-53).

Each case says how many blocks of each kind and how many layers a person would count, and which
kernels lie in none. Every kernel is in a block, before, between or after the layers.
"""

import json

import pytest
from test_profile import command, run  # noqa: F401  (a fixture)
from test_profile_structure import Writer, norm


def embed(w, width):
    w.add("GatherV2", f"150000,{width};8")


def head(w, width):
    norm(w, False, width)
    w.add("MatMulV2", f"8,{width};150000,{width}")
    w.add("ArgMaxV2", "8,150000")


def attention(w, width, first=False, kernel="FusedInferAttentionScore", stream=2):
    norm(w, first, width)
    w.add("MatMulV2", f"8,{width};{width * 2},{width}", stream)
    w.each("RotaryMul", "ScatterPaKvCache")
    w.add(kernel, "8,32,128;4096,128", stream)
    w.add("MatMulV2", f"8,{width};{width},{width}", stream)


def mlp(w, width, activation="SwiGlu"):
    norm(w, False, width)
    w.add("MatMulV2", f"8,{width};{width * 6},{width}")
    w.add(activation, f"8,{width * 6}")
    w.add("MatMulV2", f"8,{width * 3};{width},{width * 3}")


def experts(w, width, names=("MoeGatingTopK", "MoeInitRoutingV3", "GroupedMatmul")):
    norm(w, False, width)
    w.add("MatMulV2", f"8,{width};128,{width}")
    w.each(*names, "SwiGlu", "GroupedMatmul", "MoeFinalizeRoutingV2")


def speculative(w):
    """A cut-down main model, then three draft steps of one MTP layer each."""
    embed(w, 4096)
    for layer in range(4):
        attention(w, 4096, layer == 0)
        experts(w, 4096)
    head(w, 4096)
    for _ in range(3):
        w.add("GatherV2", "150000,4096;8")
        w.each("RmsNorm", "RmsNorm", shapes="8,4096;4096")
        w.each("ConcatD", "MatMulV2")
        attention(w, 4096, True)
        experts(w, 4096)
        head(w, 4096)


def three_kinds(w):
    """Mamba, attention and MLP blocks, each a layer of its own with one norm (Nemotron-H)."""
    embed(w, 4096)
    for layer, kind in enumerate("M-M-M-M*-M-M-M-M*-M-M-M-"):
        norm(w, layer == 0, 4096)
        w.add("MatMulV2", "8,4096;18560,4096")
        if kind == "M":
            w.each("_causal_conv1d_update_kernel", "_selective_scan_update_kernel")
            w.each("RmsNormGated", shapes="8,8,1024;1024")
        elif kind == "*":
            w.each("ReshapeAndCacheNdKernel", "FusedInferAttentionScore")
        else:
            w.each("Relu", "Square")
        w.add("MatMulV2", "8,8192;4096,8192")
    head(w, 4096)


def dual_stream(w):
    """Latent attention on two streams, shared experts beside the routed ones."""
    embed(w, 7168)
    for layer in range(8):
        norm(w, layer == 0, 7168)
        w.add("MatMulV2", "8,7168;576,7168", 5)
        w.add("KvRmsNormRopeCache", "8,1,1,576;512", 5)
        w.each("DynamicQuant", "QuantBatchMatmulV3")
        w.add("RmsNorm", "8,1536;1536")
        w.each("QuantBatchMatmulV3", "TransposeBatchMatMul", "InterleaveRope")
        w.each("FusedInferAttentionScore", "TransposeBatchMatMul", "QuantBatchMatmulV3")
        norm(w, False, 7168)
        w.each("MatMulV3", "MoeGatingTopK")
        for kind in ("QuantBatchMatmulV3", "DequantSwigluQuant", "QuantBatchMatmulV3"):
            w.add(kind, "8,7168", 5)
        w.each("MoeDistributeDispatchV2", "GroupedMatmul", "DequantSwigluQuant", "GroupedMatmul")
        w.each("MoeDistributeCombineV2", "Add")
    head(w, 7168)


def mixed_step(w):
    """Chunked prefill and decode in one step: two attention kernels a layer, and their merge."""
    embed(w, 5120)
    for layer in range(9):
        norm(w, layer == 0, 5120)
        w.add("MatMulV2", "600,5120;7168,5120")
        w.each("RmsNorm", "RmsNorm", shapes="600,128;128")
        w.each("RopeWithSinCosCache", "ReshapeAndCache", "PagedAttentionMaskNdKernel", "Slice")
        w.each("PromptFlashAttention", "FusedInferAttentionScore", "AttentionUpdate", "ConcatD")
        w.add("MatMulV2", "600,5120;5120,5120")
        mlp(w, 5120)
    head(w, 5120)


def quantised(w):
    """W8A8 with the quantisation fused into norms, and a fused all-reduce with the norm."""
    embed(w, 3584)
    for layer in range(7):
        w.add("RmsNormQuant" if layer == 0 else "AddRmsNormDynamicQuant", "8,3584;8,3584;3584")
        w.each("QuantBatchMatmulV3", "RopeWithSinCosCache", "ReshapeAndCache", "PagedAttention")
        w.each("AscendQuantV2", "QuantBatchMatmulV3", "hcom_allReduce_")
        w.add("AddRmsNormDynamicQuant", "8,3584;8,3584;3584")
        w.each("QuantBatchMatmulV3", "DequantSwigluQuant", "QuantBatchMatmulV3", "hcom_allReduce_")
    head(w, 3584)


def sparse_latent(w):
    """An indexer before sparse attention, its metadata kernels, caches of two kinds."""
    embed(w, 7168)
    for layer in range(6):
        norm(w, layer == 0, 7168)
        w.each("MlaPrologV3", "LightningIndexerProlog", "QuantLightningIndexerMetadata")
        w.each(
            "QuantLightningIndexer", "IndexerCompressEpilog", "KvQuantSparseAttnSharedkvMetadata"
        )
        w.each("KvQuantSparseAttnSharedkv", "TransposeBatchMatMul")
        w.add("QuantBatchMatmulV3", "8,16384;16384,7168")
        experts(w, 7168)
    head(w, 7168)


def encoder_decoder(w):
    """Whisper: as many layers in the encoder as in the decoder, which has cross attention."""
    w.each("Conv1D", "Gelu", "Conv1D", "Gelu", "Add")
    for _ in range(6):
        w.add("LayerNormV4", "1500,1280;1280;1280")
        w.each("MatMulV2", "FlashAttentionScore", "MatMulV2", "Add")
        w.add("LayerNormV4", "1500,1280;1280;1280")
        w.each("MatMulV2", "Gelu", "MatMulV2", "Add")
    w.add("LayerNormV4", "1500,1280;1280;1280")
    w.each("GatherV2", "Add")
    for _ in range(6):
        w.add("LayerNormV4", "8,1280;1280;1280")
        w.each("MatMulV2", "ScatterUpdate", "IncreFlashAttention", "MatMulV2", "Add")
        w.add("LayerNormV4", "8,1280;1280;1280")
        w.each("MatMulV2", "FlashAttentionScore", "MatMulV2", "Add")
        w.add("LayerNormV4", "8,1280;1280;1280")
        w.each("MatMulV2", "Gelu", "MatMulV2", "Add")
    w.add("LayerNormV4", "8,1280;1280;1280")
    w.each("MatMulV2", "ArgMaxV2")


def norms_behind(w):
    """Norms behind the blocks, and norms of q and k as wide as the model (OLMo 2)."""
    embed(w, 2048)
    for _ in range(7):
        w.add("MatMulV2", "8,2048;6144,2048")
        w.each("RmsNorm", "RmsNorm", shapes="8,2048;2048")
        w.each("RotaryMul", "ScatterPaKvCache", "FusedInferAttentionScore")
        w.add("MatMulV2", "8,2048;2048,2048")
        w.each("RmsNorm", "Add", shapes="8,2048;2048")
        w.add("MatMulV2", "8,2048;16384,2048")
        w.each("SwiGlu")
        w.add("MatMulV2", "8,8192;2048,8192")
        w.each("RmsNorm", "Add", shapes="8,2048;2048")
    w.add("RmsNorm", "8,2048;2048")
    w.each("MatMulV2", "ArgMaxV2")


def parallel_blocks(w):
    """Attention and MLP read the same norm (GPT-J, Falcon)."""
    embed(w, 4096)
    for _ in range(8):
        w.add("LayerNormV4", "8,4096;4096;4096")
        w.each("MatMulV2", "RotaryMul", "ScatterPaKvCache", "FusedInferAttentionScore", "MatMulV2")
        w.each("MatMulV2", "Gelu", "MatMulV2", "Add", "Add")
    w.add("LayerNormV4", "8,4096;4096;4096")
    w.each("MatMulV2", "ArgMaxV2")


def sandwich(w):
    """Four norms a layer (Gemma 3), five sliding layers to a full one with other kernels."""
    embed(w, 2560)
    w.add("Mul", "8,2560")
    for layer in range(12):
        norm(w, layer == 0, 2560)
        w.add("MatMulV2", "8,2560;4096,2560")
        w.each("RmsNorm", "RmsNorm", shapes="64,256;256")
        full = layer % 6 == 5
        w.each("RotaryMul", "ScatterPaKvCache")
        w.each("PagedAttention" if full else "FusedInferAttentionScore")
        w.each("MatMulV2")
        w.add("RmsNorm", "8,2560;2560")
        norm(w, False, 2560)
        w.each("MatMulV2", "GeluMul", "MatMulV2")
        w.add("RmsNorm", "8,2560;2560")
    head(w, 2560)


def unknown_names(w):
    """A project's own kernels: nothing is called attention."""
    embed(w, 3072)
    for layer in range(10):
        norm(w, layer == 0, 3072)
        w.each("MatMulV2", "blk_mix_fwd", "blk_state_write", "blk_core_k2", "MatMulV2")
        mlp(w, 3072)
    head(w, 3072)


def graph_pieces(w):
    """Attention runs eagerly on one stream, the graph's pieces between on another."""
    w.add("GatherV2", "150000,4096;8", 31)
    for layer in range(6):
        w.add("RmsNorm" if layer == 0 else "AddRmsNorm", "8,4096;4096", 31)
        w.add("MatMulV2", "8,4096;6144,4096", 31)
        w.add("RopeWithSinCosCache", "8,128", 31)
        w.add("ReshapeAndCache", "8,128", 2)
        w.add("FusedInferAttentionScore", "8,32,128", 2)
        w.add("MatMulV2", "8,4096;4096,4096", 31)
        w.add("AddRmsNorm", "8,4096;4096", 31)
        w.add("MatMulV2", "8,4096;28672,4096", 31)
        w.add("SwiGlu", "8,28672", 31)
        w.add("MatMulV2", "8,14336;4096,14336", 31)
    w.add("AddRmsNorm", "8,4096;4096", 31)
    w.add("MatMulV2", "8,4096;150000,4096", 31)
    w.add("ArgMaxV2", "8,150000", 2)


def draft_model(w):
    """A small draft model three times, then the large one checks its tokens."""
    for _ in range(3):
        embed(w, 1024)
        for layer in range(2):
            attention(w, 1024, layer == 0)
            mlp(w, 1024)
        head(w, 1024)
    embed(w, 4096)
    for layer in range(8):
        attention(w, 4096, layer == 0)
        mlp(w, 4096)
    head(w, 4096)


def encoder_and_model(w):
    """A vision encoder, its merger, then the language model: dense first, then experts."""
    w.add("MatMulV2", "1024,1176;1280,1176")
    for _ in range(5):
        w.add("LayerNormV4", "1024,1280;1280;1280")
        w.each("MatMulV2", "RotaryMul", "FlashAttentionScore", "MatMulV2", "Add")
        w.add("LayerNormV4", "1024,1280;1280;1280")
        w.each("MatMulV2", "QuickGelu", "MatMulV2", "Add")
    w.add("LayerNormV4", "1024,1280;1280;1280")
    w.each("MatMulV2", "Gelu", "MatMulV2")
    embed(w, 2048)
    for layer in range(7):
        attention(w, 2048, layer == 0)
        (mlp if layer == 0 else experts)(w, 2048)
    head(w, 2048)


def one_layer(w):
    """A cut-down run of a single layer."""
    embed(w, 4096)
    attention(w, 4096, True)
    experts(w, 4096)
    head(w, 4096)


def first_stage(w):
    """The first stage of a pipeline: no norm behind its layers, which go to the next one."""
    embed(w, 4096)
    for layer in range(5):
        attention(w, 4096, layer == 0)
        mlp(w, 4096)
    w.add("Add", "8,4096")
    w.add("hcom_send_", "8,4096")


def middle_stage(w):
    """A stage that receives tokens and sends them on."""
    w.add("hcom_receive_", "8,4096")
    for layer in range(4):
        attention(w, 4096, layer == 0)
        experts(w, 4096)
    w.add("Add", "8,4096")
    w.add("hcom_send_", "8,4096")


CASES = {
    # blocks of each kind; layers; kernels before, between and after the layers
    "speculative": (
        speculative,
        {"self_attn": 7, "moe": 7},
        {"main": 4, "mtp_head": 1, "mtp_head_2": 1, "mtp_head_3": 1},
        (1, 24, 3),
    ),
    "three-kinds": (
        three_kinds,
        {"linear_attn": 11, "self_attn": 2, "dense_mlp": 11},
        {"main": 24},
        (1, 0, 3),
    ),
    "dual-stream": (dual_stream, {"mla": 8, "moe": 8}, {"main": 8}, (1, 0, 3)),
    "mixed-step": (mixed_step, {"self_attn": 9, "dense_mlp": 9}, {"main": 9}, (1, 0, 3)),
    "quantised": (quantised, {"self_attn": 7, "dense_mlp": 7}, {"main": 7}, (1, 0, 3)),
    "sparse-latent": (sparse_latent, {"mla": 6, "moe": 6}, {"main": 6}, (1, 0, 3)),
    "encoder-decoder": (
        encoder_decoder,
        {"self_attn": 6, "self_attn_2": 6, "cross_attn": 6, "dense_mlp": 12},
        {"before": 6, "main": 6},
        (5, 3, 3),
    ),
    "norms-behind": (norms_behind, {"self_attn": 7, "dense_mlp": 7}, {"main": 7}, (1, 0, 5)),
    "parallel": (parallel_blocks, {"self_attn": 8, "dense_mlp": 8}, {"main": 8}, (1, 0, 3)),
    "first-stage": (first_stage, {"self_attn": 5, "dense_mlp": 5}, {"main": 5}, (1, 0, 2)),
    "middle-stage": (middle_stage, {"self_attn": 4, "moe": 4}, {"main": 4}, (1, 0, 2)),
    "one-layer": (one_layer, {"self_attn": 1, "moe": 1}, {"main": 1}, (1, 0, 3)),
    "sandwich": (
        sandwich,
        {"self_attn": 10, "self_attn_2": 2, "dense_mlp": 12},
        {"main": 12},
        (2, 0, 3),
    ),
    "unknown-names": (unknown_names, {"mixer": 10, "dense_mlp": 10}, {"main": 10}, (1, 0, 3)),
    "graph-pieces": (graph_pieces, {"self_attn": 6, "dense_mlp": 6}, {"main": 6}, (1, 0, 3)),
    "draft-model": (
        draft_model,
        {"self_attn": 14, "dense_mlp": 14},
        {"before": 2, "before_2": 2, "before_3": 2, "main": 8},
        (1, 12, 3),
    ),
    "vision": (
        encoder_and_model,
        {"self_attn": 7, "self_attn_2": 5, "dense_mlp": 6, "moe": 6},
        {"before": 5, "main": 7},
        (1, 5, 3),
    ),
}

# One sample of a kind cannot stand for two models, nor for a first layer that is shorter.
SEVERAL_SHAPES = {"quantised", "encoder-decoder", "norms-behind", "draft-model", "vision"}


@pytest.mark.parametrize("steps", [True, False], ids=["steps", "no-steps"])
@pytest.mark.parametrize("case", CASES)
def test_layers_of_unseen_kinds(command, tmp_path, case, steps):  # noqa: F811
    make, kinds, phases, rest = CASES[case]
    w = Writer()
    for step in range(3):
        w.step = step
        make(w)
        w.time += 400_000
    w.write(tmp_path / "p", steps)
    run(command, tmp_path / "p", "-o", tmp_path / "run", "--no-split", "--no-insights")
    draft = json.loads((tmp_path / "run" / "structure_draft.json").read_text())
    raw = json.loads((tmp_path / "run" / "raw_ops.json").read_text())
    unowned = draft["unowned_ops"]
    owned = [i for c in draft["components"] for i in c["op_indices"]]
    listed = sorted(owned + [i for part in unowned.values() for i in part])
    assert listed == list(range(len(raw["operators"])))  # each exactly once
    found = {}
    for component in draft["components"]:
        found[component["type"]] = found.get(component["type"], 0) + 1
    assert {p["name"]: p["layers"] for p in draft["structure_spec"]["phases"]} == phases
    assert found == kinds
    assert tuple(len(unowned[k]) for k in ("pre", "between", "post")) == rest
    if (
        steps and case not in SEVERAL_SHAPES
    ):  # the samples that were written find the same blocks again (BD-32)
        files = [tmp_path / "run" / n for n in ("structure_spec.json", "sample_ack.json")]
        args = ("--structure", files[0], "--samples", files[1], "--accept", "unmatched")
        run(command, tmp_path / "p", "-o", tmp_path / "run2", "--no-split", "--no-insights", *args)
        again = json.loads((tmp_path / "run2" / "structure_draft.json").read_text())
        assert [c["op_indices"] for c in again["components"]] == [
            c["op_indices"] for c in draft["components"]
        ]
