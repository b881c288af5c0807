"""Runs models of hicann/cann-recipes-infer as they are, at tiny sizes with random weights.

TOKAMAK_RECIPES is a checkout of the repository or its git folder. Its files are put into a scratch
folder, with a configuration, a tokenizer and prompts made here; nothing of it is changed.
"""

import importlib.util
import json
import os
import re
import socket
import subprocess
import sys
import tarfile
from io import BytesIO
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
# Packages that the runner imports, and a run in bf16 with its own prompts does not use.
ABSENT = ("datasets", "requests", "compressed_tensors")
STAND_IN = """
def __getattr__(name):
    if name.startswith("__"):
        raise AttributeError(name)
    return type(name, (), {})
"""
MODELS = ("qwen3_moe", "gpt_oss", "deepseek_r1", "hy3", "step3p7_flash", "qwen", "longcat_flash")
FOLDERS = ("executor", "module", *(f"models/{name}" for name in MODELS))


def unpack(folder):
    source = os.environ.get("TOKAMAK_RECIPES")
    if not source or not Path(source).is_dir():
        pytest.skip("TOKAMAK_RECIPES does not name a copy of hicann/cann-recipes-infer")
    git_dir = Path(source) / ".git"
    git_dir = git_dir if git_dir.exists() else Path(source)
    archive = subprocess.run(
        ["git", f"--git-dir={git_dir}", "archive", "HEAD", *FOLDERS],
        capture_output=True,
        check=True,
    )
    with tarfile.open(fileobj=BytesIO(archive.stdout)) as tar:
        tar.extractall(folder, filter="data")
    for name in ABSENT:
        if importlib.util.find_spec(name) is None:
            (folder / name).mkdir()
            (folder / name / "__init__.py").write_text(STAND_IN)
            (folder / name / "quantization.py").write_text(STAND_IN)
    return folder


def write_model(folder, model_type, **sizes):
    """A Hugging Face folder without weights: configuration and a byte tokenizer."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    folder.mkdir(parents=True)
    config = {"model_type": model_type, "torch_dtype": "bfloat16", "eos_token_id": 256} | sizes
    (folder / "config.json").write_text(json.dumps(config))
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {c: i for i, c in enumerate(alphabet)} | {"<end>": 256}
    tokenizer = Tokenizer(models.BPE(vocabulary, []))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    fast = PreTrainedTokenizerFast(
        tokenizer_object=tokenizer, eos_token="<end>", pad_token="<end>", unk_token="<end>"
    )
    fast.chat_template = "{% for m in messages %}{{ m['content'] }}{% endfor %}"
    fast.save_pretrained(folder)
    return folder


def pinned_transformers(recipes, name):
    """A folder with the transformers that the recipe pins: newer ones lack what it imports."""
    text = (recipes / "models" / name / "requirements.txt").read_text()
    pin = re.search(r"transformers==[\w.]+", text)
    assert pin, text
    site = recipes / "site"
    if not site.is_dir():
        pip = [sys.executable, "-m", "pip", "install", "-q", "--target", str(site)]
        done = subprocess.run([*pip, "--no-deps", pin[0]], capture_output=True, text=True)
        more = subprocess.run([*pip, "httpx", "tokenizers<0.23"], capture_output=True, text=True)
        if done.returncode or more.returncode:
            pytest.skip(f"{pin[0]} cannot be installed: {(done.stderr + more.stderr)[-300:]}")
    return site


def free_port():
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return s.getsockname()[1]


def run(
    recipes,
    scratch,
    model_name,
    model,
    ranks=1,
    parallel=None,
    custom=None,
    soc="a3",
    site=None,
    with_ckpt=False,
):
    """Prefill and some decode steps on every rank; the log of rank 0."""
    scratch.mkdir(parents=True, exist_ok=True)
    prompts = ["One two three", "Count"]
    (scratch / "default_prompt.json").write_text(json.dumps({"text": prompts}))
    settings = {
        "model_config": {
            "model_name": model_name,
            "model_path": str(model),
            "output_path": str(scratch),
            "with_ckpt": with_ckpt,
            "exe_mode": "eager",
            "custom_params": custom or {},
        },
        "data_config": {
            "dataset": "default",
            "dataset_path": str(scratch),
            "input_truncated_len": 32,
        },
        "parallel_config": {"world_size": ranks} | (parallel or {}),
        "scheduler_config": {"batch_size": 2, "max_new_tokens": 4, "block_size": 128},
    }
    (scratch / "run.yaml").write_text(json.dumps(settings))  # JSON is YAML
    env = os.environ | {
        "PYTHONPATH": os.pathsep.join(
            str(p) for p in (recipes, ROOT / "python", site) if p is not None
        ),
        "OMP_NUM_THREADS": "1",
        "TOKAMAK_NPU_SOC": soc,
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(free_port()),
        "WORLD_SIZE": str(ranks),
        "WORK_DIR": str(scratch),
    }
    script = recipes / "executor" / "offline" / "infer.py"
    command = [sys.executable, "-m", "tokamak.npu", str(script)]
    command += ["--yaml_file_path", str(scratch / "run.yaml")]
    processes, logs = [], [scratch / f"rank{r}.log" for r in range(ranks)]
    for rank, log in enumerate(logs):
        ids = {"LOCAL_RANK": str(rank), "RANK": str(rank), "RANK_ID": str(rank)}
        with log.open("w") as out:
            processes.append(
                subprocess.Popen(command, cwd=recipes, env=env | ids, stdout=out, stderr=out)
            )
    codes = []
    try:
        for process in processes:
            codes.append(process.wait(timeout=600))
    finally:
        for process in processes:
            process.kill()
    text = "\n".join(log.read_text() for log in logs)
    assert codes == [0] * ranks, text[-6000:]
    return logs[0].read_text()


def outputs(log):
    """Generated texts, by request, of the log."""
    return re.findall(r"Request (\d+): outputs: (.*)", log)
