// Texts of the emitted files; @KEY@ is filled in.
#pragma once

#include <string_view>

namespace tk::emit {

inline constexpr std::string_view modeling_head =
    R"py("""@TITLE@ over packed tokens, keys and values in a paged cache.

Tokens of all requests lie side by side in one axis; ForwardMetadata says which are whose.
"""

@RE@from dataclasses import dataclass, field
@PARTIAL@
import torch
@FUNCTIONAL@@NPU@@IMPORT_GRAPH@@EXECUTOR@from torch import nn

BLOCK_SIZE = @BLOCK_SIZE@  # tokens in a block of the cache
@ATTENTION@

@dataclass
class ForwardMetadata:
    """What changes from step to step, beside the tokens; T tokens of B requests."""

    is_prefill: bool
    slot_mapping: torch.Tensor  # int64 [T], where each token's key and value go
    block_table: torch.Tensor  # int32 [B, blocks]
    actual_seq_lengths_kv: torch.Tensor  # int32 [B], this step's tokens counted
    actual_seq_lengths_cu_q: torch.Tensor  # int32 [B], running totals of this step's tokens
    logit_rows: torch.Tensor  # int64 [B], the last token of each request
    actual_seq_lengths_list_kv: list = field(default_factory=list)  # the same for the host
    actual_seq_lengths_cu_list_q: list = field(default_factory=list)
@GRAPH@)py";

inline constexpr std::string_view configuration_text =
    R"py("""The sizes that models/ was written for, as config.json of the checkpoint has them."""

import json
from dataclasses import dataclass, fields
from pathlib import Path


@dataclass
class @CLASS@:
@FIELDS@
    @classmethod
    def from_pretrained(cls, folder@MORE@):
        """Reads config.json of a checkpoint, which must be of this model."""
        path = Path(folder) / "config.json"
        found = json.loads(path.read_text(encoding="utf-8"))
        config = cls()
        for known in fields(cls):
            value = getattr(config, known.name)
            if isinstance(value, int) and found.get(known.name, value) != value:
                raise ValueError(
                    f"{path}: {known.name} is {found[known.name]}, this code is for {value}"
                )
        return config
)py";

inline constexpr std::string_view runner_text =
    R"py("""Runs @TITLE@: prompts of any lengths side by side, then one token each a step, greedily."""

import logging
import time
from pathlib import Path

import torch
@TORCH_NPU@import yaml
@GRAPH_IMPORT@from models.configuration_@NAME@ import @CONFIG@
from models.modeling_@NAME@ import BLOCK_SIZE, ForwardMetadata, @MODEL@
from safetensors import safe_open

DEVICE = "@DEVICE@"


def checkpoint_tensors(folder):
    """(name, tensor) of every tensor in the checkpoint's safetensors files."""
    paths = sorted(Path(folder).glob("*.safetensors"))
    if not paths:
        raise FileNotFoundError(f"{folder}: no *.safetensors here")
    for path in paths:
        with safe_open(path, framework="pt") as file:
            for name in file.keys():
                yield name, file.get_tensor(name)


class @RUNNER@:
    def __init__(self, yaml_path):
        with open(yaml_path, encoding="utf-8") as file:
            settings = yaml.safe_load(file)
        self.model_name = settings["model_config"]["model_name"]
        self.model_path = settings["model_config"]["model_path"]
        self.max_new_tokens = settings["scheduler_config"]["max_new_tokens"]
        self.prompts = settings["data_config"]["prompts"]
        self.config = @CONFIG@.from_pretrained(self.model_path)
        self.model = self._load(getattr(torch, settings["model_config"]["dtype"]))
@COMPILE@        self.block_table = None
        self.kv_len = []

    def _load(self, dtype):
        before = torch.get_default_dtype()
        torch.set_default_dtype(dtype)
        try:
            model = @MODEL@(self.config)
        finally:
            torch.set_default_dtype(before)
        model.load_weights(checkpoint_tensors(self.model_path))
        model.process_weights_after_loading()
        return model.requires_grad_(False).eval().to(DEVICE)

    def init_static_kvcache(self, batch_size, max_len):
        """Blocks for batch_size requests of max_len tokens, dealt out once."""
        blocks = -(-max_len // BLOCK_SIZE)
        if self.block_table is None or self.block_table.shape != (batch_size, blocks):
            table = torch.arange(batch_size * blocks, dtype=torch.int32)
            self.block_table = table.view(batch_size, blocks)
            self.model.init_cache(batch_size * blocks, DEVICE)
@CACHES_STATIC@        self.kv_len = [0] * batch_size

    @torch.inference_mode()
    def forward(self, tokens, is_prefill):
        """One step: appends tokens[i] to request i; returns logits [B, 1, vocabulary]."""
        input_ids, positions, slots, totals = [], [], [], []
        for request, new in enumerate(tokens):
            start = self.kv_len[request]
            position = torch.arange(start, start + len(new))
            block = self.block_table[request][position // BLOCK_SIZE].long()
            input_ids += new
            positions.append(position)
            slots.append(block * BLOCK_SIZE + position % BLOCK_SIZE)
            totals.append(len(input_ids))
        lengths = [n + len(new) for n, new in zip(self.kv_len, tokens)]
        metadata = ForwardMetadata(
            is_prefill=is_prefill,
            slot_mapping=torch.cat(slots).to(DEVICE),
            block_table=self.block_table.to(DEVICE),
            actual_seq_lengths_kv=torch.tensor(lengths, dtype=torch.int32, device=DEVICE),
            actual_seq_lengths_cu_q=torch.tensor(totals, dtype=torch.int32, device=DEVICE),
            logit_rows=torch.tensor(totals, device=DEVICE) - 1,
            actual_seq_lengths_list_kv=lengths,
            actual_seq_lengths_cu_list_q=totals,
        )
        input_ids = torch.tensor(input_ids, device=DEVICE)
@STEP@        self.kv_len = lengths
        return logits.float().unsqueeze(1)

    def _timed(self, tokens, is_prefill, warm_up):
        self._synchronize()
        start = time.perf_counter()
        logits = self.forward(tokens, is_prefill)
        self._synchronize()
        if not warm_up:
            phase = "prefill" if is_prefill else "decode"
            elapsed = (time.perf_counter() - start) * 1000
            logging.info("%s inference time cost of %s is %.2f ms", self.model_name, phase, elapsed)
        return logits[:, -1].argmax(dim=-1).tolist()

    @staticmethod
    def _synchronize():
        if DEVICE == "npu":
            torch.npu.synchronize()

    def model_generate(self, prompts, warm_up=False):
        """Token ids of the prompts in, new token ids out: greedy, until all ended or enough."""
        steps = 2 if warm_up else self.max_new_tokens
        longest = max(map(len, prompts)) + self.max_new_tokens
        self.init_static_kvcache(len(prompts), longest)  # for warm-up too: the same memory serves
        tokens = self._timed(prompts, True, warm_up)
        generated = [[token] for token in tokens]
        for _ in range(steps - 1):
            if all(set(row) & set(self.config.eos_token_ids) for row in generated):
                break
            tokens = self._timed([[token] for token in tokens], False, warm_up)
            for row, token in zip(generated, tokens):
                row.append(token)
        return [self._until_end(row) for row in generated]

    def _until_end(self, row):
        for i, token in enumerate(row):
            if token in self.config.eos_token_ids:
                return row[:i]
        return row
)py";

inline constexpr std::string_view eager_step =
    R"py(        logits = self.model(input_ids, torch.cat(positions).to(DEVICE), metadata)
)py";

inline constexpr std::string_view graph_step =
    R"py(        positions = torch.cat(positions).to(DEVICE)
        if not is_prefill:
            mark_static(input_ids, positions, *metadata.tensors())
        step = self.model if is_prefill else self.decode
        logits = step(input_ids, positions, metadata)
)py";

inline constexpr std::string_view infer_py =
    R"py("""Generates text for the prompts of a YAML file."""

import argparse
import logging
from pathlib import Path

from runner_@NAME@ import @RUNNER@
from transformers import AutoTokenizer


def main():
    default = Path(__file__).parent / "config" / "@NAME@.yaml"
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--yaml", default=default, help="settings of the run")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    runner = @RUNNER@(arguments.yaml)
    tokenizer = AutoTokenizer.from_pretrained(runner.model_path)
    prompts = [tokenizer.encode(prompt) for prompt in runner.prompts]
    runner.model_generate(prompts, warm_up=True)
    for i, row in enumerate(runner.model_generate(prompts)):
        logging.info("Request %d: outputs: %s", i, tokenizer.decode(row))


if __name__ == "__main__":
    main()
)py";

inline constexpr std::string_view infer_sh = R"sh(#!/bin/bash
# Runs the model with the settings of config/@NAME@.yaml, or of the file given.
set -e
cd "$(dirname "$0")"
exec python3 infer.py --yaml "${1:-config/@NAME@.yaml}"
)sh";

inline constexpr std::string_view yaml_text = R"y(model_config:
  model_name: "@NAME@"
  model_path: @MODEL_PATH@
  dtype: "@DTYPE@"
  exe_mode: "@EXE_MODE@"
@GRAPH_KEYS@  platform_version: "@PLATFORM@"
data_config:
  prompts:
@PROMPTS@scheduler_config:
  batch_size: @BATCH@
  max_new_tokens: 32
  block_size: @BLOCK_SIZE@
)y";

inline constexpr std::string_view requirements = R"r(torch==2.8.0
@NPU_REQUIREMENT@transformers==5.0.0
safetensors
PyYAML
)r";

inline constexpr std::string_view readme = R"md(# @TITLE@

Inference of @TITLE@ in PyTorch for one device: prompts of different lengths run side by side, keys
and values lie in a paged cache, and the operators are fused.

- `models/modeling_@NAME@.py` holds the model, one class for each kind of block.
- `runner_@NAME@.py` loads the checkpoint, keeps the cache and generates.
- `config/@NAME@.yaml` holds the settings.

## Environment

| | |
|---|---|
| product | @PRODUCT@ |
| torch | 2.8.0 |
@NPU_ROW@| transformers | 5.0.0 |

    pip install -r requirements.txt

## Weights

The checkpoint is used as it is published, no conversion is needed: a folder with `config.json`,
`*.safetensors` and the tokenizer's files. Merged weights are made when it is loaded.

## Run

Set `model_path` in `config/@NAME@.yaml` to that folder and change the prompts, then:

    ./infer.sh

Generation is greedy. Each step's time is logged, after one warm-up that is not.
)md";

}  // namespace tk::emit
