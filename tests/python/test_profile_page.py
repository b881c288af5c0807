"""`tokamak profile`: the check of a collection, comparison of runs, the page in a browser."""

import json
import re
import shutil
import subprocess

import pytest
from test_profile import SMALL, command, profile, run


# ---- check, compare ----------------------------------------------------------------------------
def test_check_real_levels(command):  # PF: level0 fails PF-32 only, level1 passes
    out = json.loads(run(command, "--check", profile("alexnet-l0"), "--json", code=1).stdout)
    assert [i["id"] for i in out["items"] if i["status"] == "fail"] == ["PF-32"]
    out = json.loads(run(command, "--check", profile("alexnet-l1-r0"), "--json").stdout)
    assert out["verdict"] == "usable"


CHECKS = {
    "PF-32": lambda p: (p / "kernel_details.csv").unlink(),
    "PF-33": lambda p: (p / "op_statistic.csv").unlink(),
    "PF-34": lambda p: (p / "trace_view.json").write_text(
        (p / "trace_view.json").read_text()[:-400]
    ),
    "PF-31": lambda p: (p.parent / "log_0.log").write_text(
        "[ERROR] profiler.py: Task [KernelViewParser] run failed.\n"
    ),
}


@pytest.mark.parametrize("item", CHECKS)
def test_check_names_the_damage(command, tmp_path, item):
    folder = tmp_path / "rank0_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    shutil.copytree(SMALL, folder)
    (folder / "step_trace_time.csv").unlink()
    for name in ("op_statistic.csv", "api_statistic.csv"):
        (folder / name).write_text("OP Type,Core Type,Count,Total Time(us)\n")
    (tmp_path / "rank0_ascend_pt" / "log_0.log").write_text("all well\n")
    args = (
        "--check",
        tmp_path / "rank0_ascend_pt",
        "--log",
        tmp_path / "rank0_ascend_pt" / "log_0.log",
        "--json",
    )
    assert json.loads(run(command, *args).stdout)["verdict"] == "usable"
    CHECKS[item](folder)
    out = json.loads(run(command, *args, code=1).stdout)
    failed = [i for i in out["items"] if i["status"] == "fail"]
    assert [i["id"] for i in failed] == [item]
    if item == "PF-31":  # and what to do next, in order (PF-04)
        advice = failed[0]["do"]
        assert advice.index("local disk") < advice.index("--way inject")


def test_compare_and_history(command, tmp_path):  # BD-160, BD-162
    text = (SMALL / "kernel_details.csv").read_text()
    (tmp_path / "slow").mkdir()
    slow = re.sub(
        r"(GroupedMatmul,dynamic,MIX_AIC,[\d.]+\t,)([\d.]+)",
        lambda m: f"{m[1]}{float(m[2]) * 1.1:.3f}",
        text,
    )
    (tmp_path / "slow" / "kernel_details.csv").write_text(slow)
    done = run(command, tmp_path / "slow", "-o", tmp_path / "run", "--compare", SMALL)
    assert "expert" in done.stdout
    page = (tmp_path / "run" / "history.html").read_text()
    assert "baseline" in page and "%" in page
    history = (tmp_path / "run" / "HISTORY.md").read_text()
    assert "## slow - " in history
    run(
        command,
        tmp_path / "slow",
        "-o",
        tmp_path / "run",
        "--withdraw",
        "slow",
        "--reason",
        "a test",
    )
    assert "## slow - " not in (tmp_path / "run" / "HISTORY.md").read_text()


# ---- the page ----------------------------------------------------------------------------------
def dom_after(page, script, tmp_path, size="1280,900"):
    """The page in a headless browser, after a script that was added to a copy of it."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser")
    if not browser:
        pytest.skip("chromium is not there")
    copy = tmp_path / "driven.html"
    copy.write_text(page.read_text() + f"<script>{script}</script>")
    done = subprocess.run(
        [
            browser,
            "--headless",
            "--no-sandbox",
            "--disable-gpu",
            f"--window-size={size}",
            "--virtual-time-budget=20000",
            "--dump-dom",
            copy.as_uri(),
        ],
        capture_output=True,
        text=True,
        timeout=180,
        check=False,
    )
    return done.stdout


def test_one_click_opens_the_kernels_of_an_instance(command, tmp_path):  # BD-108
    run(command, profile("small"), "-o", tmp_path / "run")
    metrics = json.loads(next((tmp_path / "run").rglob("metrics.json")).read_text())
    moe = next(i for i, s in enumerate(metrics["sections"]) if s["component_type"] == "moe")
    item = next(
        i
        for i, x in enumerate(metrics["sections"][moe]["sub_items"])
        if x["name"] == "expert gate_up"
    )
    rows = [
        r for r in metrics["sections"][moe]["sub_items"][item]["op_records"] if r["inst_idx"] == 1
    ]
    dom = dom_after(
        next((tmp_path / "run").rglob("runs/*/index.html")),
        f"""document.querySelector(
            'details[data-s="{moe}"][data-i="{item}"][data-n="1"] summary').click();""",
        tmp_path,
    )
    opened = re.findall(r'data-rows="(\d+)"', dom)
    assert opened == [str(len(rows))]
    assert 'data-ready="1"' in dom


def test_names_are_inert(command, tmp_path):  # BD-108
    (tmp_path / "p").mkdir()
    evil = "<script>document.title='owned'</script>"
    text = (SMALL / "kernel_details.csv").read_text().replace(",GroupedMatmul,", f",{evil},")
    (tmp_path / "p" / "kernel_details.csv").write_text(text)
    run(command, tmp_path / "p", "-o", tmp_path / "run")
    page = next((tmp_path / "run").rglob("runs/*/index.html"))
    assert "<script>document.title" not in page.read_text()
    assert "owned" not in re.search("<title>(.*?)</title>", dom_after(page, "", tmp_path))[1]
