"""torchair.ops: attention with lengths as tensors, and order between streams, which one stream has
anyway."""

import torch


def npu_tagged_event_record(event):
    event.record()


def npu_tagged_event_wait(event):
    event.wait()


def npu_record_tagged_stream(tensor, tagged_stream):
    pass


def npu_create_tagged_event(tag):
    return torch.npu.Event()


def npu_print(*inputs, summarize_size=3):
    print(*inputs)


def npu_wait_tensor(tensor, dependency):
    return tensor


def _in_graph(name, args, kwargs):
    if not torch.compiler.is_compiling():
        raise RuntimeError(
            f"torchair.ops.{name} is for GE graphs only: compile the caller with a backend of "
            "torchair.get_npu_backend(), or call torch_npu."
            f"{name} with lists of lengths\n[ERROR] ERR03007 GRAPH feature not supported"
        )
    return getattr(torch.ops.torchair_graph, name)(*args, **kwargs)


def npu_fused_infer_attention_score(*args, **kwargs):
    return _in_graph("npu_fused_infer_attention_score", args, kwargs)


def npu_fused_infer_attention_score_v2(*args, **kwargs):
    return _in_graph("npu_fused_infer_attention_score_v2", args, kwargs)
