"""The rows of the breakdown specification that one small profile shows: numbers, gates, rules, the
page and the insights. What is expected is counted here, not by Tokamak."""

import json
import re
import statistics

import pytest
from test_profile import command, run  # noqa: F401  (a fixture)
from test_profile_structure import Writer, norm

LAYERS = 8
SLOW, EXTRA = 5, 3  # a layer with a slow attention kernel, one with a kernel more


def model(w):
    w.add("GatherV2", "32000,2048;8")
    for layer in range(LAYERS):
        norm(w, layer == 0)
        w.add("MatMulV2", "8,2048;6144,2048", ns=20_000)
        w.each("Slice", "Slice", "RotaryMul", "Transpose", "Cast", "ScatterPaKvCache")
        w.add("FusedInferAttentionScore", "8,16,128", ns=60_000 if layer == SLOW else 30_000)
        w.add("MatMulV2", "8,2048;2048,2048", ns=10_000)
        norm(w, False)
        w.add("MatMulV2", "8,2048;16384,2048", ns=40_000)
        w.add("SwiGlu", "8,16384")
        if layer == EXTRA:
            w.add("SwiGlu", "8,16384")
        w.add("MatMulV2", "8,8192;2048,8192", ns=20_000)
    norm(w, False)
    w.add("MatMulV2", "8,2048;32000,2048", ns=50_000)
    w.add("ArgMaxV2", "8,32000")


@pytest.fixture(scope="module")
def result(command, tmp_path_factory):  # noqa: F811
    folder = tmp_path_factory.mktemp("rows")
    w = Writer()
    for step in range(5):
        w.step = step
        model(w)
        w.time += 900_000 if step == 0 else 300_000
    w.write(folder / "prof_decode")
    out = folder / "run"
    run(command, folder / "prof_decode", "-o", out, "--label", "a")
    return folder / "prof_decode", out


def metrics(result):
    return json.loads((result[1] / "runs" / "a" / "metrics.json").read_text())


def section(result, kind):
    return next(s for s in metrics(result)["sections"] if s["component_type"] == kind)


def item(result, kind, name):
    return next(i for i in section(result, kind)["sub_items"] if i["name"] == name)


def insights(result, name):
    return json.loads((result[1] / "runs" / "a" / "insights" / f"{name}.json").read_text())


def page(result):
    return (result[1] / "runs" / "a" / "index.html").read_text()


def test_choices_and_their_origin(result):  # BD-03, BD-05, BD-17
    inputs = json.loads((result[1] / "inputs.json").read_text())
    assert inputs["phase"] == "decode" and inputs["origin"]["phase"] == "auto:folder_name"
    assert inputs["step"] == "4" and inputs["origin"]["step"] == "auto:nearest_median"
    assert inputs["model_script_paths"] == []
    assert inputs["origin"]["structure"].startswith("auto:")


def test_unequal_steps_are_told(command, tmp_path):  # noqa: F811  BD-18
    w = Writer()
    for step in range(3):
        w.step = step
        model(w)
        if step == 0:
            w.add("Cast", "8")
    w.write(tmp_path / "p")
    done = run(command, tmp_path / "p", "-o", tmp_path / "r", "--no-split")
    assert "2 groups of steps with different kernels" in done.stderr and "Cast 8 / 9" in done.stderr
    strict = run(command, tmp_path / "p", "-o", tmp_path / "s", "--strict-steps", code=2)
    assert "TK0912" in strict.stderr


def test_raw_ops(result):  # BD-19
    raw = json.loads((result[1] / "raw_ops.json").read_text())
    assert raw["kernel_count"] == len(raw["operators"]) == 4 + 14 * LAYERS + 1
    details = json.loads((result[1] / "raw_ops_details.json").read_text())
    first = details["operators"][0]
    assert first["block_num"] == 1 and first["duration_us_raw"] == "5.000"
    assert details["csv_columns"][1] == "Name"


def test_series_outliers_and_anomalies(result):  # BD-73 to BD-78
    attention = item(result, "self_attn", "attention")
    walls = [0.06 if layer == SLOW else 0.03 for layer in range(LAYERS)]
    assert attention["per_instance_ms"] == walls
    assert attention["metric"]["mean_ms"] == pytest.approx(statistics.mean(walls))
    assert attention["metric"]["std_ms"] == pytest.approx(statistics.pstdev(walls))
    assert attention["outlier_idx"] == [SLOW]
    (slow,) = attention["kernel_outliers"]
    assert slow["layer_idx"] == SLOW and slow["baseline_median_us"] == 30
    (extra,) = item(result, "dense_mlp", "activation")["kernel_count_anomalies"]
    assert (extra["layer_idx"], extra["op_name"]) == (EXTRA, "SwiGlu")
    records = item(result, "dense_mlp", "activation")["op_records"]
    assert len(records) == LAYERS + 1
    assert [r["occurrence"] for r in records if r["layer_idx"] == EXTRA] == [0, 1]
    s = section(result, "self_attn")
    whole = sum(i["metric"]["median_ms"] for i in s["sub_items"] if i["kind"] == "cluster")
    assert s["cluster_sum_pct_of_total"] == pytest.approx(
        100 * whole / s["total"]["metric"]["median_ms"]
    )


def test_rules_can_be_given(command, result, tmp_path):  # noqa: F811  BD-60, BD-61, BD-63, BD-66
    rules = json.loads((result[1] / "a_spec.json").read_text())
    assert [c["cluster"] for c in rules["component_clusters"]["dense_mlp"]] == [
        "norm",
        "gate_up proj",
        "activation",
        "down proj",
    ]
    rules["component_clusters"] = {
        "self_attn": [
            {"cluster": "core", "rules": [{"op_name_regex": "Attention"}]},
            {"cluster": "never", "rules": [{"op_name": "Nothing"}]},
        ]
    }
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules))
    run(command, result[0], "-o", tmp_path / "r", "--label", "a", "--rules", path, "--no-split")
    own = section((None, tmp_path / "r"), "self_attn")
    assert own["unruled_ops"]["MatMulV2"] == 2 * LAYERS
    assert own["idle_rules"] == ["never[0]"] or "never" in str(own["idle_rules"])
    other = section((None, tmp_path / "r"), "dense_mlp")
    assert [i["kind"] for i in other["sub_items"]] == ["bubble"]
    for bad, where in (
        ([{"cluster": "x", "rules": [{}]}], "component_clusters.self_attn[0].rules[0]"),
        ([{"cluster": "x", "rules": [{"op_name_regex": "("}]}], "self_attn[0].rules[0]"),
        ([{"cluster": "x", "rules": [{"colour": "red"}]}], "self_attn[0].rules[0]"),
        ([{"cluster": "x", "rules": []}], "self_attn[0]"),
    ):
        rules["component_clusters"] = {"self_attn": bad}
        path.write_text(json.dumps(rules))
        done = run(command, result[0], "-o", tmp_path / "s", "--rules", path, code=2)
        assert "TK0913" in done.stderr and where in done.stderr


def test_gates(command, result, tmp_path):  # noqa: F811  BD-41, BD-80, BD-81
    spec = json.loads((result[1] / "structure_spec.json").read_text())
    ack = json.loads((result[1] / "sample_ack.json").read_text())
    spec["phases"][0]["layers"] = LAYERS + 1
    spec["phases"][0]["layer_compositions"][0]["layer_range"] = [0, LAYERS]
    (tmp_path / "spec.json").write_text(json.dumps(spec))
    (tmp_path / "ack.json").write_text(json.dumps(ack))
    args = ("--structure", tmp_path / "spec.json", "--samples", tmp_path / "ack.json", "--no-split")
    done = run(command, result[0], "-o", tmp_path / "r", "--label", "a", *args, code=1)
    assert f"composition_mismatch: phase main layer {LAYERS}: no self_attn left" in done.stderr
    assert not (tmp_path / "r" / "runs" / "a" / "index.html").exists()
    assert (tmp_path / "r" / "structure_draft.json").exists()
    limit = ("--unmatched-limit", "0")
    done = run(
        command,
        result[0],
        "-o",
        tmp_path / "s",
        *args,
        *limit,
        "--accept",
        "composition_mismatch",
        code=1,
    )
    assert re.search(r"\d+ of 117 compute kernels \([\d.]+ %\) are in no component", done.stderr)
    accepted = ("--accept", "composition_mismatch,unmatched")
    run(command, result[0], "-o", tmp_path / "t", *args, *limit, *accepted)


def test_an_old_draft_is_refused(command, result, tmp_path):  # noqa: F811  BD-30, BD-32, BD-42
    (tmp_path / "spec.json").write_text('{"mode": "row_order"}')
    args = ("--structure", tmp_path / "spec.json", "--samples", result[1] / "sample_ack.json")
    assert "TK0914" in run(command, result[0], "-o", tmp_path / "r", *args, code=2).stderr


def test_the_page_shows_it(result):  # BD-100 to BD-107
    text = page(result)
    head = text[: text.index("id=timeline")] if "id=timeline" in text else text
    for word in ("measured", "decode", "iqr 1.5", "auto:nearest_median"):
        assert word in head
    for word in ("union of the kernels' intervals", "TOTAL less that union", "last end less first"):
        assert word in text
    assert text.index('id="type-self_attn"') < text.index('id="type-dense_mlp"')
    table = text[text.index('id="type-self_attn"') : text.index('id="type-dense_mlp"')]
    assert f"{LAYERS} instances" in table and "<th>theory</th>" in table
    slow = re.search(r'class="chip slow t3"[^>]*>.*?</summary>', table)
    assert f"#{SLOW}" in slow[0] and "vs median 30.0 µs (+100%)" in slow[0]
    assert "1 extra" in text[text.index('id="type-dense_mlp"') :]
    assert "&mdash;" in table  # attention has no theory
    assert table.index("bubble") < table.index(">TOTAL<")


def test_insights(result):  # BD-109, BD-130 to BD-139
    bubble = insights(result, "module_bubble")
    assert bubble["schema_version"] == "insight.module_bubble.v1"
    assert {b["component_type"] for b in bubble["persistent_module_bubbles"]} == {
        "self_attn",
        "dense_mlp",
    }
    jitter = insights(result, "operator_jitter")
    (cluster,) = [c for c in jitter["cluster_jitter"] if "attention" in json.dumps(c)][:1]
    assert cluster["agent_review"]["origin"].startswith("rule:")
    assert cluster["agent_review"]["confidence"] == "high"
    assert "theoretical_deviation.v1" in insights(result, "theoretical_deviation")["schema_version"]
    (run_of,) = insights(result, "vector_sequence_candidates")["vector_sequence_candidates"][:1]
    assert "Slice x2 -> RotaryMul -> Transpose -> Cast" in json.dumps(run_of)
    moves = json.dumps(insights(result, "data_movement_ops")["data_movement_ops"])
    assert "transpose" in moves and "slice" in moves
    stub = json.loads((result[1] / "runs" / "a" / "insights" / "_review_stub.json").read_text())
    assert f"cluster_jitter:self_attn:attention:main:{SLOW}" in stub
    assert "persistent:self_attn" in stub
    text = (result[1] / "runs" / "a" / "insights" / "final_conclusions.md").read_text()
    assert text.count("\n## Top5: ") == 8
    tabs = (result[1] / "runs" / "a" / "insights" / "index.html").read_text()
    for name in ("Module Bubble", "Operator Jitter", "Theoretical Deviation", "Vector Sequences"):
        assert name in tabs
    shown = insights(result, "main_report_insights")["items"]
    assert {i["confidence"] for i in shown} <= {"high", "medium"}
    assert any(i["target"]["sub_item"] == "attention" for i in shown)


def test_an_unknown_annotation_is_told(command, result, tmp_path):  # noqa: F811  BD-135
    path = tmp_path / "a.json"
    path.write_text('{"persistent:self_atn": {"summary": "x", "confidence": "high"}}')
    done = run(command, result[0], "-o", tmp_path / "r", "--annotations", path, "--no-split")
    assert "persistent:self_atn" in done.stderr and "persistent:self_attn" in done.stderr


def test_a_cut_down_run_keeps_its_count(result):  # BD-54
    spec = json.loads((result[1] / "structure_spec.json").read_text())
    assert spec["expected_layer_count"] == LAYERS


def test_shares_of_a_step_add_up(result):  # PF-53
    overview = json.loads((result[1] / "runs" / "a" / "overview.json").read_text())
    for step in overview["steps"]:
        parts = ("computing_us", "communication_not_overlapped_us", "free_us")
        assert sum(step[p] for p in parts) == pytest.approx(step["stage_us"], abs=1e-3)


def test_a_stream_that_runs_away_is_listed(command, tmp_path):  # noqa: F811  BD-79
    w = Writer()
    for layer in range(7):
        if layer < 6:
            norm(w, layer == 0)
            w.each("MatMulV2", "FusedInferAttentionScore", "MatMulV2")
            norm(w, False)
            w.each("MatMulV2", "SwiGlu", "MatMulV2")
        if layer > 0:  # of the layer before
            w.add("PrefetchWeights", "64,64", stream=9)
    w.write(tmp_path / "p")
    run(command, tmp_path / "p", "-o", tmp_path / "r", "--label", "a")
    (away,) = (
        section((None, tmp_path / "r"), "self_attn")["displaced"]
        or section((None, tmp_path / "r"), "dense_mlp")["displaced"]
    )
    assert away["stream_id"] == "9" and away["op_count"] == 6
    text = page((None, tmp_path / "r"))
    assert "Stream 9 runs away from this block: 6 kernels, median wall 5.0 µs" in text


def test_a_large_hole_is_told(command, tmp_path):  # noqa: F811  BD-42
    w = Writer()
    for layer in range(6):
        norm(w, layer == 0)
        w.each("MatMulV2", "FusedInferAttentionScore", "MatMulV2")
        norm(w, False)
        w.each("MatMulV2", "SwiGlu", "MatMulV2")
    norm(w, False)
    w.each("MatMulV2", "ArgMaxV2", *["Cast"] * 31)
    norm(w, True)
    w.each("MatMulV2", "FusedInferAttentionScore", "MatMulV2")
    norm(w, False)
    w.each("MatMulV2", "SwiGlu", "MatMulV2")
    norm(w, False)
    w.write(tmp_path / "p")
    done = run(command, tmp_path / "p", "-o", tmp_path / "r", "--no-split")
    assert "large_unmatched_region: stream 2: 34 kernels in a row are in no block" in done.stderr
