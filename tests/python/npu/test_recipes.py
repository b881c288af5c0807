"""hicann/cann-recipes-infer on the emulation, without a change to it."""

import json
import subprocess

import pytest
import recipes

QWEN3_MOE = {
    "vocab_size": 320,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "norm_topk_prob": True,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e6},
}


@pytest.fixture(scope="session")
def checkout(tmp_path_factory):
    return recipes.unpack(tmp_path_factory.mktemp("recipes"))


# Its experts always exchange tokens over a group, which the recipe makes for two ranks and more:
# on one it ends in its own KeyError, here as on a device.
# Experts split over both ranks sum what both computed: the ranks must hold the same tokens.
@pytest.mark.parametrize(
    "parallel", [{}, {"attn_tp_size": 2, "moe_tp_size": 2}], ids=["expert", "tensor"]
)
def test_qwen3_moe(checkout, tmp_path, parallel):
    model = recipes.write_model(tmp_path / "model", "qwen3_moe", **QWEN3_MOE)
    log = recipes.run(checkout, tmp_path / "run", "qwen3_moe", model, 2, parallel)
    assert recipes.outputs(log)


GPT_OSS = {
    "vocab_size": 320,
    "hidden_size": 256,
    "intermediate_size": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "num_local_experts": 8,
    "num_experts_per_tok": 2,
    "sliding_window": 128,
    "max_position_embeddings": 256,
    "rope_parameters": {
        "rope_type": "yarn",
        "rope_theta": 150000.0,
        "factor": 2.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 128,
    },
}

DEEPSEEK = {
    "vocab_size": 320,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "num_hidden_layers": 2,
    "first_k_dense_replace": 1,
    "num_attention_heads": 8,
    "num_key_value_heads": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 16,
    "n_group": 4,
    "topk_group": 2,
    "num_experts_per_tok": 4,
    "kv_lora_rank": 512,
    "q_lora_rank": 256,
    "qk_rope_head_dim": 64,
    "qk_nope_head_dim": 128,
    "v_head_dim": 128,
    "max_position_embeddings": 256,
    "num_nextn_predict_layers": 0,
    "rope_theta": 10000.0,
    "rope_scaling": {
        "type": "yarn",
        "factor": 2,
        "beta_fast": 32,
        "beta_slow": 1,
        "mscale": 1.0,
        "mscale_all_dim": 1.0,
        "original_max_position_embeddings": 128,
    },
}


@pytest.mark.parametrize("ranks", [1, 2])
def test_gpt_oss(checkout, tmp_path, ranks):
    model = recipes.write_model(tmp_path / "model", "gpt_oss", **GPT_OSS)
    tensor_parallel = {"attn_tp_size": ranks, "moe_tp_size": ranks, "lmhead_tp_size": ranks}
    log = recipes.run(checkout, tmp_path / "run", "gpt_oss", model, ranks, tensor_parallel)
    assert recipes.outputs(log)


def test_deepseek_r1(checkout, tmp_path):
    ranks = 2  # for the reason of qwen3_moe
    model = recipes.write_model(tmp_path / "model", "deepseek_v3", **DEEPSEEK)
    site = recipes.pinned_transformers(checkout, "deepseek_r1")
    log = recipes.run(checkout, tmp_path / "run", "deepseek_r1", model, ranks, site=site)
    assert recipes.outputs(log)


QWEN = {
    "vocab_size": 320,
    "hidden_size": 256,
    "intermediate_size": 512,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "max_position_embeddings": 256,
    "rope_theta": 10000.0,
    "rope_parameters": {"rope_type": "default", "rope_theta": 10000.0},
}


@pytest.mark.parametrize("ranks", [1, 2])
def test_qwen3(checkout, tmp_path, ranks):
    model = recipes.write_model(tmp_path / "model", "qwen3", **QWEN)
    tensor_parallel = {"attn_tp_size": ranks, "dense_tp_size": ranks, "lmhead_tp_size": ranks}
    log = recipes.run(checkout, tmp_path / "run", "qwen3_8b", model, ranks, tensor_parallel)
    assert recipes.outputs(log)


HY3 = {
    "vocab_size": 320,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "expert_hidden_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 128,
    "num_experts": 8,
    "num_experts_per_tok": 2,
    "num_nextn_predict_layers": 0,
    "max_position_embeddings": 256,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1e4},
    "pad_token_id": 256,
    "bos_token_id": 256,
}


def test_hy3(checkout, tmp_path):
    model = recipes.write_model(tmp_path / "model", "hy_v3", **HY3)
    log = recipes.run(checkout, tmp_path / "run", "hy3", model, 2)
    assert recipes.outputs(log)


STEP3P7 = {
    "vocab_size": 320,
    "hidden_size": 1024,
    "intermediate_size": 256,
    "moe_intermediate_size": 128,
    "share_expert_dim": 128,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_attention_groups": 2,
    "head_dim": 128,
    "moe_num_experts": 8,
    "moe_top_k": 2,
    "moe_layers_enum": "1",
    "moe_router_activation": "sigmoid",
    "use_moe_router_bias": True,
    "use_qk_norm": True,
    "max_position_embeddings": 256,
    "max_seq_len": 256,
    "layer_types": ["full_attention", "full_attention"],
    "pad_token_id": 256,
    "bos_token_id": 256,
}


def test_step3p7(checkout, tmp_path):
    model = recipes.write_model(tmp_path / "model", "step3p7", **STEP3P7)
    log = recipes.run(checkout, tmp_path / "run", "step3p7_flash", model, 2)
    assert recipes.outputs(log)


def test_an_emitted_model_runs_in_the_framework(checkout, tmp_path, tokamak_binary, stories):
    """EB-20 to EB-29: the registry's patch, the framework's own caches, metadata and loop."""
    torch = pytest.importorskip("torch")
    save_file = pytest.importorskip("safetensors.torch").save_file
    model = tmp_path / "model"
    model.mkdir()
    for name in ("config.json", "tokenizer.json", "tokenizer_config.json"):
        (model / name).write_bytes((stories / name).read_bytes())
    tokenizer = json.loads((model / "tokenizer_config.json").read_text())
    tokenizer["chat_template"] = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    (model / "tokenizer_config.json").write_text(json.dumps(tokenizer))
    weights = torch.export.load(stories / "model.pt2").state_dict
    save_file({k: v.detach().clone() for k, v in weights.items()}, model / "model.safetensors")
    folder = checkout / "models" / "stories260k"
    flags = ["--target", "a3", "--deployment", "framework", "--json"]
    emitted = subprocess.run(
        [tokamak_binary, "emit", stories, "-o", folder, *flags], capture_output=True, check=True
    )
    assert json.loads(emitted.stdout)["name"] == folder.name
    patch = folder / "registry.patch"
    subprocess.run(["patch", "-p1", "-i", patch], cwd=checkout, check=True)
    log = recipes.run(checkout, tmp_path / "run", folder.name, model, with_ckpt=True)
    texts = [text for _, text in recipes.outputs(log)]
    assert len(texts) == 2 and all(texts)
