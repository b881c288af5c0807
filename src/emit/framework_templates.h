// Texts of the form for the framework of cann-recipes-infer (EB-20 to EB-29); @KEY@ is filled in.
#pragma once

#include <string_view>

namespace tk::emit {

inline constexpr std::string_view framework_class = R"py(

class @CLASS@(@MODEL@):
    """The model as the framework makes and calls it, on one device."""

    def __init__(self, config, infer_config, comm_manager=None, prefix=""):
        before = torch.get_default_dtype()
        torch.set_default_dtype(torch.@DTYPE@)
        try:
            super().__init__(config)
        finally:
            torch.set_default_dtype(before)
        if comm_manager is not None:  # the framework asks for it by this name
            comm_manager.register_group(name="attn_tp_group", group_num=1, group_size=1)

    @staticmethod
    def update_model_cfg(hf_config, infer_config):
        """Refuses settings that this code is not for, before anything is made."""
        for section, name, expected in (
            ("parallel_config", "world_size", 1),
            ("model_config", "next_n", 0),
            ("scheduler_config", "block_size", BLOCK_SIZE),
        ):
            found = getattr(getattr(infer_config, section), name)
            if found != expected:
                raise ValueError(f"{section}.{name} is {found}, this model is for {expected}")

    def get_cache_info(self):
        """Paged caches of all layers, in the shapes that init_cache gives them."""
        layers = []
        for module in self.modules():
            if module is self or not hasattr(module, "init_cache"):
                continue
            module.init_cache(1, "meta")
            caches = [
                CacheEntry(
                    cache_name=name,
                    attn_type=ATTENTION,
                    dim=cache.shape[3],
                    num_head=cache.shape[2],
                    dtype=cache.dtype,
                    needs_block=True,
                    block_size=BLOCK_SIZE,
                    tensor_setter=partial(setattr, module, name),
                )
                for name, cache in vars(module).items()
                if name.endswith("_cache")
            ]
            layers.append(LayerCacheInfo(layer_idx=len(layers), caches=caches))
        return ModelCacheInfo(num_layers=len(layers), layer_infos=layers)

    def forward(self, input_ids, position_ids, forward_metadata, **kwargs):
        """Packed tokens [T] in, logits [B, 1, vocabulary] of each request's last token out."""
        totals = forward_metadata.actual_seq_lengths_cu_q
        lengths = forward_metadata.actual_seq_lengths_kv
        # Padding goes to block 0, which is nobody's; the slots of a call must differ. At warm-up
        # all is padding, and no block holds anything yet.
        slots = forward_metadata.slot_mapping[ATTENTION].long()
        padding = slots < BLOCK_SIZE
        places = padding.cumsum(0) - 1
        if not forward_metadata.is_warm_up:
            places = places % BLOCK_SIZE
        step = ForwardMetadata(
            is_prefill=forward_metadata.is_prefill,
            slot_mapping=torch.where(padding, places, slots),
            block_table=forward_metadata.block_table[ATTENTION].int(),
            actual_seq_lengths_kv=lengths.int(),
            actual_seq_lengths_cu_q=totals.int(),
            logit_rows=totals.long() - 1,
            actual_seq_lengths_list_kv=lengths.tolist(),
            actual_seq_lengths_cu_list_q=totals.tolist(),
        )
        return super().forward(input_ids, position_ids, step).float().unsqueeze(1)
)py";

inline constexpr std::string_view framework_imports =
    R"py(from executor.core.kv_cache.cache_info import CacheEntry, LayerCacheInfo, ModelCacheInfo
)py";

inline constexpr std::string_view framework_yaml = R"y(model_config:
  model_name: "@NAME@"
  model_path: @MODEL_PATH@
  with_ckpt: True
  exe_mode: "eager"
  platform_version: "@PLATFORM@"
data_config:
  dataset: "default"
  input_truncated_len: 256
parallel_config:
  world_size: 1
scheduler_config:
  batch_size: @BATCH@
  max_new_tokens: 32
  block_size: @BLOCK_SIZE@
)y";

// One line of context: the table's first. Where it stands in the file does not matter to patch.
inline constexpr std::string_view registry_patch = R"p(--- a/executor/core/support_models.py
+++ b/executor/core/support_models.py
@@ -21,1 +21,5 @@
 _specs: dict[str, list[tuple[str, str]]] = {
+    "@NAME@": [
+        ("models.@NAME@.models.modeling_@NAME@", "@CLASS@"),
+        ("models.@NAME@.models.configuration_@NAME@", "@CONFIG@"),
+    ],
)p";

inline constexpr std::string_view framework_readme = R"md(# @TITLE@

Inference of @TITLE@ on one device in the framework of cann-recipes-infer: keys and values lie in the
framework's paged cache, and the operators are fused.

- `models/modeling_@NAME@.py` holds the model, one class for each kind of block.
- `models/configuration_@NAME@.py` holds the sizes that it is for.
- `config/@NAME@.yaml` holds the settings.
- `registry.patch` makes the framework know the model.

## Environment

| | |
|---|---|
| product | @PRODUCT@ |
| torch | 2.8.0 |
@NPU_ROW@| transformers | 5.0.0 |

    pip install -r models/@NAME@/requirements.txt

## Weights

The checkpoint is used as it is published, no conversion is needed: a folder with `config.json`,
`*.safetensors` and the tokenizer's files. Merged weights are made when it is loaded.

## Run

This folder is `models/@NAME@` of the repository. Once, in the repository's root:

    patch -p1 < models/@NAME@/registry.patch

Set `model_path` in `config/@NAME@.yaml` to the checkpoint's folder, then:

    executor/scripts/infer.sh --model @NAME@ --yaml @NAME@.yaml

The model is written for one device without a draft model and for this block size; other settings
are refused when it starts.
)md";

}  // namespace tk::emit
