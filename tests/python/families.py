"""Tiny random models of many families: a name, and what makes its transformers config."""

BASE = {
    "hidden_size": 32,
    "intermediate_size": 48,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "vocab_size": 96,
    "max_position_embeddings": 64,
    "pad_token_id": 0,
    "bos_token_id": 1,
    "eos_token_id": 2,
}
MLA = {
    "q_lora_rank": 16,
    "kv_lora_rank": 16,
    "qk_rope_head_dim": 8,
    "qk_nope_head_dim": 8,
    "v_head_dim": 8,
}
DEEPSEEK_MOE = {
    "n_routed_experts": 8,
    "num_experts_per_tok": 2,
    "n_group": 2,
    "topk_group": 1,
    "n_shared_experts": 1,
    "moe_intermediate_size": 16,
    "first_k_dense_replace": 1,
}
QWEN_MOE = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 16}
MIXTRAL_MOE = {"num_local_experts": 4, "num_experts_per_tok": 2}

# name: (model_type, changes to BASE)
FAST = {
    "llama": ("llama", {"num_key_value_heads": 4, "tie_word_embeddings": True}),
    "llama-gqa": ("llama", {}),
    "gemma3": (
        "gemma3_text",
        {
            "head_dim": 8,
            "sliding_window": 4,
            "layer_types": ["sliding_attention", "full_attention"],
        },
    ),
    "deepseek-v3": ("deepseek_v3", {"num_key_value_heads": 4, **MLA, **DEEPSEEK_MOE}),
    "qwen3-moe": ("qwen3_moe", {"head_dim": 8, **QWEN_MOE}),
    "gpt-oss": ("gpt_oss", {"head_dim": 8, "sliding_window": 4, **MIXTRAL_MOE}),
    "mixtral": ("mixtral", MIXTRAL_MOE),
    "phi3": ("phi3", {}),
    "gpt-neox": ("gpt_neox", {}),
    "phi3-longrope": (
        "phi3",
        {
            "max_position_embeddings": 128,
            "original_max_position_embeddings": 64,
            "rope_scaling": {
                "type": "longrope",
                "short_factor": [1.0, 1.1, 1.2, 1.3],
                "long_factor": [2.0, 3.0, 4.0, 5.0],
            },
        },
    ),
}

SLOW = {
    "llama-dynamic": ("llama", {"rope_scaling": {"rope_type": "dynamic", "factor": 2.0}}),
    "gemma4": ("gemma4_text", {"head_dim": 8}),
    "lfm2": ("lfm2", {}),
    "bloom": ("bloom", {"n_head": 4, "n_layer": 2}),
    "cohere2": ("cohere2", {"sliding_window": 4, "head_dim": 8}),
    "deepseek-v2": ("deepseek_v2", {"num_key_value_heads": 4, **MLA, **DEEPSEEK_MOE}),
    "ernie4.5": ("ernie4_5", {"head_dim": 8}),
    "ernie4.5-moe": (
        "ernie4_5_moe",
        {
            "head_dim": 8,
            "moe_num_experts": 4,
            "moe_k": 2,
            "moe_intermediate_size": 16,
            "moe_layer_start_index": 1,
        },
    ),
    "falcon": ("falcon", {}),
    "gemma": ("gemma", {"head_dim": 8}),
    "gemma2": ("gemma2", {"head_dim": 8, "sliding_window": 4}),
    "glm4-moe": (
        "glm4_moe",
        {"head_dim": 8, **DEEPSEEK_MOE},
    ),
    "gpt2": ("gpt2", {"n_embd": 32, "n_head": 4, "n_layer": 2, "n_positions": 64}),
    "gptj": ("gptj", {"n_embd": 32, "n_head": 4, "n_layer": 2, "rotary_dim": 4}),
    "granite-moe": ("granitemoe", MIXTRAL_MOE),
    "llama4": ("llama4_text", {"head_dim": 8, "attention_chunk_size": 16, **MIXTRAL_MOE}),
    "minimax-m2": ("minimax_m2", {"head_dim": 8, **MIXTRAL_MOE}),
    "mistral": ("mistral", {"sliding_window": 4}),
    "nemotron": ("nemotron", {}),
    "olmo2": ("olmo2", {}),
    "olmoe": ("olmoe", QWEN_MOE),
    "opt": ("opt", {"ffn_dim": 48, "word_embed_proj_dim": 32}),
    "phi": ("phi", {}),
    "phimoe": ("phimoe", MIXTRAL_MOE),
    "qwen2": ("qwen2", {}),
    "qwen2-moe": ("qwen2_moe", {"shared_expert_intermediate_size": 16, **QWEN_MOE}),
    "qwen3": ("qwen3", {"head_dim": 8}),
    "smollm3": ("smollm3", {}),
    "stablelm": ("stablelm", {}),
    "starcoder2": ("starcoder2", {}),
}


def make(name, dtype=None):
    """A random model of that family, in eval mode. Biases and norms are random too: a weight that
    is lost or swapped changes the logits.
    """
    import torch
    from transformers import AutoConfig, AutoModelForCausalLM

    kind, changes = (FAST | SLOW)[name]
    torch.manual_seed(sum(name.encode()))
    config = AutoConfig.for_model(kind, **{**BASE, **changes})
    model = AutoModelForCausalLM.from_config(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.add_(torch.randn_like(parameter) * 0.05)
    return model.to(dtype) if dtype else model
