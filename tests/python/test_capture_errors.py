"""What can't be captured says where, why and what to change; and leaves nothing behind."""

import json
import os
import subprocess
import sys
from pathlib import Path

import bad_models
import families
import pytest
import tokamak
import torch

SOURCE = Path(bad_models.__file__)


def line_of(name):
    for number, line in enumerate(SOURCE.read_text().splitlines(), 1):
        if line.endswith(f"# HERE {name}"):
            return number
    raise AssertionError(name)


def failure(tmp_path, model, **options):
    with pytest.raises(tokamak.CaptureError) as caught:
        tokamak.capture(model, tmp_path / "out", quiet=True, **options)
    assert list(tmp_path.glob("*out*")) == [], "a failed capture left something"
    assert list(tmp_path.glob(".*")) == []
    assert caught.value.help
    return caught.value


@pytest.mark.parametrize(
    ("name", "code", "words"),
    [
        ("Item", "TK1006", "u0 > 4"),
        ("TensorIf", "TK1006", "values of a tensor"),
        ("IntOf", "TK1006", "values of a tensor"),
        ("Nested", "TK1006", "values of a tensor"),
        ("FixedView", "TK1007", "fixed to"),
        ("FixedSequence", "TK1007", "sequence size is fixed to 8"),
        ("Loop", "TK1007", "sequence size is fixed to 8"),
        ("LongPath", "TK1007", "longer than 100"),
        ("Chunks", "TK1007", "holds only for some sizes"),
        ("Numpy", "TK1008", ".numpy()"),
        ("Raises", "TK1009", "this model wants images too"),
    ],
)
def test_place_in_the_models_source(tmp_path, name, code, words):
    error = failure(tmp_path, getattr(bad_models, name)())
    assert error.code == code
    assert (Path(error.file), error.line) == (SOURCE, line_of(name)), str(error)
    assert words in error.message, str(error)
    assert f"--> {SOURCE}:{line_of(name)}" in str(error)


def test_the_suggested_length_works(tmp_path):
    error = failure(tmp_path, bad_models.LongPath())
    assert "--max-length 100" in error.help
    tokamak.capture(bad_models.LongPath(), tmp_path / "out", max_length=100, quiet=True)


def test_dynamic_rope_beyond_its_length(tmp_path):
    error = failure(tmp_path, families.make("llama-dynamic"), max_length=100)
    assert error.code == "TK1007" and "--max-length 64" in error.help


def test_a_deeper_frame_is_a_note(tmp_path):
    error = failure(tmp_path, bad_models.Nested())
    assert any("bad_helper.py:5 in branch_on_values" in note for note in error.notes), str(error)


def test_wrong_signature_and_results(tmp_path):
    error = failure(tmp_path, bad_models.OneArgument())
    assert error.code == "TK1009" and "positional" in error.message
    error = failure(tmp_path, bad_models.NoLogits())
    assert error.code == "TK1009" and "expected are logits" in error.message


def test_state_is_named(tmp_path):
    error = failure(tmp_path, bad_models.Counter())
    assert error.code == "TK1011" and "calls" in error.message
    assert (Path(error.file), error.line) == (SOURCE, line_of("Counter"))


def test_weights_without_values(tmp_path):
    error = failure(tmp_path, bad_models.Meta())
    assert error.code == "TK1010" and "head.weight" in error.message


def test_example_inputs_are_checked(tmp_path):
    ids = torch.ones(2, 3, dtype=torch.int64)
    for bad in ((ids,), (ids, ids.float()), (ids[:1], ids[:1]), (ids, ids[:, :2]), 7 * [ids]):
        error = failure(tmp_path, bad_models.LongPath(), example_inputs=bad)
        assert error.code == "TK1013"
    assert failure(tmp_path, bad_models.LongPath(), max_length=4).code == "TK1013"


# Folders.


@pytest.fixture
def hf(tmp_path):
    families.make("llama-gqa").save_pretrained(tmp_path / "hf")
    return tmp_path / "hf"


def edit_config(folder, **changes):
    path = folder / "config.json"
    config = json.loads(path.read_text()) | changes
    path.write_text(json.dumps({k: v for k, v in config.items() if v is not None}))


def test_no_folder_no_config(tmp_path):
    assert failure(tmp_path, tmp_path / "nowhere").code == "TK1001"
    (tmp_path / "empty").mkdir()
    assert "no config.json" in failure(tmp_path, tmp_path / "empty").message


@pytest.mark.parametrize("text", ["", "{", "[]", '{"a": \x00}', "\xff"])
def test_broken_config(tmp_path, hf, text):
    (hf / "config.json").write_bytes(text.encode("latin-1"))
    assert failure(tmp_path, hf).code == "TK1001"


def test_unknown_architecture(tmp_path, hf):
    edit_config(hf, model_type="lllama")
    error = failure(tmp_path, hf)
    assert error.code == "TK1002" and "'llama'" in error.help
    edit_config(hf, model_type=None)
    assert failure(tmp_path, hf).code == "TK1002"


def test_remote_code_is_never_run(tmp_path, hf):
    (hf / "modeling_evil.py").write_text("raise SystemExit('it ran')")
    edit_config(hf, model_type="evil", auto_map={"AutoModelForCausalLM": "modeling_evil.Evil"})
    assert failure(tmp_path, hf).code == "TK1004"


def test_quantised_checkpoint(tmp_path, hf):
    edit_config(hf, quantization_config={"quant_method": "gptq", "bits": 4})
    assert failure(tmp_path, hf).code == "TK1004"


def test_weights_missing(tmp_path, hf):
    from safetensors.torch import load_file, save_file

    path = hf / "model.safetensors"
    tensors = load_file(path)
    shortened = dict(tensors)
    del shortened["model.layers.1.mlp.up_proj.weight"]
    save_file(shortened, path, metadata={"format": "pt"})
    error = failure(tmp_path, hf)
    assert error.code == "TK1003" and "model.layers.1.mlp.up_proj.weight" in error.message
    wrong = dict(tensors, **{"model.norm.weight": torch.ones(31)})
    save_file(wrong, path, metadata={"format": "pt"})
    error = failure(tmp_path, hf)
    assert error.code == "TK1003" and "model.norm.weight" in error.message
    path.write_bytes(path.read_bytes()[:1000])
    assert failure(tmp_path, hf).code == "TK1003"
    path.unlink()
    assert failure(tmp_path, hf).code == "TK1003"


def test_a_shard_is_missing(tmp_path, hf):
    index = {"metadata": {}, "weight_map": {"a": "model-00001-of-00002.safetensors"}}
    (hf / "model.safetensors.index.json").write_text(json.dumps(index))
    error = failure(tmp_path, hf)
    assert error.code == "TK1003" and "model-00001-of-00002" in error.message


def test_options_are_checked(tmp_path, hf):
    assert failure(tmp_path, hf, dtype="int4").code == "TK1013"
    assert failure(tmp_path, hf, attention="flash").code == "TK1013"


# Output folders.


def test_the_models_own_folder_is_refused(hf):
    before = {p.name: p.stat().st_mtime_ns for p in hf.iterdir()}
    with pytest.raises(tokamak.CaptureError) as caught:
        tokamak.capture(hf, hf, quiet=True)
    assert caught.value.code == "TK1005"
    assert {p.name: p.stat().st_mtime_ns for p in hf.iterdir()} == before


def test_a_folder_of_something_else_is_refused(tmp_path, hf):
    out = tmp_path / "mine"
    out.mkdir()
    (out / "thesis.txt").write_text("years of work")
    with pytest.raises(tokamak.CaptureError) as caught:
        tokamak.capture(hf, out, quiet=True)
    assert caught.value.code == "TK1005"
    assert [p.name for p in out.iterdir()] == ["thesis.txt"]


def test_a_failure_keeps_the_earlier_capture(tmp_path, hf, monkeypatch):
    out = tmp_path / "out"
    tokamak.capture(hf, out, quiet=True)
    before = {p.name: p.read_bytes() for p in out.iterdir()}

    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(tokamak.archive, "write", full)
    with pytest.raises(tokamak.CaptureError) as caught:
        tokamak.capture(hf, out, quiet=True)
    assert caught.value.code == "TK1005" and "No space left" in caught.value.message
    assert {p.name: p.read_bytes() for p in out.iterdir()} == before
    assert {p.name for p in tmp_path.iterdir()} == {"hf", "out"}


# The command.


def run(*arguments, **environment):
    return subprocess.run(
        [sys.executable, "-m", "tokamak.capture", *map(str, arguments)],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(tokamak.__file__).parents[1]), **environment},
        timeout=120,
    )


def test_command(tmp_path, hf):
    done = run(hf, "-o", tmp_path / "out", "--max-length", 32, "--shard-size", "1MiB")
    assert done.returncode == 0 and done.stdout == "", done.stderr
    assert "export the graph: " in done.stderr and "captured to" in done.stderr
    assert (tmp_path / "out" / "model.pt2").is_file()


def test_command_errors(tmp_path, hf):
    edit_config(hf, model_type="lllama")
    done = run(hf, "-o", tmp_path / "out")
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert done.stderr.splitlines()[-3].startswith("error[TK1002]: ") or "TK1002" in done.stderr
    assert not (tmp_path / "out").exists()
    assert run("--nonsense").returncode == 2
    assert run(hf, "-o", tmp_path / "out", "--shard-size", "many").returncode == 2
    assert "example" in run("--help").stdout


def test_a_bug_of_ours_is_called_so(tmp_path, monkeypatch, capsys):
    from tokamak import export
    from tokamak.capture import main

    monkeypatch.setattr(export, "capture", lambda *_, **__: 1 / 0)
    assert main([str(tmp_path), "-o", str(tmp_path / "out")]) == 3
    text = capsys.readouterr().err
    assert "internal error" in text and "bug in Tokamak" in text and "Traceback" not in text


def test_import_is_light():
    code = "import tokamak, sys; sys.exit('torch' in sys.modules or 'transformers' in sys.modules)"
    path = str(Path(tokamak.__file__).parents[1])
    assert subprocess.run([sys.executable, "-c", code], env={"PYTHONPATH": path}).returncode == 0


def test_binary_is_found_or_named(monkeypatch, tmp_path):
    monkeypatch.setenv("TOKAMAK_BIN", str(tmp_path / "no"))
    with pytest.raises(tokamak.Error) as caught:
        tokamak.find_binary()
    assert caught.value.code == "TK1012"
    monkeypatch.setenv("TOKAMAK_BIN", sys.executable)
    assert tokamak.find_binary() == Path(sys.executable)


def test_missing_package(tmp_path):
    """TK1014: without the packages there is a message, not a report of a bug."""
    (tmp_path / "config.json").write_text("{}")
    done = subprocess.run(
        [sys.executable, "-S", "-m", "tokamak.capture", tmp_path, "-o", tmp_path / "out"],
        capture_output=True,
        text=True,
        env={**os.environ, "PYTHONPATH": str(Path(tokamak.__file__).parents[1])},
    )
    assert (done.returncode, done.stderr[:13]) == (2, "error[TK1014]"), done.stderr
