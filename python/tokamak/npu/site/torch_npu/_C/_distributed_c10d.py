from tokamak.npu.hccl import ProcessGroupHCCL

__all__ = ["ProcessGroupHCCL"]
