"""baseline_metadata.json (EB-54): a reading of logs with what it was taken on."""

import hashlib
import importlib.metadata
import re
import shutil
import subprocess
from contextlib import suppress
from datetime import datetime
from pathlib import Path

_DEVICE_ROW = re.compile(r"^\|\s*\d+\s+(\S+)\s*\|")  # "| 0     910B3  | OK  |" of `npu-smi info`
_VERSION_FILES = ("version.cfg", "version.info")


def settings_of(yaml_path):
    """The one-line settings of a YAML file, by their names: {"exe_mode": "eager", ...}."""
    lines = Path(yaml_path).read_text(encoding="utf-8", errors="replace").splitlines()
    matches = (re.match(r"\s*(\w+):\s+[\"']?([^\"'#]*?)[\"']?\s*(?:#.*)?$", line) for line in lines)
    return {match[1]: match[2] for match in matches if match and match[2]}


def environment():
    """Of this machine, when it has NPUs: logs from elsewhere say nothing of theirs."""
    found = dict.fromkeys(
        ("npu_model", "num_cards", "cann_version", "pytorch_version", "torch_npu_version")
    )
    if shutil.which("npu-smi") is None:
        return found
    table = subprocess.run(["npu-smi", "info"], capture_output=True, text=True).stdout
    rows = [match[1] for match in map(_DEVICE_ROW.match, table.splitlines()) if match]
    models = [name for name in rows if not name.isdigit()]  # the second row of a device is a chip
    found["npu_model"] = models[0] if models else None
    found["num_cards"] = len(models) or None
    found["cann_version"] = _cann_version()
    for key, package in (("pytorch_version", "torch"), ("torch_npu_version", "torch_npu")):
        with suppress(importlib.metadata.PackageNotFoundError):  # None: it is not installed
            found[key] = importlib.metadata.version(package)
    return found


def _cann_version():
    for name in _VERSION_FILES:
        path = Path("/usr/local/Ascend/ascend-toolkit/latest") / name
        if path.is_file() and (match := re.search(r"\d+\.\d+\.\w+", path.read_text())):
            return match[0]
    return None


def metadata(reading, yaml_path, model_source, target):
    settings = settings_of(yaml_path) if yaml_path else {}
    yaml_hash = hashlib.sha256(Path(yaml_path).read_bytes()).hexdigest() if yaml_path else None
    return {
        "timestamp": datetime.now().astimezone().isoformat(timespec="seconds"),
        "yaml_path": str(yaml_path) if yaml_path else None,
        "environment": {**environment(), "exe_mode": settings.get("exe_mode")},
        "model_config": {"model_name": settings.get("model_name"), "model_source": model_source},
        "performance": {
            "prefill_ms": reading["prefill_ms"],
            "decode_avg_ms": reading["decode_avg_ms"],
            "output_text": reading["output_text"],
        },
        "verification": {"all_ranks_success": reading["all_ranks_success"]},
        "tokamak": {
            "target": target,
            "kind": "measured",
            "steps": reading["decode_steps"],
            "spread_ms": _spread(reading["decode_steps_ms"][1:]),
            "yaml_hash": yaml_hash,
        },
    }


def _spread(steps):
    return max(steps) - min(steps) if steps else None
