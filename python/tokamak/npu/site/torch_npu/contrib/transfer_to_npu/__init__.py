"""import torch_npu.contrib.transfer_to_npu: a script written for cuda and nccl runs on npu."""

from tokamak.npu import transfer

transfer.install()
