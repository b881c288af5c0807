"""torch_npu.profiler: the whole interface, of which the schedule and the callbacks are real. There
is no device to measure, so a trace has no timeline: only profiler_info.json, which says so."""

import enum
import json
import os
import socket
import time
from pathlib import Path


class ProfilerActivity(enum.Enum):
    CPU = "CPU"
    NPU = "NPU"


class ProfilerAction(enum.Enum):
    NONE = 0
    WARMUP = 1
    RECORD = 2
    RECORD_AND_SAVE = 3


class ProfilerLevel(enum.Enum):
    Level_none = "Level_none"
    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"


class AiCMetrics(enum.Enum):
    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory = "ACL_AICORE_MEMORY_BANDWIDTH"
    MemoryL0 = "ACL_AICORE_L0B_AND_WIDTH"
    MemoryUB = "ACL_AICORE_MEMORY_UB"
    ResourceConflictRatio = "ACL_AICORE_RESOURCE_CONFLICT_RATIO"
    L2Cache = "ACL_AICORE_L2_CACHE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType(enum.Enum):
    Text = "text"
    Db = "db"


class GcDetectThreshold(enum.IntEnum):
    NONE = 0


class _ExperimentalConfig:
    def __init__(
        self,
        profiler_level=ProfilerLevel.Level0,
        aic_metrics=None,
        l2_cache=False,
        msprof_tx=False,
        mstx=False,
        mstx_domain_include=None,
        mstx_domain_exclude=None,
        data_simplification=True,
        record_op_args=False,
        op_attr=False,
        gc_detect_threshold=None,
        export_type=None,
        host_sys=None,
        sys_io=False,
        sys_interconnection=False,
    ):
        self.__dict__.update({k: v for k, v in locals().items() if k != "self"})


def schedule(*, wait, active, warmup=0, repeat=0, skip_first=0):
    """What to do at each step: skip_first steps nothing, then rounds of wait, warmup, active."""
    for name, value in (("wait", wait), ("warmup", warmup), ("repeat", repeat)):
        if value < 0:
            raise ValueError(f"schedule: {name} must not be negative, got {value}")
    if active <= 0:
        raise ValueError(f"schedule: active must be positive, got {active}")

    def action(step):
        step -= skip_first
        length = wait + warmup + active
        if step < 0 or (repeat > 0 and step >= repeat * length):
            return ProfilerAction.NONE
        place = step % length
        if place < wait:
            return ProfilerAction.NONE
        if place < wait + warmup:
            return ProfilerAction.WARMUP
        last = place == length - 1
        return ProfilerAction.RECORD_AND_SAVE if last else ProfilerAction.RECORD

    return action


def tensorboard_trace_handler(
    dir_name=None, worker_name=None, analyse_flag=True, async_mode=False, **options
):
    """Where a trace is written: DIR/WORKER_TIME_ascend_pt, as torch_npu names it."""

    def handle(prof):
        folder = Path(dir_name or os.environ.get("ASCEND_WORK_PATH", ".") or ".")
        worker = worker_name or f"{socket.gethostname()}_{os.getpid()}"
        name = f"{worker}_{time.strftime('%Y%m%d%H%M%S')}{time.time_ns() // 1000 % 1000000:06d}"
        prof._write(folder / f"{name}_ascend_pt")

    return handle


class profile:
    def __init__(
        self,
        *,
        activities=None,
        schedule=None,
        on_trace_ready=None,
        record_shapes=False,
        profile_memory=False,
        with_stack=False,
        with_modules=False,
        with_flops=False,
        experimental_config=None,
        custom_trace_id_callback=None,
        use_cuda=None,
    ):
        if experimental_config is not None and not isinstance(
            experimental_config, _ExperimentalConfig
        ):
            raise TypeError("experimental_config must be an _ExperimentalConfig")
        self.schedule = schedule or (lambda step: ProfilerAction.RECORD)
        self.on_trace_ready = on_trace_ready
        self.step_num = 0
        self.metadata = {}
        self._running = False
        self._recorded = False  # since the last trace

    def start(self):
        self._running = True
        self._note()

    def stop(self):
        if self._running and self._recorded:
            self._ready()
        self._running = False

    def step(self):
        if not self._running:
            return
        if self.schedule(self.step_num) == ProfilerAction.RECORD_AND_SAVE:
            self._ready()
        self.step_num += 1
        self._note()

    def _note(self):
        recording = (ProfilerAction.RECORD, ProfilerAction.RECORD_AND_SAVE)
        self._recorded = self._recorded or self.schedule(self.step_num) in recording

    def _ready(self):
        self._recorded = False
        if self.on_trace_ready is not None:
            self.on_trace_ready(self)

    def add_metadata(self, key, value):
        self.metadata[key] = value

    def add_metadata_json(self, key, value):
        self.metadata[key] = json.loads(value)

    def export_chrome_trace(self, path):
        Path(path).write_text("[]\n", encoding="utf-8")

    def _write(self, folder):
        folder.mkdir(parents=True, exist_ok=True)
        info = {
            "emulation": "tokamak.npu has no device: there is no timeline",
            "step": self.step_num,
            "metadata": self.metadata,
        }
        (folder / "profiler_info.json").write_text(json.dumps(info, indent=2) + "\n")

    def __enter__(self):
        self.start()
        return self

    def __exit__(self, *exc):
        self.stop()


_KinetoProfile = profile


def supported_activities():
    return set(ProfilerActivity)


def analyse(profiler_path, max_process_number=None, export_type=None):
    if not Path(profiler_path).is_dir():
        raise RuntimeError(f"{profiler_path} is not a folder")
