"""The emulation for tests of operators: `torch_npu` is the module that a script would import."""

import pytest
import tokamak


@pytest.fixture(scope="session")
def torch_npu():
    pytest.importorskip("torch")
    try:
        import tokamak.npu  # noqa: F401
    except tokamak.Error as error:
        pytest.skip(error.message)
    import torch_npu

    return torch_npu
