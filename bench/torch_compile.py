"""Decode speed and compile time of torch.compile's backends on one model, in turns.

    PYTHONPATH=python python bench/torch_compile.py [--model FOLDER] [--rounds 5] [--tokens 32]

Without --model: random weights in the shapes of SmolLM2-135M (30 layers, 576 wide, bf16). Each
backend decodes greedily with a static cache of its own; rounds go around the backends, so that a
busy neighbour hits all of them.
"""

import argparse
import statistics
import time

import tokamak
import torch
import transformers
from tokamak.backend import library, report
from tokamak.backend.run import Compiled

SHAPES = dict(
    hidden_size=576,
    intermediate_size=1536,
    num_hidden_layers=30,
    num_attention_heads=9,
    num_key_value_heads=3,
    vocab_size=49152,
    max_position_embeddings=8192,
    rope_theta=100000,
    tie_word_embeddings=True,
)


def load(args):
    dtype = getattr(torch, args.dtype)
    if args.model:
        model = transformers.AutoModelForCausalLM.from_pretrained(args.model, dtype=dtype)
    else:
        torch.manual_seed(0)
        shapes = dict(SHAPES)
        if args.layers:
            shapes["num_hidden_layers"] = args.layers
        model = transformers.LlamaForCausalLM(transformers.LlamaConfig(**shapes)).to(dtype)
    return model.eval().requires_grad_(False)


class Decoder:
    """A model with a cache, compiled by one backend."""

    def __init__(self, name, model, prompt, args):
        self.name, self.model, self.prompt, self.args = name, model, prompt, args
        if name == "eager":
            self.step = model
        else:
            torch._dynamo.reset()
            self.step = torch.compile(model, backend=name, dynamic=False)
        self.rates = []
        start = time.perf_counter()
        self.tokens = self.decode(3)
        self.first = time.perf_counter() - start  # prefill and decode, compiled and run

    def decode(self, n):
        """The cache stays, since the engine's last plan leads to it."""
        cache = self.cache = transformers.StaticCache(
            config=self.model.config, max_cache_len=self.args.cache
        )
        # The prompt goes through the plain model, so that the same graph is measured everywhere.
        logits = self.model(input_ids=self.prompt, past_key_values=cache).logits
        tokens = [logits[:, -1].argmax(-1, keepdim=True)]
        self.step(input_ids=tokens[-1], past_key_values=cache)  # what is compiled or bound anew
        cache.reset()
        logits = self.model(input_ids=self.prompt, past_key_values=cache).logits
        start = time.perf_counter()
        for _ in range(n):
            logits = self.step(input_ids=tokens[-1], past_key_values=cache).logits
            tokens.append(logits[:, -1].argmax(-1, keepdim=True))
        self.seconds = time.perf_counter() - start
        return torch.cat(tokens, 1)

    def measure(self):
        self.tokens = self.decode(self.args.tokens)
        self.rates.append(self.args.tokens / self.seconds)


def backend_seconds(decoder, n=40):
    """Of a step, this thread's time in the backend beside the engine: minimum and median."""
    engine = library.load()
    inside, beside, run = [0.0], [], Compiled._run
    launch = engine.tk_engine_run

    def timed_launch(*args):
        start = time.thread_time()
        failed = launch(*args)
        inside[0] = time.thread_time() - start
        return failed

    def timed_run(part, args):
        start = time.thread_time()
        results = run(part, args)
        beside.append(time.thread_time() - start - inside[0])
        return results

    engine.tk_engine_run, Compiled._run = timed_launch, timed_run
    try:
        decoder.decode(n)
    finally:
        engine.tk_engine_run, Compiled._run = launch, run
    return min(beside), statistics.median(beside)


def show_profile(part, runs=9):
    """Where the engine's time goes, and what replay costs beside the launches: medians."""
    sums, outside = {}, []
    for _ in range(runs):
        found = part.profile()
        outside.append(found["wall_ns"] - sum(row["ns"] for row in found["launches"]))
        for row in found["launches"]:
            key = row["op"], row["kernel"]
            sums[key] = sums.get(key, 0) + row["ns"] / runs / 1e6
    for (op, kernel), ms in sorted(sums.items(), key=lambda x: -x[1])[:20]:
        print(f"{ms:8.3f} ms  {op}  {kernel}")
    print(f"{sum(sums.values()):8.3f} ms  {len(found['launches'])} launches together")
    print(f"{statistics.median(outside) / 1e3:8.1f} us  replay outside of the launches")


def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--model")
    parser.add_argument("--layers", type=int)
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--tokens", type=int, default=32)
    parser.add_argument("--prompt", type=int, default=16)
    parser.add_argument("--cache", type=int, default=256)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--backends", default="eager,inductor,tokamak")
    parser.add_argument("--profile", action="store_true", help="the engine's launches, by operator")
    args = parser.parse_args()
    torch.set_num_threads(args.threads)
    tokamak.register_backend()
    model = load(args)
    prompt = torch.randint(0, model.config.vocab_size, (1, args.prompt))
    decoders = []
    with torch.no_grad():
        for name in args.backends.split(","):
            decoders.append(Decoder(name, model, prompt, args))
            print(f"{name}: first calls {decoders[-1].first:.2f} s", flush=True)
        graphs = len(report.graphs)
        for _ in range(args.rounds):
            for d in decoders:
                d.measure()
    print(f"tokamak {tokamak.__version__}, torch {torch.__version__}, {args.threads} threads")
    for d in decoders:
        rates = sorted(d.rates)
        same = torch.equal(d.tokens, decoders[0].tokens)
        spread = f"({rates[0]:.1f} to {rates[-1]:.1f})"
        print(
            f"{d.name:9} {statistics.median(rates):7.1f} tokens/s  {spread}"
            f"  first calls {d.first:6.2f} s  tokens {'as' if same else 'differ from'} "
            f"{decoders[0].name}"
        )
    if args.profile:
        show_profile(report.graphs[-1].parts[0])
        with torch.no_grad():
            least, usual = backend_seconds(decoders[-1])
        print(f"{usual * 1e6:8.1f} us  the backend's Python in a step, {least * 1e6:.1f} at least")
    print(f"graphs compiled by tokamak: {graphs}, after the measurement {len(report.graphs)}")


if __name__ == "__main__":
    main()
