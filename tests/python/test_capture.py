"""Captures of tiny models: complete files, the same logits, both sizes free."""

import itertools
import json
import zipfile

import families
import pytest
import reload
import tokamak
import torch
from transformers import AutoModelForCausalLM

WEIGHTS_TABLE = "archive/data/weights/model_weights_config.json"


def logits_of(model, ids, positions):
    with torch.no_grad():
        return model(input_ids=ids, position_ids=positions, use_cache=False).logits


def check_same(program, model, vocabulary):
    """The graph's logits are the model's, at sizes that were not traced."""
    generator = torch.Generator().manual_seed(3)
    forward = program.module()
    for batch, sequence in ((1, 2), (3, 5), (2, 23)):
        ids = torch.randint(0, vocabulary, (batch, sequence), generator=generator)
        positions = torch.arange(sequence).expand(batch, sequence).contiguous()
        with torch.no_grad():
            found = forward(ids, positions)
        expected = logits_of(model, ids, positions)
        assert found.shape == (batch, sequence, vocabulary)
        torch.testing.assert_close(found, expected, rtol=1e-4, atol=1e-4)


def round_trip(folder):
    program = reload.program_of(folder / "out")
    # Loaded again: what the capture saw. Its experts are those of eager mode.
    model = AutoModelForCausalLM.from_pretrained(folder / "hf", experts_implementation="eager")
    check_same(program, model.eval(), model.config.vocab_size)
    ranges = sorted((int(r.lower), int(r.upper)) for r in program.range_constraints.values())
    assert ranges == [(1, 64), (1, 65536)]
    return program


@pytest.mark.parametrize("name", families.FAST)
def test_family(name, captured):
    program = round_trip(captured(name))
    targets = {str(node.target) for node in program.graph.nodes if node.op == "call_function"}
    assert not any("grouped_mm" in t or "nonzero" in t for t in targets)  # experts token-local


@pytest.mark.slow
@pytest.mark.parametrize("name", families.SLOW)
def test_more_families(name, captured):
    round_trip(captured(name))


def test_side_files_are_copied_and_nothing_else_is_left(captured):
    folder = captured("llama")
    names = {p.name for p in (folder / "out").iterdir()}
    assert names == {
        "config.json",
        "generation_config.json",
        "model.pt2",
        "model.safetensors",
        "tokenizer.json",
    }
    assert {p.name for p in folder.iterdir()} <= {"hf", "out", "golden.safetensors"}


def test_tied_weights_are_written_once(captured):
    raw = (captured("llama") / "out" / "model.safetensors").read_bytes()
    size = int.from_bytes(raw[:8], "little")
    header = json.loads(raw[8 : 8 + size])
    assert (8 + size) % 64 == 0
    assert json.loads(header["__metadata__"]["tokamak.aliases"]) == {
        "model.lm_head.weight": "model.model.embed_tokens.weight"
    }
    assert "model.lm_head.weight" not in header
    data = sorted(v["data_offsets"] for k, v in header.items() if k != "__metadata__")
    assert data[0][0] == 0 and data[-1][1] == len(raw) - 8 - size
    assert all(a[1] == b[0] for a, b in itertools.pairwise(data))


def test_shards(tmp_path, captured):
    hf = captured("llama") / "hf"
    tokamak.capture(hf, tmp_path / "out", quiet=True, shard_bytes=16 << 10)
    out = tmp_path / "out"
    index = json.loads((out / "model.safetensors.index.json").read_text())
    files = set(index["weight_map"].values())
    assert len(files) > 2 and all((out / f).is_file() for f in files)
    assert not (out / "model.safetensors").exists()
    assert index["weight_map"]["model.lm_head.weight"] in files
    check_same(reload.program_of(out), families.make("llama").eval(), 96)
    # Captured again whole: the shards of before are gone.
    tokamak.capture(hf, out, quiet=True)
    assert not list(out.glob("model-*")) and not (out / "model.safetensors.index.json").exists()
    whole = (captured("llama") / "out" / "model.safetensors").read_bytes()
    assert (out / "model.safetensors").read_bytes() == whole  # equal captures are equal files


def test_without_weights(tmp_path, captured):
    full = captured("mixtral") / "out"
    (tmp_path / "hf").mkdir()
    (tmp_path / "hf" / "config.json").write_bytes((full / "config.json").read_bytes())
    tokamak.capture(tmp_path / "hf", tmp_path / "out", quiet=True, with_weights=False)
    assert {p.name for p in (tmp_path / "out").iterdir()} == {"config.json", "model.pt2"}
    graphs, tables = [], []
    for folder in (full, tmp_path / "out"):
        graphs.append(str(torch.export.load(folder / "model.pt2").graph))
        with zipfile.ZipFile(folder / "model.pt2") as archive:
            config = json.loads(archive.read(WEIGHTS_TABLE))["config"]
        tables.append({k: (v["path_name"], v["tensor_meta"]["sizes"]) for k, v in config.items()})
    assert graphs[0] == graphs[1] and tables[0] == tables[1]


def test_bfloat16_stays_bfloat16(tmp_path):
    families.make("llama-gqa", torch.bfloat16).save_pretrained(tmp_path / "hf")
    tokamak.capture(tmp_path / "hf", tmp_path / "out", quiet=True)
    tensors = reload.weights_of(tmp_path / "out")
    assert tensors["model.lm_head.weight"].dtype == torch.bfloat16
    assert tensors["model.model.rotary_emb.inv_freq"].dtype == torch.float32
    tokamak.capture(tmp_path / "hf", tmp_path / "wide", quiet=True, dtype="float32")
    wide = reload.weights_of(tmp_path / "wide")["model.lm_head.weight"]
    assert torch.equal(wide, tensors["model.lm_head.weight"].float())


def test_a_model_in_memory_is_left_as_it_was(tmp_path):
    model = families.make("mixtral").train()
    before = model.config._experts_implementation
    tokamak.capture(model, tmp_path / "out", quiet=True)
    assert model.training and model.config._experts_implementation == before
    assert json.loads((tmp_path / "out" / "config.json").read_text())["model_type"] == "mixtral"
    check_same(reload.program_of(tmp_path / "out"), model.eval(), 96)


class Embed(torch.nn.Module):
    """The smallest language model: rows of a table, a complex constant, a buffer not saved."""

    def __init__(self):
        super().__init__()
        self.table = torch.nn.Parameter(torch.randn(11, 8).t().contiguous().t())
        self.same = self.table
        self.head = torch.nn.Linear(8, 11)
        self.register_buffer("shift", torch.randn(8), persistent=False)
        self.turn = torch.polar(torch.ones(4), torch.arange(4.0))

    def forward(self, tokens, where):
        h = self.table[tokens] + self.shift + where[..., None] + self.same[0]
        pairs = torch.view_as_complex(h.unflatten(-1, (4, 2))) * self.turn
        return (self.head(torch.view_as_real(pairs).flatten(-2)),)


def test_any_module(tmp_path):
    module = Embed()
    ids = torch.ones(2, 3, dtype=torch.int64)
    tokamak.capture(module, tmp_path / "out", example_inputs=(ids, ids), max_length=99, quiet=True)
    tensors = reload.weights_of(tmp_path / "out")
    assert any(t.dtype == torch.complex64 for t in tensors.values())
    program = reload.program_of(tmp_path / "out")
    more = torch.randint(0, 11, (4, 7))
    torch.testing.assert_close(program.module()(more, more), module(more, more)[0])
    assert not (tmp_path / "out" / "config.json").exists()


def test_longrope_beyond_its_switch_has_the_long_frequencies(tmp_path):
    model = families.make("phi3-longrope")
    rotary = model.model.rotary_emb
    kept = rotary.inv_freq
    tokamak.capture(model, tmp_path / "out", max_length=128, quiet=True)
    assert rotary.inv_freq is kept and rotary.rope_type == "longrope"
    found = reload.weights_of(tmp_path / "out")["model.model.rotary_emb.inv_freq"]
    positions = torch.arange(64, 72).expand(1, 8)  # past the switch: the model takes them too
    ids = torch.arange(8).expand(1, 8)
    expected = logits_of(model.eval(), ids, positions)
    torch.testing.assert_close(found, rotary.inv_freq)
    program = reload.program_of(tmp_path / "out")
    torch.testing.assert_close(program.module()(ids, positions.contiguous()), expected)


def test_import_of_the_submodule_keeps_the_function(tmp_path):
    import tokamak.capture as module

    ids = torch.ones(2, 3, dtype=torch.int64)
    module(Embed(), tmp_path / "out", example_inputs=(ids, ids), quiet=True)
    assert (tmp_path / "out" / "model.pt2").is_file()
