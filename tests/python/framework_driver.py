"""What the framework of cann-recipes-infer does with a model, as its contract has it (EB-20 to
EB-29), and no more: python -m tokamak.npu framework_driver.py JOB.

JOB is a JSON file: folder (of the emitted model), name, checkpoint, golden. Caches are filled with
NaN, so that reading a slot that was not written shows. Prints one JSON object a case.
"""

import dataclasses
import importlib
import json
import re
import sys
import types
from pathlib import Path

import torch
from emitted_driver import STEPS, golden_cases
from safetensors.torch import load_file

BLOCK, MAX_BLOCKS, ATTENTION = 128, 2, "FullAttention"


def stand_in_for_the_framework():
    module = types.ModuleType("executor.core.kv_cache.cache_info")
    names = {
        "CacheEntry": "cache_name attn_type dim num_head dtype needs_block block_size "
        "tensor_setter",
        "LayerCacheInfo": "layer_idx caches",
        "ModelCacheInfo": "num_layers layer_infos",
    }
    for name, fields in names.items():
        setattr(module, name, dataclasses.make_dataclass(name, fields.split()))
    parts = module.__name__.split(".")
    for i in range(1, len(parts)):
        sys.modules[".".join(parts[:i])] = types.ModuleType(".".join(parts[:i]))
    sys.modules[module.__name__] = module


def classes_of(folder, name):
    """By the registry's strings, imported from where the folder lies: models/NAME."""
    patch = (folder / "registry.patch").read_text()
    (model, config) = re.findall(r'^\+ +\("([\w.]+)", "(\w+)"\),$', patch, re.M)
    assert re.findall(r'^\+ +"(\w+)": \[$', patch, re.M) == [name]
    sys.path.insert(0, str(folder.parent.parent))
    return [getattr(importlib.import_module(module), cls) for module, cls in (model, config)]


def settings(**changes):
    spaces = {
        "parallel_config": {"world_size": 1},
        "model_config": {"next_n": 0},
        "scheduler_config": {"block_size": BLOCK},
    }
    for section in spaces.values():
        section.update({k: v for k, v in changes.items() if k in section})
    return types.SimpleNamespace(**{k: types.SimpleNamespace(**v) for k, v in spaces.items()})


def make_model(job):
    model_class, config_class = classes_of(Path(job["folder"]), job["name"])
    config = config_class.from_pretrained(job["checkpoint"], low_cpu_mem_usage=True)
    for wrong in ({"world_size": 2}, {"next_n": 1}, {"block_size": 64}):
        try:
            model_class.update_model_cfg(config, settings(**wrong))
        except ValueError:
            continue
        raise AssertionError(f"{wrong} was taken")
    model_class.update_model_cfg(config, settings())
    torch.set_default_dtype(torch.bfloat16)  # as the framework does
    groups = []
    manager = types.SimpleNamespace(register_group=lambda **group: groups.append(group["name"]))
    model = model_class(config, settings(), comm_manager=manager, prefix="")
    assert groups == ["attn_tp_group"]  # PI-25: what the framework looks up
    torch.set_default_dtype(torch.float32)
    checkpoint = load_file(Path(job["checkpoint"]) / "model.safetensors")
    assert model.load_weights(iter(checkpoint.items())) <= checkpoint.keys() | dict(
        model.named_parameters()
    )
    model.eval().to("npu")
    model.process_weights_after_loading()
    return model.to("npu").requires_grad_(False)


def make_caches(model, requests):
    blocks = requests * MAX_BLOCKS + 1  # block 0 is nobody's
    for layer in model.get_cache_info().layer_infos:
        assert layer.caches
        for entry in layer.caches:
            assert entry.attn_type == ATTENTION and entry.needs_block
            shape = (blocks, entry.block_size, entry.num_head, entry.dim)
            entry.tensor_setter(torch.full(shape, float("nan"), dtype=entry.dtype, device="npu"))


@torch.inference_mode()
def step(model, tokens, lengths, is_prefill):
    """Appends tokens[i] to request i, which has lengths[i] tokens."""
    new = torch.tensor([len(t) for t in tokens])
    positions = [torch.arange(n, n + len(t)) for n, t in zip(lengths, tokens, strict=True)]
    table = torch.arange(len(tokens) * MAX_BLOCKS).view(-1, MAX_BLOCKS) + 1
    slots = [row[p // BLOCK] * BLOCK + p % BLOCK for row, p in zip(table, positions, strict=True)]
    total = torch.tensor(lengths) + new
    metadata = types.SimpleNamespace(
        is_prefill=is_prefill,
        is_warm_up=False,
        attention_mask=~torch.ones(2048, 2048, dtype=torch.bool, device="npu").tril(),
        actual_seq_lengths_kv=total.npu(),
        actual_seq_lengths_cu_q=new.cumsum(0).npu(),
        actual_seq_lengths_list_kv=None,
        actual_seq_lengths_cu_list_q=None,
        block_table={ATTENTION: table.npu()},
        slot_mapping={ATTENTION: torch.cat(slots).npu()},
    )
    ids = torch.tensor([i for t in tokens for i in t], device="npu")
    logits = model(
        input_ids=ids, position_ids=torch.cat(positions).npu(), forward_metadata=metadata
    )
    assert logits.dtype == torch.float32 and logits.shape[:2] == (len(tokens), 1)  # EB-23
    return logits.cpu(), total.tolist()


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    stand_in_for_the_framework()
    model = make_model(job)
    for name, case in golden_cases(job["golden"]):
        prompts, wanted = case["input_ids"].tolist(), case["decode_ids"]
        make_caches(model, len(prompts))
        logits, lengths = step(model, prompts, [0] * len(prompts), True)
        rows = [logits]
        for i in range(STEPS - 1):
            tokens = [[t] for t in wanted[:, i].tolist()]
            logits, lengths = step(model, tokens, lengths, False)
            rows.append(logits)
        logits, golden = torch.cat(rows, 1), case["decode_logits"].float()
        error = (logits - golden).abs().max() / golden.abs().max()
        equal = bool((logits.argmax(-1) == wanted).all())
        print(json.dumps({"case": name, "relative": error.item(), "greedy_equal": equal}))


if __name__ == "__main__":
    main()
