"""torch.compile(backend="tokamak"): the numbers of eager, caches in place, fallbacks."""

import copy
import threading
from pathlib import Path

import families
import pytest
import tokamak
import torch
from tokamak.backend import report
from tokamak.backend.library import EngineError
from tokamak.errors import Error
from torch import nn
from torch.nn import functional as F
from transformers import AutoModelForCausalLM, LlamaConfig, LlamaForCausalLM, StaticCache
from transformers.generation import CompileConfig

SOURCE = Path(__file__).read_text().splitlines()
CONFIG = dict(
    hidden_size=64,
    intermediate_size=128,
    num_hidden_layers=2,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=100,
    max_position_embeddings=64,
    pad_token_id=0,
)


@pytest.fixture(autouse=True)
def fresh():
    tokamak.register_backend()
    torch._dynamo.reset()
    report.clear()
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch.set_num_threads(threads)
    torch._dynamo.reset()


def compiled(f, **options):
    return torch.compile(f, backend="tokamak", options=options or None)


def llama(dtype=torch.float32, **changes):
    torch.manual_seed(0)
    return LlamaForCausalLM(LlamaConfig(**CONFIG | changes)).to(dtype).eval()


def decode(step, model, ids, n, cache=None):
    """Greedy tokens and logits of a plain loop with a static cache."""
    cache = cache or StaticCache(config=model.config, max_cache_len=48)
    tokens, logits = [], []
    for _ in range(n):
        logits.append(step(input_ids=ids, past_key_values=cache).logits[:, -1].clone())
        ids = logits[-1].argmax(-1, keepdim=True)
        tokens.append(ids)
    return torch.cat(tokens, 1), torch.stack(logits)


def step_by_step(step, model, ids, tokens):
    """Logits where the tokens are given, so that each step is compared by itself."""
    cache = StaticCache(config=model.config, max_cache_len=48)
    logits = []
    for i in range(tokens.shape[1]):
        logits.append(step(input_ids=ids, past_key_values=cache).logits[:, -1].float())
        ids = torch.tensor(tokens[:, i].tolist())[:, None]  # of an argmax's strides
    return torch.stack(logits)


def assert_same_choices(got, eager, exact):
    """The greedy tokens are those of the f32 model wherever they are no matter of rounding.

    Logits of random weights lie close together, and bf16 steps by 2^-9 at their size: eager itself
    has exact ties, and takes the token that f32 does not. Which one wins is decided by rounding
    where f32's two best are nearer than both together can be moved: by twice the error that eager
    in bf16 makes against f32. The error allowed to the engine is eager's own, by half more."""
    rounding = (eager - exact).abs().max()
    assert (got - exact).abs().max() <= 1.5 * rounding
    best = exact.topk(2, -1).values
    clear = best[..., 0] - best[..., 1] > 2 * rounding
    assert clear.float().mean() > 0.7  # else nothing is compared
    assert torch.equal(got.argmax(-1)[clear], exact.argmax(-1)[clear])


def whole():
    return all(g.whole for g in report.graphs) and report.graphs != []


# -- plain modules


class Mlp(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.LayerNorm(32)
        self.up, self.down = nn.Linear(32, 64), nn.Linear(64, 32)

    def forward(self, x):
        return x + self.down(F.gelu(self.up(self.norm(x))))


@pytest.mark.parametrize("dynamic", [False, True, None])
def test_a_module_with_growing_sizes(dynamic):
    model = Mlp().eval()
    f = torch.compile(model, backend="tokamak", dynamic=dynamic)
    for shape in [(2, 3, 32), (2, 5, 32), (4, 7, 32), (1, 1, 32)]:
        x = torch.randn(shape)
        torch.testing.assert_close(f(x), model(x))
    assert whole()


def test_dynamic_compiles_once_for_all_sizes():
    model = Mlp().eval()
    f = torch.compile(model, backend="tokamak", dynamic=True)
    for n in range(2, 12):
        x = torch.randn(n, n + 1, 32)
        torch.testing.assert_close(f(x), model(x))
    assert len(report.graphs) == 1 and whole()


def test_inputs_of_any_strides_and_results_of_eager_strides():
    def f(x, y):
        return (x.transpose(0, 1) * 2).contiguous().transpose(0, 1), x @ y, y

    x, y = torch.randn(4, 6).t()[1:5], torch.randn(8, 4)[::2].t()
    got, want = compiled(f)(x, y), f(x, y)
    for a, b in zip(got, want, strict=True):
        torch.testing.assert_close(a, b)
        assert a.stride() == b.stride()
    assert got[2] is y


FUNCTIONS = {
    "softmax": lambda x: torch.softmax(x * 2, -1).sum(-1),
    "split": lambda x: torch.cat(x.split(3, dim=1), 0).relu(),
    "where": lambda x: torch.where(x > 0, x, x.abs() + 1).amax(-1, keepdim=True),
    "index": lambda x: x[:, torch.tensor([0, 2, 1])] + 1,
    "int": lambda x: (x * 10).to(torch.int64) + 3,
    "topk": lambda x: torch.topk(x, 2, dim=-1),
    "number": lambda x: x * x.shape[0] + 0.5,
    "nothing": lambda x: None,
    "empty": lambda x: x[:0] * 2,
    "scalar": lambda x: x.mean() * 3,
    "copies": lambda x: (x.clone(), x.t(), x[1:]),
    "bf16": lambda x: (x.bfloat16() @ x.bfloat16().t()).float(),
}


@pytest.mark.parametrize("name", FUNCTIONS)
def test_functions(name):
    f, x = FUNCTIONS[name], torch.randn(6, 6)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_gradients_are_left_to_pytorch():
    model = Mlp()
    f = compiled(model)
    x = torch.randn(2, 3, 32)
    with torch.enable_grad():
        f(x).sum().backward()
    grad = model.up.weight.grad.clone()
    model.zero_grad()
    with torch.enable_grad():
        model(x).sum().backward()
    torch.testing.assert_close(grad, model.up.weight.grad)
    assert "gradients" in str(report.graphs[0].fallbacks[0])


# -- weights


def test_changed_weights_are_seen():
    model = Mlp().eval()
    f = compiled(model)
    x = torch.randn(2, 3, 32)
    f(x)
    model.up.weight.mul_(2)
    torch.testing.assert_close(f(x), model(x))
    model.down.weight.data = torch.randn(32, 64)
    torch.testing.assert_close(f(x), model(x))
    model.norm.weight = nn.Parameter(torch.randn(32))
    torch.testing.assert_close(f(x), model(x))
    assert len(report.graphs) == 1 and report.graphs[0].parts[0].builds == 4


def test_weights_of_inference_mode_that_change():
    with torch.inference_mode():
        model = Mlp().eval()
        f = compiled(model)
        x = torch.randn(2, 3, 32)
        f(x)
        model.up.weight.mul_(2)  # counts no version
        torch.testing.assert_close(f(x), model(x))
    assert whole()


def test_graphs_of_a_model_share_what_is_computed_from_weights():
    model, other = llama(), llama(rope_theta=500.0)
    ids = torch.randint(1, 100, (1, 5))
    decode(compiled(model), model, ids, 3)
    parts = [p for g in report.graphs for p in g.parts]
    pool = parts[0].pool
    assert len(parts) == 2 and pool is parts[1].pool
    for turn in range(2):  # another model, through the same graphs
        got, want = decode(compiled(other), other, ids, 3), decode(other, other, ids, 3)
        torch.testing.assert_close(got, want)
        assert parts[0].pool is parts[1].pool is not pool
        decode(compiled(model), model, ids, 3)
        assert parts[0].pool is parts[1].pool is pool
        assert turn == 0 or [p.builds for p in parts] == [2, 2]
    assert len(report.graphs) == 2


# -- memory that is changed in place


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("count", torch.zeros(3))
        self.register_buffer("rows", torch.zeros(4, 3))

    def forward(self, x):
        before = self.count.clone()
        self.count += x
        self.rows[1:3] = self.count * 2
        return before, self.rows.sum()


def test_what_is_returned_of_a_buffer_is_its_old_value():
    ours, theirs = Counter(), Counter()
    f = compiled(ours)
    for i in range(4):
        x = torch.full((3,), float(i))
        torch.testing.assert_close(f(x), theirs(x))
        torch.testing.assert_close(ours.rows, theirs.rows)
    assert whole()


def test_an_argument_is_changed_in_place():
    def f(x, y):
        x.mul_(2)
        y.copy_(x.t())
        return x + y

    a, b = torch.randn(3, 3), torch.randn(3, 3)
    a2, b2 = a.clone(), b.clone()
    torch.testing.assert_close(compiled(f)(a, b), f(a2, b2))
    torch.testing.assert_close(a, a2)
    torch.testing.assert_close(b, b2)


def test_a_buffer_becomes_a_view_of_itself():
    def f(x):
        x.copy_(x.t().clone())
        return x * 1

    a = torch.randn(4, 4)
    b = a.clone()
    torch.testing.assert_close(compiled(f)(a), f(b))
    torch.testing.assert_close(a, b)


def test_places_counted_from_the_end():
    def f(cache, at, x):
        cache[:, at] = x
        cache[:, at - 1] = x * 2
        return cache.sum()

    g = compiled(f)
    a = torch.randn(2, 6, 3)
    b = a.clone()
    for at in (-1, 2, -5):
        at, x = torch.tensor([at]), torch.randn(2, 1, 3)
        torch.testing.assert_close(g(a, at, x), f(b, at, x))
        assert torch.equal(a, b)
    for at in (6, -7):
        with pytest.raises(EngineError, match="TK0501"):
            g(a, torch.tensor([at]), x)


def test_complex_numbers():
    def f(x):
        return (x * x).abs() + x.real * 3 + x.imag

    x = torch.randn(4, 4, dtype=torch.complex64)
    torch.testing.assert_close(compiled(f)(x), f(x))


def test_a_write_outside_the_cache_is_an_error():
    class Cache(nn.Module):
        def __init__(self):
            super().__init__()
            self.register_buffer("keys", torch.zeros(1, 2, 8, 4))

        def forward(self, at, x):
            self.keys.index_copy_(2, at, x)
            return self.keys * 1

    f = compiled(Cache())
    x = torch.randn(1, 2, 1, 4)
    assert torch.equal(f(torch.tensor([7]), x)[0, :, 7], x[0, :, 0])
    with pytest.raises(EngineError, match=r"TK0501.*index 8 is outside the cache of 8 places"):
        f(torch.tensor([8]), x)


# -- language models


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
def test_a_loop_with_a_static_cache(dtype, batch):
    model = llama(dtype)
    f = compiled(model)
    ids = torch.randint(1, 100, (batch, 5))
    tokens, logits = decode(model, model, ids, 12)
    got, got_logits = decode(f, model, ids, 12)
    assert whole() and len(report.graphs) == 2  # the prompt and a token
    assert report.graphs[1].in_place == 2 * CONFIG["num_hidden_layers"]
    decode(f, model, ids, 12)  # another cache
    assert len(report.graphs) == 2
    assert [g.parts[0].builds for g in report.graphs] == [1, 1]
    if dtype == torch.float32:
        assert torch.equal(got, tokens)
        torch.testing.assert_close(got_logits, logits, atol=1e-5, rtol=0)
    else:
        exact = copy.deepcopy(model).float()
        assert_same_choices(
            step_by_step(f, model, ids, tokens),
            step_by_step(model, model, ids, tokens),
            step_by_step(exact, exact, ids, tokens),
        )


def test_gm_22_a_second_batch_compiles_once_more_and_a_third_not():
    model = llama()
    f = compiled(model)
    graphs = []
    for batch in (1, 3, 2):
        ids = torch.randint(1, 100, (batch, 5))
        found = []
        for step in (model, f):
            cache = StaticCache(config=model.config, max_cache_len=48)
            first = model(input_ids=ids, past_key_values=cache).logits[:, -1:].argmax(-1)
            found.append(decode(step, model, first, 8, cache))
        assert torch.equal(found[1][0], found[0][0])
        torch.testing.assert_close(found[1][1], found[0][1], atol=1e-5, rtol=0)
        graphs.append(len(report.graphs))
    assert whole()
    assert graphs == [1, 2, 2]  # one token, then one of each sequence of a batch of any size
    assert all(g.in_place == 2 * CONFIG["num_hidden_layers"] for g in report.graphs)


def test_generate_with_a_static_cache():
    model = llama()
    ids = torch.randint(1, 100, (1, 5))
    options = dict(max_new_tokens=10, do_sample=False, cache_implementation="static")
    want = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    model.forward = compiled(model.forward)
    for _ in range(2):
        got = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
        assert torch.equal(got, want)
    assert whole() and len(report.graphs) == 2


def test_generate_pads_a_batch():
    model = llama()
    ids = torch.randint(1, 100, (2, 6))
    mask = torch.ones_like(ids)
    ids[0, :3] = mask[0, :3] = 0
    options = dict(max_new_tokens=8, do_sample=False, cache_implementation="static")
    want = model.generate(ids, attention_mask=mask, **options)
    model.forward = compiled(model.forward)
    assert torch.equal(model.generate(ids, attention_mask=mask, **options), want)
    assert whole()


def test_generate_compiles_by_itself():
    model = llama()
    ids = torch.randint(1, 100, (1, 5))
    options = dict(max_new_tokens=6, do_sample=False, cache_implementation="static")
    want = model.generate(ids, attention_mask=torch.ones_like(ids), **options)
    config = CompileConfig(backend="tokamak", mode=None, fullgraph=True)
    config._compile_all_devices = True  # transformers compiles on accelerators only
    got = model.generate(ids, attention_mask=torch.ones_like(ids), compile_config=config, **options)
    assert torch.equal(got, want) and whole()


def generated_as_eager(model, ids):
    """Tokens of transformers' generate are those of eager, with no compilation after the first."""
    mask = torch.ones_like(ids)
    options = dict(max_new_tokens=8, do_sample=False, attention_mask=mask)
    options["cache_implementation"] = "static"
    want = model.generate(ids, **options)
    model.forward = compiled(model.forward)
    assert torch.equal(model.generate(ids, **options), want)
    n = len(report.graphs)
    assert torch.equal(model.generate(ids, **options), want)
    assert len(report.graphs) == n


SHARED = "llama-gqa qwen3 gemma3-text stories260k gpt-oss qwen3-moe glm4-moe deepseek-v3".split()


@pytest.mark.slow
@pytest.mark.parametrize("name", SHARED)
def test_shared_models(name, shared_models):
    model = AutoModelForCausalLM.from_pretrained(shared_models / name / "hf").eval()
    ids = torch.randint(3, model.config.vocab_size, (1, 6))
    tokens, logits = decode(model, model, ids, 8)
    got, got_logits = decode(compiled(model), model, ids, 8)
    assert torch.equal(got, tokens)
    torch.testing.assert_close(got_logits, logits, atol=1e-3, rtol=1e-3)
    torch._dynamo.reset()
    report.clear()
    generated_as_eager(model, ids)
    assert whole()


@pytest.mark.slow
@pytest.mark.parametrize("name", [*families.FAST, *families.SLOW])
def test_families(name):
    model = families.make(name).eval()
    generated_as_eager(model, torch.randint(3, 90, (1, 6)))


@pytest.mark.parametrize("mask", ["bool", "padding", "float", "causal", "none"])
def test_attention_with_masks(mask):
    def f(q, k, v, m):
        causal = mask == "causal"
        return F.scaled_dot_product_attention(q, k, v, attn_mask=m, is_causal=causal)

    q, k, v = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 9, 16), torch.randn(2, 4, 9, 16)
    triangle = torch.ones(5, 9, dtype=torch.bool).tril(4)
    m = {
        "bool": triangle,
        "padding": triangle & (torch.arange(9) >= torch.tensor([0, 3])[:, None])[:, None, None],
        "float": torch.randn(2, 4, 5, 9),
    }.get(mask)
    torch.testing.assert_close(compiled(f)(q, k, v, m), f(q, k, v, m))
    assert whole()


@pytest.mark.parametrize("masked", [False, True])
@pytest.mark.parametrize("scale", [0.0, -0.5])
def test_attention_with_a_scale_that_is_not_positive(scale, masked):
    def f(q, k, m):
        return F.scaled_dot_product_attention(q, k, k, attn_mask=m, scale=scale)

    q, k = torch.randn(2, 4, 5, 16), torch.randn(2, 4, 9, 16)
    m = torch.ones(5, 9, dtype=torch.bool).tril(4) if masked else None
    torch.testing.assert_close(compiled(f)(q, k, m), f(q, k, m))
    assert whole()


def test_two_python_threads():
    model = llama()
    f = compiled(model)
    prompts = [torch.randint(1, 100, (1, 5)) for _ in range(2)]
    want = [decode(model, model, p, 10)[0] for p in prompts]
    decode(f, model, prompts[0], 3)
    got = [None, None]

    def work(i):
        with torch.no_grad():
            got[i] = decode(f, model, prompts[i], 10)[0]

    threads = [threading.Thread(target=work, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    assert all(torch.equal(a, b) for a, b in zip(got, want, strict=True))


# -- fallbacks, options, explain


class Mixed(nn.Module):
    def __init__(self):
        super().__init__()
        self.a, self.conv = nn.Linear(64, 128), nn.Conv1d(5, 40, 3)

    def forward(self, x):
        y = self.a(x).relu() * 2 + 1
        return self.conv(y).exp().mul(3).add(1).sigmoid()


def test_pytorch_runs_what_the_engine_cannot():
    model, x = Mixed().eval(), torch.randn(8, 5, 64)
    torch.testing.assert_close(compiled(model)(x), model(x))
    graph = report.graphs[0]
    assert [r.op for r in graph.fallbacks] == ["aten.convolution"]
    assert len(graph.parts) == 2
    place = graph.fallbacks[0].place
    assert place.file == __file__
    assert "self.conv(y)" in SOURCE[place.line - 1]


def test_fallback_can_be_refused():
    with pytest.raises(Exception, match=r"TK1504[\s\S]*test_compile.py:\d+: aten.convolution"):
        compiled(Mixed().eval(), fallback=False)(torch.randn(8, 5, 64))


def test_options():
    model, x = Mlp().eval(), torch.randn(2, 3, 32)
    torch.testing.assert_close(compiled(model, threads=2, fuse=False)(x), model(x))
    part = report.graphs[0].parts[0]
    assert part.threads == 2 and "npu." not in part.graph_text()


@pytest.mark.parametrize(
    ("options", "says"),
    [
        (
            {"thread": 2},
            "TK1501.*'thread'[\\s\\S]*fallback, min_nodes, plan_cache[\\s\\S]*'threads'",
        ),
        ({"threads": "2"}, "TK1502.*a whole number from 0 to 1024, got '2'"),
        ({"threads": -1}, "TK1502.*got -1"),
        ({"fuse": 1}, "TK1502.*True or False, got 1"),
        ({"threads": 10**9}, "TK1502.*got 1000000000"),
        ({"plan_cache": 1}, "TK1502.*a text, got 1"),
        ({"plan_cache": "a\0b"}, "TK1502.*a text, got"),
    ],
)
def test_bad_options(options, says):
    with pytest.raises(Exception, match=says):
        compiled(Mlp().eval(), **options)(torch.randn(2, 3, 32))


def test_options_must_be_a_dict():
    with pytest.raises(Exception, match=r"TK1502.*must be a dict, got 'threads'"):
        torch.compile(Mlp().eval(), backend="tokamak", options="threads")(torch.randn(2, 3, 32))


def test_plans_are_kept_on_disk(tmp_path, caplog):
    """GM-38: found by what follows, made anew with a warning when damaged, and never shared with
    other weights."""
    folder = tmp_path / "plans"
    models = [Mlp().eval(), Mlp().eval()]
    x = torch.randn(2, 3, 32)

    def run():
        caplog.clear()
        for model in models:
            torch._dynamo.reset()
            torch.testing.assert_close(compiled(model, plan_cache=str(folder))(x), model(x))
        return "\n".join(r.getMessage() for r in caplog.records if r.name == "tokamak")

    assert run() == ""
    (plan,) = folder.iterdir()  # one graph; the second model has other weights
    made = plan.stat().st_mtime_ns
    assert run() == "" and plan.stat().st_mtime_ns == made
    plan.write_bytes(plan.read_bytes()[:-7])
    assert "made anew: it is cut short" in run() and plan.stat().st_mtime_ns != made
    plan.chmod(0o666)
    assert "refused: others may write to it" in run()
    folder.chmod(0o777)
    with pytest.raises(EngineError, match="TK1505"):
        run()


def test_prompts_padded_on_the_left():
    """The tokens of eager; that the paged kernel does it is in dense_attention_test.cpp."""
    model = llama()
    ids = torch.randint(1, 100, (3, 9))
    mask = torch.ones(3, 9, dtype=torch.long)
    mask[0, :4] = mask[2, :1] = 0
    options = dict(max_new_tokens=8, do_sample=False, attention_mask=mask)
    options["cache_implementation"] = "static"
    want = model.generate(ids, **options)
    model.forward = compiled(model.forward)
    assert torch.equal(model.generate(ids, **options), want) and whole()


def test_there_are_no_modes():
    with pytest.raises(Exception, match=r"TK1502.*'max-autotune'"):
        torch.compile(Mlp().eval(), backend="tokamak", mode="max-autotune")(torch.randn(2, 3, 32))


def test_a_missing_library_is_named(monkeypatch):
    from tokamak.backend import library

    monkeypatch.setenv("TOKAMAK_ENGINE", "/nowhere/engine.so")
    with pytest.raises(Error, match=r"TK1503.*/nowhere/engine.so"):
        library.find_library()
