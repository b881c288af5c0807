"""The logs of cann-recipes-infer and of emitted runners: times, texts, and how each rank ended.

Two formats (EB-52), told apart by content: the framework's "[Main] Inference time (decode): X ms",
whose warm-up writes no time, and the runners' "NAME inference time cost of decode is X ms", where
what comes before the last prefill is warm-up.
"""

import re
import unicodedata
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from statistics import fmean

from ..errors import Error

_HEADER = re.compile(r"^(?:\[(?P<level>[A-Z]+)\]\[)?\d{4}-\d\d-\d\d \d\d:\d\d:\d\d")
_FRAMEWORK = re.compile(r"\[(Main|MTP \d+)\] Inference time \((prefill|decode)\): ([\d.]+) ms")
_RUNNER = re.compile(r"inference time cost of (prefill|decode) is ([\d.]+) ms")
_REQUEST = re.compile(r"Request \d+: outputs: (.*)")
_RESULT = re.compile(r"Inference decode result(?: for .*?)?: ?$")
_DRAFT = {
    "next_n": re.compile(r"equivalent latency of MTP(\d+)"),
    "accept_length": re.compile(r"speculation accept length: ([\d.]+)"),
    "accept_rate": re.compile(r"speculation accept rate: ([\d.]+)"),
    "valid_output_tokens": re.compile(r"number of valid output tokens is (\d+)"),
}
_TRACEBACK = "Traceback (most recent call last):"
_OUT_OF_MEMORY = re.compile(r"out of memory", re.IGNORECASE)
# A word, or one sign of a script that puts no spaces between them.
_WORD = re.compile(
    r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]|[^\s\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+"
)
_LONG = 16  # words, from which on repetition is judged
_LONGEST_PATTERN = 8  # words


@dataclass
class RankLog:
    """One rank's log. Times in ms; of the runners' format those of the measured run alone."""

    path: Path
    format: str = ""  # "framework", "runner"; "" when no line of either is there
    prefill: list = field(default_factory=list)
    decode: list = field(default_factory=list)
    draft_steps: list = field(default_factory=list)  # (draft model, ms)
    draft: dict = field(default_factory=dict)  # what the summary of a run with drafts says
    outputs: list = field(default_factory=list)
    error: str = ""  # the line that says what failed
    out_of_memory: bool = False
    last_line: str = ""

    @property
    def succeeded(self):
        return bool(self.prefill and self.decode) and not self.error


def read_rank(path):
    """The log of one rank. Raises TK1210 when it cannot be read."""
    log = RankLog(Path(path))
    text = None  # lines of an output that is being read
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            for line in file:
                text = _take_line(log, line.rstrip("\r\n"), text)
    except OSError as error:
        raise Error(
            "TK1210",
            f"cannot read {path}: {error.strerror}",
            help="give a log, or a folder of them",
        ) from error
    _end_of_text(log, text)
    return log


def _take_line(log, line, text):
    """Returns the text that goes on in the next line, or None."""
    if line.strip():
        log.last_line = line.strip()
    header = _HEADER.match(line)
    crashed = line == _TRACEBACK and (text is None or text[-1] == "")
    if text is not None and not header and not crashed:
        text.append(line)
        return text
    _end_of_text(log, text)
    if crashed or (header and header["level"] in ("ERROR", "CRITICAL")):
        log.error = line
    elif log.error and not header and line.strip():
        log.error = line.strip()  # the traceback's last line says what it was
    log.out_of_memory |= bool(log.error and _OUT_OF_MEMORY.search(line))
    if match := _FRAMEWORK.search(line):
        log.format = "framework"
        who, phase, value = match[1], match[2], float(match[3])
        if who == "Main":
            (log.prefill if phase == "prefill" else log.decode).append(value)
        elif phase == "decode":
            log.draft_steps.append((who, value))
    elif match := _RUNNER.search(line):
        log.format = log.format or "runner"
        if match[1] == "prefill":  # what was before is warm-up
            log.prefill, log.decode, log.outputs = [], [], []
        (log.prefill if match[1] == "prefill" else log.decode).append(float(match[2]))
    elif match := _REQUEST.search(line):
        return [match[1]]
    elif _RESULT.search(line):
        return [""]
    else:
        for key, pattern in _DRAFT.items():
            if match := pattern.search(line):
                log.draft[key] = float(match[1]) if "." in match[1] else int(match[1])
    return None


def _end_of_text(log, text):
    if text is not None:
        log.outputs.append("\n".join(text).strip())


def read_run(path, ranks=None):
    """The reading of a log, or of a folder with log_0.log, log_1.log, ...; `ranks` is their number.

    Figures that the logs do not have are None. Raises TK1210 (no such log).
    """
    path = Path(path)
    if not path.is_dir():
        if not path.is_file():
            raise Error("TK1210", f"{path}: no such log", help="give a log, or a folder of them")
        return _reading({_rank_of(path): read_rank(path)}, ranks)
    files = {_rank_of(p): p for p in sorted(path.glob("log_*.log"))}
    files = files or dict(enumerate(sorted(path.glob("*.log"))[:1]))
    if not files:
        raise Error(
            "TK1210",
            f"{path}: no log in this folder",
            notes=("looked for log_0.log, log_1.log, ... and *.log",),
            help="give the log itself",
        )
    return _reading({rank: read_rank(p) for rank, p in sorted(files.items())}, ranks)


def _rank_of(path):
    match = re.search(r"log_(\d+)$", path.stem)
    return int(match[1]) if match else 0


def _reading(logs, ranks):
    rank = 1 if 1 in logs else min(logs)  # rank 0 goes through tee and may be cut (EB-53)
    log = logs[rank]
    notes = [] if rank == 1 or len(logs) > 1 else [f"read from {log.path.name}, the only rank"]
    failed = [r for r, other in logs.items() if not other.succeeded]
    missing = [r for r in range(ranks or 0) if r not in logs]
    notes += [f"rank {r} ended with: {logs[r].error or logs[r].last_line}" for r in failed]
    notes += [f"there is no log of rank {r}" for r in missing]
    out_of_memory = any(other.out_of_memory for other in logs.values())
    steps = log.decode
    steady = steps[1:] if len(steps) > 1 else steps
    if len(steps) == 1:
        notes.append("a single decode step: it counts compilation")
    outputs = next((r.outputs for r in (log, *logs.values()) if r.outputs), [])
    found = {
        "log": str(log.path),
        "format": log.format or None,
        "status": "oom" if out_of_memory else "failed" if failed or missing else "ok",
        "prefill_ms": sum(log.prefill) if log.prefill else None,
        "prefill_batches_ms": log.prefill,
        "decode_steps": len(steps),
        "decode_first_ms": steps[0] if steps else None,
        "decode_avg_ms": fmean(steady) if steady else None,
        "decode_avg_iqr_ms": _without_outliers(steady),
        "decode_steps_ms": steps,
        "outputs": outputs,
        "output_text": outputs[0] if outputs else None,
        "readable": bool(outputs) and all(map(is_readable, outputs)),
        "all_ranks_success": not failed and not missing,
        "failed_ranks": failed + missing,
        "notes": notes,
    }
    if log.draft_steps:
        drafts = len({who for who, _ in log.draft_steps})
        times = [ms for _, ms in log.draft_steps]
        found["mtp"] = {"next_n": drafts, "mtp_step_avg_ms": fmean(times), **log.draft}
    return found


def _without_outliers(steps):
    """The mean without steps above Q3 + 1.5 (Q3 - Q1), the figure that the framework prints."""
    if not steps:
        return None
    limit = _quantile(steps, 0.75) + 1.5 * (_quantile(steps, 0.75) - _quantile(steps, 0.25))
    return fmean(s for s in steps if s <= limit)


def _quantile(values, q):
    """Linear between neighbours, as numpy.percentile."""
    values = sorted(values)
    at = q * (len(values) - 1)
    low = int(at)
    high = min(low + 1, len(values) - 1)
    return values[low] + (values[high] - values[low]) * (at - low)


def is_readable(text):
    """Not empty, all of it printable, and not one phrase over and over (EB-56)."""
    broken = any(
        c == "\ufffd" or (unicodedata.category(c) in ("Cc", "Cs", "Co", "Cn") and c not in "\n\r\t")
        for c in text
    )
    words = _WORD.findall(text)
    if broken or not words:
        return False
    return len(words) < _LONG or _covered(words) < 0.5


def _covered(words):
    """The share of the words that the most frequent phrase of up to 8 words makes."""
    best = 0
    for n in range(1, _LONGEST_PATTERN + 1):
        phrases = Counter(tuple(words[i : i + n]) for i in range(len(words) - n + 1))
        phrase, count = phrases.most_common(1)[0]
        if count > 1:
            best = max(best, _occurrences(words, phrase) * n)
    return best / len(words)


def _occurrences(words, phrase):
    """Without overlap."""
    count = at = 0
    while at <= len(words) - len(phrase):
        hit = tuple(words[at : at + len(phrase)]) == phrase
        count += hit
        at += len(phrase) if hit else 1
    return count
