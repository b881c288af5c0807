"""Writes the seeds of the fuzzer: small files, each good, each another form.

Needs torch, safetensors and tokenizers; the seeds are committed, so that the fuzzer needs nothing.
"""

import io
import json
import struct
import sys
import zipfile
from pathlib import Path

OUT = Path(__file__).parent / "seeds"


class Unseekable(io.RawIOBase):
    """A stream: zipfile then writes data descriptors."""

    def __init__(self):
        self.data = bytearray()

    def writable(self):
        return True

    def write(self, b):
        self.data += b
        return len(b)


def zips():
    text = json.dumps({"a": list(range(40)), "b": "text " * 20})

    def fill(z, method):
        for name, data in (("m/a.json", text), ("m/data/w0", bytes(range(64))), ("m/empty", b"")):
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            z.writestr(info, data, method)

    for name, method in (("stored", zipfile.ZIP_STORED), ("deflated", zipfile.ZIP_DEFLATED)):
        with zipfile.ZipFile(OUT / f"{name}.zip", "w") as z:
            fill(z, method)
            z.comment = b"a comment"
    stream = Unseekable()
    with zipfile.ZipFile(stream, "w") as z:
        fill(z, zipfile.ZIP_DEFLATED)
    (OUT / "streamed.zip").write_bytes(stream.data)
    zip64()


def zip64():
    data, name = b"hello", b"m/a.txt"
    crc = 0x3610A686
    extra = struct.pack("<HHQQQ", 1, 24, len(data), len(data), 0)
    big = 0xFFFFFFFF
    local = struct.pack("<IHHHHHIIIHH", 0x04034B50, 45, 0, 0, 0, 0, crc, big, big, len(name), 28)
    body = local + name + extra + data
    central = struct.pack(
        "<IHHHHHHIIIHHHHHII",
        *(0x02014B50, 45, 45, 0, 0, 0, 0, crc, big, big, len(name), 28, 0, 0, 0, 0, big),
    )
    central += name + extra
    end64 = struct.pack("<IQHHIIQQQQ", 0x06064B50, 44, 45, 45, 0, 0, 1, 1, len(central), len(body))
    locator = struct.pack("<IIQI", 0x07064B50, 0, len(body) + len(central), 1)
    end = struct.pack("<IHHHHIIH", 0x06054B50, 0, 0, 0xFFFF, 0xFFFF, big, big, 0)
    (OUT / "zip64.zip").write_bytes(body + central + end64 + locator + end)


def safetensors_files():
    import torch
    from safetensors.torch import save_file

    save_file({"w": torch.ones(2, 3), "b": torch.zeros(3)}, OUT / "plain.safetensors")
    many = {
        f"layers.{i}.{d}": torch.zeros(1 + i % 3, 2, dtype=getattr(torch, d))
        for i, d in enumerate("float16 bfloat16 float64 int64 int32 int16 int8 uint8 bool".split())
    }
    many["scalar"] = torch.tensor(3.0)
    many["empty"] = torch.zeros(0, 4)
    save_file(many, OUT / "many.safetensors", metadata={"format": "pt"})
    header = (OUT / "many.safetensors").read_bytes()
    (n,) = struct.unpack("<Q", header[:8])
    (OUT / "bytes.safetensors.json").write_bytes(header[8 : 8 + n])


def tokenizer_files():
    sys.path.insert(0, str(Path(__file__).parents[1] / "python"))
    import test_tokenizer as made
    from tokenizers import pre_tokenizers

    def save(name, t, n_tokens):
        j = json.loads(t.to_str())
        vocabulary = j["model"]["vocab"]
        keep = {k: v for k, v in vocabulary.items() if v < n_tokens}
        j["model"]["vocab"] = keep
        j["model"]["merges"] = [
            m for m in j["model"]["merges"] if all(x in keep for x in (*m, "".join(m)))
        ]
        for i, a in enumerate(j["added_tokens"]):
            a["id"] = i if a["content"] in keep else n_tokens + i
        (OUT / name).write_text(json.dumps(j, ensure_ascii=False))

    save("gpt2.json", made.byte_level(pre_tokenizers.ByteLevel(), size=320), 320)
    save("llama3.json", made.MADE["llama3"](), 300)
    save("llama2.json", made.MADE["llama2"](), 330)
    save("metaspace.json", made.MADE["metaspace_first"](), 330)


def pt2_files():
    import torch

    class Block(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.w = torch.nn.Parameter(torch.ones(8))
            self.qkv = torch.nn.Linear(8, 24, bias=False)

        def forward(self, x):
            h = x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + 1e-6) * self.w
            q, k, v = self.qkv(h).chunk(3, dim=-1)
            mask = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool).tril()
            s = (q @ k.transpose(-1, -2)).masked_fill(~mask, -1e9).softmax(-1)
            return x + s @ v

    class Tiny(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.embed = torch.nn.Embedding(16, 8)
            self.block = Block()

        def forward(self, input_ids):
            return self.block(self.embed(input_ids)) @ self.embed.weight.T

    dims = {"input_ids": {0: torch.export.Dim("batch"), 1: torch.export.Dim("seq")}}
    program = torch.export.export(
        Tiny(), (torch.zeros(2, 3, dtype=torch.int64),), dynamic_shapes=dims
    )
    torch.export.save(program, OUT / "model.pt2")
    with zipfile.ZipFile(OUT / "model.pt2") as z:
        for name in z.namelist():
            if name.endswith("models/model.json"):
                (OUT / "model.json").write_bytes(z.read(name))


if __name__ == "__main__":
    OUT.mkdir(exist_ok=True)
    zips()
    safetensors_files()
    tokenizer_files()
    pt2_files()
