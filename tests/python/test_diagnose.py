"""tokamak diagnose --job graph: logs to causes (GM-41, GM-42), scripts to stages (GM-40)."""

import gzip
import json
import os
import random
import subprocess
import sys

import pytest
from conftest import ROOT
from tokamak.diagnose import diagnose_logs
from tokamak.errors import Error
from tokamak.graphlog import input_of, kind_of, plain_guard

SHARED = ROOT.parent / "shared" / "logs"
DYNAMO = "V0421 11:03:22.511000 30877 torch/_dynamo/guards.py:2997] [0/2] [__recompiles] "


def run(*arguments, **environment):
    env = {**os.environ, "PYTHONPATH": str(ROOT / "python"), **environment}
    return subprocess.run(
        [sys.executable, "-m", "tokamak.diagnose", "--job", "graph", *map(str, arguments)],
        env=env,
        capture_output=True,
        text=True,
        timeout=300,
    )


def recompile(guard, n=1):
    return "".join(
        f"{DYNAMO}Recompiling function decode in /srv/model.py:40\n"
        f"{DYNAMO}    triggered by the following guard failure(s):\n"
        f"{DYNAMO}    - 0/{i}: {guard}\n"
        f'{DYNAMO}    -   File "/srv/model.py", line 57, in decode\n'
        for i in range(n)
    )


def diagnosis(tmp_path, text, **options):
    log = tmp_path / "serve.log"
    log.write_text(text)
    return diagnose_logs([log], **options)


# One line or more for each row of GM-41 and GM-42 -> the id of the advice.
LINES = {
    "converter": "RuntimeError: torch.ops.aten.cummax.default ge_converter is not implemented!",
    "unsupported-operator": "No supported Ops kernel and engine are found for [Foo], optype [Foo]",
    "graph-break": "torch._dynamo.exc.Unsupported: Attempted to call function marked as skipped",
    "data-dependent": "torch._dynamo.exc.Unsupported: Data-dependent branching",
    "bool-mask-write": "RuntimeError: ERR03007 GRAPH feature not supported\nWhile executing "
    "%i : call_function[target=torch.ops.aten.index_put.default](args = (%a, [%lt], %full))",
    "recompile-limit": "torch._dynamo hit config.recompile_limit (8)",
    "capture-broken": "RuntimeError: operation not permitted when stream is capturing",
    "sync-in-capture": "synchronize is called while capturing: error code is 107027",
    "random-in-capture": "RuntimeError: capture: random generator of the device is not registered",
    "capture-limit": "WARNING the number of captured graphs exceeds the limit, capture_limit=64",
    "stream-resources": "NPU function error: AclmdlRICaptureBegin, error code is 207008",
    "task-queue": "Do not support TASK_QUEUE_ENABLE = 2 during NPU graph capture",
    "length-type-list": "TypeError: npu_fused_infer_attention_score(): argument "
    "'actual_seq_lengths_kv' must be tuple of ints, not Tensor",
    "wrong-keyword": "RuntimeError: npu_fused_infer_attention_score() unknown keyword argument "
    "'actual_seq_kvlen'",
    "static-kernel-ge": "ValueError: static_kernel_compile is only supported by npugraph_ex",
    "option": "ValueError: Unknown option 'clone_inputs' of npugraph_ex",
    "collectives": "RuntimeError: hcom_all_reduce is not supported in this graph",
    "cache-traced-twice": "WARNING cache_compile: forward was traced more than once",
    "ge-not-supported": "[ERROR] 2026-04-20-21:17:33 (PID:1, Device:0, RankID:0) ERR03007 GRAPH",
    "shape-in-graph": "EZ1001: Dim 0 of x (1) and dim 0 of row_idx (8) mismatch, expected",
    "operator-limit": "EZ9999: numHeads / numKvHeads = 8, MLA only support {32, 64, 128}.",
    "out-of-memory": "RuntimeError: NPU out of memory. Tried to allocate 2.00 GiB",
    "before-compile": "TypeError: forward() missing 1 required positional argument: 'ids'",
}


@pytest.mark.parametrize("advice", LINES)
def test_a_line_of_each_class(tmp_path, advice):
    prefixes = ("", "(Worker_TP0 pid=4411) ERROR 06-24 10:11:07 [core.py:1101] ", "[rank0]: ")
    for prefix in prefixes:
        lines = [prefix + line for line in LINES[advice].split("\n")]
        found = diagnosis(tmp_path, "INFO start\n" + "\n".join(lines) + "\n")
        assert found.findings[0].id == advice, found.text()
        assert found.exit_code == 1
        assert found.findings[0].fix


def test_an_error_that_no_rule_knows(tmp_path):
    found = diagnosis(tmp_path, "npugraph_ex on\n[ERROR] the flux is misaligned\n")
    assert (found.verdict, found.exit_code) == ("unclassified", 1)
    assert "the flux is misaligned" in found.text()


def test_nothing_of_graph_mode(tmp_path):
    found = diagnosis(tmp_path, "INFO loaded 3 shards\n")
    assert (found.verdict, found.exit_code) == ("nothing", 1)


GUARDS = [
    ("L['kwargs']['meta'].kv_lens[0] == 1026", "meta.kv_lens", "list element"),
    ("lengths[0] == 1    # y = x * n  # model.py:6 in forward", "lengths", "list element"),
    ("len(lengths) == 2", "lengths", "list length"),
    ("tensor 'x' size mismatch at index 1. expected 3, actual 4", "x", "shape"),
    ("tensor 'L['kwargs']['ids']' size mismatch at index 0. expected 3", "ids", "shape"),
    ("tensor 'x' dtype mismatch. expected Float, actual Half", "x", "dtype"),
    ("n == 1", "n", "number"),
    ("L['self'].step == 3", "self.step", "number"),
    ("meta is None", "meta", "object"),
    ("___check_obj_id(L['self'].cache, 140235)", "self.cache", "object"),
    ("tensor 'x' stride mismatch at index 0. expected 4, actual 1", "x", "stride"),
    ("GLOBAL_STATE changed: grad_mode", "GLOBAL_STATE", "grad mode"),
]


@pytest.mark.parametrize(("guard", "name", "kind"), GUARDS)
def test_guards(tmp_path, guard, name, kind):
    plain = plain_guard(guard)
    assert (input_of(plain), kind_of(plain)) == (name, kind)
    found = diagnosis(tmp_path, "warm up done\n" + recompile(guard, 3))
    assert (found.verdict, found.n_serving) == ("fault", 3)
    assert found.findings[0].id == "recompile"
    assert name in found.findings[0].cause
    assert found.findings[0].place == "/srv/model.py:57"


def test_compiling_in_warm_up_is_normal(tmp_path):
    """GM-41: only compilations after the border count."""
    log = "exe_mode=npugraph_ex\n" + recompile("n == 1", 2)
    found = diagnosis(tmp_path, log + "warm up done\n")
    assert (found.verdict, found.n_warmup, found.n_serving) == ("pass", 2, 0)
    found = diagnosis(tmp_path, "warm up begins\n" + log + "warm up end, cost 3 s\n")
    assert (found.verdict, found.n_warmup, found.n_serving) == ("pass", 2, 0)
    found = diagnosis(tmp_path, "warm up done\n" + log)
    assert (found.verdict, found.n_warmup, found.n_serving) == ("fault", 0, 2)


def test_without_a_border_it_is_pending(tmp_path):
    found = diagnosis(tmp_path, recompile("n == 1", 2))
    assert (found.verdict, found.n_serving, found.exit_code) == ("pending", 2, 1)


def test_border_by_step_numbers(tmp_path):
    log = "".join(f"INFO decode step {i}\n" + recompile("n == 1") for i in range(1, 6))
    found = diagnosis(tmp_path, "npugraph_ex\n" + log, warmup_steps=2)
    assert (found.n_warmup, found.n_serving) == (2, 3)


def test_real_dynamo_messages(tmp_path):
    """What the installed PyTorch prints is read, with the input that changed."""
    script = tmp_path / "steps.py"
    script.write_text(
        "import torch\n"
        "torch._logging.set_logs(recompiles=True)\n"
        "class M(torch.nn.Module):\n"
        "    def forward(self, x, kv_lens, meta):\n"
        "        return x * kv_lens[0] + meta['n']\n"
        "f = torch.compile(M(), backend='eager', dynamic=False)\n"
        "for i in range(4):\n"
        "    f(torch.ones(2), [7 + i], {'n': 1})\n"
        "print('warm up done', flush=True)\n"
        "f(torch.ones(3), [9], {'n': 1})\n"
        "f(torch.ones(3).half(), [9], {'n': 1})\n"
        "f(torch.ones(3).half(), [9], {'n': 5})\n"
    )
    log = tmp_path / "run.log"
    with open(log, "wb") as out:
        subprocess.run([sys.executable, "-u", script], stdout=out, stderr=out, check=True)
    found = diagnose_logs([log])
    assert (found.n_warmup, found.n_serving) == (3, 3)
    seen = [(e.input, e.kind) for e in found.recompiles]
    assert seen[:3] == [("kv_lens", "list element")] * 3
    assert seen[3][1] == "shape" and seen[4] == ("x", "dtype")
    assert seen[5] == ("meta.n", "number")
    assert found.recompiles[0].use.endswith("steps.py:5")


CASES = {  # of shared/logs: which advice, and the line that decides
    "04": ("converter", "cummax"),
    "05": ("recompile", "actual_seq_lengths_kv"),
    "09": ("shape-in-graph", "row_idx"),
    "10": ("operator-limit", "MLA only support"),
    "11": ("stream-resources", "207008"),
    "12": ("wrong-only-in-graph", "!!!"),
    "13": ("bool-mask-write", "index_put"),
    "17": ("task-queue", "TASK_QUEUE_ENABLE"),
}


@pytest.mark.skipif(not SHARED.is_dir(), reason="no ../shared/logs")
@pytest.mark.parametrize("case", CASES)
def test_logs_of_real_faults(case):
    (log,) = SHARED.glob(f"{case}-*.log")
    found = diagnose_logs([log])
    advice, evidence = CASES[case]
    first = found.findings[0]
    assert first.id == advice
    assert evidence in first.line.text + first.cause


def test_bad_input(tmp_path):
    with pytest.raises(Error, match="no such file") as raised:
        diagnose_logs([tmp_path / "none.log"])
    assert raised.value.code == "TK1301"
    with pytest.raises(Error, match="no log in this folder"):
        diagnose_logs([tmp_path])
    empty = tmp_path / "empty.log"
    empty.touch()
    with pytest.raises(Error, match="empty") as raised:
        diagnose_logs([empty])
    assert raised.value.code == "TK1302"
    cut = tmp_path / "cut.log.gz"
    cut.write_bytes(gzip.compress(os.urandom(4000))[:900])
    with pytest.raises(Error, match="cannot be read") as raised:
        diagnose_logs([cut])
    assert raised.value.code == "TK1302"
    log = tmp_path / "a.log"
    log.write_text("npugraph_ex\n")
    with pytest.raises(Error) as raised:
        diagnose_logs([log], warmup_steps=2)
    assert raised.value.code == "TK1303"
    assert run(log, "--warmup-steps", "-1").returncode == 2
    script = tmp_path / "a.py"
    script.touch()
    result = run(script, log)
    assert (result.returncode, "TK1304" in result.stderr) == (2, True)
    assert run(tmp_path / "none.py").returncode == 2


def test_gzip_and_folders_and_json(tmp_path):
    with gzip.open(tmp_path / "r0.log.gz", "wt") as out:
        out.write("warm up done\n" + recompile("n == 1"))
    (tmp_path / "r1.log").write_text("INFO all well\n")
    result = run(tmp_path, "--json")
    assert result.returncode == 1, result.stderr
    data = json.loads(result.stdout)
    assert data["verdict"] == "fault" and len(data["logs"]) == 2
    assert data["findings"][0]["class"] == "recompile"
    assert data["findings"][0]["log"].endswith("r0.log.gz:2")


def test_damaged_logs_are_read_or_refused(tmp_path):
    """Mutations: never an exception of ours, never a hang."""
    draw = random.Random(7)
    text = ("\n".join(LINES.values()) + "\nwarm up\n" + recompile("n == 1", 3)).encode()
    log = tmp_path / "m.log"
    for _ in range(300):
        data = bytearray(text)
        for _ in range(draw.randrange(1, 20)):
            at = draw.randrange(len(data))
            choice = draw.randrange(4)
            if choice == 0:
                data[at] = draw.randrange(256)
            elif choice == 1:
                del data[at : at + draw.randrange(200)]
            elif choice == 2:
                data[at:at] = bytes(draw.randrange(256) for _ in range(20))
            else:
                data[at:at] = data[at : at + 300].replace(b"\n", b"")
            data = data or bytearray(b"x")
        log.write_bytes(data)
        found = diagnose_logs([log])
        assert found.text() and json.loads(found.json())


MODEL = """\
import torch, torch_npu
library = torch.library.Library("custom", "DEF")
library.define("increment(Tensor(a!) x) -> Tensor(a!)")
library.impl("increment", lambda x: x.add_(1), "CompositeExplicitAutograd")
torch.library.register_fake("custom::increment")(lambda x: x)
class Model(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.w = torch.nn.Parameter(torch.ones(8, 8))
    def forward(self, x, pos):
        {body}
model = Model().npu().eval()
step = torch.compile(model, backend="npugraph_ex", fullgraph=True, dynamic=False{more})
with torch.no_grad():
    for i in range(5):
        y = step(torch.ones(2, 8).npu(), {pos})
        if i == 1:
            print("warm up done")
"""
GOOD = {
    "body": "return torch_npu.npu_rms_norm(x @ self.w, self.w[0])[0] + pos",
    "pos": "torch.tensor([i]).npu()",
    "more": "",
}
# GM-40: seeded defects, each with the stage that must fail first.
DEFECTS = {
    "eager": {"body": "return x @ self.w[:3]"},
    "dynamo": {"body": "return x if x.sum() > 0 else x @ self.w"},
    "aot_eager": {"body": "return torch.ops.custom.increment(x + pos)"},
    "backend": {"more": ", options={'clone_inputs': True}"},
    "capture": {"body": "return x * torch.rand(8, device=x.device)"},
    "recompile": {"pos": "i"},
    "pending": {"body": "return torch_npu.npu_no_such_norm(x)"},
}


ALL_STAGES = ("none", "backend", "capture")  # half a minute each: with -m slow


@pytest.mark.parametrize(
    "defect",
    [pytest.param(d, marks=[pytest.mark.slow] * (d in ALL_STAGES)) for d in ("none", *DEFECTS)],
)
def test_stages(tmp_path, defect):
    script = tmp_path / "infer.py"
    script.write_text(MODEL.format(**{**GOOD, **DEFECTS.get(defect, {})}))
    result = run(script, "--json", "--log-dir", tmp_path / "logs")
    data = json.loads(result.stdout)
    statuses = {s["name"]: s["status"] for s in data["stages"]}
    if defect == "none":
        assert result.returncode == 0, result.stdout
        assert set(statuses.values()) == {"ok"}
        return
    assert result.returncode == 1
    stage = {"recompile": "capture", "pending": "eager"}.get(defect, defect)
    assert data["stage"] == stage, result.stdout
    order = list(statuses)
    assert all(statuses[s] == "ok" for s in order[: order.index(stage)])
    assert all(statuses[s] == "not run" for s in order[order.index(stage) + 1 :])
    if defect == "pending":
        assert data["verdict"] == "pending" and "npu_no_such_norm" in data["stages"][0]["reason"]
    else:
        assert data["verdict"] == "fault"
        first = data["diagnosis"]["findings"][0]
        assert first["cause"] and first["evidence"]
        if defect == "recompile":
            assert first["id"] == "recompile" and "pos" in first["cause"]
        if defect == "capture":
            assert first["id"] == "random-in-capture" and first["code"].endswith("infer.py:11")


def test_a_stage_that_does_not_end(tmp_path):
    script = tmp_path / "hang.py"
    script.write_text("import time\ntime.sleep(600)\n")
    result = run(script, "--timeout", "8")
    assert result.returncode == 1
    assert "no end within 8" in result.stdout
