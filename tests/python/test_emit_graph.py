"""emit --exe-mode: decode as one graph, a reason for each setting (GM-18, GM-20, GM-43, GM-55)."""

import json
import os
import re
import subprocess
import sys

import pytest
from conftest import ROOT
from test_emit import checkpoint_of, emit
from tokamak.lint import lint

MODES = ("npugraph_ex", "ge_graph")
DRIVER = """
import json, sys
from pathlib import Path
import torch
import torchair
from emitted_driver import make_runner

job = json.loads(Path(sys.argv[1]).read_text())
runner = make_runner(job)
stats = torch._dynamo.utils.counters["stats"]
prompts = [[1, 5, 9, 7], [1, 2], [1, 8, 8]]
runner.model_generate(prompts, warm_up=True)
compiles = [stats["unique_graphs"]]
graphs = runner.model_generate(prompts)
compiles.append(stats["unique_graphs"])
runner.decode = runner.model
try:
    runner.model_generate(prompts)
except RuntimeError as error:  # attention of a GE graph is nowhere else
    assert "ERR03007" in str(error) and job["mode"] == "ge_graph"
    torchair.ops._in_graph = lambda name, args, kwargs: getattr(torch.ops.torchair_graph, name)(
        *args, **kwargs
    )
print(json.dumps({"compiles": compiles, "graph": graphs, "eager": runner.model_generate(prompts)}))
"""


@pytest.fixture(scope="module", params=MODES)
def emitted(request, tokamak_binary, shared_models, tmp_path_factory):
    folder = tmp_path_factory.mktemp(request.param) / "deploy"
    model = shared_models / "llama-gqa"
    emit(tokamak_binary, model, folder, "--target", "a2", "--exe-mode", request.param)
    return request.param, folder


def test_decode_compiles_once_in_warm_up_and_gives_the_tokens_of_eager(
    torch_npu, emitted, shared_models, tmp_path
):
    mode, folder = emitted
    (name,) = re.findall(r"runner_(\w+)\.py", " ".join(os.listdir(folder)))
    job = {"folder": str(folder), "name": name, "golden": "", "mode": mode}
    job["checkpoint"] = str(checkpoint_of(shared_models / "llama-gqa", tmp_path / "checkpoint"))
    (tmp_path / "job.json").write_text(json.dumps(job))
    (tmp_path / "driver.py").write_text(DRIVER)
    path = os.pathsep.join(map(str, (ROOT / "python", ROOT / "tests" / "python")))
    done = subprocess.run(
        [sys.executable, "-m", "tokamak.npu", tmp_path / "driver.py", tmp_path / "job.json"],
        capture_output=True,
        text=True,
        env=os.environ | {"PYTHONPATH": path, "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-4000:]
    found = json.loads(done.stdout.splitlines()[-1])
    assert found["compiles"] == [1, 1], mode  # GM-50: none while serving
    assert found["graph"] == found["eager"] and len(found["graph"][0]) > 8


def test_the_code_is_clean_for_our_own_lint(emitted):
    mode, folder = emitted
    result = lint([folder], None, mode)
    assert result.entries
    assert [str(f) for f in result.findings] == []


def test_each_setting_has_its_reason(emitted):
    mode, folder = emitted
    text = (folder / "graph_mode.py").read_text()
    lines = text.splitlines()
    settings = [i for i, x in enumerate(lines) if re.match(r' +(config\.|"\w+": |\w+=)', x)]
    settings = [i for i in settings if "options={" not in lines[i]]
    assert len(settings) >= 4
    for i in settings:
        assert re.match(r" +# GM-\d+: \w", lines[i - 1]), lines[i]
    left = text.split("Left as the library has it:")[1].split('"""')[0]
    for line in left.strip().splitlines():
        assert re.match(r" *[\w.]+: GM-\d+: \w", line), line
    yaml = next((folder / "config").glob("*.yaml")).read_text()
    assert f'exe_mode: "{mode}"' in yaml
    assert ("enable_dynamic_graph: True" in yaml) == (mode == "npugraph_ex")  # GM-05
    runner = next(folder.glob("runner_*.py")).read_text()
    assert runner.count("compile_decode(") == 1 and "mark_static(" in runner


def test_a_decode_step_that_cannot_be_captured_stays_eager(tokamak_binary, stories, tmp_path):
    """GM-55: its heads are too small for the fused attention; the note says so."""
    says = emit(tokamak_binary, stories, tmp_path / "out", "--exe-mode", "npugraph_ex")
    assert "note: decode stays eager, GM-30" in says
    assert not (tmp_path / "out" / "graph_mode.py").exists()
    assert 'exe_mode: "eager"' in next((tmp_path / "out/config").glob("*.yaml")).read_text()


def test_old_names_and_unknown_ones(tokamak_binary, stories, shared_models, tmp_path):
    """GM-01; a graph mode for the cpu is refused as well."""
    emit(tokamak_binary, shared_models / "llama-gqa", tmp_path / "old", "--exe-mode", "aclgraph")
    assert 'backend="npugraph_ex"' in (tmp_path / "old" / "graph_mode.py").read_text()
    for flags in (("--exe-mode", "inductor"), ("--exe-mode", "ge_graph", "--target", "cpu")):
        says = emit(tokamak_binary, stories, tmp_path / "no", *flags, code=2)
        assert "error[TK1509]" in says and not (tmp_path / "no").exists()
    emit(tokamak_binary, stories, tmp_path / "eager")
    assert not (tmp_path / "eager" / "graph_mode.py").exists()
