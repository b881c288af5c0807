"""A bad and a good example of each rule: the pages show them, a test lints them."""

_HEAD = "import torch\nfrom torch import nn\n\n\n"
_DIST = "import torch\nimport torch.distributed as dist\nfrom torch import nn\n\n\n"
_NPU = "import torch\nimport torch_npu\nfrom torch import nn\n\n\n"


def _module(body, init="", head=_HEAD, args="x: torch.Tensor"):
    """A module with this forward."""
    text = f"{head}class Model(nn.Module):\n"
    if init:
        lines = "".join(f"        {line}\n" for line in init.splitlines())
        text += f"    def __init__(self):\n        super().__init__()\n{lines}\n"
    lines = "".join(f"        {line}\n" for line in body.splitlines())
    return f"{text}    def forward(self, {args}):\n{lines}"


def _both(bad, good, **common):
    return _module(bad, **common), _module(good, **common)


_MASKED = "x: torch.Tensor, lengths: torch.Tensor"
_FA = "torch_npu.npu_fused_infer_attention_score(\n    q, k, v, {0}num_heads=8, scale=0.125)"
_COMPILED = """import torch
import torch_npu
from torch import nn


class Model(nn.Module):
    def {name}(self, x: torch.Tensor{more}):
        return x * 2


"""


def _host(code, name="forward", more=""):
    return _COMPILED.format(name=name, more=more) + code


EXAMPLES = {
    "host-sync-item": _both(
        "longest = lengths.max().item()\nreturn x * longest",
        "return x * lengths.max()",
        args=_MASKED,
    ),
    "host-sync-tolist": _both(
        "steps = lengths.tolist()\nreturn x * len(steps)",
        "return x * lengths.shape[0]",
        args=_MASKED,
    ),
    "host-sync-cpu": _both("return x.cpu() + 1", "return x + 1"),
    "numpy": _both(
        "return x * float(np.mean(x.numpy()))",
        "return x * x.mean()",
        head="import numpy as np\n" + _HEAD,
    ),
    "host-to-device-copy": (
        _module("return x * torch.tensor([1.0, 2.0], device=x.device)"),
        _module(
            "return x * self.scale", init='self.register_buffer("scale", torch.tensor([1.0, 2.0]))'
        ),
    ),
    "print": _both('print("x", x)\nreturn x + 1', "return x + 1"),
    "python-call-in-forward": (
        _module(
            'if os.getenv("FUSED") == "1":\n    x = x * 2\nreturn x', head="import os\n\n" + _HEAD
        ),
        _module(
            "if self.fused:\n    x = x * 2\nreturn x",
            init='self.fused = os.getenv("FUSED") == "1"',
            head="import os\n\n" + _HEAD,
        ),
    ),
    "device-sync": _both("y = x * 2\ntorch.npu.synchronize()\nreturn y", "return x * 2", head=_NPU),
    "data-dependent-branch": _both(
        "if x.sum() > 0:\n    return x\nreturn -x", "return torch.where(x.sum() > 0, x, -x)"
    ),
    "data-dependent-shape": _both(
        "kept = x[x > 0]\nreturn kept.sum()",
        "return torch.where(x > 0, x, torch.zeros_like(x)).sum()",
    ),
    "dynamic-slice-by-tensor": _both(
        "return x[: lengths[0]]",
        "rows = torch.arange(x.shape[0], device=x.device)\n"
        "return torch.where((rows < lengths[0]).unsqueeze(-1), x, torch.zeros_like(x))",
        args=_MASKED,
    ),
    "loop-over-tensor": _both(
        "total = 0\nfor row in x:\n    total = total + row\nreturn total", "return x.sum(dim=0)"
    ),
    "module-indexed-by-tensor": (
        _module(
            "expert = self.experts[pick]\nreturn expert(x)",
            args="x: torch.Tensor, pick: torch.Tensor",
            init="self.experts = nn.ModuleList(nn.Linear(8, 8) for _ in range(4))",
        ),
        _module(
            "return x @ self.experts.index_select(0, pick)",
            args="x: torch.Tensor, pick: torch.Tensor",
            init="self.experts = nn.Parameter(torch.zeros(4, 8, 8))",
        ),
    ),
    "shape-dependent-slice": (
        _module(
            "k = torch.cat([past_key, key], dim=1)  # tokamak: ignore[cat-onto-cache]\n"
            "return self.mask[:, : k.shape[1]]",
            args="key: torch.Tensor, past_key: torch.Tensor",
            init='self.register_buffer("mask", torch.zeros(1, 4096))',
        ),
        _module(
            "past_key.index_copy_(1, position, key)\nreturn self.mask",
            args="key: torch.Tensor, past_key: torch.Tensor, position: torch.Tensor",
            init='self.register_buffer("mask", torch.zeros(1, 4096))',
        ),
    ),
    "python-list-of-tensors": _both(
        "parts = []\nfor i in range(int(n)):  # tokamak: ignore\n    parts.append(x[i] * 2)\n"
        "return torch.cat(parts)",
        "rows = torch.arange(x.shape[0], device=x.device)\n"
        "return torch.where((rows < n).unsqueeze(-1), x * 2, torch.zeros_like(x))",
        args="x: torch.Tensor, n: torch.Tensor",
    ),
    "collective-with-list": _both(
        "parts = list(self.out.chunk(8))  # tokamak: ignore[python-list-of-tensors]\n"
        "dist.all_gather(parts, x)\nreturn self.out",
        "dist.all_gather_into_tensor(self.out, x)\nreturn self.out",
        init='self.register_buffer("out", torch.zeros(64, 8))',
        head=_DIST,
    ),
    "bool-mask-assignment": _both(
        "y = x.clone()\ny[x < 0] = 0\nreturn y", "return x.masked_fill(x < 0, 0)"
    ),
    "inplace-on-input": _both(
        "state.copy_(x)\nreturn x * 2",
        "return x * 2, x",
        args="x: torch.Tensor, state: torch.Tensor",
    ),
    "module-state-mutation": _both(
        "self.last = x * 2\nreturn self.last",
        "self.last.copy_(x * 2)\nreturn self.last",
        init='self.register_buffer("last", torch.zeros(8))',
    ),
    "python-int-attribute": (
        _module("self.step += 1\nreturn x * 2", init="self.step = 0"),
        _module(
            "self.step.add_(1)\nreturn x * 2", init='self.register_buffer("step", torch.zeros(1))'
        ),
    ),
    "python-counter-input": (
        _module(
            "return x * self.cos[start_pos : start_pos + 1]",
            args="x: torch.Tensor, start_pos: int",
            init='self.register_buffer("cos", torch.ones(4096, 8))',
        ),
        _module(
            "return x * self.cos.index_select(0, position)",
            args="x: torch.Tensor, position: torch.Tensor",
            init='self.register_buffer("cos", torch.ones(4096, 8))',
        ),
    ),
    "global-read-in-graph": (
        _module(
            'if CONTEXT["comm"] == "alltoall":\n    return x * 2\nreturn x',
            head=_HEAD + 'CONTEXT = {"comm": "mc2"}\n\n\n',
        ),
        _module(
            "if self.all_to_all:\n    return x * 2\nreturn x",
            init='self.all_to_all = CONTEXT["comm"] == "alltoall"',
            head=_HEAD + 'CONTEXT = {"comm": "mc2"}\n\n\n',
        ),
    ),
    "cat-onto-cache": _both(
        "return torch.cat([past_key, key], dim=2)",
        "past_key.index_copy_(2, position, key)\nreturn past_key",
        args="key: torch.Tensor, past_key: torch.Tensor, position: torch.Tensor",
    ),
    "cache-read-after-inplace": _both(
        "rope, nope, _, _ = torch_npu.npu_kv_rmsnorm_rope_cache(\n"
        "    kv, gamma, cos, sin, slot, self.rope, self.nope)\nreturn self.nope.view(-1, 512)",
        "rope, nope, _, _ = torch_npu.npu_kv_rmsnorm_rope_cache(\n"
        "    kv, gamma, cos, sin, slot, self.rope, self.nope)\nreturn nope.view(-1, 512)",
        args="kv, gamma, cos, sin, slot",
        head=_NPU,
        init="self.rope = torch.zeros(64, 128, 1, 64)\nself.nope = torch.zeros(64, 128, 1, 512)",
    ),
    "unused-result-of-cache-update": _both(
        "torch_npu.npu_kv_rmsnorm_rope_cache(kv, gamma, cos, sin, slot, self.rope, self.nope)\n"
        "return kv",
        "rope, nope, _, _ = torch_npu.npu_kv_rmsnorm_rope_cache(\n"
        "    kv, gamma, cos, sin, slot, self.rope, self.nope)\nreturn nope",
        args="kv, gamma, cos, sin, slot",
        head=_NPU,
        init="self.rope = torch.zeros(64, 128, 1, 64)\nself.nope = torch.zeros(64, 128, 1, 512)",
    ),
    "random-op": _both(
        "return x + torch.randn_like(x)",
        "return x + noise",
        args="x: torch.Tensor, noise: torch.Tensor",
    ),
    "backward": _both("loss = x.sum()\nloss.backward()\nreturn loss", "return x.sum()"),
    "unsupported-converter": _both(
        "return torch.cummax(x, dim=-1)[0]", "return torch.maximum(x[..., :1], x)"
    ),
    "length-type": _both(
        "return " + _FA.format("actual_seq_lengths_kv=lengths, "),
        "return " + _FA.format("actual_seq_lengths_kv=host_lengths, "),
        args="q, k, v, lengths: torch.Tensor, host_lengths: list[int]",
        head=_NPU,
    ),
    "length-name": _both(
        "return " + _FA.format("actual_seq_kvlen=lengths, "),
        "return " + _FA.format("actual_seq_lengths_kv=lengths, "),
        args="q, k, v, lengths: list[int]",
        head=_NPU,
    ),
    "omitted-attention-argument": (
        _module(
            "return torch_npu.npu_fused_infer_attention_score(\n    q, k, v, num_heads=8)",
            args="q, k, v",
            head=_NPU,
        ),
        _module(
            "return torch_npu.npu_fused_infer_attention_score(\n"
            "    q, k, v, num_heads=8, scale=0.125)",
            args="q, k, v",
            head=_NPU,
        ),
    ),
    "wrong-dynamic": tuple(
        _module(
            "return " + _FA.format("actual_seq_lengths_kv=lengths, "),
            args="q, k, v, lengths: list[int]",
            head=_NPU,
        )
        + f'\n\nmodel = torch.compile(Model(), backend="npugraph_ex", dynamic={dynamic})\n'
        for dynamic in (False, True)
    ),
    "missing-mark-static": tuple(
        _module(
            "return " + _FA.format("actual_seq_lengths_kv=lengths, "),
            args="q, k, v, lengths: list[int]",
            head=_NPU + "import torchair\n\n\n",
        )
        + "\n\nbackend = torchair.get_npu_backend(compiler_config=torchair.CompilerConfig())\n"
        "model = torch.compile(Model(), backend=backend, dynamic=True)\n" + more
        for more in (
            "",
            "\n\ndef step(q, k, v, lengths):\n    for t in (q, k, v):\n"
            "        torch._dynamo.mark_static(t)\n"
            "    return model(q, k, v, lengths)\n",
        )
    ),
    "two-modes-one-entry": (
        _host(
            'model = torch.compile(Model(), backend="npugraph_ex")\n\n\n'
            "def generate(x):\n    model(x, is_prefill=True)\n"
            "    return model(x, is_prefill=False)\n",
            more=", is_prefill: bool = False",
        ),
        _host(
            'model = Model()\ndecode = torch.compile(model, backend="npugraph_ex")\n\n\n'
            "def generate(x):\n    model(x, is_prefill=True)\n"
            "    return decode(x, is_prefill=False)\n",
            more=", is_prefill: bool = False",
        ),
    ),
    "cache-compile": (
        _host(
            "def step(x):\n    return x * 2\n\n\n"
            "step = torch.npu.npugraph_ex.inference.cache_compile(step)\n"
        ),
        _host(
            "model = Model()\nstep = torch.npu.npugraph_ex.inference.cache_compile(model.decode)\n",
            name="decode",
        ),
    ),
    "option-pair": tuple(
        _host(f'model = torch.compile(Model(), backend="npugraph_ex"{more})\n')
        for more in (', mode="reduce-overhead"', "")
    ),
    "unknown-option": tuple(
        _host(
            f'model = torch.compile(\n    Model(), backend="npugraph_ex", '
            f'options={{"{name}": True}})\n'
        )
        for name in ("clone_outputs", "clone_output")
    ),
    "unknown-attribute": tuple(
        "import torch_npu\nimport torchair\n\n"
        f"backend = torchair.{name}(compiler_config=torchair.CompilerConfig())\n"
        for name in ("get_npu_backends", "get_npu_backend")
    ),
    "custom-op-without-meta": tuple(
        """import torch


@torch.library.custom_op("demo::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * 2
"""
        + more
        for more in (
            "",
            """

@torch.library.register_fake("demo::double")
def _(x):
    return torch.empty_like(x)
""",
        )
    ),
}
