"""What the command refuses: each with its code, its place where there is one, and exit 2."""

import json
import os
import shutil
import zipfile
from pathlib import Path

import awkward_models
import pytest
import tokamak
from test_cli import cli, optimised  # noqa: F401 (fixtures)

SOURCE = Path(awkward_models.__file__)


def line_of(name):
    lines = SOURCE.read_text().splitlines()
    return next(i for i, line in enumerate(lines, 1) if f"# HERE {name}" in line)


@pytest.fixture
def refused(cli):  # noqa: F811
    def run(code, *arguments):
        text = cli(*arguments, code=2).stderr
        assert f"error[{code}]" in text, text
        return text

    return run


@pytest.fixture
def refused_with(cli):  # noqa: F811
    def run(code, environment, *arguments):
        text = cli(*arguments, code=2, env={**os.environ, **environment}).stderr
        assert f"error[{code}]" in text, text
        return text

    return run


@pytest.fixture(scope="module")
def awkward(tmp_path_factory):
    made = {}

    def capture(name, **options):
        key = name, *options.items()
        if key not in made:
            made[key] = tmp_path_factory.mktemp(name) / "out"
            model = getattr(awkward_models, name)()
            tokamak.capture(model, made[key], max_length=63, quiet=True, **options)
        return made[key]

    return capture


def test_usage(refused, stories, tmp_path):
    out = ["-o", tmp_path / "out"]
    refused("TK0701", "optimize", stories, *out, "--budget", "soon")
    assert "fuse_" in refused(
        "TK0702", "optimize", stories, *out, "--moves", "nothing_like_it_at_all"
    )
    refused("TK0703", "optimize", stories, *out, "--target", "a4")
    refused("TK0703", "optimize", stories, *out, "--analysis-only", "--tp", 8)
    (tmp_path / "file").write_text("mine")
    refused("TK0704", "optimize", stories, "-o", tmp_path / "file")
    refused("TK0704", "optimize", stories, "-o", stories)  # would mix the two
    (tmp_path / "trace.csv").write_text("0,100000,2\n")
    refused(
        "TK1510",
        "optimize",
        stories,
        *out,
        "--moves",
        "capture",
        "--requests",
        tmp_path / "trace.csv",
    )
    assert "did you mean show?" in refused("TK1511", "ops", "shwo", "npu_rms_norm")
    assert "list, search, show, check" in refused("TK1511", "ops", "npu_rms_norm")
    assert "did you mean optimize?" in refused("TK1511", "optimise", stories)
    refused("TK0705", "run", stories, "--ids", "1,two")
    refused("TK0707", "run", stories)
    assert not (tmp_path / "out").exists() and (tmp_path / "file").read_text() == "mine"


def test_a_model_without_tokenizer_takes_ids(refused, cli, stories, tmp_path):  # noqa: F811
    shutil.copytree(stories, tmp_path / "m")
    (tmp_path / "m" / "tokenizer.json").unlink()
    refused("TK0706", "run", tmp_path / "m", "-p", "Once")
    found = cli("run", tmp_path / "m", "--ids", "1,403", "-n", 3, "--json").stdout
    assert len(json.loads(found)[0]["ids"]) == 3


def test_an_optimised_model_has_one_stage(refused, optimised, stories):  # noqa: F811
    golden = stories / "golden.safetensors"
    refused("TK0708", "check", optimised, "--golden", golden, "--stage", "cached")


def test_optimised_models_that_were_touched(refused, optimised, tmp_path):  # noqa: F811
    shutil.copytree(optimised, tmp_path / "old")
    marker = tmp_path / "old" / "tokamak.json"
    marker.write_text(json.dumps(json.loads(marker.read_text()) | {"version": 99}))
    refused("TK0820", "run", tmp_path / "old", "--ids", "1")
    shutil.copytree(optimised, tmp_path / "cut")
    graph = tmp_path / "cut" / "decode.tk"
    text = graph.read_text()
    graph.write_text(text.replace("{dim=", "{dim=, x=", 1))
    refused("TK0310", "run", tmp_path / "cut", "--ids", "1")


def rewritten(stories, target, change, compression=zipfile.ZIP_DEFLATED):
    """A copy of the bundled archive whose entries went through `change`(name, bytes)."""
    with (
        zipfile.ZipFile(stories / "model.pt2") as old,
        zipfile.ZipFile(target, "w", compression) as new,
    ):
        for name in old.namelist():
            new.writestr(name, change(name, old.read(name)))
    return target


def test_archives_that_cannot_be_read(refused, cli, stories, tmp_path):  # noqa: F811
    def same(_, data):
        return data

    def unknown_argument(name, data):
        if name.endswith("models/model.json"):
            model = json.loads(data)
            nodes = model["graph_module"]["graph"]["nodes"]
            node = next(n for n in nodes if n["target"].endswith("aten.transpose.int"))
            node["inputs"][1]["arg"] = {"as_banana": 1}
            return json.dumps(model)
        return data

    deflated = rewritten(stories, tmp_path / "deflated.pt2", same)
    cli("inspect", deflated)
    packed = rewritten(stories, tmp_path / "packed.pt2", same, zipfile.ZIP_BZIP2)
    assert "method 12" in refused("TK0132", "inspect", packed)
    strange = rewritten(stories, tmp_path / "strange.pt2", unknown_argument)
    assert "as_banana" in refused("TK0212", "inspect", strange, "--graph")


@pytest.mark.parametrize("name", ["Causal", "CausalByTable"])
def test_masks_are_understood_whatever_they_are_made_of(cli, awkward, name):  # noqa: F811
    """KV: the mask is evaluated, not recognised."""
    found = cli("run", awkward(name), "--ids", "1,2,3", "-n", 5, "--json", "--ignore-eos").stdout
    assert len(json.loads(found)[0]["ids"]) == 5


@pytest.mark.parametrize(
    ("name", "code", "place"),
    [
        ("SeesAll", "TK0404", "attention"),
        ("EverySecond", "TK0402", "attention"),
        ("RunningSum", "TK0401", "mix"),
        ("Neighbour", "TK0401", "mix"),
    ],
)
def test_what_cannot_be_cached_names_the_place(refused, cli, awkward, tmp_path, name, code, place):  # noqa: F811
    text = refused(code, "optimize", awkward(name), "-o", tmp_path / "out")
    assert f"{SOURCE.name}:{line_of(place)}" in text, text
    assert not (tmp_path / "out").exists()
    # The structure can still be looked at; exit 1 says that there is no cached form.
    assert "There is no cached form" in cli("inspect", awkward(name), code=1).stdout
    refused("TK0709", "inspect", awkward(name), "--graph", "--stage", "cached")


def test_a_mask_of_weights_that_are_not_there(refused, awkward, tmp_path):
    folder = awkward("CausalByTable", with_weights=False)
    refused("TK0403", "optimize", folder, "-o", tmp_path / "out", "--analysis-only")


def test_an_instruction_set_that_is_not_here(refused_with, stories):
    text = refused_with("TK1801", {"TOKAMAK_TARGET": "AVX9"}, "bench", stories)
    assert "AVX9" in text and "SCALAR" in text
