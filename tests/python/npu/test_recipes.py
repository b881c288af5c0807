"""hicann/cann-recipes-infer on the emulation, without a change to it."""

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


def test_qwen3_moe(checkout, tmp_path):
    model = recipes.write_model(tmp_path / "model", "qwen3_moe", **QWEN3_MOE)
    log = recipes.run(checkout, tmp_path / "one", "qwen3_moe", model)
    assert len(recipes.outputs(log)) == 2
