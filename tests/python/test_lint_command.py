"""tokamak lint as a command: forms of the output, exit codes, bad input, interpreters."""

import json
import os
import subprocess
import sys

import pytest
from conftest import ROOT

PLACES = ROOT / "tests" / "data" / "lint" / "places"


def run(*arguments, program=(sys.executable, "-m", "tokamak.lint"), **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    return subprocess.run(
        [*program, *map(str, arguments)], env=env, capture_output=True, text=True, timeout=120
    )


def test_text_shows_the_place_and_the_fix():
    result = run(PLACES / "17.py")
    assert result.returncode == 1
    assert "17.py:21: wrong-result[inplace-on-input]:" in result.stdout
    assert "   | state.copy_(h)\n   |       ^\n" in result.stdout
    assert "fix: return the new value" in result.stdout
    assert "compiled: Model.decode" in result.stdout


def test_json_is_the_contract():
    result = run("--json", PLACES / "09.py")
    findings = json.loads(result.stdout)["findings"]
    assert [sorted(f) for f in findings] == [
        ["file", "fix", "level", "line", "message", "rule"]
    ] * 2
    assert [(f["line"], f["rule"], f["level"]) for f in findings] == [
        (14, "host-sync-cpu", "break"),
        (14, "host-sync-tolist", "recompile"),
    ]
    assert json.loads(run("--json", PLACES / "16.py").stdout) == {"findings": []}


def test_sarif():
    result = json.loads(run("--sarif", PLACES / "14.py").stdout)
    assert result["version"] == "2.1.0"
    driver = result["runs"][0]["tool"]["driver"]
    for r in result["runs"][0]["results"]:
        assert driver["rules"][r["ruleIndex"]]["id"] == r["ruleId"]
        assert r["level"] in ("error", "warning", "note")
        region = r["locations"][0]["physicalLocation"]["region"]
        assert region["startLine"] >= 1 and region["startColumn"] >= 1
    assert len(result["runs"][0]["results"]) == 3


def test_exit_codes(tmp_path):
    assert run(PLACES / "16.py").returncode == 0
    assert run(PLACES / "01.py").returncode == 1
    assert run().returncode == 2
    assert run(PLACES / "01.py", "--backend", "cuda").returncode == 2
    assert run("--help").returncode == 0
    slow = tmp_path / "slow.py"
    from tokamak.lint.rules import RULES

    slow.write_text(RULES["missing-mark-static"].bad)
    result = run(slow)
    assert result.returncode == 0 and "slow[missing-mark-static]" in result.stdout


BAD = {
    "syntax.py": (b"def f(:\n", "TK1102"),
    "latin.py": (b"# caf\xe9\nx = 1\n", "byte 0xe9 is not utf-8"),
    "null.py": (b"x = 1\0\n", "TK1102"),
    "utf16.py": ("x = 1\n".encode("utf-16"), "TK1102"),
    "encoding.py": (b"# -*- coding: nonsense -*-\n", "TK1102"),
    "large.py": (b"x = 1\n" * 1_700_000, "TK1101"),
    "nested.py": (b"x = " + b"(" * 5000 + b"1" + b")" * 5000, "TK1102"),
    "chain.py": (b"x = y" + b".z()" * 5000, "TK1102"),
}


@pytest.mark.parametrize("name", BAD)
def test_bad_files(tmp_path, name):
    data, message = BAD[name]
    (tmp_path / name).write_bytes(data)
    result = run(tmp_path / name)
    assert result.returncode == 2 and result.stdout == ""
    assert message in result.stderr and name in result.stderr
    assert "Traceback" not in result.stderr


GOOD = {
    "empty.py": b"",
    "bom.py": b"\xef\xbb\xbfimport torch\n",
    "latin1.py": b"# -*- coding: latin-1 -*-\n# caf\xe9\nx = 1\n",
    "cycle.py": b"class A(B):\n    pass\n\n\nclass B(A):\n    pass\n",
    "sum.py": b"def f(x):\n    return " + b" + ".join([b"x"] * 600) + b"\n",
    "recursive.py": b"def f(x, n):\n    return g(x, n)\n\n\ndef g(x, n):\n    return f(x, n - 1)\n",
}


@pytest.mark.parametrize("name", GOOD)
def test_odd_files(tmp_path, name):
    (tmp_path / name).write_bytes(GOOD[name])
    result = run(tmp_path / name)
    assert (result.returncode, result.stderr) == (0, "")


def test_missing_and_unknown(tmp_path):
    for path, why in ((tmp_path / "no.py", "is not there"), (tmp_path, "no Python file")):
        result = run(path)
        assert result.returncode == 2 and "TK1101" in result.stderr and why in result.stderr
    result = run(PLACES / "01.py", "--entry", "NgramShift.forwrd")
    assert result.returncode == 2 and "TK1103" in result.stderr
    assert "did you mean NgramShift.forward" in result.stderr


def test_the_command_finds_an_interpreter(tokamak_binary, tmp_path):
    command = (tokamak_binary, "lint")
    direct, through = (
        run("--json", PLACES / "03.py"),
        run("--json", PLACES / "03.py", program=command),
    )
    assert through.returncode == 1 and through.stdout == direct.stdout
    result = run(PLACES / "03.py", program=command, TOKAMAK_PYTHON="/nope")
    assert result.returncode == 2 and "TK1104" in result.stderr
    old = tmp_path / "old"
    old.write_text("#!/bin/sh\nexit 7\n")
    old.chmod(0o755)
    assert run(PLACES / "03.py", program=command, TOKAMAK_PYTHON=str(old)).returncode == 7


# A package that cannot be found (TK1105) needs a binary that was moved out of its checkout.
