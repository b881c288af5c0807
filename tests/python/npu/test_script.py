"""python -m tokamak.npu: the script runs as Python would run it."""

import sys

import emulated
import pytest

pytest.importorskip("torch")
pytestmark = pytest.mark.usefixtures("torch_npu")


def test_arguments_path_and_exit_code(tmp_path):
    (tmp_path / "beside.py").write_text("value = 5\n")
    (tmp_path / "script.py").write_text(
        "import sys, beside, torch_npu, torchair\n"
        "print(__name__, sys.argv, beside.value)\n"
        "sys.exit(beside.value)\n"
    )
    found = emulated.launch(str(tmp_path / "script.py"), "a", "--b=1", cwd="/")
    assert found.returncode == 5, found.stderr
    assert found.stdout == f"__main__ ['{tmp_path}/script.py', 'a', '--b=1'] 5\n"


def test_errors_keep_their_traceback():
    found = emulated.run("def inner():\n    raise KeyError('lost')\n\ninner()\n")
    assert found.returncode == 1
    assert 'script.py", line 4, in <module>\n' in found.stderr
    assert 'script.py", line 2, in inner\n' in found.stderr
    assert found.stderr.rstrip().endswith("KeyError: 'lost'")


def test_a_module(tmp_path):
    (tmp_path / "tool.py").write_text("import sys, torch_npu; print(sys.argv[1:], __name__)\n")
    found = emulated.launch("-m", "tool", "x", cwd=tmp_path)
    assert found.stdout == "['x'] __main__\n", found.stderr


def test_child_processes_have_it(tmp_path):
    found = emulated.run(
        "import subprocess, sys\n"
        "code = 'import torch_npu, torch; print(torch.ones(2).npu().device)'\n"
        "print(subprocess.run([sys.executable, '-c', code], capture_output=True, text=True).stdout)"
    )
    assert "npu:0" in found.stdout, found.stderr


def test_usage():
    found = emulated.launch("--help")
    assert found.returncode == 0 and "usage: python -m tokamak.npu" in found.stdout
    assert emulated.launch().returncode == 2
    assert emulated.launch("-m").returncode == 2
    found = emulated.launch("/nowhere/script.py")
    assert found.returncode == 2 and "/nowhere/script.py: no such script" in found.stderr


def test_a_missing_library(tmp_path):
    found = emulated.launch(sys.executable, TOKAMAK_NPU_LIB=str(tmp_path / "no.so"))
    assert found.returncode == 2
    assert "error[TK1015]" in found.stderr and "Traceback" not in found.stderr


def test_an_old_torch():
    import subprocess

    code = (
        "from torch.utils import backend_registration as b\n"
        "del b._setup_privateuseone_for_python_backend\n"
        "import tokamak.npu\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, env=emulated.environment()
    )
    assert "TK1016" in found.stderr and "pip install torch" in found.stderr


def test_without_the_launcher():
    import subprocess

    found = subprocess.run(
        [
            sys.executable,
            "-c",
            "import tokamak.npu, torch_npu; print(torch_npu.npu.device_count())",
        ],
        capture_output=True,
        text=True,
        env=emulated.environment(),
    )
    assert found.stdout == "8\n", found.stderr
