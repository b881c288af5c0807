"""Logs of a graph-mode run -> what failed first, why, and how often it compiled (GM-41, GM-42)."""

import json
import re
from collections import Counter
from dataclasses import dataclass, field

from ..errors import Error
from ..graphlog import Reader, input_of, kind_of, limit_reason
from .graph_rules import DECIDES, FOLLOWS, NAMES, RECOMPILE_FIXES, RULES
from .lines import log_files, read

BACKENDS = ("npugraph_ex", "ge_graph")

_BACKEND_SIGNS = (
    (
        "ge_graph",
        re.compile(
            r"ge_graph|\bge_converter\b|CompilerConfig|_npu_backend\b|\[GE\]|ge_api\.cc|graph_manager\.cc"
        ),
    ),
    (
        "npugraph_ex",
        re.compile(r"npugraph_ex|NPUGraph|ACL ?graph|aclgraph|AclmdlRI|NPU graph capture"),
    ),
)
_DYNAMIC = re.compile(r"\bdynamic ?[=:] ?(True|False|None)\b")
_WARM = re.compile(r"\bwarm[ _-]?up\b", re.IGNORECASE)
_WARM_END = re.compile(
    r"\b(?:end|ends|ended|done|finish\w*|complete\w*|cost|took|success\w*)\b", re.IGNORECASE
)
_STEP = re.compile(r"\b(?:decode|inference|generation)?[ _-]?step[ _:=]*(\d+)\b", re.IGNORECASE)
_PLACE = re.compile(r'^\s*(?:-\s+)?File "(?P<file>[^"]+)", line (?P<line>\d+)')
_INSIDE = re.compile(
    r"/tokamak/(?:npu|diagnose)/|site-packages|dist-packages|/lib/python3|/torch/_|<frozen|<string>"
)
_EAGER_FINE = re.compile(
    r"(?:enforce_eager ?= ?True|\beager\b).*(?:stop|fine|ok\b|correct|same|output)", re.IGNORECASE
)
_GARBLED = re.compile(r"output=?:? ?[\"'](?P<text>[^\"']{6,})[\"']")
_ALARM = re.compile(r"\bTraceback \(most recent|\[ERROR\]|\bError\b|\bERR\d{5}\b", re.IGNORECASE)


@dataclass
class Finding:
    """`id` names a rule of graph_rules.py; `line` is the Line that decides."""

    id: str
    kind: str
    cause: str
    fix: str
    line: object
    weight: int = DECIDES
    place: str = ""  # file:line of the user's code, when the log names it


@dataclass
class Diagnosis:
    """`verdict`: pass, fault, pending (no border between warm-up and serving),
    unclassified, or nothing (no sign of graph mode)."""

    verdict: str
    findings: list  # in order of blame
    backend: str
    dynamic: str
    recompiles: list
    border: object  # the Line where serving begins, or None
    n_warmup: int  # recompilations before the border
    n_serving: int
    n_lines: int
    files: list = field(default_factory=list)

    @property
    def exit_code(self):
        return 0 if self.verdict == "pass" else 1

    def text(self):
        return "\n".join(_text(self)) + "\n"

    def json(self):
        return json.dumps(_data(self), indent=2)


class _State:
    """What one pass over the lines gathers."""

    def __init__(self, warmup_steps):
        self.warmup_steps = warmup_steps
        self.reader = Reader()
        self.found = {}  # rule id -> Finding, the first of each
        self.backends = Counter()
        self.dynamic = ""
        self.limit_guard = ""
        self.border = None
        self.border_at = None  # recompilations seen before the border
        self.garbled = None
        self.eager_fine = False
        self.first_alarm = None
        self.places = {}  # writer -> the last place in the user's code
        self.pending_place = {}  # writer -> Finding that waits for its place
        self.steps_seen = False
        self.n_lines = 0

    def feed(self, line):
        self.n_lines += 1
        writer = (line.file, line.source)
        recompiling = self.reader.feed(line)
        for name, sign in _BACKEND_SIGNS:
            if sign.search(line.text):
                self.backends[name] += 1
        if match := _DYNAMIC.search(line.text):
            self.dynamic = match[1]
        self._find_border(line)
        if guard := limit_reason(line.text):
            self.limit_guard = guard
        if (match := _PLACE.match(line.text)) and not _INSIDE.search(match["file"]):
            place = f"{match['file']}:{match['line']}"
            self.places[writer] = place
            if waiting := self.pending_place.get(writer):
                waiting.place = place
        if recompiling:
            return
        self._match(line, writer)
        if self.first_alarm is None and _ALARM.search(line.text):
            self.first_alarm = line
        self._read_outputs(line)

    def _find_border(self, line):
        if self.warmup_steps is not None:
            if match := _STEP.search(line.text):
                self.steps_seen = True
                if self.border is None and int(match[1]) > self.warmup_steps:
                    self._set_border(line)
            return
        if _WARM.search(line.text) and (self.border is None or _WARM_END.search(line.text)):
            self._set_border(line)

    def _set_border(self, line):
        self.border = line
        self.border_at = len(self.reader.events)

    def _match(self, line, writer):
        for rule in RULES:
            match = rule.sign.search(line.text)
            if not match:
                continue
            groups = {k: v or "" for k, v in match.groupdict().items()}
            finding = Finding(
                rule.id,
                rule.kind,
                rule.cause.format(**groups),
                rule.fix.format(**groups),
                line,
                rule.weight,
                self.places.get(writer, ""),
            )
            if rule.id not in self.found:
                self.found[rule.id] = finding
                # Compilers name the statement after the error ("Original traceback").
                self.pending_place[writer] = finding
            if rule.weight == DECIDES:
                break

    def _read_outputs(self, line):
        if _EAGER_FINE.search(line.text):
            self.eager_fine = True
        if self.garbled is None and (match := _GARBLED.search(line.text)):
            text = match["text"]
            if len(set(text)) == 1:
                self.garbled = line


def _recompile_finding(state, serving):
    """The input that most of the recompilations are about."""
    guards = [(e.guard, e) for e in serving if e.guard]
    if not guards and state.limit_guard:
        guards = [(state.limit_guard, None)]
    if not guards:
        return None
    (name, kind), _ = Counter((input_of(g), kind_of(g)) for g, _ in guards).most_common(1)[0]
    guard, event = next((g, e) for g, e in guards if (input_of(g), kind_of(g)) == (name, kind))
    line = event.at if event else state.found["recompile-limit"].line
    many = len(serving) or "several"
    return Finding(
        "recompile",
        "recompile",
        f"{many} recompilation{'s' if many != 1 else ''} while serving: "
        f"{name or 'a value'} ({kind}) differs from step to step; guard: {guard}",
        RECOMPILE_FIXES[kind],
        line,
        DECIDES,
        (event.use or event.place) if event else "",
    )


def _in_order_of_blame(findings):
    """What decides before what only names, the first in time before its followers."""
    return sorted(findings, key=lambda f: -f.weight)  # stable: found in order of time


def _conclude(state, backend, files):
    events = state.reader.events
    if state.warmup_steps is not None and not state.steps_seen:
        raise Error(
            "TK1303",
            f"{files[0]}: --warmup-steps {state.warmup_steps}, but no line numbers its steps",
            notes=('looked for lines like "decode step 3"',),
            help='leave the option out: the line "warm up" is the border then',
        )
    serving = events if state.border is None else events[state.border_at :]
    findings = list(state.found.values())
    limit_hit = "recompile-limit" in state.found
    if (serving or limit_hit) and (cause := _recompile_finding(state, serving)):
        findings.insert(0, cause)
    if state.garbled and state.eager_fine:
        findings.append(
            Finding(
                "wrong-only-in-graph",
                "precision",
                "the output is wrong in graph mode only",
                "look at what a replay keeps: buffers that the run before left (block tables, "
                "state indices, lengths of padding rows), in-place updates, outputs without "
                "clone_output; then switch the optimisations back on one at a time (GM-32, GM-42)",
                state.garbled,
            )
        )
    findings = _in_order_of_blame(findings)
    if findings and findings[0].id == "exception" and not (state.backends or events):
        first = findings[0]
        first.id = "before-compile"
        first.fix = "nothing was compiled before: the eager path or the form of an input is wrong"
    decisive = [f for f in findings if f.weight > FOLLOWS]
    if decisive and not (
        len(decisive) == 1
        and decisive[0].id == "recompile"
        and state.border is None
        and not limit_hit
    ):
        verdict = "fault"
    elif serving and state.border is None:
        verdict = "pending"
    elif findings or state.first_alarm:
        verdict = "unclassified"
        if not findings:
            line = state.first_alarm
            findings = [
                Finding(
                    "unclassified",
                    "unclassified",
                    line.text.strip(),
                    "no rule knows this error",
                    line,
                    NAMES,
                )
            ]
    elif events or state.backends or state.border:
        verdict = "pass"
    else:
        verdict = "nothing"
    if backend is None:
        backend = state.backends.most_common(1)[0][0] if state.backends else "unknown"
    return Diagnosis(
        verdict,
        findings,
        backend,
        state.dynamic or "unknown",
        events,
        state.border,
        0 if state.border is None else state.border_at,
        len(serving),
        state.n_lines,
        [str(f) for f in files],
    )


def diagnose_logs(paths, backend=None, warmup_steps=None):
    """Reads the logs (files, or folders of them) of one run."""
    files = log_files(paths)
    state = _State(warmup_steps)
    for path in files:
        for line in read(path):
            state.feed(line)
    if state.n_lines == 0:
        raise Error("TK1302", f"{files[0]}: the log is empty", help="give a log with lines in it")
    return _conclude(state, backend, files)


_VERDICTS = {
    "pass": "pass: no fault in the log, and no compilation while serving",
    "fault": "fault",
    "pending": "pending: it recompiles, but no line says where warm-up ends; give --warmup-steps N",
    "nothing": "nothing: no compilation, no capture and no error in the log; is it the right one?",
    "unclassified": "unclassified: there is an error that no rule knows",
}


def _text(d):
    yield f"verdict  {_VERDICTS[d.verdict]}"
    yield f"log      {', '.join(d.files)} ({d.n_lines} lines)"
    yield f"setting  backend {d.backend}, dynamic {d.dynamic}"
    if d.recompiles:
        border = f"serving begins at {d.border.where}" if d.border else "no warm-up line"
        yield f"compiles {d.n_warmup} in warm-up, {d.n_serving} after it ({border})"
    for i, f in enumerate(d.findings):
        if f.weight == FOLLOWS and i > 0:
            continue
        yield ""
        yield f"{'cause' if i == 0 else 'also'} [{f.id}] {f.cause}"
        yield f"  at   {f.line.where}: {f.line.text.strip()[:200]}"
        if f.place:
            yield f"  code {f.place}"
        yield f"  fix  {f.fix}"
    followers = [f for f in d.findings[1:] if f.weight == FOLLOWS]
    if followers:
        yield ""
        yield "only follows: " + ", ".join(f"{f.line.where} [{f.id}]" for f in followers)
    table = Counter((e.function, e.input, e.kind, e.use or e.place) for e in d.recompiles)
    if table:
        yield ""
        yield "recompilations"
        for (function, name, kind, place), n in table.most_common(20):
            yield f"  {n:4} x {function}: {name or '?'} ({kind})  {place}"


def _data(d):
    return {
        "verdict": d.verdict,
        "backend": d.backend,
        "dynamic": d.dynamic,
        "logs": d.files,
        "compiles": {
            "warmup": d.n_warmup,
            "serving": d.n_serving,
            "border": d.border.where if d.border else None,
        },
        "findings": [
            {
                "id": f.id,
                "class": f.kind,
                "cause": f.cause,
                "fix": f.fix,
                "evidence": f.line.text.strip(),
                "log": f.line.where,
                "code": f.place or None,
                "decides": f.weight > FOLLOWS,
            }
            for f in d.findings
        ],
        "recompiles": [
            {
                "function": e.function,
                "input": e.input,
                "kind": e.kind,
                "guard": e.guard,
                "place": e.place,
                "use": e.use or None,
                "log": e.at.where,
            }
            for e in d.recompiles
        ],
    }
