"""python -m tokamak.capture HF_DIR -o DIR: captures a model for the tokamak command."""

import argparse
import os
import signal
import sys
import traceback
import types

import tokamak

EXAMPLE = """example:
  python -m tokamak.capture SmolLM2-135M -o captured
  tokamak optimize captured -o out"""


def _size(text):
    """Bytes of "4GiB", "500MB", "1000000"."""
    units = {"": 1, "kb": 10**3, "mb": 10**6, "gb": 10**9, "kib": 2**10, "mib": 2**20, "gib": 2**30}
    digits = text.rstrip("BbIiKkMmGg")
    unit = text[len(digits) :].lower()
    if not digits.isdigit() or int(digits) == 0 or unit not in units:
        raise argparse.ArgumentTypeError(f"'{text}' is not a size, such as 4GiB or 500MB")
    return int(digits) * units[unit]


def _count(text):
    if not text.isdigit() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a positive number")
    return int(text)


def _parser():
    parser = argparse.ArgumentParser(
        prog="python -m tokamak.capture",
        description="Captures one forward of a Hugging Face model as a graph (model.pt2) and "
        "its weights (model.safetensors).",
        epilog=EXAMPLE,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add = parser.add_argument
    add("model", metavar="HF_DIR", help="folder with config.json, safetensors and tokenizer")
    add("-o", "--output", metavar="DIR", required=True, help="new, empty, or an earlier capture")
    add("--dtype", default="auto", help="auto (config.json's), float32, bfloat16, float16")
    add("--attn", default="auto", help="auto (sdpa where it works), sdpa, eager")
    add("--max-length", type=_count, metavar="N", help="longest sequence (config.json's)")
    add("--example-batch", type=_count, metavar="N", default=2, help="traced batch (2)")
    add("--example-seq", type=_count, metavar="N", default=8, help="traced sequence (8)")
    add("--shard-size", type=_size, metavar="SIZE", default=4 << 30, help="largest file (4GiB)")
    add("--no-weights", action="store_true", help="the graph only; needs no more than config.json")
    add("-q", "--quiet", action="store_true", help="no progress on stderr")
    return parser


def main(arguments=None):
    """Returns the exit code: 0, 2 for a user's error, 3 for a bug of ours."""
    options = _parser().parse_args(arguments)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # so that temporary files go away
    os.environ.setdefault("HF_HUB_OFFLINE", "1")  # a folder is captured; nothing is downloaded
    try:
        tokamak.capture(
            options.model,
            options.output,
            example_batch=options.example_batch,
            example_sequence=options.example_seq,
            max_length=options.max_length,
            shard_bytes=options.shard_size,
            dtype=options.dtype,
            attention=options.attn,
            with_weights=not options.no_weights,
            quiet=options.quiet,
        )
    except tokamak.Error as error:
        print(error, file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        missing = tokamak.Error(
            "TK1014",
            f"the Python package '{error.name}' is not installed in {sys.executable}",
            help="run scripts/python_env.sh and use .venv/bin/python, or install it with pip",
        )
        print(missing, file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("interrupted; nothing was written", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get("TOKAMAK_DEBUG"):
            traceback.print_exc()
        frame = traceback.extract_tb(error.__traceback__)[-1]
        print(
            f"internal error at {frame.filename}:{frame.lineno}: {type(error).__name__}: {error}\n"
            "  this is a bug in Tokamak; please report it with the command and its input, and "
            "with what TOKAMAK_DEBUG=1 adds",
            file=sys.stderr,
        )
        return 3
    return 0


class _CallableModule(types.ModuleType):
    """`import tokamak.capture` puts this module where the function tokamak.capture was."""

    def __call__(self, *arguments, **options):
        from .export import capture

        return capture(*arguments, **options)


if __name__ == "__main__":
    sys.exit(main())
sys.modules[__name__].__class__ = _CallableModule
