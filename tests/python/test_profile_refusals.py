"""What `tokamak profile` refuses, with the code of each."""

import csv
import shutil
import subprocess

import pytest
from conftest import ROOT

DECODE = ROOT / "tests" / "data" / "profiles" / "decode"


@pytest.fixture
def profile(tokamak_binary, tmp_path):
    """A copy of a real profile, to be spoilt, and how the command is run on it."""
    folder = tmp_path / "profile"
    shutil.copytree(DECODE, folder)

    def run(*flags):
        return subprocess.run(
            [tokamak_binary, "profile", folder, "-o", tmp_path / "out", *flags],
            capture_output=True,
            text=True,
            timeout=120,
        )

    run.folder = folder
    return run


def table(folder):
    return next(p for p in folder.rglob("*.csv") if p.name == "kernel_details.csv")


def write(path, text):
    path.write_text(text)
    return path


def only_ai_cpu(folder):
    with open(table(folder), newline="") as file:
        rows = list(csv.reader(file))
    column = rows[0].index("Accelerator Core")
    for row in rows[1:]:
        row[column] = "AI_CPU"
    with open(table(folder), "w", newline="") as file:
        csv.writer(file).writerows(rows)


def blank(path):
    """65 MB of nothing, more than a side file may hold."""
    with open(path, "wb") as file:
        file.truncate(65 << 20)
    return path


CASES = {
    "TK0901": lambda f: (
        (f / "loop.csv").symlink_to(f / "loop.csv") or ["--rules", f / "not-there.json"]
    ),
    "TK0903": lambda f: ["--annotations", blank(f / "big.json")],
    "TK0912": lambda f: only_ai_cpu(f) or [],
    "TK0913": lambda f: ["--rules", write(f / "r.json", '{"a": 1}')],
    "TK0914": lambda f: ["--structure", write(f / "s.json", "x"), "--samples", f / "s.json"],
    "TK0917": lambda f: ["--rank", "77"],
    "TK0918": lambda f: ["--taxonomy", write(f / "t.json", "[1]")],
    "TK0920": lambda f: ["--compare", write(f / "overview.json", "x").parent],
    "TK0922": lambda f: ["--outlier", "often"],
}


@pytest.mark.parametrize("code", CASES)
def test_refused(profile, code):
    done = profile(*CASES[code](profile.folder))
    assert done.returncode == 2, done.stdout[-500:] + done.stderr
    assert done.stderr.startswith(f"error[{code}]"), done.stderr


@pytest.mark.parametrize("label", ["../out", "a/b", "..", "a\nb", "x" * 200])
def test_a_label_stays_inside(profile, tmp_path, label):
    done = profile("--label", label)
    assert done.returncode == 2 and done.stderr.startswith("error[TK0922]"), done.stderr
    assert not (tmp_path / "out").exists()


# A damaged side file (TK0904, TK0911 alone) is told and left out; the breakdown is made.
@pytest.mark.parametrize(
    ("name", "text", "why"),
    [
        ("step_trace_time.csv", 'a,"b\n1,2\n', "a quote opened here is never closed"),
        ("communication.json", "{", "the file is no valid JSON"),
    ],
)
def test_damaged_side_files(profile, name, text, why):
    write(table(profile.folder).parent / name, text)
    done = profile()
    assert done.returncode == 0, done.stderr
    assert f"{name} is not used: {why}" in done.stdout


def test_no_such_folder(tokamak_binary, tmp_path):
    done = subprocess.run(
        [tokamak_binary, "profile", tmp_path / "none"], capture_output=True, text=True
    )
    assert (done.returncode, done.stderr[:13]) == (2, "error[TK0910]")


def test_emit_profiling(tokamak_binary, tmp_path):
    def emit(*flags):
        return subprocess.run(
            [tokamak_binary, "emit", "profiling", *flags],
            capture_output=True,
            text=True,
            cwd=tmp_path,
        )

    done = emit()
    assert done.returncode == 0, done.stderr
    assert "torch_npu.profiler" in done.stdout + "".join(
        p.read_text() for p in tmp_path.rglob("*.py")
    )
    done = emit("--level", "Level0", "--metrics", "PipeUtilization")
    assert (done.returncode, done.stderr[:13]) == (2, "error[TK0921]"), done.stderr
