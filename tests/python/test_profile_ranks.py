"""Collectives of several ranks: who came last, waiting apart from transfer (BD 16.4, PF-50)."""

import json

from test_profile import command, run  # noqa: F401  (a fixture)
from test_profile_structure import Writer


def entry(elapse, wait, transit, link):
    links = {"SDMA": {"Transit Size(MB)": 8, "Transit Time(ms)": link, "Bandwidth(GB/s)": 20}}
    return {
        "Communication Time Info": {
            "Elapse Time(ms)": elapse,
            "Wait Time(ms)": wait,
            "Transit Time(ms)": transit,
        },
        "Communication Bandwidth Info": links,
    }


def rank(folder, number, durations, alone=False, inside=None):
    """Collectives of group 111 with these us, between matrix multiplications."""
    w = Writer()
    w.step = 7
    for n, us in enumerate(durations):
        w.add("MatMulV2", "8,64;64,64")
        w.add("hcom_allReduce_", name=f"hcom_allReduce__111_{n}_1", ns=us * 1000)
        if alone:  # of a group whose other ranks were not collected
            w.add("hcom_allReduce_", name=f"hcom_allReduce__222_{n}_1", ns=90_000)
    output = folder / f"rank{number}_ascend_pt" / "ASCEND_PROFILER_OUTPUT"
    output.parent.mkdir(parents=True)
    w.write(output)
    if inside:
        names = {f"hcom_allReduce__111_{n}_1@42": e for n, e in enumerate(inside)}
        (output / "communication.json").write_text(
            json.dumps({"step7": {"p2p": {}, "collective": names}})
        )


def test_who_came_last(command, tmp_path):  # noqa: F811
    inside = [entry(0.030, 0.019, 0.011, 0.011), entry(0.010, 0.0, 0.0, 0.009)]
    rank(tmp_path / "p", 0, [30, 10, 12], alone=True, inside=inside)
    rank(tmp_path / "p", 1, [10, 40, 12])
    done = run(command, tmp_path / "p", "-o", tmp_path / "r", "--all", "--no-split")
    ranks = json.loads((tmp_path / "r" / "ranks.json").read_text())
    assert ranks["reason"] == ""
    names = [c["name"] for c in ranks["collectives"]]
    assert sorted(names) == [f"hcom_allReduce__111_{n}_1" for n in range(3)]
    first = ranks["collectives"][names.index("hcom_allReduce__111_0_1")]
    assert first["duration_us"] == [30, 10] and first["waiting_us"] == [20, 0]
    assert first["came_last"] == "1"
    assert ranks["waiting_us"] == [20, 30]
    # The links' transfer stands in for a sum of 0; rank 1 has no file.
    assert ranks["file_waiting_us"] == [19, None] and ranks["file_transfer_us"] == [20, None]
    assert "communication.json: 19.0 µs waiting, 20.0 µs transfer" in done.stdout


def test_unequal_numbers_are_not_compared(command, tmp_path):  # noqa: F811
    rank(tmp_path / "p", 0, [30, 10])
    rank(tmp_path / "p", 1, [10])
    run(command, tmp_path / "p", "-o", tmp_path / "r", "--all", "--no-split")
    ranks = json.loads((tmp_path / "r" / "ranks.json").read_text())
    assert not ranks["collectives"] and "hcom_allReduce_ of group 111" in ranks["reason"]
