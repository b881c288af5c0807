"""How operators are called: signatures, wrong calls, limits, operators that are not there."""

import warnings

import pytest

torch = pytest.importorskip("torch")


@pytest.fixture
def x():
    return torch.randn(4, 64, device="npu")


@pytest.fixture
def gamma():
    return torch.ones(64, device="npu")


def formula(x, gamma, eps=1e-6):
    return x * torch.rsqrt(x.pow(2).mean(-1, keepdim=True) + eps) * gamma


def test_a_function_and_its_operator_are_one(torch_npu, x, gamma):
    y, rstd = torch_npu.npu_rms_norm(x, gamma)
    assert y.device.type == "npu" and rstd.dtype == torch.float32
    torch.testing.assert_close(y, formula(x, gamma))
    for again in (
        torch_npu.npu_rms_norm(input=x, gamma=gamma, epsilon=1e-6),
        torch_npu.npu_rms_norm(x, gamma, 1e-6),
        torch.ops.npu.npu_rms_norm(x, gamma),
        torch.ops.npu.npu_rms_norm.default(x, gamma, epsilon=1e-6),
    ):
        assert torch.equal(again[0], y)
    assert torch.equal(torch_npu.npu_rms_norm(x.cpu(), gamma.cpu())[0], y.cpu())


def test_strides_don_t_matter(torch_npu, x, gamma):
    transposed = x.t().contiguous().t()
    assert not transposed.is_contiguous()
    assert torch.equal(
        torch_npu.npu_rms_norm(transposed, gamma)[0], torch_npu.npu_rms_norm(x, gamma)[0]
    )
    wide = torch.randn(4, 128, device="npu")
    assert torch.equal(
        torch_npu.npu_rms_norm(wide[:, 64:], gamma)[0],
        torch_npu.npu_rms_norm(wide[:, 64:].contiguous(), gamma)[0],
    )


@pytest.mark.parametrize(
    "args,kwargs,words",
    [
        ((), {}, "missing value for argument 'gamma'"),
        (("gamma",), {"eps": 1e-5}, "Unknown keyword argument 'eps'"),
        (("gamma", "1e-5"), {}, "Expected a value of type 'float' for argument 'epsilon'"),
        (("gamma", 1e-5, 3), {}, "expected at most 3 argument"),
        (([1, 2],), {}, "Expected a value of type 'Tensor' for argument 'gamma'"),
    ],
)
def test_wrong_calls_say_the_signature(torch_npu, x, gamma, args, kwargs, words):
    args = [gamma if a == "gamma" else a for a in args]
    with pytest.raises(TypeError) as found:
        torch_npu.npu_rms_norm(x, *args, **kwargs)
    assert words in str(found.value)
    assert "npu_rms_norm(Tensor input, Tensor gamma, float epsilon" in str(found.value)
    with pytest.raises(RuntimeError, match="npu::npu_rms_norm"):
        torch.ops.npu.npu_rms_norm(x, *args, **kwargs)


def test_limits_name_operator_check_and_values(torch_npu, x, gamma):
    with pytest.raises(RuntimeError) as found:
        torch_npu.npu_rms_norm(x.double(), gamma.double())
    for words in ("npu_rms_norm", "rms_norm.dtype", "on a2", "input.dtype = f64", "ERR01001"):
        assert words in str(found.value)
    with pytest.raises(RuntimeError) as found:
        torch_npu.npu_moe_gating_top_k(torch.randn(4, 96), 8, k_group=4, group_count=48)
    assert "moe_gating_top_k.g" in str(found.value)
    assert "E = 96, g = 48" in str(found.value)
    assert "smallest legal change: g from 48 to 32" in str(found.value)


def test_shapes_that_the_operator_refuses(torch_npu, x):
    with pytest.raises(RuntimeError, match="needs gamma") as found:
        torch_npu.npu_rms_norm(x, torch.ones(32, device="npu"))
    assert "ERR01001" in str(found.value)


def test_one_device(torch_npu, x, gamma):
    with pytest.raises(RuntimeError, match="npu:0 and cpu"):
        torch_npu.npu_rms_norm(x, gamma.cpu())


def test_what_is_not_there_names_its_relatives(torch_npu):
    with pytest.raises(AttributeError, match="npu_rms_norm"):
        torch_npu.npu_rmsnorm  # noqa: B018
    assert not hasattr(torch_npu, "npu_rmsnorm")
    from torch_npu import npu_ps_roi_pooling  # of the library, without an operator here

    with pytest.raises(NotImplementedError, match="npu_ps_roi_pooling is not in this emulation"):
        npu_ps_roi_pooling(1)
    import torch_npu as again

    lacking = again.npu_grouped_matmul_add
    with pytest.raises(NotImplementedError, match=r"nearest are .*npu_grouped_matmul"):
        lacking()


def test_other_chips(torch_npu, monkeypatch, x):
    gates = torch.randn(4, 32, device="npu")
    monkeypatch.setenv("TOKAMAK_NPU_SOC", "a3")
    assert torch.npu.get_device_name() == "Ascend910_9392"
    assert torch.npu.device_count() == 16
    monkeypatch.setenv("TOKAMAK_NPU_STRICT", "1")
    with pytest.raises(RuntimeError, match="does not name a3"):
        torch_npu.npu_moe_gating_top_k(gates, 4)
    monkeypatch.setenv("TOKAMAK_NPU_STRICT", "0")
    torch_npu.npu_moe_gating_top_k(gates, 4)
    monkeypatch.setenv("TOKAMAK_NPU_SOC", "a4")
    with pytest.raises(RuntimeError, match="TOKAMAK_NPU_SOC is 'a4', expected one of a2, a3"):
        torch_npu.npu_rms_norm(x, torch.ones(64, device="npu"))


def test_an_undocumented_operator_is_said_once():
    code = """
import warnings, torch, torch_npu
with warnings.catch_warnings(record=True) as found:
    warnings.simplefilter("always")
    for _ in range(3):
        torch_npu.npu_moe_gating_top_k(torch.randn(4, 32), 4)
print([str(w.message) for w in found])
"""
    import emulated

    found = emulated.run(code)
    assert found.stdout.count("its document does not name a2") == 1, found.stdout + found.stderr


def test_sizes_are_inferred_without_contents(torch_npu):
    x = torch.empty(4, 64, device="meta")
    y, rstd = torch_npu.npu_rms_norm(x, torch.empty(64, device="meta"))
    assert y.is_meta and y.shape == (4, 64) and rstd.shape == (4, 1)

    from torch._subclasses import FakeTensorMode

    with FakeTensorMode():
        y, _ = torch_npu.npu_rms_norm(
            torch.empty(2, 64, device="npu"), torch.empty(64, device="npu")
        )
        assert y.device.type == "npu" and y.shape == (2, 64)


class Block(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.gamma = torch.nn.Parameter(torch.ones(64))
        self.up = torch.nn.Linear(64, 32)

    def forward(self, x):
        return torch.ops.npu.npu_swiglu(self.up(torch.ops.npu.npu_rms_norm(x, self.gamma)[0]))


def test_exported_with_free_sizes(torch_npu):
    block = Block().npu()
    tokens = torch.export.Dim("T", min=1, max=64)
    program = torch.export.export(
        block, (torch.randn(4, 64, device="npu"),), dynamic_shapes={"x": {0: tokens}}
    )
    names = [str(n.target) for n in program.graph.nodes if n.op == "call_function"]
    assert "npu.npu_rms_norm.default" in names and "npu.npu_swiglu.default" in names
    x = torch.randn(9, 64, device="npu")
    assert torch.equal(program.module()(x), block(x))


@pytest.mark.parametrize("dynamic", [False, True])
def test_compiled(torch_npu, dynamic):
    import torchair
    from torchair.configs.compiler_config import CompilerConfig

    block = Block().npu()
    config = CompilerConfig()
    config.experimental_config.frozen_parameter = True
    with pytest.raises(AttributeError, match="has no option 'frozen'"):
        config.experimental_config.frozen = True
    backend = torchair.get_npu_backend(compiler_config=config)
    with torch.no_grad():
        for compiled in (
            torch.compile(block, backend=backend, dynamic=dynamic, fullgraph=True),
            torch.compile(
                block,
                backend="npugraph_ex",
                dynamic=dynamic,
                fullgraph=True,
                options={"frozen_parameter": True},
            ),
            torchair.inference.cache_compile(block.forward, config=config, dynamic=dynamic),
            torch.npu.npugraph_ex.inference.cache_compile(block.forward, dynamic=dynamic),
        ):
            for t in (3, 5):
                x = torch.randn(t, 64, device="npu")
                assert torch.equal(compiled(x), block(x))


def test_no_warning_on_import():
    import emulated

    found = emulated.run("import warnings; warnings.simplefilter('error'); import torch_npu")
    assert found.returncode == 0, found.stderr
    assert found.stderr == "" and warnings is not None
