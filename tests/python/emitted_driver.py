"""Runs an emitted folder on a golden file: python [-m tokamak.npu] emitted_driver.py JOB.

JOB is a JSON file: folder, name, checkpoint, golden, and for each case the steps that are `ties`
and not compared. Prints one JSON object a case.
"""

import importlib
import json
import re
import sys
from pathlib import Path

import torch
import yaml
from safetensors.torch import load_file

STEPS = 16


def make_runner(job):
    folder = Path(job["folder"])
    sys.path.insert(0, str(folder))
    settings = folder / "config" / f"{job['name']}.yaml"
    values = yaml.safe_load(settings.read_text())
    values["model_config"]["model_path"] = job["checkpoint"]
    values["scheduler_config"]["max_new_tokens"] = STEPS
    test_yaml = Path(job["checkpoint"]) / "test.yaml"
    test_yaml.write_text(yaml.safe_dump(values))
    module = importlib.import_module(f"runner_{job['name']}")
    if job.get("device"):
        module.DEVICE = job["device"]
    runner_class = next(v for k, v in vars(module).items() if k.endswith("Runner"))
    runner = runner_class(test_yaml)
    runner.config.eos_token_ids = ()
    return runner


def compare(runner, case, ties):
    """Teacher-forced logits of the case's rows side by side; `ties` [rows, steps] are left out."""
    prompts = case["input_ids"].tolist()
    wanted = case["decode_ids"]
    runner.init_static_kvcache(len(prompts), len(prompts[0]) + STEPS)
    rows = [runner.forward(prompts, True)]
    for step in range(STEPS - 1):
        rows.append(runner.forward([[t] for t in wanted[:, step].tolist()], False))
    logits = torch.cat([r.cpu() for r in rows], 1)
    golden = case["decode_logits"].float()
    error = (logits - golden).abs().masked_fill(ties.unsqueeze(-1), 0)
    differs = (logits.argmax(-1) != wanted) & ~ties
    return {
        "relative": (error.max() / golden.abs().max()).item(),
        "max_abs": error.max().item(),
        "greedy_equal": not differs.any().item(),
        # A 16-bit model may choose another token where two were as good.
        "margin_of_differences": case["decode_margin"][differs].max().item()
        if differs.any()
        else 0,
    }


def golden_cases(path):
    """(name, tensors by their names) of each case."""
    cases = {}
    for key, value in load_file(path).items():
        case, field = key.split(".", 1)
        if re.fullmatch(r"p\d+", case):
            cases.setdefault(case, {})[field] = value
    return sorted(cases.items())


def main():
    job = json.loads(Path(sys.argv[1]).read_text())
    runner = make_runner(job)
    cases = golden_cases(job["golden"])
    for name, case in cases:
        ties = torch.tensor(job.get("ties", {}).get(name, False)).expand(case["decode_ids"].shape)
        print(json.dumps({"case": name} | compare(runner, case, ties)))
    prompts = [row for _, c in cases for row in c["input_ids"].tolist()]
    wanted = [row for _, c in cases for row in c["decode_ids"].tolist()]
    found = runner.model_generate(prompts)
    print(json.dumps({"case": "all", "greedy_equal": found == wanted}))


if __name__ == "__main__":
    main()
