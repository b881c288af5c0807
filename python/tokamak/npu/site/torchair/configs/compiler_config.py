from tokamak.npu.compiled import CompilerConfig

__all__ = ["CompilerConfig"]
