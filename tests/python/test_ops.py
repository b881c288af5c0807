"""tokamak ops: what is known of torch_npu's operators, and whether calls are legal."""

import json
import os
import subprocess

import pytest
from conftest import ROOT

DOCUMENT = ROOT / "tests" / "data" / "ops" / "op_plugin_docs.py"
TABLE = (ROOT / "tests" / "data" / "ops" / "torch_npu.txt").read_text().split()
LEFT_OUT = {  # docs/left-out.md says why; the first is an allocation
    "empty_with_swapped_memory",
    "npu_gather_selection_kv_cache",
}


@pytest.fixture(scope="module")
def ops(tokamak_binary):
    def run(*arguments, code=0, python_path=""):
        done = subprocess.run(
            [str(tokamak_binary), "ops", *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=60,
            env={**os.environ, "PYTHONPATH": str(python_path), "TOKAMAK_PYTHON": ""},
        )
        assert done.returncode == code, (arguments, done.stdout, done.stderr)
        return done

    return run


def test_list_prints_names_and_counts_them_apart(ops):  # FU-40
    done = ops("list")
    names = done.stdout.split()
    assert names == sorted(set(names)) and set(TABLE) - LEFT_OUT <= set(names)
    assert done.stderr == f"{len(names)} operators\n"
    norms = ops("list", "--prefix", "npu_rms", "--json").stdout
    assert json.loads(norms) == ["npu_rms_norm", "npu_rms_norm_quant"]
    assert ops("list", "--prefix", "npu_nothing", code=1).stdout == ""


def test_a_document_adds_names_once(ops):
    names = ops("list", "--docs", DOCUMENT).stdout.split()
    assert "npu_of_tomorrow" in names and names.count("npu_rms_norm") == 1


def test_search_is_cut_and_marks_what_has_no_document(ops):
    found = json.loads(ops("search", "quant", "--json").stdout)
    assert found["found"] > 10 and len(found["operators"]) == 10
    assert all(len(row["line"]) <= 150 for row in found["operators"])
    assert len(ops("search", "quant", "--max", 3).stdout.splitlines()) == 6
    text = ops("search", "add_rms_norm_v2").stdout
    assert text.splitlines()[0] == "npu_add_rms_norm_v2  (undocumented)"
    line = ops("search", "anybody", "would", "--docs", DOCUMENT).stdout.splitlines()[1].strip()
    assert len(line) == 150 and line.endswith("...")
    assert "no operator has" in ops("search", "nosuchword", code=1).stderr


def test_names_as_they_are_copied(ops):
    for name in ("NPU_SWIGLU", "torch_npu.npu_swiglu(x)", "torch.ops.npu.npu_swiglu.default"):
        assert ops("show", name).stdout.startswith("npu_swiglu\n")
    stated = ("--shape", "x=(4, 64)", "--dtype", "torch.bfloat16", "--target", "a2")
    assert ops("check", "npu_swiglu", *stated).stdout.startswith("npu_swiglu on a2: legal")


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("",), "TK1600"),
        (("  ", "_"), "TK1600"),
        (("--max", "-1", "rms"), "--max"),
        (("--max", "0", "rms"), "--max"),
    ],
)
def test_searches_that_cannot_be(ops, words, error):
    done = ops("search", *words, code=2)
    assert done.stdout == "" and error in done.stderr


def test_show_has_every_fact(ops):
    text = ops("show", "npu_rms_norm", "--docs", DOCUMENT).stdout
    for part in (
        "npu_rms_norm(Tensor input",
        "a2 yes",
        "wheel docs",
        "rms_norm.dtype",
        "first entry",
    ):
        assert part in text
    assert "second entry" not in text
    facts = json.loads(ops("show", "torch_npu.npu_ffn", "--json").stdout)
    assert facts["devices"] == {"a2": "yes", "a3": "yes"}
    assert {"name": "K1", "expr": "weight1.shape[-2]"}.items() <= facts["symbols"][0].items()
    assert "ffn.glu" in [check["id"] for check in facts["checks"]]


def test_an_unknown_operator_names_its_relatives(ops):  # FU-06
    for command in ("show", "check"):
        done = ops(command, "npu_rms_nrom", code=1)
        assert "error[TK0321]: unknown operator 'npu_rms_nrom'" in done.stderr
        assert "npu_rms_norm" in done.stderr


def test_documents_that_cannot_be_read(ops, tmp_path):
    assert "TK0101" in ops("list", "--docs", tmp_path / "none.py", code=2).stderr
    empty = tmp_path / "empty.py"
    empty.write_text("")
    assert "TK0320" in ops("show", "npu_rms_norm", "--docs", empty, code=2).stderr


def test_the_document_of_an_installed_package(ops, tmp_path):
    package = tmp_path / "torch_npu"
    package.mkdir()
    (package / "__init__.py").write_text("raise RuntimeError('is not imported')")
    assert "TK0320" in ops("list", code=2, python_path=tmp_path).stderr
    (package / "_op_plugin_docs.py").write_text(DOCUMENT.read_text())
    text = ops("show", "npu_of_tomorrow", python_path=tmp_path).stdout
    assert "not defined" in text and str(package) in text


def test_the_package_of_an_environment(tokamak_binary, tmp_path):
    """It is found from the interpreter's place, and none is started."""
    packages = tmp_path / "lib" / "python3.11" / "site-packages" / "torch_npu"
    packages.mkdir(parents=True)
    (packages / "_op_plugin_docs.py").write_text(DOCUMENT.read_text())
    (tmp_path / "pyvenv.cfg").write_text("include-system-site-packages = false\n")
    (tmp_path / "bin").mkdir()
    python = tmp_path / "bin" / "python3"
    python.write_text("#!/bin/false\n")
    python.chmod(0o755)
    for environment in ({"TOKAMAK_PYTHON": str(python)}, {"PATH": str(python.parent)}):
        done = subprocess.run(
            [str(tokamak_binary), "ops", "show", "npu_of_tomorrow"],
            capture_output=True,
            text=True,
            env={"TOKAMAK_PYTHON": "", "PATH": os.environ["PATH"], **environment},
        )
        assert done.returncode == 0 and str(packages) in done.stdout, done.stderr


def check(ops, *arguments, code=0):
    return json.loads(ops("check", *arguments, "--json", code=code).stdout)


def test_check_of_a_legal_call(ops):  # FU-41
    found = check(
        ops, "npu_rms_norm", "--shape", "x=[4,7168]", "--dtype", "x=bf16", "--target", "a2"
    )
    assert found["verdict"] == "legal" and found["not_stated"] == ["gamma"]
    assert found["facts_source"] == "wheel docs"
    assert {c["state"] for c in found["checks"]} <= {"holds", "unknown"}


def test_check_says_what_fails_and_the_smallest_change(ops):  # FU-64
    shape = ["--shape", "x=[2,3,4,48]", "--shape", "cos=[2,1,4,48]", "--shape", "sin=[2,1,4,48]"]
    flags = [*shape, "--dtype", "bf16", "--target", "a3"]
    found = check(ops, "npu_interleave_rope", *flags, code=1)
    assert found["verdict"] == "refused" and found["why"] == "fails interleave_rope.D"
    failed = next(c for c in found["checks"] if c["state"] == "fails")
    assert failed["values"] == "D = 48"
    assert failed["change"] == {"name": "D", "from": "48", "to": "64", "distance": 16}
    text = ops("check", "npu_interleave_rope", *flags, code=1).stdout
    assert "legal with D 48 -> 64 (+33.3 %)" in text


def test_check_is_pending_where_the_document_is_silent(ops):  # FU-07
    silent = check(ops, "npu_swiglu", "--target", "a3", code=1)
    assert silent["verdict"] == "pending" and "does not name a3" in silent["why"]
    none = check(ops, "npu_add_rms_norm_v2", "--target", "a2", code=1)
    assert none["verdict"] == "pending" and "no document" in none["why"]
    assert check(ops, "npu_rms_norm", code=1)["why"].startswith("no device is named")
    gone = check(ops, "npu_dynamic_mx_quant", "--target", "a2", code=1)
    assert gone["verdict"] == "refused" and "not there on a2" in gone["why"]


@pytest.mark.parametrize(
    ("flags", "error"),
    [
        (("--sym", "He=5120"), "TK0322"),
        (("--shape", "y=[2]", "--dtype", "bf16"), "TK0322"),
        (("--attr", "alpha=2"), "TK0322"),
        (("--shape", "x=[2", "--dtype", "bf16"), "TK0310"),
        (("--shape", "x=[2,3]"), "TK0323"),
        (("--shape", "x=2,3", "--dtype", "bf16"), "TK0323"),
        (("--shape", "x=[2]", "--shape", "x=[3]", "--dtype", "bf16"), "TK0323"),
        (("--attr", "epsilon=abc"), "TK0323"),
        (("--dtype", "x=bf17"), "TK0323"),
        (("--target", "a4"), ""),
    ],
)
def test_check_of_what_cannot_be(ops, flags, error):
    assert error in ops("check", "npu_rms_norm", *flags, code=2).stderr
