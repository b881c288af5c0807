"""`tokamak profile --graph`: names and structure of layers from a captured model (BD-51)."""

import csv
import json
import subprocess

import pytest
from conftest import ROOT
from test_profile_structure import Writer, latent_with_mtp

MODEL = ROOT / "examples" / "stories260k"
LAYERS = 5  # num_hidden_layers of its config.json


def call(*args, code=0):
    done = subprocess.run(
        [*map(str, args)], capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == code, done.stdout[-2000:] + done.stderr[-2000:]
    return done


@pytest.fixture(scope="module")
def simulated(tokamak_binary, tmp_path_factory):
    """A step of the model on an a3, with and without the module paths."""
    folder = tmp_path_factory.mktemp("simulated")
    call(tokamak_binary, "simulate", MODEL, "--target", "a3", "--batch", 2, "-o", folder / "with")
    table = next((folder / "with").rglob("kernel_details.csv"))
    rows = list(csv.reader(table.open()))
    place = rows[0].index("Module")
    (folder / "without").mkdir()
    with (folder / "without" / "kernel_details.csv").open("w", newline="") as file:
        csv.writer(file).writerows(row[:place] + row[place + 1 :] for row in rows)
    return folder


def blocks(out, named):
    """Each block's kernels, of those that are no copies: these have no order of their own."""
    draft = json.loads((out / "structure_draft.json").read_text())
    return [
        (c["type"], c["layer_idx"], [i for i in c["op_indices"] if i in named])
        for c in draft["components"]
    ]


def test_blocks_are_those_of_the_paths(tokamak_binary, simulated, tmp_path):  # BD-50, BD-51
    for name, graph in (("with", ()), ("without", ("--graph", MODEL))):
        out = tmp_path / name
        done = call(tokamak_binary, "profile", simulated / name, "-o", out, "--no-split", *graph)
        assert f"main: {LAYERS} layers" in done.stdout
    assert "100 % of" in done.stdout and "names are the model's" in done.stdout
    table = next((simulated / "with").rglob("kernel_details.csv"))
    rows = csv.DictReader(table.open())
    named = {i for i, row in enumerate(rows) if row["Type"] != "GatherV2"}
    assert blocks(tmp_path / "without", named) == blocks(tmp_path / "with", named)


def test_measured_beside_simulated_is_headed(tokamak_binary, simulated, tmp_path):  # BD-161
    small = ROOT / "tests" / "data" / "profiles" / "decode"
    args = ("-o", tmp_path / "r", "--no-split", "--compare", small)
    call(tokamak_binary, "profile", simulated / "with", *args)
    page = (tmp_path / "r" / "history.html").read_text()
    assert "Measured and simulated runs stand side by side" in page


def test_another_model_is_not_taken(tokamak_binary, tmp_path):
    w = Writer()
    latent_with_mtp(w)
    w.write(tmp_path / "p")
    done = call(
        tokamak_binary,
        "profile",
        tmp_path / "p",
        "-o",
        tmp_path / "r",
        "--no-split",
        "--graph",
        MODEL,
    )
    assert "fewer than 90 %: structure and names are the automatic ones" in done.stderr
    assert "mtp_head: 1 layers" in done.stdout


def test_a_program_without_models_says_so(tokamak_binary, tmp_path):
    w = Writer()
    latent_with_mtp(w)
    w.write(tmp_path / "p")
    alone = tokamak_binary.parent / "tk_profile"
    if not alone.exists():
        pytest.skip(f"{alone} is not built")
    done = call(alone, tmp_path / "p", "-o", tmp_path / "r", "--graph", MODEL, code=2)
    assert "TK1704" in done.stderr
