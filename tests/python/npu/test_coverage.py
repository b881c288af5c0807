"""Whether the random legal calls draw all that the operators' documents name: dtypes, layouts,
modes. documented.txt is what they name."""

import re

import calls
import documented
import limit_oracle as oracle
import pytest
import test_illegal

# Operators composed of halves, which are drawn (test_moe_exchange), and an exchange of processes
# between them, which test_exchange runs.
HALVES = ["_moe_combine_send", "_moe_dispatch_send"]


@pytest.fixture(scope="module")
def drawn(torch_npu):
    return calls.collected(torch_npu)[1]


@pytest.mark.parametrize("name", [*test_illegal.OPERATORS, *HALVES])
def test_all_that_is_documented_is_drawn(drawn, name):
    if name in documented.NOT_DRAWN:
        assert name not in drawn
        return
    assert not documented.missing(name, drawn)
    for exception in documented.NOT_DRAWN:
        if exception.startswith(name + " "):
            _, asked, value = exception.split()
            assert value not in drawn[name][asked], "it is drawn by now"


def test_every_operator_is_documented():
    """An operator without a line in documented.txt would be drawn in any dtype at all."""
    drawn = {*test_illegal.OPERATORS, *HALVES} - set(documented.NOT_DRAWN)
    assert drawn == set(documented.values())
    asked = {
        f"{name} {argument} {value}"
        for name, arguments in documented.values().items()
        for argument, allowed in arguments.items()
        for value in allowed
    }
    assert {k for k in documented.NOT_DRAWN if " " in k} <= asked


def test_dtypes_of_limits_are_documented(torch_npu):
    """The first dtypes that a limit allows an argument are those of documented.txt."""
    from tokamak.npu import library

    for name, operator in library.operators().items():
        for limit in (operator.facts or {}).get("limits", ()):
            allowed = re.match(r"(\w+)\.dtype in \(([\w, ]+)\)", limit["expr"])
            if allowed and allowed[1] in documented.values().get(name, {}):
                dtypes = {d for d in allowed[2].split(", ") if d in oracle.DTYPES}
                stated = documented.values()[name][allowed[1]]
                assert dtypes <= stated, (limit, stated)
