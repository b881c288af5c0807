"""torchair.ops: order between streams, which one stream has anyway."""

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
