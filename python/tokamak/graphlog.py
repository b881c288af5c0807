"""What TORCH_LOGS="recompiles,graph_breaks" and the graph-mode backends write, line by line."""

import re
from dataclasses import dataclass, field

RECOMPILE = re.compile(r"Recompiling function (\S+) in (.+?):(\d+)")
REASON = re.compile(r"^\W*\d+/\d+: (.*)")
BREAK = re.compile(r"Graph break.* in user code at (.+?):(\d+)")
BREAK_REASON = re.compile(r"(?:Graph Break )?Reason: (.*)", re.IGNORECASE)
INPUT = re.compile(r"L\['[^']+'\](?:\[[^\]]+\]|\.\w+)*")
TENSOR = re.compile(r"tensor '([^']+)'")


@dataclass
class Event:
    kind: str  # "recompile", "break"
    file: str
    line: int
    function: str = ""
    reasons: list = field(default_factory=list)
    at: int = 0  # line of the log

    @property
    def inputs(self):
        """The inputs that the reasons name."""
        found = []
        for reason in self.reasons:
            for name in TENSOR.findall(reason) or INPUT.findall(reason):
                if name not in found:
                    found.append(name)
        return found

    def __str__(self):
        why = "; ".join(self.reasons) or "no reason given"
        what = f"{self.function}: {why}" if self.function else why
        return f"{self.file}:{self.line}: {what}"


def read_events(text):
    """Recompilations and graph breaks, in order, with their reasons."""
    events = []
    for number, line in enumerate(text.splitlines(), 1):
        if m := RECOMPILE.search(line):
            events.append(Event("recompile", m[2], int(m[3]), function=m[1], at=number))
        elif m := BREAK.search(line):
            events.append(Event("break", m[1], int(m[2]), at=number))
        elif not events:
            continue
        elif events[-1].kind == "break" and not events[-1].reasons:
            if m := BREAK_REASON.search(line):
                events[-1].reasons.append(m[1].strip())
        elif events[-1].kind == "recompile":
            text_of_line = line.split("]", 1)[-1] if line.startswith(("V", "[")) else line
            if m := REASON.search(text_of_line.strip().lstrip("- ")):
                events[-1].reasons.append(m[1].strip())
    return events
