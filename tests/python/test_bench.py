"""The arithmetic of bench/run.py: medians, ratios within a round, failures kept apart."""

import importlib.util
import json
from xml.etree import ElementTree

import pytest
from conftest import ROOT


def load(name):
    spec = importlib.util.spec_from_file_location(f"bench_{name}", ROOT / "bench" / f"{name}.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="module")
def bench():
    return load("run")


def cell(engine, number, **values):
    base = {"engine_key": engine, "round": f"1.{number}", "model": "m", "precision": "bf16"}
    return base | {"threads": 2, "batch": 1, "context": 128, "peak_rss_mib": 300} | values


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
    assert "| peer | 1.0 | 20.0 | - | 0.50 (0.50 to 0.50) | - | - | 300 | 3 (0) |" in text


def test_the_own_peak_is_without_the_buffer_of_the_read_bandwidth(bench, tmp_path):
    own = cell("tokamak", 0, decode_median=1.0, peak_rss_bytes=100 * 2**20, first_token_s=0.25)
    path = tmp_path / "cells.jsonl"
    path.write_text(json.dumps(own | {"decode_bandwidth_share": 0.9}) + "\n")
    (row,) = bench.rows(bench.read_cells(path)[0])
    assert (row["peak_mib"], row["first_token_s"], row["read_share"]) == (100, 0.25, 0.9)


def test_plot_has_a_bar_for_each_engine_of_a_case(tmp_path):
    case = {"model": "a<b", "threads": 2, "batch": 1, "context": 128}
    rows = [
        case | {"engine": "tokamak", "decode_tok_s": 40.0, "prefill_tok_s": 300.0},
        case | {"engine": "peer", "decode_tok_s": 20.0, "decode_ratio": 2.0},
        case | {"engine": "peer", "batch": 8, "decode_tok_s": 90.0, "prefill_tok_s": 1.0},
    ]
    picture = ElementTree.fromstring(load("plot").draw(rows))
    text = [e.text for e in picture.iter("{http://www.w3.org/2000/svg}text")]
    bars = [e for e in picture.iter("{http://www.w3.org/2000/svg}rect")][1:]  # after the ground
    # The prefill beside a batch is the first case's over again, and is left out.
    assert len(bars) == 4 and sum("a<b" in t for t in text) == 3
    assert "20  (tokamak 2.00x)" in text
    widths = {e.get("width") for e in bars}
    assert float(bars[0].get("width")) == 2 * float(bars[1].get("width")) and len(widths) == 2
