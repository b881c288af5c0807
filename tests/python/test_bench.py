"""The arithmetic of bench/run.py: medians, ratios within a round, failures kept apart."""

import importlib.util
import json

import pytest
from conftest import ROOT


@pytest.fixture(scope="module")
def bench():
    spec = importlib.util.spec_from_file_location("bench_run", ROOT / "bench" / "run.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def cell(engine, number, **values):
    base = {"engine_key": engine, "round": f"1.{number}", "model": "m", "precision": "bf16"}
    return base | {"threads": 2, "batch": 1} | values


def test_ratios_are_taken_within_a_round(bench, tmp_path):
    records = [{"machine": {}}]
    # The machine is half as fast in the second round: the ratio does not notice.
    for number, speed in enumerate((10.0, 5.0, 20.0)):
        records.append(cell("tokamak", number, decode_median=speed, disturbed=number == 1))
        records.append(cell("peer", number, decode_median=speed * 2, prefill_median=1.0))
    records.append(cell("broken", 0, error="no such model"))
    path = tmp_path / "cells.jsonl"
    path.write_text("".join(json.dumps(r) + "\n" for r in records))
    rounds, failures = bench.read_cells(path)
    assert failures == ["broken m: no such model"]
    own, peer = sorted(bench.rows(rounds), key=lambda row: row["engine"] != "tokamak")
    assert own["decode_tok_s"] == 10 and own["disturbed"] == 1 and "decode_ratio" not in own
    assert peer["decode_tok_s"] == 20
    assert peer["decode_ratio"] == 0.5 and peer["decode_ratio_range"] == [0.5, 0.5]
    assert peer["prefill_tok_s"] == 1 and "prefill_ratio" not in peer
    text = bench.table([own, peer])
    assert "| peer | 1.0 | 20.0 | - | 0.50 (0.50 to 0.50) | 3 (0) |" in text
