"""Emitted code takes checkpoints whose names of tensors are not the model's own (EB-24)."""

import json
import sys

import pytest
from test_emit import check, emit, run_driver

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")

import families  # noqa: E402
import golden  # noqa: E402
import tokamak  # noqa: E402
from tokamak import checkpoint  # noqa: E402


def save(name, folder):
    """The family's model; its checkpoint in `folder`, under the names that are published."""
    model = families.make(name)
    model.save_pretrained(folder)
    (folder / "tokenizer.json").write_text("{}")
    return model


def add_to_checkpoint(folder, tensors):
    from safetensors.torch import load_file, save_file

    path = folder / "model.safetensors"
    save_file(load_file(path) | tensors, path, metadata={"format": "pt"})


@pytest.mark.parametrize(
    ("name", "renamed"),
    [
        ("mixtral", "block_sparse_moe"),
        ("gpt-neox", "embed_out"),
        pytest.param("minimax-m2", "block_sparse_moe", marks=pytest.mark.slow),
        pytest.param("ernie4.5-moe", "moe_statics", marks=pytest.mark.slow),
    ],
)
def test_the_published_names_load(torch_npu, tokamak_binary, tmp_path, name, renamed):
    source, captured, folder = (tmp_path / n for n in ("hf", "captured", "deploy"))
    model = save(name, source)
    # A draft layer, which the model leaves out.
    add_to_checkpoint(source, {"model.layers.2.eh_proj.weight": torch.ones(2, 2)})
    tokamak.capture(source, captured, quiet=True)
    found = json.loads((captured / checkpoint.FILE).read_text())
    assert any(renamed in key for key in found["places"])
    assert found["unused"] == ["model."] if name == "gpt-neox" else ["model.layers.2."]
    golden.write(model, captured / "golden.safetensors", model.config.vocab_size, steps=16)
    job = {
        "folder": str(folder),
        "name": json.loads(emit(tokamak_binary, captured, folder, "--json"))["name"],
        "checkpoint": str(source),
        "golden": str(captured / "golden.safetensors"),
    }
    command = [sys.executable, "-m", "tokamak.npu"]
    check(run_driver(command, "emitted_driver.py", tmp_path / "job.json", job), False)


def test_what_is_nowhere_in_the_model_is_said(tmp_path):
    source = tmp_path / "hf"
    source.mkdir()
    model = save("llama-gqa", source)
    assert not any(checkpoint.places(source, model).values())
    with torch.no_grad():
        model.model.layers[1].mlp.up_proj.weight.add_(1)
    assert checkpoint.places(source, model)["unplaced"] == ["model.layers.*.mlp.up_proj.weight"]
