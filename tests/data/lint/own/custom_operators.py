# GM-39: what a custom operator needs to enter a graph.
import torch
from torch.library import Library, impl

library = Library("demo", "DEF")
library.define("scale(Tensor x) -> Tensor")  # expect: custom-op-without-meta
library.define("shift(Tensor x) -> Tensor")


@impl(library, "scale", "PrivateUse1")
def scale(x):
    return x * 2


@impl(library, "shift", "Meta")
def shift_meta(x):
    return torch.empty_like(x)


@torch.library.custom_op("demo::double", mutates_args=())
def double(x: torch.Tensor) -> torch.Tensor:
    return x * x.max().item()


@double.register_fake
def _(x):
    return torch.empty_like(x)


@torch.library.custom_op("demo::triple", mutates_args=())  # expect: custom-op-without-meta
def triple(x: torch.Tensor) -> torch.Tensor:
    return x * 3


@torch.compile(backend="npugraph_ex")
def step(x):
    return double(triple(x))
