"""The device "npu": tensors of torch whose operators run on the host's memory."""

import copy
import io

import pytest

torch = pytest.importorskip("torch")
F = torch.nn.functional


@pytest.fixture(autouse=True)
def emulation(torch_npu):
    return torch_npu


def test_every_way_to_name_the_device():
    x = torch.arange(6.0).reshape(2, 3)
    for moved in (x.npu(), x.to("npu"), x.to("npu:0"), x.to(torch.device("npu", 0)), x.npu(0)):
        assert moved.device == torch.device("npu:0")
        assert moved.is_npu and not moved.is_cpu
        assert torch.equal(moved.cpu(), x)
    assert torch.zeros(2, device="npu").device.type == "npu"
    assert torch.tensor([1, 2], device="npu:0").tolist() == [1, 2]
    with torch.device("npu"):
        assert torch.ones(2).device.type == "npu"
    module = torch.nn.Linear(3, 2).npu()
    assert module.weight.device.type == "npu" and isinstance(module.weight, torch.nn.Parameter)
    assert x.npu().new_zeros(3).device.type == "npu"
    assert torch.full_like(x.npu(), 2).sum().item() == 12
    assert "device='npu:0'" in repr(x.npu())


def test_views_share_storage_and_in_place_stays_in_place():
    x = torch.arange(6.0, device="npu").reshape(2, 3)
    column = x[:, 1]
    assert column.untyped_storage().data_ptr() == x.untyped_storage().data_ptr()
    assert column.storage_offset() == 1 and column.stride() == (3,)
    assert column.add_(10) is column
    assert x.tolist() == [[0, 11, 2], [3, 14, 5]]
    x.view(-1)[4:].zero_()
    assert x.tolist() == [[0, 11, 2], [3, 0, 0]]
    assert x.t().contiguous().tolist() == [[0, 3], [11, 0], [2, 0]]
    bits = x.view(torch.int32)
    bits[0, 0] = 0x3F800000
    assert x[0, 0].item() == 1.0
    parts = x.split(1)
    parts[1].fill_(7)
    assert x[1].tolist() == [7, 7, 7]


@pytest.mark.parametrize(
    "name,call",
    [
        ("add", lambda x, y: x + y),
        ("remainder of a number", lambda x, y: (x % 128) + (x.long() % 3) + (x.long() * 0.5)),
        ("matmul", lambda x, y: x @ y.t()),
        ("softmax", lambda x, y: torch.softmax(x, -1)),
        ("topk", lambda x, y: torch.topk(x, 2)),
        ("sort", lambda x, y: torch.sort(x, dim=-1)),
        ("max", lambda x, y: x.max(dim=0)),
        ("cat", lambda x, y: torch.cat([x, y], 1)),
        ("where", lambda x, y: torch.where(x > 0, x, y)),
        ("index", lambda x, y: x[torch.tensor([1, 0, 1])]),
        ("bool index", lambda x, y: x[x > 0]),
        ("einsum", lambda x, y: torch.einsum("ij,kj->ik", x, y)),
        ("layer_norm", lambda x, y: F.layer_norm(x, (6,))),
        ("embedding", lambda x, y: F.embedding(torch.tensor([1, 3], device=x.device), y)),
        ("cumsum", lambda x, y: x.cumsum(-1)),
        ("bf16", lambda x, y: (x.bfloat16() * y.bfloat16()).float()),
        ("out", lambda x, y: torch.add(x, y, out=torch.empty(0, device=x.device))),
        ("nonzero", lambda x, y: (x > 0).nonzero()),
        ("sdpa", lambda x, y: F.scaled_dot_product_attention(x[None], y[None], y[None])),
        ("scatter", lambda x, y: x.scatter(1, (y > 0).long(), y)),
    ],
)  # fmt: skip
def test_operators_of_torch_are_the_cpus(name, call):
    torch.manual_seed(0)
    x, y = torch.randn(4, 6), torch.randn(4, 6)
    expected, found = call(x, y), call(x.npu(), y.npu())
    expected = expected if isinstance(expected, tuple) else (expected,)
    found = found if isinstance(found, tuple) else (found,)
    for e, f in zip(expected, found, strict=True):
        assert f.device.type == "npu"
        torch.testing.assert_close(f.cpu(), e, rtol=1e-6, atol=1e-6)


def test_tensors_of_two_devices_are_refused():
    x = torch.ones(2, 3, device="npu")
    with pytest.raises(RuntimeError, match=r"same device.*npu:0 and cpu"):
        x + torch.ones(2, 3)
    with pytest.raises(RuntimeError, match="same device"):
        torch.nn.functional.linear(x, torch.ones(4, 3))
    assert (x + torch.tensor(1.0)).sum().item() == 12  # a scalar may be anywhere
    x.copy_(torch.zeros(2, 3))
    assert x.sum().item() == 0
    with pytest.raises(TypeError, match="npu:0"):
        x.numpy()


def test_data_of_parameters_is_replaced():
    module = torch.nn.Linear(4, 3).npu()
    module.weight.data = module.weight.data.t().contiguous()
    assert module.weight.shape == (4, 3)
    other = copy.deepcopy(module)
    other.weight.data.zero_()
    assert module.weight.abs().sum().item() > 0
    module.load_state_dict(other.state_dict())
    assert module.weight.abs().sum().item() == 0


def test_gradients():
    x = torch.ones(2, 3).npu().requires_grad_()
    module = torch.nn.Linear(3, 1).npu()
    module(x).sum().backward()
    assert torch.equal(module.weight.grad.cpu(), torch.full((1, 3), 2.0))
    assert x.grad.device.type == "npu"


def test_saved_and_loaded():
    x = torch.arange(3.0, device="npu")
    file = io.BytesIO()
    torch.save({"x": x}, file)
    for where, expected in ((None, "npu"), ("cpu", "cpu")):
        file.seek(0)
        loaded = torch.load(file, map_location=where)["x"]
        assert loaded.device.type == expected and loaded.tolist() == [0, 1, 2]
    file = io.BytesIO()
    torch.save(torch.arange(2.0), file)
    file.seek(0)
    assert torch.load(file, map_location="npu:0").device.type == "npu"


def test_resized():
    x = torch.arange(2.0, device="npu")
    x.resize_(2, 2)
    assert x.shape == (2, 2) and x[0].tolist() == [0, 1]
    assert torch.arange(4.0, device="npu").resize_(2).tolist() == [0, 1]


def test_memory_is_counted():
    torch.npu.reset_peak_memory_stats()
    before = torch.npu.memory_allocated()
    x = torch.empty(1024, dtype=torch.float32, device="npu")
    assert torch.npu.memory_allocated() == before + 4096
    view = x[1:].view(-1)
    assert torch.npu.memory_allocated() == before + 4096
    free, total = torch.npu.mem_get_info()
    assert total - free == torch.npu.memory_allocated()
    del x, view
    assert torch.npu.memory_allocated() == before
    assert torch.npu.max_memory_allocated() >= before + 4096


def test_devices():
    assert torch.npu.is_available() and torch.npu.device_count() == 8
    torch.npu.set_device(1)
    assert torch.npu.current_device() == 1
    assert torch.ones(2).npu().device.index == 1
    assert torch.ones(2, device="npu").device.index == 1
    with torch.npu.device(2):
        assert torch.zeros(1, device="npu").device.index == 2
    one, two = torch.ones(2, device="npu:1"), torch.ones(2, device="npu:2")
    with pytest.raises(RuntimeError, match="npu:1 and npu:2"):
        one + two
    torch.npu.set_device("npu:0")
    with pytest.raises(RuntimeError, match="Invalid device ID 9"):
        torch.npu.set_device(9)
    with pytest.raises(ValueError, match="cuda"):
        torch.npu.set_device("cuda:0")


def test_random_numbers_repeat():
    torch.npu.manual_seed(3)
    a = torch.randn(4, device="npu")
    torch.npu.manual_seed_all(3)
    assert torch.equal(a, torch.randn(4, device="npu"))
    state = torch.npu.get_rng_state()
    b = torch.rand(2, device="npu")
    torch.npu.set_rng_state(state)
    assert torch.equal(b, torch.rand(2, device="npu"))
