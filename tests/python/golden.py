"""Golden files in the format of shared/models, from transformers' own cached decoding."""

import torch
from safetensors.torch import save_file

STEPS = 8
SHAPES = {"p0": (1, 13), "p1": (1, 5), "p2": (2, 9)}


def _decode(model, ids, steps):
    """Prompt logits, greedy tokens, and the logits each was chosen from."""
    with torch.no_grad():
        out = model(input_ids=ids, use_cache=True)
        prompt = out.logits
        rows, tokens = [prompt[:, -1]], []
        while True:
            tokens.append(rows[-1].argmax(-1))
            if len(tokens) == steps:
                break
            out = model(
                input_ids=tokens[-1][:, None], past_key_values=out.past_key_values, use_cache=True
            )
            rows.append(out.logits[:, -1])
    return prompt, torch.stack(tokens, 1), torch.stack(rows, 1)


def write(model, path, vocabulary, steps=STEPS):
    """Prompts of random ids without repetition of a length that any window is shorter than."""
    generator = torch.Generator().manual_seed(11)
    tensors = {}
    for name, shape in SHAPES.items():
        ids = torch.randint(3, vocabulary, shape, generator=generator)
        prompt, tokens, rows = _decode(model, ids, steps)
        best = rows.float().topk(2, dim=-1).values
        found = {"input_ids": ids, "logits": prompt, "decode_ids": tokens, "decode_logits": rows}
        found["decode_margin"] = best[..., 0] - best[..., 1]
        tensors |= {f"{name}.{key}": value.contiguous() for key, value in found.items()}
    save_file(tensors, path)
