"""Helpers of the Python tests. Each test names its reason when it has to be skipped."""

import importlib
import os
from pathlib import Path

import pytest
import tokamak

ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture(scope="session")
def shared_models():
    """The folder of captured models with golden files: ../shared/models."""
    shared = Path(os.environ.get("TOKAMAK_SHARED", ROOT.parent / "shared"))
    if not (shared / "models").is_dir():
        pytest.skip(f"{shared}/models is not there (set TOKAMAK_SHARED)")
    return shared / "models"


@pytest.fixture(scope="session")
def tokamak_binary():
    try:
        return tokamak.find_binary()
    except tokamak.Error as error:
        pytest.skip(error.message)


@pytest.fixture(scope="session")
def captured(tmp_path_factory):
    """Makes and captures a family once: captured(name) is a folder with hf/ and out/."""
    import families

    made = {}

    def make(name):
        if name not in made:
            folder = tmp_path_factory.mktemp(name)
            families.make(name).save_pretrained(folder / "hf")
            (folder / "hf" / "tokenizer.json").write_text("{}")
            tokamak.capture(folder / "hf", folder / "out", quiet=True)
            made[name] = folder
        return made[name]

    return make


@pytest.fixture(scope="session")
def stories():
    """The real model that comes with the project."""
    return ROOT / "examples" / "stories260k"


@pytest.fixture(scope="session")
def torch_npu():
    """The module that a script would import, of the emulation."""
    pytest.importorskip("torch")
    try:
        importlib.import_module("tokamak.npu")
    except tokamak.Error as error:
        pytest.skip(error.message)
    return importlib.import_module("torch_npu")
