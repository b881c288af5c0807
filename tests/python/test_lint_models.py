"""tokamak lint on real modelling code: transformers, and the recipes where they are at hand."""

import os
from pathlib import Path

import pytest
from tokamak.lint import lint

transformers = pytest.importorskip("transformers")
MODELS = Path(transformers.__file__).parent / "models"
FAMILIES = """llama mistral qwen2 qwen3 gemma3 phi3 mixtral qwen3_moe deepseek_v3 gpt_oss olmo2
gpt2 bert t5 whisper mamba jamba falcon bloom opt qwen2_vl glm4 cohere2 granite""".split()


def test_transformers_families():
    """No crash; bench/lint.py has the times."""
    rules = {}
    for family in FAMILIES:
        result = lint([MODELS / family / f"modeling_{family}.py"])
        assert result.entries, family
        rules[family] = {f.rule.id for f in result.findings}
    # Dense decoders have no hazard, experts looked up by a mask have.
    for family in ("llama", "mistral", "qwen2", "qwen3", "granite", "gpt2", "bert"):
        assert rules[family] == set(), family
    for family in ("mixtral", "qwen3_moe", "deepseek_v3"):
        assert {"data-dependent-shape", "loop-over-tensor"} <= rules[family], family


def test_recipes():
    """The modelling files of cann-recipes-infer (TOKAMAK_RECIPES): the alarms that are counted in
    docs/lint-false-alarms.md, and no others."""
    folder = os.environ.get("TOKAMAK_RECIPES")
    if not folder:
        pytest.skip("TOKAMAK_RECIPES is not set to a checkout of cann-recipes-infer")
    files = sorted(Path(folder).glob("models/*/models/modeling*.py"))
    findings = [f for path in files for f in lint([path]).findings]
    lines = sum(len(p.read_text().splitlines()) for p in files)
    assert lines > 40000
    assert len(findings) <= lines / 1000
