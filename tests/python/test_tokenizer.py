"""The C++ tokenizer against the tokenizers package: the same ids, the same text back.

The tokenizers are trained here (so that the repository holds none), plus those of ../shared and of
TOKAMAK_TOKENIZERS (more tokenizer.json files, separated by ':').
"""

import json
import os
import random
import subprocess
from pathlib import Path

import pytest

tokenizers = pytest.importorskip("tokenizers", reason="the tokenizers package is not installed")
from tokenizers import (  # noqa: E402
    AddedToken,
    Regex,
    Tokenizer,
    decoders,
    models,
    normalizers,
    pre_tokenizers,
    processors,
    trainers,
)

ROOT = Path(__file__).resolve().parents[2]
N_TEXTS = int(os.environ.get("TOKAMAK_TOKENIZER_TEXTS", "2000"))

LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
QWEN2 = LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")
O200K = (
    r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+"
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+"
    r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}"
    r"| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
ADDED = [
    AddedToken("<|begin|>", special=True, normalized=False),
    AddedToken("<|end|>", special=True, normalized=False),
    AddedToken("<|end|>x", special=True, normalized=False),
    AddedToken("<left>", lstrip=True, normalized=False),
    AddedToken("<right>", rstrip=True, normalized=False),
    AddedToken("<both>", lstrip=True, rstrip=True, special=True, normalized=False),
    AddedToken("word", single_word=True, normalized=False),
    AddedToken("Norm Token", normalized=True),
    AddedToken("caf\u00e9", normalized=True, single_word=True),
    AddedToken("   ", normalized=False),
    AddedToken("\n\n\t", normalized=True),
]


def corpus():
    words = (
        "the quick brown fox jumps over lazy dog and runs through forest while return value of "
        "function is int float for i in range print self def class import Once upon a time there "
        "was a little girl who liked to play naïve café Ünïcödé déjà vu Straße привет мир как дела "
        "こんにちは 世界 你好 世界 안녕 하세요 مرحبا بالعالم नमस्ते दुनिया שלום עולם 123 4567 2024 3.14 '' "
        "don't we'll they're I'm it's"
    ).split()
    rng = random.Random(7)
    for _ in range(3000):
        yield " ".join(rng.choice(words) for _ in range(rng.randint(3, 20))) + rng.choice(".!?\n")


def assigned(rng):
    import unicodedata

    while True:
        c = chr(rng.choice([rng.randrange(0x20, 0x3000), rng.randrange(0x20, 0x20000)]))
        if unicodedata.category(c) not in ("Cn", "Cs", "Co"):
            return c


def texts(n):
    """Varied and repeatable: prose, code, scripts, emoji, marks, spaces, controls, long words."""
    rng = random.Random(20)
    pools = [
        lambda: rng.choice(
            ["the", "of", "Hello", "world", "don't", "I'LL", "x", "word", "swordfish"]
        ),
        lambda: rng.choice(
            ["def f(x):\n    return x**2", "if (a[i] != b) {", "#include <x.h>", "a->b"]
        ),
        lambda: str(rng.randrange(10 ** rng.randint(1, 12))),
        lambda: rng.choice(["½", "٣٤", "Ⅳ", "一二三", "²"]),
        lambda: rng.choice(
            ["Привет", "こんにちは", "世界", "안녕", "مرحبا", "नमस्ते", "ภาษาไทย", "ქართული"]
        ),
        lambda: rng.choice(["👨‍👩‍👧‍👦", "🏳️‍🌈", "👍🏽", "🇩🇪", "😀", "❤️"]),
        lambda: rng.choice(
            [
                "e\u0301",
                "a\u0308\u0323",
                "ﬁ",
                "①",
                "Å",
                "\u212b",
                "ǆ",
                "İ",
                "ẞ",
                "가",
                "\u1100\u1161",
            ]
        ),
        lambda: (
            rng.choice(
                [" ", "  ", "\t", "\n", "\r\n", "\n\n", "\u00a0", "\u3000", "\u2028", "\u180e"]
            )
            * rng.randint(1, 6)
        ),
        lambda: (
            chr(rng.randrange(0, 32))
            + rng.choice(["", "\x7f", "\x00", "\ufeff", "\ufffd", "\u200d"])
        ),
        lambda: "".join(assigned(rng) for _ in range(rng.randint(1, 8))),
        lambda: "".join(rng.choice("abcdefghij") for _ in range(rng.randint(20, 120))),
        lambda: (
            rng.choice(["a", "ab", "▁", "Ġ", "<0x41>", "$1", "=-=-", "..."]) * rng.randint(1, 40)
        ),
        lambda: rng.choice([t.content for t in ADDED]),
        lambda: rng.choice(
            ["<|end|", "<s>", "</s>", "<unk>", "<|im_start|>", "<|endoftext|>", "norm token"]
        ),
    ]
    out = [
        "",
        " ",
        "  ",
        "\n",
        "a",
        " a",
        "a ",
        "▁",
        "word",
        "\x00",
        "x" * 5000,
        " " * 3000,
        "é" * 999,
    ]
    while len(out) < n:
        parts = [rng.choice(pools)() for _ in range(rng.randint(1, 12))]
        out.append(rng.choice(["", " "]).join(parts))
    return out[:n]


def byte_level(pre, normalizer=None, size=3000, post=None, added=ADDED, **model):
    t = Tokenizer(models.BPE(**model))
    t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    t.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=size, initial_alphabet=alphabet, show_progress=False)
    t.train_from_iterator(corpus(), trainer)
    t.add_tokens(added)
    t.add_special_tokens([a for a in added if a.special])
    if post is not None:
        t.post_processor = post(t)
    return t


def sentencepiece(pre=None, normalizer=None, decoder=None, byte_fallback=True, **model):
    t = Tokenizer(models.BPE(unk_token="<unk>", byte_fallback=byte_fallback, **model))
    t.pre_tokenizer = pre_tokenizers.Metaspace()
    specials = ["<unk>", "<s>", "</s>"]
    if byte_fallback:
        specials += [f"<0x{b:02X}>" for b in range(256)]
    trainer = trainers.BpeTrainer(
        vocab_size=2000, special_tokens=specials, limit_alphabet=150, show_progress=False
    )
    t.train_from_iterator(corpus(), trainer)
    # The trainer marks the bytes as added tokens; in a Llama they are ordinary.
    j = json.loads(t.to_str())
    j["added_tokens"] = [a for a in j["added_tokens"] if not a["content"].startswith("<0x")]
    j["pre_tokenizer"] = None
    t = Tokenizer.from_str(json.dumps(j))
    if pre is not None:
        t.pre_tokenizer = pre
    if normalizer is not None:
        t.normalizer = normalizer
    if decoder is not None:
        t.decoder = decoder
    t.add_tokens(ADDED)
    t.post_processor = template(t)
    return t


def template(t):
    return processors.TemplateProcessing(
        single="<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)]
    )


def begin_template(t):
    return processors.Sequence(
        [
            processors.ByteLevel(trim_offsets=False),
            processors.TemplateProcessing(
                single="<|begin|> $A", special_tokens=[("<|begin|>", t.token_to_id("<|begin|>"))]
            ),
        ]
    )


def split(pattern, behavior="isolated", invert=False):
    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pattern), behavior, invert),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


LLAMA2_NORMALIZER = normalizers.Sequence([normalizers.Prepend("▁"), normalizers.Replace(" ", "▁")])
LLAMA2_DECODER = decoders.Sequence(
    [
        decoders.Replace("▁", " "),
        decoders.ByteFallback(),
        decoders.Fuse(),
        decoders.Strip(" ", 1, 0),
    ]
)

MADE = {
    "gpt2": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=False)),
    "prefix_space": lambda: byte_level(pre_tokenizers.ByteLevel(add_prefix_space=True)),
    "llama3": lambda: byte_level(split(LLAMA3), post=begin_template, ignore_merges=True),
    "qwen2": lambda: byte_level(split(QWEN2), normalizer=normalizers.NFC()),
    "o200k": lambda: byte_level(split(O200K)),
    "deepseek": lambda: byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Split(Regex(r"\p{N}{1,3}"), "isolated"),
                pre_tokenizers.Split(Regex("[一-龥぀-ゟ゠-ヿ]+"), "isolated"),
                pre_tokenizers.Split(
                    Regex(
                        "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\r\n\\p{L}\\p{P}\\p{S}]?"
                        "[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\r\n]*|\\s*[\r\n]+|\\s+(?!\\S)|\\s+"
                    ),
                    "isolated",
                ),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "digits": lambda: byte_level(
        pre_tokenizers.Sequence(
            [pre_tokenizers.Digits(individual_digits=False), pre_tokenizers.ByteLevel()]
        )
    ),
    "lowercase_nfkd": lambda: byte_level(
        pre_tokenizers.ByteLevel(),
        normalizer=normalizers.Sequence(
            [
                normalizers.NFKD(),
                normalizers.Lowercase(),
                normalizers.StripAccents(),
                normalizers.Replace(Regex(r"\s{2,}"), " "),
            ]
        ),
    ),
    # The package panics when an added token is stripped to nothing: here none is.
    "strip": lambda: byte_level(
        pre_tokenizers.ByteLevel(),
        normalizer=normalizers.Strip(),
        added=[a for a in ADDED if a.content.strip()],
    ),
    "nfkc_nfd": lambda: byte_level(
        pre_tokenizers.ByteLevel(),
        normalizer=normalizers.Sequence([normalizers.NFKC(), normalizers.NFD()]),
    ),
    **{
        f"split_{behavior}{'_invert' if invert else ''}": (
            lambda behavior=behavior, invert=invert: byte_level(
                split(r"\w+|[^\w\s]{2}+", behavior, invert)
            )
        )
        for behavior in (
            "removed",
            "isolated",
            "merged_with_previous",
            "merged_with_next",
            "contiguous",
        )
        for invert in (False, True)
    },
    "words": lambda: byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.WhitespaceSplit(),
                pre_tokenizers.Punctuation(),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "whitespace": lambda: byte_level(
        pre_tokenizers.Sequence(
            [
                pre_tokenizers.Whitespace(),
                pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
            ]
        )
    ),
    "llama2": lambda: sentencepiece(
        normalizer=LLAMA2_NORMALIZER, decoder=LLAMA2_DECODER, fuse_unk=True
    ),
    "unknown": lambda: sentencepiece(
        normalizer=LLAMA2_NORMALIZER, decoder=LLAMA2_DECODER, byte_fallback=False
    ),
    "fused_unknown": lambda: sentencepiece(
        normalizer=LLAMA2_NORMALIZER, decoder=LLAMA2_DECODER, byte_fallback=False, fuse_unk=True
    ),
    **{
        f"metaspace_{scheme}{'' if splits else '_whole'}": (
            lambda scheme=scheme, splits=splits: sentencepiece(
                pre=pre_tokenizers.Metaspace(prepend_scheme=scheme, split=splits),
                decoder=decoders.Metaspace(prepend_scheme=scheme),
            )
        )
        for scheme in ("always", "first", "never")
        for splits in (True, False)
    },
}


def files():
    shared = Path(os.environ.get("TOKAMAK_SHARED", ROOT.parent / "shared"))
    found = [shared / "models/stories260k/hf/tokenizer.json"]
    found += [Path(p) for p in os.environ.get("TOKAMAK_TOKENIZERS", "").split(":") if p]
    return [f for f in found if f.exists()]


@pytest.fixture(scope="session")
def tokenize():
    for build in (os.environ.get("TOKAMAK_BUILD", ROOT / "build"),):
        binary = Path(build) / "bin" / "tokenize"
        if binary.exists():
            return binary
    pytest.skip(f"{binary} is not built (set TOKAMAK_BUILD)")


def run(binary, file, lines, *flags):
    text = "\n".join(json.dumps({"text": t}) for t in lines)
    done = subprocess.run(
        [str(binary), str(file), *flags], input=text, capture_output=True, text=True, timeout=600
    )
    assert done.returncode == 0, done.stderr
    return [json.loads(line) for line in done.stdout.split("\n") if line]


def compare(binary, file):
    reference = Tokenizer.from_file(str(file))
    reference.no_truncation()
    reference.no_padding()
    lines = texts(N_TEXTS)
    wrong = []
    for text, ours in zip(lines, run(binary, file, lines), strict=True):
        ids = reference.encode(text).ids
        expected = {
            "ids": ids,
            "text": reference.decode(ids),
            "raw": reference.decode(ids, skip_special_tokens=False),
        }
        wrong += [(k, text, ours[k], v) for k, v in expected.items() if ours[k] != v]
        # Bytes that are no text may be cut at other places when they come one by one.
        if "\ufffd" not in expected["raw"] and ours["stream"] != expected["raw"]:
            wrong.append(("stream", text, ours["stream"], expected["raw"]))
    assert not wrong, f"{len(wrong)} of {3 * len(lines)} differ, the first: {wrong[0]}"


@pytest.mark.parametrize("name", MADE)
def test_same_ids_as_the_package(name, tokenize, tmp_path):
    file = tmp_path / "tokenizer.json"
    MADE[name]().save(str(file))
    compare(tokenize, file)


@pytest.mark.parametrize("file", files(), ids=lambda f: f.parent.parent.name)
def test_same_ids_with_real_tokenizers(file, tokenize):
    compare(tokenize, file)


def test_no_special(tokenize, tmp_path):
    file = tmp_path / "tokenizer.json"
    made = MADE["llama2"]()
    made.save(str(file))
    lines = texts(100)
    for text, ours in zip(lines, run(tokenize, file, lines, "--no-special"), strict=True):
        assert ours["ids"] == made.encode(text, add_special_tokens=False).ids


@pytest.mark.parametrize("kind", ["WordPiece", "WordLevel", "Unigram"])
def test_other_kinds_are_named(kind, tokenize, tmp_path):
    model = {
        "WordPiece": lambda: models.WordPiece({"[UNK]": 0}, unk_token="[UNK]"),
        "WordLevel": lambda: models.WordLevel({"[UNK]": 0}, unk_token="[UNK]"),
        "Unigram": lambda: models.Unigram([("<unk>", 0.0)], unk_id=0, byte_fallback=False),
    }[kind]()
    file = tmp_path / "tokenizer.json"
    Tokenizer(model).save(str(file))
    done = subprocess.run([str(tokenize), str(file)], input="", capture_output=True, text=True)
    assert done.returncode == 2
    assert "TK0601" in done.stderr and kind in done.stderr and "--ids" in done.stderr
