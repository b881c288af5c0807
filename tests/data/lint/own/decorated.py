import torch


@torch.compile(backend="npugraph_ex", fullgraph=True)
def step(x, n):
    y = torch.nonzero(x)  # expect: data-dependent-shape
    return helper(y) + n


def helper(y):
    return y.sum().item()  # expect: host-sync-item


@torch.compiler.disable
def log(x):
    print(x.mean().item())


def host(x):
    print(step(x, 1).tolist())
    log(x)
