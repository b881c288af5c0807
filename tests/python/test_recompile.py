"""The recompile predictor against the installed Dynamo, and npugraph_ex's graph keys."""

import random

import pytest
import tokamak
from tokamak.recompile import CaptureOptions, Tensor, predict

torch = pytest.importorskip("torch")


def used(value):
    """Uses an input as a function does that does not care for its size."""
    if isinstance(value, torch.Tensor):
        return (value * 2).sum()
    if isinstance(value, (list, tuple)):
        return sum(used(v) for v in value)
    if isinstance(value, dict):
        return sum(used(v) for v in value.values())
    if isinstance(value, bool):
        return 1 if value else 2
    return 0 if value is None else value


def real(value):
    """The torch input that a described one stands for."""
    if isinstance(value, Tensor):
        t = torch.ones(value.shape, dtype=getattr(torch, value.dtype))
        for dim in value.static:
            torch._dynamo.mark_static(t, dim)
        return t
    if isinstance(value, (list, tuple)):
        return type(value)(real(v) for v in value)
    return {k: real(v) for k, v in value.items()} if isinstance(value, dict) else value


def measured(steps, dynamic):
    """In which steps Dynamo compiles."""
    torch._dynamo.reset()
    compiled = []

    def backend(graph, inputs):
        compiled.append(step)
        return graph.forward

    def function(base, inputs):
        total = base * 1
        for value in inputs.values():
            total = total + used(value)
        return total

    run = torch.compile(function, backend=backend, dynamic=dynamic)
    base = torch.ones(())
    for step, inputs in enumerate(steps):  # noqa: B007  backend reads it
        run(base, {k: real(v) for k, v in inputs.items()})
    return compiled


def predicted(steps, dynamic):
    return [e.step for e in predict(steps, dynamic).compiles]


def lists(batches):
    """Growing lengths: a list that goes up by one each step."""
    return [
        {"x": Tensor((b, 8)), "lengths": [5 + i + j for j in range(b)]}
        for i, b in enumerate(batches)
    ]


def tensors(batches):
    return [{"x": Tensor((b, 8)), "lengths": Tensor((b,), "int64")} for b in batches]


# GM-22: the counts that were measured over five steps.
CASES = {
    "list, False": (lists([2] * 5), False, 5),
    "list, True": (lists([2] * 5), True, 1),
    "list, True, batch changed": (lists([2, 2, 3, 3, 3]), True, 2),
    "tensor, False": (tensors([2] * 5), False, 1),
    "tensor, False, batch changed": (tensors([2, 2, 3, 3, 3]), False, 2),
    "list, None": (lists([2] * 5), None, 2),
}


@pytest.mark.parametrize("name", CASES)
def test_measured_counts(name):
    steps, dynamic, count = CASES[name]
    assert len(predicted(steps, dynamic)) == count
    assert measured(steps, dynamic) == predicted(steps, dynamic)


def random_steps(rng):
    """Inputs of a random kind each, which change now and then."""

    def value(kind):
        if kind == "tensor":
            shape = [rng.choice([0, 1, 2, 3, 4, 8]) for _ in range(rng.choice([1, 2, 2, 3]))]
            return Tensor(shape, rng.choice(["float32", "float32", "int64"]))
        if kind == "static":
            return Tensor((rng.choice([2, 3, 4]), 4), static=True)
        if kind == "int":
            return rng.choice([0, 1, 2, 3, 7, 9])
        if kind == "float":
            return rng.choice([0.5, 1.0, 2.5])
        if kind == "bool":
            return rng.random() < 0.5
        if kind == "maybe":
            return None if rng.random() < 0.5 else rng.choice([2, 3])
        return [rng.choice([1, 4, 5, 6]) for _ in range(rng.choice([1, 2, 2]))]

    kinds = ["tensor", "tensor", "static", "int", "float", "bool", "maybe", "list"]
    names = {n: rng.choice(kinds) for n in "abcd"[: rng.randint(1, 4)]}
    change = rng.choice([0.1, 0.3, 0.6])
    inputs = {n: value(k) for n, k in names.items()}
    steps = []
    for _ in range(rng.randint(3, 7)):
        steps.append(dict(inputs))
        for n, k in names.items():
            if rng.random() < change:
                inputs[n] = value(k)
    return steps


SLOW = [pytest.param(b, marks=pytest.mark.slow) for b in range(2, 10)]


@pytest.mark.parametrize("block", [0, 1, *SLOW])
def test_random_sequences(block):
    """Twenty a block, 200 in all with the slow ones: the same steps compile."""
    rng = random.Random(4242 + block)
    for _ in range(20):
        steps, dynamic = random_steps(rng), rng.choice([None, True, False])
        assert predicted(steps, dynamic) == measured(steps, dynamic), (dynamic, steps)


def test_the_limit():
    """GM-23: eight for a code object, then eager for good."""
    steps = [{"n": n} for n in range(20)]
    result = predict(steps, dynamic=False)
    assert len(result.compiles) == 8 and result.eager_from == 8
    assert measured(steps, False) == list(range(8))


def test_reasons_name_the_input():
    """GM-25: guards are not skipped while more than one compilation is predicted. GM-60: one graph
    is decided before running."""
    result = predict(lists([2] * 3), dynamic=False)
    assert result.compiles[1].input == "lengths[0]"
    assert "lengths[0]: 5 became 6" in str(result)
    with pytest.raises(tokamak.Error) as error:
        result.require_one_graph()
    assert error.value.code == "TK1107" and "lengths[0]" in error.value.message
    assert not result.may_skip_guards()
    predict(tensors([2] * 3), dynamic=False).require_one_graph()


# -- GM-30, GM-31: graph keys of npugraph_ex


def decode(steps, batches=(4,), cache=7):
    return [
        {
            "x": Tensor((b, 64)),
            "cache": Tensor((64, 8), address=cache),
            "lengths": [10 + s + i for i in range(b)],
        }
        for b in batches
        for s in range(steps)
    ]


def captures(steps, **options):
    options = CaptureOptions(**{"updatable": ["lengths"], "mutated": ["cache"], **options})
    return predict(steps, dynamic=True, capture=options)


def test_growing_lengths_do_not_capture_again():
    assert len(captures(decode(32)).captures) == 1


def test_two_batches_are_two_graphs():
    assert len(captures(decode(32, (4, 8))).captures) == 2


def test_a_length_used_elsewhere_is_part_of_the_key():
    result = captures(decode(5), updatable=[])
    assert len(result.captures) == 5
    assert "lengths[0]=11" in result.captures[1].reasons[0]


def test_a_moved_cache_captures_again():
    result = captures(decode(3) + decode(3, cache=8))
    assert [e.step for e in result.captures] == [0, 3]
    assert result.captures[1].reasons == ["the address of cache changed"]


def test_parameters_move_unless_frozen():
    steps = [{"w": Tensor((4, 4), parameter=True, address=a)} for a in (1, 1, 2)]
    assert len(captures(steps).captures) == 2
    assert len(captures(steps, frozen_parameter=True).captures) == 1


def test_core_limits_and_forced_captures():
    assert len(captures(decode(4), core_limits=[24, 24, 12, 12]).captures) == 2
    assert len(captures(decode(4), force_recapture=True).captures) == 4


def test_the_capture_limit():
    result = captures(decode(10), updatable=[], capture_limit=3)
    assert len(result.captures) == 3 and result.capture_eager_from == 3


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: CaptureOptions(capture_limit=0),
        lambda: CaptureOptions(capture_limit=-1),
        lambda: Tensor((2, -1)),
        lambda: Tensor((2,), static=[3]),
        lambda: predict([{"x": object()}]),
        lambda: predict([], dynamic="yes"),
    ],
)
def test_bad_input_is_refused(wrong):
    with pytest.raises(tokamak.Error) as error:
        wrong()
    assert error.value.code == "TK1106"
