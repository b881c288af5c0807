"""The installed package, away from the checkout: torch finds it, and it finds its libraries."""

import importlib.util
import subprocess
import sys
import sysconfig

import pytest
from conftest import ROOT

SCRIPT = """
import sys, torch
from torch import nn

model = nn.Sequential(nn.Linear(32, 64), nn.SiLU(), nn.Linear(64, 8)).eval()
x = torch.randn(4, 32)
with torch.no_grad():
    compiled = torch.compile(model, backend="tokamak", fullgraph=True)
    torch.testing.assert_close(compiled(x), model(x))
import tokamak
from tokamak.backend import library, report

assert [g.whole for g in report.graphs] == [True], report.graphs
print(tokamak.__file__)
print(library.find_library())
"""


@pytest.mark.slow
def test_torch_finds_the_installed_backend(tmp_path):
    for needed in ("torch", "setuptools"):
        if importlib.util.find_spec(needed) is None:
            pytest.skip(f"{needed} is not installed, and this test asks no network for it")
    if not (ROOT / "build" / "lib" / "libtokamak_engine.so").is_file():
        pytest.skip("the engine is not built")

    def run(*command):
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "wheel", "-q", "--no-deps", "--no-build-isolation", "-w", "wheels", ROOT)
    run(sys.executable, "-m", "venv", "fresh")
    (wheel,) = (tmp_path / "wheels").glob("tokamak-*.whl")
    python = tmp_path / "fresh" / "bin" / "python"
    run(python, "-m", "pip", "install", "-q", "--no-deps", "--no-index", wheel)
    # torch is not installed again: the environment borrows it, and nothing of the checkout.
    (site,) = (tmp_path / "fresh" / "lib").glob("python*/site-packages")
    (site / "torch.pth").write_text(sysconfig.get_paths()["purelib"])
    (tmp_path / "script.py").write_text(SCRIPT)
    package, engine = run(python, "-E", "script.py").split()[-2:]
    assert package == str(site / "tokamak" / "__init__.py")
    assert engine == str(site / "tokamak" / "native" / "libtokamak_engine.so")
    listed = run(python, "-E", "-m", "tokamak.npu", "--help")
    assert "usage: python -m tokamak.npu" in listed
