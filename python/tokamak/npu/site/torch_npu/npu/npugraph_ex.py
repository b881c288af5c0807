"""torch.npu.npugraph_ex: compiling by torch.compile(backend="npugraph_ex"); it runs eagerly."""

from tokamak.npu.compiled import cache_compile, inference, scope

__all__ = ["cache_compile", "inference", "scope"]
