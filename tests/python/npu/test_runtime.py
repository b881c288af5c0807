"""Streams, events, graphs, formats, the profiler, scripts for CUDA, groups of HCCL."""

import copy
import json
import pickle
import threading

import emulated
import pytest

torch = pytest.importorskip("torch")


@pytest.fixture(autouse=True)
def emulation(torch_npu):
    return torch_npu


def test_streams_and_events():
    stream = torch.npu.Stream()
    assert torch.npu.current_stream() == torch.npu.default_stream() != stream
    x = torch.ones(2, device="npu")
    with torch.npu.stream(stream):
        assert torch.npu.current_stream() == stream
        x += 1
        x.record_stream(stream)
        event = stream.record_event()
    assert torch.npu.current_stream() == torch.npu.default_stream()
    torch.npu.current_stream().wait_stream(stream)
    torch.npu.current_stream().wait_event(event)
    event.wait()
    assert event.query() and stream.query()
    torch.npu.synchronize()
    a, b = (torch.npu.Event(enable_timing=True) for _ in range(2))
    with pytest.raises(RuntimeError, match="recorded"):
        a.elapsed_time(b)
    a.record()
    b.record()
    assert a.elapsed_time(b) >= 0
    with pytest.raises(RuntimeError, match="enable_timing"):
        torch.npu.Event().elapsed_time(b)


def test_a_graph_is_replayed_into_the_same_memory(torch_npu):
    x = torch.ones(2, 64, device="npu")
    gamma = torch.ones(64, device="npu")
    cache = torch.zeros(4, 64, device="npu")
    graph = torch.npu.NPUGraph()
    with torch.npu.graph(graph):
        y = torch_npu.npu_rms_norm(x * 2, gamma)[0]
        cache[1:3].add_(y)
        z = y.view(-1)[:2] + cache[1, 0]
    address = z.data_ptr()
    first = z.clone()
    x.copy_(torch.randn(2, 64))
    cache.zero_()
    graph.replay()
    assert z.data_ptr() == address and not torch.equal(z, first)
    expected = torch_npu.npu_rms_norm(x * 2, gamma)[0]
    assert torch.equal(cache[1:3], expected)
    assert torch.equal(z, expected[0, :2] + expected[0, 0])
    with pytest.raises(RuntimeError, match="capturing"), torch.npu.graph(torch.npu.NPUGraph()):
        y.sum().item()
    assert not torch.npu.is_current_stream_capturing()
    with pytest.raises(RuntimeError, match="not been captured"):
        torch.npu.NPUGraph().replay()


def test_formats(torch_npu):
    x = torch.randn(32, 64, device="npu").bfloat16()
    assert torch_npu.get_npu_format(x) == 2
    parameter = torch.nn.Parameter(x)
    parameter.data = torch_npu.npu_format_cast(parameter.data, 29)
    assert torch_npu.get_npu_format(parameter) == 29
    assert torch.equal(parameter, x)
    assert torch_npu.get_npu_format(x) == 2
    assert torch_npu.get_npu_format(torch_npu.npu_format_cast(parameter.data, 2)) == 2


def test_formats_in_place_and_by_name(torch_npu):
    x = torch.randn(16, 32, device="npu").half()
    torch_npu.npu_format_cast_(x, torch_npu.Format.FRACTAL_NZ)
    assert torch_npu.get_npu_format(x) == torch_npu.Format.FRACTAL_NZ == 29
    made = torch_npu.empty_with_format((2, 3), dtype=torch.half, device="npu", acl_format=29)
    assert torch_npu.get_npu_format(made) == 29 and made.shape == (2, 3)


def test_autocast():
    a, b = torch.randn(4, 8, device="npu"), torch.randn(8, 2, device="npu")
    with torch.autocast("npu", dtype=torch.bfloat16):
        product = a @ b
        assert product.dtype == torch.bfloat16
        assert (a + 1).dtype == torch.float32
        assert product.softmax(-1).dtype == torch.float32
        assert torch.nn.functional.linear(a, b.t()).dtype == torch.bfloat16
    assert torch.equal(product, a.bfloat16() @ b.bfloat16())
    assert (a @ b).dtype == torch.float32
    with torch.npu.amp.autocast(dtype=torch.float16, enabled=False):
        assert (a @ b).dtype == torch.float32


def test_copies_of_the_host_are_copies_of_the_device():
    x = torch.randn(4, 4, device="npu")
    again = copy.deepcopy(x)
    assert again.device == x.device and torch.equal(again, x)
    again.zero_()
    assert x.abs().sum() > 0
    assert torch.equal(pickle.loads(pickle.dumps(x)), x)
    assert torch.ones(2).pin_memory().npu().device.type == "npu"
    draws = [
        torch.rand(3, generator=torch.Generator("npu").manual_seed(1), device="npu")
        for _ in range(2)
    ]
    assert torch.equal(*draws)
    image = torch.randn(1, 2, 5, 5)
    convolution = torch.nn.Conv2d(2, 3, 3)
    expected = convolution(image)
    assert torch.equal(convolution.npu()(image.npu()).cpu(), expected)


def test_marks_of_the_profiler():
    mstx = torch.npu.mstx
    mstx.mark("step")
    number = mstx.range_start("decode")
    mstx.range_end(number)
    with pytest.raises(RuntimeError, match="open"):
        mstx.range_end(number)
    with pytest.raises(TypeError, match="str"):
        mstx.mark(1)
    with mstx.mstx_range("prefill"):
        pass


def test_graphed_callables():
    layer = torch.nn.Linear(4, 2).npu()
    x = torch.randn(3, 4, device="npu")
    assert torch.equal(torch.npu.make_graphed_callables(layer, (x,))(x), layer(x))
    with pytest.raises(RuntimeError, match="sample_args"):
        torch.npu.make_graphed_callables((layer, layer), ((x,),))


def test_settings():
    torch.npu.set_compile_mode(jit_compile=False)
    with pytest.raises(TypeError, match="jit_compile"):
        torch.npu.set_compile_mode(jit_compile="no")
    torch.npu.config.allow_internal_format = True
    assert torch.npu.config.allow_internal_format
    with pytest.raises(TypeError, match="dict"):
        torch.npu.set_option("x")
    assert torch.npu.get_device_properties().total_memory == torch.npu.mem_get_info()[1]


def test_swapped_memory(torch_npu):
    x = torch_npu.empty_with_swapped_memory((2, 3), dtype=torch.int8, device="npu:0")
    assert x.shape == (2, 3) and x.dtype == torch.int8 and x.device.type == "npu"
    with pytest.raises(RuntimeError, match="npu"):
        torch_npu.empty_with_swapped_memory((2,), device="cpu")


def test_profiler(torch_npu, tmp_path):
    profiler = torch_npu.profiler
    config = profiler._ExperimentalConfig(
        profiler_level=profiler.ProfilerLevel.Level1,
        aic_metrics=profiler.AiCMetrics.PipeUtilization,
    )
    with profiler.profile(
        activities=[profiler.ProfilerActivity.NPU, profiler.ProfilerActivity.CPU],
        experimental_config=config,
        schedule=profiler.schedule(wait=1, warmup=0, active=2, repeat=2, skip_first=1),
        on_trace_ready=profiler.tensorboard_trace_handler(str(tmp_path)),
    ) as prof:
        for _ in range(9):
            prof.step()
    written = sorted(tmp_path.glob("*_ascend_pt/profiler_info.json"))
    assert [json.loads(w.read_text())["step"] for w in written] == [3, 6]
    with pytest.raises(TypeError):
        profiler.profile(experimental_config={})
    with pytest.raises(ValueError, match="active"):
        profiler.schedule(wait=0, active=0)


def test_scripts_for_cuda():
    found = emulated.run(
        "import torch, torch_npu\n"
        "from torch_npu.contrib import transfer_to_npu\n"
        "x = torch.ones(2, device='cuda')\n"
        "print(x.device, x.cuda().is_cuda, torch.zeros(2).to('cuda:0').device)\n"
        "print(torch.nn.Linear(2, 2).cuda().weight.device, torch.cuda.device_count())\n"
    )
    assert found.stdout == "npu:0 True npu:0\nnpu:0 8\n", found.stderr


GROUPS = """
import os, torch, torch_npu, torch.distributed as dist
from tokamak.npu import hccl
rank = int(os.environ["RANK"])
torch.npu.set_device(rank)
options = torch_npu._C._distributed_c10d.ProcessGroupHCCL.Options()
options.hccl_config = {"hccl_buffer_size": 200}
dist.init_process_group("hccl")
group = dist.new_group([0, 1], pg_options=options)
x = torch.arange(4.0, device="npu") + rank
both = torch.arange(4.0) * 2 + 1

y = x.clone(); dist.all_reduce(y, group=group); assert torch.equal(y.cpu(), both)
y = x.clone(); dist.all_reduce(y, async_op=True).wait(); assert torch.equal(y.cpu(), both)
y = x.bfloat16(); dist.all_reduce(y, op=dist.ReduceOp.MAX); assert y.tolist() == [1, 2, 3, 4]
y = x.clone(); dist.broadcast(y, 1); assert y.tolist() == [1, 2, 3, 4]
y = torch.empty(2, device="npu"); dist.reduce_scatter_tensor(y, x)
assert torch.equal(y.cpu(), both[2 * rank : 2 * rank + 2])
y = torch.empty(8, device="npu"); dist.all_gather_into_tensor(y, x)
assert y.tolist() == [0, 1, 2, 3, 1, 2, 3, 4]
y = [torch.empty(4, device="npu") for _ in range(2)]; dist.all_gather(y, x)
assert torch.stack(y).tolist() == [[0, 1, 2, 3], [1, 2, 3, 4]]
y = torch.empty(4, device="npu"); dist.all_to_all_single(y, x)
assert y.tolist() == ([0, 1, 1, 2] if rank == 0 else [2, 3, 3, 4])
y = torch.empty(2 if rank == 0 else 6, device="npu")
dist.all_to_all_single(y, x, [1, 1] if rank == 0 else [3, 3], [1, 3])
assert y.tolist() == ([0, 1] if rank == 0 else [1, 2, 3, 2, 3, 4])
y = [torch.empty(2, device="npu") for _ in range(2)]
dist.all_to_all(y, [x[:2].clone(), x[2:].clone()])
assert torch.cat(y).tolist() == ([0, 1, 1, 2] if rank == 0 else [2, 3, 3, 4])
y = torch.empty(4, device="npu")
ops = [dist.P2POp(dist.isend, x, 1 - rank), dist.P2POp(dist.irecv, y, 1 - rank)]
for work in dist.batch_isend_irecv(ops): work.wait()
assert torch.equal(y.cpu(), torch.arange(4.0) + 1 - rank)
y = torch.ones(2); dist.all_reduce(y); assert y.tolist() == [2, 2]  # of the host
y = [None, None]; dist.all_gather_object(y, rank); assert y == [0, 1]

name = group._get_backend(torch.device("npu")).get_hccl_comm_name(rank)
assert hccl.group(name) is group
names = [None, None]; dist.all_gather_object(names, name); assert names[0] == names[1]
try:
    hccl.group("nothing")
except RuntimeError as error:
    assert name in str(error)
gloo = dist.new_group([0, 1], backend="gloo")
try:
    dist.all_reduce(x.clone(), group=gloo)
    raise SystemExit("a gloo group took a tensor of the device")
except RuntimeError as error:
    assert "No backend type associated with device type npu" in str(error)
dist.barrier()
dist.destroy_process_group()
print("done", rank)
"""


def test_groups_of_hccl():
    import recipes

    port, found = str(recipes.free_port()), [None, None]
    env = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": port, "WORLD_SIZE": "2"}

    def rank(i):
        found[i] = emulated.run(GROUPS, RANK=str(i), **env)

    threads = [threading.Thread(target=rank, args=(i,)) for i in range(2)]
    for t in threads:
        t.start()
    for t in threads:
        t.join()
    for i in range(2):
        assert found[i].stdout.endswith(f"done {i}\n"), found[i].stderr
