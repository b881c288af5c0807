"""The capture itself: a model in, a folder out. The format is described in
docs/commands/capture.md."""

import importlib
import json
import os
import shutil
import sys
from contextlib import contextmanager
from pathlib import Path

from . import archive, checkpoint, graph, output, rope, weights
from .errors import CaptureError
from .progress import Progress, to_stderr

DEFAULT_SHARD_BYTES = 4 << 30
DEFAULT_MAX_LENGTH = 131072
EXAMPLE_BATCH, EXAMPLE_SEQUENCE = 2, 8

TOKENIZER_FILES = (
    "tokenizer.json",
    "tokenizer_config.json",
    "special_tokens_map.json",
    "added_tokens.json",
    "vocab.json",
    "merges.txt",
    "tokenizer.model",
    "chat_template.jinja",
)


def capture(
    model,
    output_dir,
    *,
    example_inputs=None,
    example_batch=EXAMPLE_BATCH,
    example_sequence=EXAMPLE_SEQUENCE,
    max_length=None,
    shard_bytes=DEFAULT_SHARD_BYTES,
    dtype="auto",
    attention="auto",
    with_weights=True,
    quiet=False,
):
    """Captures `model` into `output_dir`, and returns its path.

    model: a torch.nn.Module whose forward is (input_ids, position_ids) -> logits (or an object
        with .logits), a transformers model, or the path of a Hugging Face folder.
    example_inputs: (input_ids, position_ids), both int64 [batch, sequence] of at least 2 by 2;
        their values don't matter unless the forward fails on them.
    max_length: the longest sequence; config.json's max_position_embeddings otherwise (where
        rotary frequencies change with the length, the length up to which they don't).
    dtype, attention: for a folder only: "auto", "float32", "bfloat16", "float16"; "auto", "sdpa",
        "eager".
    with_weights: False writes the graph only; a folder then needs no more than config.json.
    """
    progress = Progress() if quiet else to_stderr()
    source = None
    if isinstance(model, (str, os.PathLike)):
        from . import huggingface

        source = Path(model)
        if "transformers" not in sys.modules:
            with progress.stage("load torch and transformers"):
                importlib.import_module("transformers.models.auto.modeling_auto")
        huggingface.check_folder(source, with_weights)
        output.check(output_dir, source)
        with progress.stage("load the model"):
            if with_weights:
                model = huggingface.load(source, dtype, attention, progress)
            else:
                model = huggingface.load_shapes(source, dtype, attention)
    else:
        output.check(output_dir)
    if with_weights:
        weights.check({**dict(model.named_parameters()), **dict(model.named_buffers())})
    inputs = _inputs(example_inputs, example_batch, example_sequence)
    limit = _max_length(model, max_length, inputs[0].shape[1], progress)
    config = getattr(model, "config", None)
    is_transformers = hasattr(config, "to_json_string")

    with output.writing(output_dir) as folder:
        with (
            _as_captured(model, is_transformers),
            rope.fixed(model, limit),
            progress.stage("export the graph"),
        ):
            program = _trace(model, inputs, limit, is_transformers, attention, progress)
        if with_weights:
            tensors = {**program.state_dict, **program.constants}
            with progress.stage("write the weights"):
                weights.write(folder, tensors, shard_bytes, progress)
        with progress.stage("write the graph"):
            archive.write(folder / output.GRAPH, program)
        _write_side_files(folder, source, model if is_transformers else None, progress)
        if source is not None and with_weights:
            checkpoint.write(folder, source, model)
    progress.say(f"captured to {output_dir}")
    return Path(output_dir)


def _inputs(example_inputs, batch, sequence):
    import torch

    inputs = graph.example(batch, sequence) if example_inputs is None else tuple(example_inputs)
    good = len(inputs) == 2 and all(
        isinstance(t, torch.Tensor) and t.dtype == torch.int64 and t.dim() == 2 for t in inputs
    )
    if not good or inputs[0].shape != inputs[1].shape or min(inputs[0].shape) < 2:
        raise CaptureError(
            "TK1013",
            "the example inputs must be input_ids and position_ids, both int64 "
            "[batch, sequence], with a batch and a sequence of at least 2",
            help="leave them out, or give two tensors of one shape such as [2, 8]",
        )
    return inputs


def _max_length(model, asked, example_length, progress):
    config = getattr(model, "config", None)
    if hasattr(config, "get_text_config"):
        config = config.get_text_config()
    limit = asked or getattr(config, "max_position_embeddings", None) or DEFAULT_MAX_LENGTH
    exact = rope.exact_length(model)
    if exact is not None and isinstance(limit, int) and limit > exact:
        if asked is None:
            progress.say(f"  up to {exact} positions: beyond, the rotary frequencies are others")
            limit = exact
        else:
            progress.say(f"  with the rotary frequencies for more than {exact} positions")
    if not isinstance(limit, int) or limit < example_length:
        raise CaptureError(
            "TK1013",
            f"the longest sequence is {limit}, the example has {example_length}",
            help=f"give a max length of at least {example_length}, or a shorter example",
        )
    return limit


@contextmanager
def _as_captured(model, is_transformers):
    """The model in eval mode with token-local experts, and as it was afterwards.

    transformers' default sorts tokens by expert (grouped_mm); batched_mm gathers each token's
    experts instead, and no token's value depends on another's place.
    """
    modes = {module: module.training for module in model.modules()}
    experts = None
    model.eval()
    if is_transformers and hasattr(model, "set_experts_implementation"):
        experts = model.config._experts_implementation
        model.set_experts_implementation("batched_mm")
    try:
        yield
    finally:
        for module, training in modes.items():
            module.training = training
        if experts is not None:
            model.set_experts_implementation(experts)


def _trace(model, inputs, limit, is_transformers, attention, progress):
    """Exports; with sdpa chosen by nobody, a failure is tried again with eager attention."""
    module = graph.wrapper(model, keywords=is_transformers)
    try:
        return graph.trace(module, inputs, limit)
    except CaptureError as error:
        used = getattr(getattr(model, "config", None), "_attn_implementation", None)
        retry = attention == "auto" and used == "sdpa" and error.code in ("TK1007", "TK1008")
        if not (retry and hasattr(model, "set_attn_implementation")):
            raise
        progress.say(f"  not with sdpa attention ({error.message}); again with eager")
        model.set_attn_implementation("eager")
        try:
            return graph.trace(module, inputs, limit)
        except CaptureError:
            raise error from None
        finally:
            model.set_attn_implementation(used)


def _write_side_files(folder, source, model, progress):
    if source is not None:
        for name in ("config.json", "generation_config.json", *TOKENIZER_FILES):
            if (source / name).is_file():
                shutil.copyfile(source / name, folder / name)
        if not (folder / "tokenizer.json").exists():
            progress.say("  no tokenizer.json: the model will take and give token ids only")
    elif model is not None:
        (folder / "config.json").write_text(model.config.to_json_string(use_diff=False))
        generation = getattr(model, "generation_config", None)
        if generation is not None:
            text = json.dumps(generation.to_diff_dict(), indent=2, default=str)
            (folder / "generation_config.json").write_text(text + "\n")
