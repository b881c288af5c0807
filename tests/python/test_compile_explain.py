"""tokamak.explain: breaks, recompilations and fallbacks with their lines."""

from pathlib import Path

import tokamak
import torch
from test_compile import Mixed, Mlp, fresh  # noqa: F401 (a fixture)
from torch import nn

SOURCE = Path(__file__).read_text().splitlines()


class Breaks(nn.Module):
    def __init__(self):
        super().__init__()
        self.mixed = Mixed()

    def forward(self, x):
        if x.sum() > 1e9:
            x = x * 2
        return self.mixed(x)


def test_explain_names_the_lines():
    calls = [torch.randn(n, 5, 64) for n in (8, 9)]
    found = tokamak.explain(Breaks().eval(), calls)
    line = int(found.breaks[0].place.rpartition(":")[2])
    assert "if x.sum() > 1e9" in SOURCE[line - 1]
    assert found.recompiles[0].input == "x"
    assert {r.op for r in found.fallbacks} == {"aten.convolution"}
    text = str(found)
    for part in (
        "graph breaks: 2",
        "recompilations: ",
        "expected 8, actual 9",
        "run by PyTorch: 2",
    ):
        assert part in text
    assert tokamak.explain(Mlp().eval(), calls[0][..., :32]).fallbacks == []
