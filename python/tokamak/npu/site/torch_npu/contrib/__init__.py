"""Extras of torch_npu: transfer_to_npu, which is loaded by its own import only."""
