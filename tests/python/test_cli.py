"""The command from end to end: the bundled model, fresh captures of many families, and mistakes."""

import json
import shutil
import subprocess

import families
import golden
import pytest
import tokamak
import torch
from safetensors import safe_open
from transformers import AutoModelForCausalLM


@pytest.fixture(scope="session")
def cli(tokamak_binary):
    def run(*arguments, code=0, **options):
        done = subprocess.run(
            [str(tokamak_binary), *map(str, arguments)],
            capture_output=True,
            text=True,
            timeout=300,
            **options,
        )
        shown = f"{arguments}\n{done.stdout[-2000:]}\n{done.stderr[-2000:]}"
        assert done.returncode == code, shown
        assert "Traceback" not in done.stderr and "internal error" not in done.stderr, shown
        return done

    return run


@pytest.fixture(scope="session")
def optimised(cli, stories, tmp_path_factory):
    out = tmp_path_factory.mktemp("optimised") / "stories"
    cli("optimize", stories, "-o", out, "--golden", stories / "golden.safetensors")
    return out


def test_optimize_leaves_the_evidence(optimised):
    ledger = json.loads((optimised / "ledger.json").read_text())
    rows = ledger["rows"]
    assert rows and all(row["why"] for row in rows)
    decisions = {row["decision"] for row in rows}
    assert "kept" in decisions
    page = (optimised / "report.html").read_text()
    assert "<html" in page and "http://" not in page.replace("http://www.w3.org", "")
    assert (optimised / "report.md").is_file()


def test_run_tells_the_story_of_the_original(cli, optimised, stories):
    """OP: the optimised model's greedy tokens are the original's."""
    story = json.loads((stories / "golden.json").read_text())["story"]
    text = cli("run", optimised, "-p", "Once upon a time", "-n", 60).stdout
    assert text.startswith(story[:100]), text


def test_run_is_greedy_decoding_on_golden_prompts(cli, optimised, stories):
    """KV: several prompts of different lengths, decoded together, equal each alone."""
    with safe_open(stories / "golden.safetensors", "pt") as file:
        prompts = [file.get_tensor(f"p{i}.input_ids")[0].tolist() for i in range(3)]
        expected = [file.get_tensor(f"p{i}.decode_ids")[0].tolist() for i in range(3)]
    flags = [word for ids in prompts for word in ("--ids", ",".join(map(str, ids)))]
    out = cli("run", optimised, *flags, "-n", 16, "--ignore-eos", "--json").stdout
    assert [answer["ids"] for answer in json.loads(out)] == expected


def test_sampling_repeats_with_its_seed(cli, optimised):
    flags = ["-p", "Lily", "-n", 24, "--temperature", 1, "--top-k", 50, "--top-p", 0.95]
    texts = [cli("run", optimised, *flags, "--seed", seed).stdout for seed in (1, 1, 2)]
    assert texts[0] == texts[1] != texts[2]


@pytest.mark.parametrize("stage", ["captured", "cached", "optimized"])
def test_check_passes_at_every_stage(cli, stories, stage):
    flags = ["--golden", stories / "golden.safetensors", "--stage", stage, "--json"]
    found = json.loads(cli("check", stories, *flags).stdout)
    found = found[0] if isinstance(found, list) else found
    stages = found.get("stages", [found])
    assert stages and all(s["passed"] and s["greedy_equal"] for s in stages)


def test_check_says_no_with_exit_1(cli, stories, tmp_path):
    from safetensors.torch import load_file, save_file

    tensors = load_file(stories / "golden.safetensors")
    tensors["p0.logits"] = tensors["p0.logits"] + 1
    save_file(tensors, tmp_path / "wrong.safetensors")
    cli("check", stories, "--golden", tmp_path / "wrong.safetensors", code=1)


def test_inspect_and_bench(cli, stories, optimised):
    assert "attention" in cli("inspect", stories).stdout
    json.loads(cli("inspect", stories, "--json").stdout)
    assert "aten." in cli("inspect", stories, "--ops").stdout
    assert "graph @" in cli("inspect", stories, "--graph").stdout
    sizes = ["--prompt", 32, "--context", 16, "--gen", 8, "--reps", 1]
    cell = cli("bench", optimised, *sizes, "--cell").stdout
    found = json.loads(next(x for x in cell.splitlines() if x.startswith("CELL "))[5:])
    assert found["decode_tok_s"][0] > 0 and found["prefill_tok_s"][0] > 0
    assert found["first_token_s"] > found["load_s"]  # counted from the start of the process


# Fresh captures: the graph is not one that anybody has looked at.


@pytest.fixture(scope="session")
def fresh(captured):
    """(captured folder, golden file) of a family, made once."""

    def make(name):
        folder = captured(name)
        path = folder / "golden.safetensors"
        if not path.exists():
            model = AutoModelForCausalLM.from_pretrained(
                folder / "hf", experts_implementation="eager"
            )
            golden.write(model.eval(), path, model.config.vocab_size)
        return folder / "out", path

    return make


def check_family(cli, fresh, name):
    captured, golden_file = fresh(name)
    for stage in ("captured", "cached", "optimized"):
        cli("check", captured, "--golden", golden_file, "--stage", stage)


@pytest.mark.parametrize("name", families.FAST)
def test_family(cli, fresh, name):
    check_family(cli, fresh, name)


@pytest.mark.slow
@pytest.mark.parametrize("name", families.SLOW)
def test_more_families(cli, fresh, name):
    check_family(cli, fresh, name)


def test_sharded_weights(cli, captured, fresh, tmp_path):
    _, golden_file = fresh("llama")
    hf = captured("llama") / "hf"
    tokamak.capture(hf, tmp_path / "out", quiet=True, shard_bytes=16 << 10)
    cli("check", tmp_path / "out", "--golden", golden_file)


# Mistakes: exit 2, a code, and nothing half-written.


def refused(cli, *arguments):
    text = cli(*arguments, code=2).stderr
    assert "error[TK" in text, text
    return text


def test_what_is_not_a_model(cli, tmp_path):
    refused(cli, "inspect", tmp_path / "nowhere")
    (tmp_path / "empty").mkdir()
    refused(cli, "optimize", tmp_path / "empty", "-o", tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("size", [0, 10, 1000, 500_000, 1_876_000])
def test_truncated_archive(cli, stories, tmp_path, size):
    (tmp_path / "cut.pt2").write_bytes((stories / "model.pt2").read_bytes()[:size])
    refused(cli, "inspect", tmp_path / "cut.pt2")


def edited(source, target, change):
    """A copy of a capture whose weights went through `change` (name to tensor, in place)."""
    from safetensors.torch import load_file, save_file

    shutil.copytree(source, target)
    path = target / "model.safetensors"
    tensors = load_file(path)
    change(tensors)
    save_file(tensors, path, metadata={"format": "pt", "tokamak.aliases": "{}"})
    return target


def test_weights_that_do_not_fit(cli, fresh, tmp_path):
    captured, _ = fresh("llama-gqa")
    name = "model.model.layers.0.mlp.up_proj.weight"

    def drop(tensors):
        del tensors[name]

    def shorten(tensors):
        tensors[name] = tensors[name][:-1].contiguous()

    def round_off(tensors):
        tensors[name] = tensors[name].to(torch.bfloat16)

    def spoil(tensors):
        tensors[name][3, 4] = float("nan")

    for change in (drop, shorten, round_off, spoil):
        folder = edited(captured, tmp_path / change.__name__, change)
        text = refused(cli, "optimize", folder, "-o", tmp_path / "out")
        assert name in text, text
        assert not (tmp_path / "out").exists()


def test_prompts_that_cannot_be(cli, stories):
    assert "512" in refused(cli, "run", stories, "--ids", "1,512")
    refused(cli, "run", stories, "--ids", "-1")
    refused(cli, "run", stories, "--ids", "1,x")
    refused(cli, "run", stories, "--ids", "")
    refused(cli, "run", stories)
    refused(cli, "run", stories, "--ids", ",".join(["5"] * 600))  # longer than the model's 512


def test_usage(cli, stories):
    assert "Example" in cli("optimize", "--help").stdout
    cli("optimise", code=2)
    cli("run", stories, "--nonsense", code=2)
    cli("optimize", stories, "-o", "/proc/nowhere/out", code=2)
    text = refused(cli, "optimize", stories, "-o", "/tmp/never", "--moves", "fuse_rms_nrom")
    assert "did you mean" in text
