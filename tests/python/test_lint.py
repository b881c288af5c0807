"""tokamak lint on snippets: what must be found is found, and nothing else."""

import json
import re

import pytest
from conftest import ROOT
from tokamak.lint import lint
from tokamak.lint.linter import lint_sources
from tokamak.lint.rules import LEVELS, RULES, page
from tokamak.lint.source import parse

DATA = ROOT / "tests" / "data" / "lint"
PLACES = json.loads((DATA / "places" / "expected.json").read_text())["files"]
OWN = sorted((DATA / "own").glob("*.py"))


def found(paths, entry=None, backend=None):
    return {(f.line, f.rule.id) for f in lint(paths, entry, backend).findings}


def text_findings(text, backend=None):
    result = lint_sources([parse("snippet.py", text.encode())], None, backend)
    return [f.rule.id for f in result.findings]


@pytest.mark.parametrize("place", PLACES, ids=lambda p: p["file"])
def test_places(place):
    """With the entry named and without, and for each backend that it is for."""
    expected = {(f["line"], f["kind"]) for f in place["findings"]}
    backends = {"both": [None, "npugraph_ex", "ge_graph"]}.get(place["mode"], [None, place["mode"]])
    for backend in backends:
        for entry in (None, place["entry"]):
            assert found([DATA / "places" / place["file"]], entry, backend) == expected


@pytest.mark.parametrize("path", OWN, ids=lambda p: p.stem)
def test_own(path):
    text = path.read_text()
    expected = {
        (number, rule.strip())
        for number, line in enumerate(text.splitlines(), 1)
        if "expect: " in line
        for rule in line.split("expect: ")[1].split(",")
    }
    entries = re.search(r"(?m)^# entry: (.+)$", text)
    backend = re.search(r"(?m)^# backend: (\S+)$", text)
    got = set()
    for entry in entries.group(1).split() if entries else [None]:
        got |= found([path], entry, backend.group(1) if backend else None)
    assert got == expected


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.id)
def test_examples_of_the_pages(rule):
    backend = rule.backends[0] if len(rule.backends) == 1 else None
    assert set(text_findings(rule.bad, backend)) == {rule.id}
    assert text_findings(rule.good, backend) == []


@pytest.mark.parametrize("rule", RULES.values(), ids=lambda r: r.id)
def test_page_is_that_of_the_table(rule):
    path = ROOT / "docs" / "lint" / f"{rule.id}.md"
    assert path.is_file() and path.read_text() == page(rule), "run scripts/lint_pages.py"
    assert rule.level in LEVELS


def test_every_page_is_of_a_rule():
    assert {p.stem for p in (ROOT / "docs" / "lint").glob("*.md")} == set(RULES)


def test_every_rule_has_a_snippet():
    """Beyond the examples of the pages: rules whose findings some snippet fixes by line."""
    text = "".join(p.read_text() for p in OWN) + json.dumps(PLACES)
    missing = {
        r
        for r in RULES
        if f'"{r}"' not in text and not re.search(rf"expect: .*\b{r}(?![\w-])", text)
    }
    assert missing <= {
        "python-counter-input",
        "backward",
        "length-type",
        "length-name",
        "omitted-attention-argument",
        "missing-mark-static",
        "cache-compile",
        "custom-op-without-meta",
    }


# -- files that are one program


def test_calls_are_followed_between_files(tmp_path):
    (tmp_path / "model.py").write_text(
        "import torch\nfrom torch import nn\nfrom .parts import scale, Norm\n\n\n"
        "class Model(nn.Module):\n"
        "    def __init__(self):\n        super().__init__()\n        self.norm = Norm()\n\n"
        "    def forward(self, x: torch.Tensor):\n        return scale(self.norm(x))\n"
    )
    parts = tmp_path / "parts.py"
    parts.write_text(
        "from torch import nn\n\n\ndef scale(x):\n    return x / x.max().item()\n\n\n"
        "class Norm(nn.Module):\n    def forward(self, x):\n        return x.cpu()\n\n\n"
        "def unused(x):\n    return x.tolist()\n"
    )
    findings = lint([tmp_path]).findings
    assert [(f.file, f.line, f.rule.id) for f in findings] == [
        (str(parts), 5, "host-sync-item"),
        (str(parts), 10, "host-sync-cpu"),
    ]


MODEL = """import torch
from torch import nn


class Model(nn.Module):
    def decode(self, x: torch.Tensor):
        return x.cpu()

    def other(self, x: torch.Tensor):
        return x.tolist()


"""


@pytest.mark.parametrize(
    ("host", "rules"),
    [
        (
            "def run(m):\n    return torch.compile(m.other, backend='npugraph_ex')\n",
            ["host-sync-tolist"],
        ),
        (
            "def build(f):\n    return torch.compile(f)\n\n\nbuild(Model().other)\n",
            ["host-sync-tolist"],
        ),
        ("", ["host-sync-cpu"]),
        (
            "import torchair\n\nm = Model()\nm = torchair.inference.cache_compile(m.decode)\n",
            ["host-sync-cpu"],
        ),
    ],
)
def test_the_code_says_what_is_compiled(host, rules):
    assert text_findings(MODEL + host) == rules


def test_backend_of_the_code():
    """GE has no cummax, npugraph_ex no random numbers; the code says which it is."""
    text = MODEL.replace("x.cpu()", "torch.cummax(x + torch.rand_like(x), 0)")
    ge = (
        "import torchair\n\nbackend = torchair.get_npu_backend()\n"
        "f = torch.compile(Model().decode, backend=backend)\n"
    )
    graph = "f = torch.compile(Model().decode, backend='npugraph_ex')\n"
    assert text_findings(text + ge) == ["unsupported-converter"]
    assert text_findings(text + graph) == ["random-op"]
    assert sorted(text_findings(text)) == ["random-op", "unsupported-converter"]


def test_prefill_is_another_phase():
    text = MODEL.replace(
        "decode(self, x: torch.Tensor)", "decode(self, x: torch.Tensor, is_prefill=False)"
    ).replace("return x.cpu()", "if is_prefill:\n            return x.cpu()\n        return x")
    assert text_findings(text) == []
    assert text_findings(
        text.replace("def decode", "def prefill").replace("def other", "def unused")
        + "f = torch.compile(Model().prefill)\n"
    ) == ["host-sync-cpu"]


def test_configuration_of_recipes():
    for bad in (
        'exe_mode="ge_graph", enable_dynamic_graph=True',
        'exe_mode="ge_graph", enable_static_kernel=True',
        'exe_mode="eager", enable_cache_compile=True',
    ):
        assert text_findings(f"settings = dict({bad})\n") == ["option-pair"]
    assert (
        text_findings('settings = dict(exe_mode="npugraph_ex", enable_static_kernel=True)\n') == []
    )
    assert text_findings('settings = {"exe_mode": "graph"}\n') == ["unknown-option"]


@pytest.mark.parametrize(
    ("code", "rule"),
    [
        ("f = torchair.inference.cache_compile(torch.compile(Model().decode))", "cache-compile"),
        (
            "f = torch.npu.npugraph_ex.inference.cache_compile(Model().decode, ge_cache=True)",
            "cache-compile",
        ),
        ("torchair.inference.set_dim_gears(x, dim_gears={0: [1, 4]})", "option-pair"),
        ("torchair.inference.set_dim_gears(x, {0: list(range(2)), 1: [2, 4]})", None),
        ('f = torch.compile(Model().decode, backend="inductor"); import torch_npu', "option-pair"),
    ],
)
def test_configuration(code, rule):
    text = (
        "import torch\nimport torchair\n"
        + MODEL.replace("return x.cpu()", "return x * 2")
        + code
        + "\n"
    )
    assert text_findings(text) == ([rule] if rule else [])
