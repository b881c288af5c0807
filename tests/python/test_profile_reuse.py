"""What a person changed in a results' folder serves the next profile (BD-20..23, BD-62), and
questions.md (BD-55)."""

import json

import pytest
from test_profile import command, run  # noqa: F401  (a fixture)
from test_profile_structure import Writer, norm


def model(w, layers=20, extra=0, width=2048, kind="SwiGlu"):
    w.add("GatherV2", f"32000,{width};8")
    for _ in range(extra):
        w.add("Cast", "8")
    for layer in range(layers):
        norm(w, layer == 0, width)
        w.add("MatMulV2", f"8,{width};{3 * width},{width}")
        w.each("RotaryMul", "FusedInferAttentionScore", "MatMulV2")
        norm(w, False, width)
        w.each("MatMulV2", kind, "MatMulV2")
    norm(w, False, width)
    w.add("MatMulV2", f"8,{width};32000,{width}")


def profile(folder, **kwargs):
    w = Writer()
    model(w, **kwargs)
    w.write(folder)
    return folder


def breakdown(command, folder, out, *args, code=0):  # noqa: F811
    label = folder.name
    return run(
        command,
        folder,
        "-o",
        out,
        "--label",
        label,
        "--no-insights",
        "--no-split",
        *args,
        code=code,
    )


def rename_cluster(out, label, to):
    """A person's edit: a cluster of the MLP gets another name."""
    path = out / f"{label}_spec.json"
    rules = json.loads(path.read_text())
    rules["component_clusters"]["dense_mlp"][0]["cluster"] = to
    path.write_text(json.dumps(rules, indent=1))


def clusters(out, label):
    metrics = json.loads((out / "runs" / label / "metrics.json").read_text())
    section = next(s for s in metrics["sections"] if s["component_type"] == "dense_mlp")
    return [i["name"] for i in section["sub_items"]]


@pytest.mark.parametrize(
    ("change", "tier", "taken"),
    [
        ({}, "same profile", True),  # BD-23
        ({"extra": 5}, "small", True),  # BD-20
        ({"extra": 6}, "medium (new name Cast", True),  # a name of its own
        ({"layers": 22}, "medium", True),  # BD-21: anchors up to 10 % more
        ({"layers": 23}, "large", False),  # BD-22
        ({"width": 4096}, "medium (shapes of ", True),
        ({"kind": "Gelu", "layers": 9}, "large", False),
    ],
)
def test_tiers(command, tmp_path, change, tier, taken):  # noqa: F811
    first = {"extra": 1} if change.get("extra") == 5 else {}
    if first:
        change = {"extra": 6}  # five more of a kernel that was there
    out = tmp_path / "run"
    breakdown(command, profile(tmp_path / "a", **first), out)
    rename_cluster(out, "a", "mine")
    done = breakdown(command, profile(tmp_path / "b", **change), out)
    assert f"reuse: tier {tier}" in done.stdout
    assert ("mine" in clusters(out, "b")) == taken
    assert ("still matches" in done.stdout) != taken
    assert f"reuse: tier {tier.split(' (')[0]}" in (out / "HISTORY.md").read_text()


def test_nothing_changed_is_nothing_reused(command, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    breakdown(command, profile(tmp_path / "a"), out)
    assert "reuse" not in breakdown(command, profile(tmp_path / "b", extra=3), out).stdout


def test_the_option_overrides(command, tmp_path):  # noqa: F811
    out = tmp_path / "run"
    breakdown(command, profile(tmp_path / "a"), out)
    rename_cluster(out, "a", "mine")
    done = breakdown(command, profile(tmp_path / "b", layers=30), out, "--reuse", "spec")
    assert "--reuse spec overrides" in done.stdout
    assert "mine" in clusters(out, "b")
    done = breakdown(command, profile(tmp_path / "c"), out, "--reuse", "none")
    assert "mine" not in clusters(out, "c")


def test_samples_are_moved(command, tmp_path):  # noqa: F811
    """A person's block, without its last kernel, is found at its new place."""
    out = tmp_path / "run"
    breakdown(command, profile(tmp_path / "a", extra=1), out)
    path = out / "sample_ack.json"
    ack = json.loads(path.read_text())
    sample = ack["components"]["dense_mlp"]["stream_samples"][0]
    before = sample["op_indices"] = sample["op_indices"][:-1]
    sample["tail_op"] = "SwiGlu"
    path.write_text(json.dumps(ack))
    # The last kernels of 20 MLPs are then in no block: a gate, which is accepted.
    done = breakdown(command, profile(tmp_path / "b", extra=4), out, "--accept", "unmatched")
    assert "your structure is used" in done.stdout
    moved = json.loads(path.read_text())["components"]["dense_mlp"]["stream_samples"][0]
    assert moved["op_indices"] == [i + 3 for i in before]
    draft = json.loads((out / "structure_draft.json").read_text())
    assert {len(c["op_indices"]) for c in draft["components"] if c["type"] == "dense_mlp"} == {3}


def test_questions(command, tmp_path):  # noqa: F811
    out = tmp_path / "run"  # BD-55
    breakdown(command, profile(tmp_path / "a"), out, "--ask")
    text = (out / "questions.md").read_text()
    assert text.count("\n## ") == 5
    assert "main: 20 layers; self_attn + dense_mlp x 20" in text
    assert (
        "- self_attn : excel 93-97 head=AddRmsNorm@93 tail=MatMulV2@97, neighbours MatMulV2@92"
        in text
    )
    row = next(line for line in text.splitlines() if line.startswith("| FusedInferAttentionScore"))
    assert row == "| FusedInferAttentionScore | 20 | 1 | 1 | 0.000 |"
