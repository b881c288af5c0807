"""`tokamak emit profiling --project`: the project's own switch, or a snippet (PF-01, PF-02)."""

import subprocess
import sys
import types

import pytest

CONTEXT = """
import torch_npu


class FakeContextManager:
    def step(self):
        return

    def stop(self):
        return


def create_profiler(enable_profiler=False, profile_save_path="prof", active=3, skip_first=3):
    return torch_npu.make(profile_save_path, active, skip_first)


class ProfilerManager:
    def __init__(self):
        self.status = None
        self.current_profiler = FakeContextManager()

    def set_status(self, is_prefill):
        if self.status is None and is_prefill:
            self.status = "prefill"
            self.current_profiler = create_profiler(
                enable_profiler=True, profile_save_path="prefill",  # Vorfüllung
                active=1, skip_first=0)
            self.current_profiler.start()
        elif self.status == "prefill" and not is_prefill:
            self.status = "decode"
            self.current_profiler.stop()
            self.current_profiler = create_profiler(profile_save_path="decode")
            self.current_profiler.start()
"""
YAML = "model_config:\n  exe_mode: eager\nscheduler_config:\n  max_new_tokens: {}\n"
LOOP = """
def serve(model, batches, profiler):
    for batch in batches:
        with {}:
            model(batch)
"""


def emit(binary, *args, code=0):
    done = subprocess.run(
        [str(binary), "emit", "profiling", *map(str, args)],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert done.returncode == code, done.stdout + done.stderr
    return done


@pytest.fixture
def framework(tmp_path):
    root = tmp_path / "project"
    (root / "executor" / "utils").mkdir(parents=True)
    (root / "executor" / "utils" / "profiler_context.py").write_text(CONTEXT)
    (root / "executor" / "model_runner.py").write_text("def define_profiler():\n    pass\n")
    (root / "run.yaml").write_text(YAML.format(256))
    return root


def profilers_of(root, monkeypatch):
    """(folder, active, skip_first) of each profiler that a run of the patched file makes."""
    made = []

    class Profiler:
        def start(self):
            pass

        stop = step = start

    def make(*what):
        made.append(what)
        return Profiler()

    monkeypatch.setitem(sys.modules, "torch_npu", types.SimpleNamespace(make=make))
    names = {}
    exec((root / "executor" / "utils" / "profiler_context.py").read_text(), names)
    manager = names["ProfilerManager"]()
    for is_prefill in (True, False, False):
        manager.set_status(is_prefill)
        manager.current_profiler.step()
    return made


@pytest.mark.parametrize(
    ("args", "expected"),
    [
        (("--decode-steps", 20), [("prefill", 1, 0), ("decode", 20, 3)]),
        (("--stage", "decode", "--skip", 5), [("decode", 10, 5)]),
        (("--stage", "prefill"), [("prefill", 1, 0)]),
    ],
)
def test_the_patch_sets_steps_and_stage(tokamak_binary, framework, monkeypatch, args, expected):
    patch = framework.parent / "p.patch"  # PF-02
    done = emit(
        tokamak_binary, "--project", framework, "--yaml", framework / "run.yaml", "-o", patch, *args
    )
    assert done.stdout.startswith("way: framework: executor/utils/profiler_context.py is there")
    assert "PF-L1" in patch.read_text()
    subprocess.run(["git", "apply", str(patch)], cwd=framework, check=True)
    assert "model_config:\n  enable_profiler: True\n" in (framework / "run.yaml").read_text()
    assert profilers_of(framework, monkeypatch) == expected


@pytest.mark.parametrize(
    ("files", "way"),
    [
        ({"serve.py": LOOP.format("torch_npu.profiler.profile()")}, "framework"),
        ({"models/a/config.yaml": "enable_profiler: False\n"}, "framework"),
        ({"serve.py": LOOP.format("open('torch_npu.profiler')")}, "inject"),
        ({"tool.py": "import torch_npu\np = torch_npu.profiler.profile()\n"}, "inject"),
    ],
)
def test_the_way_is_told_from_the_code(tokamak_binary, tmp_path, files, way):  # PF-01
    root = tmp_path / "project"
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)
    done = emit(tokamak_binary, "--project", root)
    assert done.stdout.startswith(f"way: {way}")
    assert ("def profile_steps" in done.stdout) == (way == "inject")


def test_what_cannot_work_is_refused(tokamak_binary, framework):
    for args, code in (
        (("--project", framework / "no"), "TK1701"),
        (("--project", framework, "--yaml", framework / "no.yaml"), "TK1701"),
        (("--project", framework, "--level", "Level2"), "TK1703"),
        (("--project", framework, "--stage", "timeline"), "TK1703"),
    ):
        assert code in emit(tokamak_binary, *args, code=2).stderr
    (framework / "run.yaml").write_text(YAML.format(8))  # PF-17
    args = ("--project", framework, "--yaml", framework / "run.yaml")
    assert "TK1702" in (stderr := emit(tokamak_binary, *args, code=2).stderr)
    assert "skip_first 3 + active 10 + 1 = 14" in stderr


class Recorder:
    """What the snippet asks of torch_npu, in order."""

    def __init__(self):
        self.events, self.profiles = [], []

    def modules(self):
        def profile(**asked):
            self.profiles.append(asked)
            self.events.append("begin")
            recorder = self

            class Running:
                def __enter__(self):
                    return self

                def __exit__(self, *error):
                    recorder.events.append("end")

                def step(self):
                    recorder.events.append("step")

            return Running()

        names = types.SimpleNamespace
        profiler = names(
            profile=profile,
            schedule=lambda **numbers: numbers,
            tensorboard_trace_handler=lambda path: path,
            _ExperimentalConfig=lambda **config: config,
            ProfilerLevel=names(Level1="Level1"),
            AiCMetrics=names(PipeUtilization="PipeUtilization"),
            ProfilerActivity=names(CPU="CPU", NPU="NPU"),
        )
        npu = names(synchronize=lambda: self.events.append("sync"))
        return {"torch": names(npu=npu), "torch_npu": names(profiler=profiler)}


def test_the_snippet_collects_a_usable_profile(tokamak_binary, monkeypatch):  # PF-03, PF-05
    text = emit(tokamak_binary, "--decode-steps", 4, "--out", "prof").stdout
    seen = Recorder()
    for name, module in seen.modules().items():
        monkeypatch.setitem(sys.modules, name, module)
    names = {}
    exec(text, names)
    for stage in ("prefill", "decode"):
        names[stage] = lambda state, stage=stage: seen.events.append(stage)
    names["main"](lambda: "state", names["prefill"], names["decode"])
    for asked in seen.profiles:
        assert asked["experimental_config"]["profiler_level"] == "Level1"  # PF-10, PF-12
        assert asked["experimental_config"]["aic_metrics"] == "PipeUtilization"
        assert set(asked["activities"]) == {"CPU", "NPU"}  # PF-14
        assert asked["record_shapes"] is True and asked["with_stack"] is False  # PF-13
        assert asked["schedule"]["warmup"] == 0  # PF-18
    assert [p["on_trace_ready"] for p in seen.profiles] == ["prof/prefill", "prof/decode"]  # PF-19
    assert seen.events[:3] == ["prefill", "decode", "sync"]  # PF-16: compiled before the window
    windows = " ".join(seen.events).split("begin")[1:]
    for window, stage, active, skip in zip(
        windows, ("prefill", "decode"), (1, 4), (0, 3), strict=True
    ):
        schedule = seen.profiles[stage == "decode"]["schedule"]
        assert (schedule["active"], schedule["skip_first"]) == (active, skip)
        events = window.split()[: window.split().index("end")]
        runs, steps = events.count(stage), events.count("step")
        assert runs >= active + skip and steps == runs + 1  # PF-17: one closing step
        before = [events[i - 1] for i, e in enumerate(events) if e == "step"]
        assert set(before) == {"sync"}  # PF-15


def test_metrics_without_a_level_are_refused(tokamak_binary):  # PF-11
    for level in ("Level0", "none"):
        done = emit(tokamak_binary, "--level", level, "--metrics", "Memory", code=2)
        assert "TK0921" in done.stderr and "--level Level1, or --metrics none" in done.stderr
        emit(tokamak_binary, "--level", level, "--metrics", "none")
