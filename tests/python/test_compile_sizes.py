"""torch.compile(backend="tokamak"): several sizes that change at once."""

import pytest
import tokamak
import torch
from tokamak.backend import report
from transformers import LlamaConfig, LlamaForCausalLM, StaticCache

CONFIG = dict(
    hidden_size=64,
    intermediate_size=96,
    num_hidden_layers=1,
    num_attention_heads=4,
    num_key_value_heads=2,
    vocab_size=100,
    max_position_embeddings=128,
)
SIZES = [(1, 5), (3, 7), (7, 4), (3, 7), (5, 2)]


@pytest.fixture(autouse=True)
def fresh():
    tokamak.register_backend()
    torch._dynamo.reset()
    report.clear()
    torch.manual_seed(0)
    with torch.no_grad():
        yield
    torch._dynamo.reset()


# The lazy cache is made within the graph, which is cut there: parts are given one size as several
# arguments.
@pytest.mark.parametrize("fuse", [True, False])
@pytest.mark.parametrize("cached", ["lazy", "early", "none"])
def test_batch_and_length_change_at_once(cached, fuse):
    model = LlamaForCausalLM(LlamaConfig(**CONFIG)).eval()
    f = torch.compile(model, backend="tokamak", options={"fuse": fuse})
    for batch, length in SIZES:
        ids = torch.randint(0, 100, (batch, length))
        found = []
        for step in (model, f):
            options = dict(use_cache=False)
            if cached != "none":
                cache = StaticCache(config=model.config, max_cache_len=40)
                if cached == "early":
                    cache.early_initialization(batch, 2, 16, torch.float32, "cpu")
                places = torch.arange(length)[None].expand(batch, -1)
                options = dict(past_key_values=cache, position_ids=places)
            logits = step(input_ids=ids, **options).logits
            written = [logits]
            if cached != "none":
                written += [cache.layers[0].keys.clone(), cache.layers[0].values.clone()]
            found.append(written)
        for got, want in zip(found[1], found[0], strict=True):
            torch.testing.assert_close(got, want, atol=1e-5, rtol=0)
    assert report.graphs and all(g.parts for g in report.graphs)  # the engine ran
    if cached == "lazy":
        named = [p.names for g in report.graphs for p in g.parts]
        assert any(len(n) == 2 for n in named)
        assert all(len(n) == len(set(n)) for n in named)
