"""torch.npu beyond tensors: which devices there are, what they are called, settings that are
taken and have no effect on results."""

import types

import torch

from . import device as _device
from . import memory, registry

# What the library calls the chips; scripts look for "910B" and "910_93".
_NAMES = {"a2": "Ascend910B2", "a3": "Ascend910_9392"}
_SOC_VERSIONS = {"a2": 222, "a3": 251}
_CORES = {"a2": (24, 48), "a3": (24, 48)}


def is_available():
    return True


def is_initialized():
    return True


def init():
    pass


def _lazy_init():
    pass


def _is_in_bad_fork():
    return False


def is_bf16_supported():
    return True


def device_count():
    return _device.device_count()


def current_device():
    return _device.current_device()


def _index(device):
    if device is None:
        return current_device()
    if isinstance(device, int):
        return device
    device = torch.device(device)
    if device.type != "npu":
        raise ValueError(f"Expected a npu device, but got: {device}")
    return current_device() if device.index is None else device.index


def set_device(device):
    index = _index(device)
    if not 0 <= index < device_count():
        raise RuntimeError(
            f"Invalid device ID {index}: there are {device_count()} (TOKAMAK_NPU_DEVICES)\n"
            "[ERROR] ERR00101 PTA invalid argument"
        )
    _device.set_device(index)


class device:
    """with torch.npu.device(1): the current device for a while."""

    def __init__(self, device):
        self.idx = _index(device)

    def __enter__(self):
        self.before = current_device()
        set_device(self.idx)

    def __exit__(self, *exc):
        set_device(self.before)


class device_of(device):
    def __init__(self, tensor):
        super().__init__(tensor.device if tensor.device.type == "npu" else None)


def synchronize(device=None):
    _index(device)


def get_device_name(device=None):
    _index(device)
    return _NAMES[registry.soc()]


def get_soc_version():
    return _SOC_VERSIONS[registry.soc()]


def get_device_capability(device=None):
    """None, as torch_npu has it: chips have no such number."""
    return


def get_device_properties(device=None):
    cube, vector = _CORES[registry.soc()]
    return types.SimpleNamespace(
        name=get_device_name(device),
        total_memory=memory.total_memory(),
        cube_core_num=cube,
        vector_core_num=vector,
        multi_processor_count=cube,
    )


def can_device_access_peer(device, peer_device):
    return 0 <= _index(peer_device) < device_count()


def utilization(device=None):
    return 0


# ---- random numbers: those of the CPU


def manual_seed(seed):
    torch.default_generator.manual_seed(int(seed))


manual_seed_all = manual_seed


def seed():
    torch.default_generator.seed()


seed_all = seed


def initial_seed():
    return torch.default_generator.initial_seed()


def get_rng_state(device="npu"):
    return torch.default_generator.get_state()


def set_rng_state(new_state, device="npu"):
    torch.default_generator.set_state(new_state)


def get_rng_state_all():
    return [get_rng_state() for _ in range(device_count())]


def set_rng_state_all(new_states):
    for state in new_states:
        set_rng_state(state)


# ---- settings


def set_compile_mode(jit_compile=False):
    if not isinstance(jit_compile, bool):
        raise TypeError(f"set_compile_mode: jit_compile must be a bool, got {jit_compile!r}")


def is_jit_compile_false():
    return True


def set_option(option):
    if not isinstance(option, dict):
        raise TypeError(f"npu option must be a dict, got {type(option).__name__}")


def set_sync_debug_mode(debug_mode):
    pass


def set_deterministic_level(level):
    pass


class Config:
    """torch.npu.config: what is set can be read again."""

    allow_internal_format = False


config = Config()
matmul = types.SimpleNamespace(allow_hf32=False, cube_math_type=1)
conv = types.SimpleNamespace(allow_hf32=True)
aclnn = types.SimpleNamespace(allow_hf32=True, version=lambda: None)


def get_amp_supported_dtype():
    return [torch.float16, torch.bfloat16, torch.float32]


def is_autocast_enabled():
    return torch.is_autocast_enabled("npu")


def get_autocast_dtype():
    return torch.get_autocast_dtype("npu")
