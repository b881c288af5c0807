"""The emulation for tests of operators: `torch_npu` is the module that a script would import."""

import importlib

import pytest
from tokamak.errors import Error


@pytest.fixture(scope="session")
def torch_npu():
    pytest.importorskip("torch")
    try:
        importlib.import_module("tokamak.npu")
    except Error as error:
        pytest.skip(error.message)
    return importlib.import_module("torch_npu")
