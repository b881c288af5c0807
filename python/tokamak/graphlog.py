"""What Dynamo logs with TORCH_LOGS="recompiles,graph_breaks": which function was compiled again,
for which input and what kind of guard; where a graph broke, and why."""

import re
from dataclasses import dataclass, field

_FUNCTION = re.compile(r"Recompiling function (?P<name>\S+) in (?P<place>\S+:\d+)")
_GUARD = re.compile(r"^\s*-\s+\d+/\d+: (?P<guard>.*\S)")
_BREAK = re.compile(r"Graph break.* in user code at (?P<place>.+?:\d+)")
_BREAK_REASON = re.compile(r"(?:Graph Break )?Reason: (?P<reason>.*\S)", re.IGNORECASE)
_LIMIT = re.compile(r"last reason: (?:\d+/\d+: )?(?P<guard>.*\S)")
_USE = re.compile(r'^\s*(?:-\s+)?File "(?P<file>[^"]+)", line (?P<line>\d+)')
_MARK = re.compile(r"^\s*\[__recompiles(?:_verbose)?\]")

# (kind, sign in the guard, what it means and what to do); the first that fits is the kind.
_KINDS = (
    ("grad mode", r"GLOBAL_STATE|grad_mode|requires_grad mismatch|dispatch key"),
    ("dtype", r"dtype mismatch"),
    ("device", r"device (?:index )?mismatch"),
    ("stride", r"strides? mismatch|\.stride\(\)"),
    ("rank", r"rank mismatch|\.dim\(\)|\.ndim"),
    ("shape", r"size mismatch|\.size\(\)|\.shape\b|\bs\d+\b"),
    ("list length", r"^(?:not )?len\("),
    ("object", r"obj_id|type_id|___|\bis (?:not )?None\b|hasattr|\btype\("),
    ("list element", r"\[-?\d+\](?:\.\w+)* (?:==|!=|<=?|>=?) "),
    ("number", r"(?:==|!=|<=?|>=?) ?-?[\d.]+\b"),
)
_KINDS = tuple((kind, re.compile(sign)) for kind, sign in _KINDS)


@dataclass
class Recompile:
    """One line "Recompiling function ..." with the guard against the newest compile."""

    function: str
    place: str  # file:line of the function
    at: object  # the Line of the log
    guard: str = ""
    use: str = ""  # file:line where the guarded value is used
    others: list = field(default_factory=list)  # guards against older compiles

    @property
    def kind(self):
        return kind_of(self.guard)

    @property
    def input(self):
        return input_of(self.guard)

    def __str__(self):
        why = "; ".join([self.guard, *self.others]) or "no reason given"
        return f"{self.place}: {self.function}: {why}"


@dataclass
class Break:
    """One line "Graph break ... in user code at file:line"."""

    place: str
    at: object  # the Line of the log
    reason: str = ""

    def __str__(self):
        return f"{self.place}: {self.reason or 'no reason given'}"


def plain_guard(text):
    """A guard without the source line that Dynamo puts behind it, L['x'] written as x."""
    text = re.split(r"\s+# ", text, maxsplit=1)[0].strip()
    return re.sub(r"\bL\[['\"](\w+)['\"]\]", r"\1", text)


def kind_of(guard):
    return next((kind for kind, sign in _KINDS if sign.search(guard)), "other")


def input_of(guard):
    """The input that a guard is about, as the code says: lengths, metadata.lengths, self.step."""
    if match := re.search(r"tensor '(.+?)' (?:\w+ )+mismatch", guard):
        return input_of(match[1])
    path = re.search(r"(?:^|[^\w.'\"])([A-Za-z]\w*(?:\.\w+|\[['\"]\w+['\"]\])*)(?![\w(])", guard)
    if not path:
        return ""
    parts = re.findall(r"\w+", path[1].replace("._modules", "").replace("._buffers", ""))
    while parts and parts[0] in ("kwargs", "args", "len", "not", "type", "Eq"):
        parts.pop(0)
    while parts and parts[-1] in ("size", "stride", "dim", "shape", "ndim"):
        parts.pop()
    return ".".join(parts)


class Reader:
    """Fed with each line in order (diagnose.lines.Line); `events` are the recompilations so far,
    `breaks` the graph breaks."""

    def __init__(self):
        self.events = []
        self.breaks = []
        self._open = {}  # who wrote it -> Recompile that is being read
        self._broken = {}  # who wrote it -> Break that waits for its reason

    def feed(self, line):
        """True when the line belongs to a recompilation."""
        if match := _FUNCTION.search(line.text):
            event = Recompile(match["name"], match["place"], line)
            self._open[line.file, line.source] = event
            self.events.append(event)
            return True
        self._read_break(line)
        event = self._open.get((line.file, line.source))
        if event is None:
            return False
        text, marked = _MARK.subn("", line.text, count=1)
        if "triggered by the following guard failure" in text or "User stack trace" in text:
            return True
        if match := _GUARD.match(text):
            guard = plain_guard(match["guard"])
            if event.guard:
                event.others.append(guard)
            else:
                event.guard = guard
            return True
        if match := _USE.match(text):
            if not event.others and not event.use:
                event.use = f"{match['file']}:{match['line']}"
            return True
        if marked or re.match(r"\s+- ", text):
            return True
        del self._open[line.file, line.source]
        return False

    def _read_break(self, line):
        writer = line.file, line.source
        if match := _BREAK.search(line.text):
            self._broken[writer] = Break(match["place"], line)
            self.breaks.append(self._broken[writer])
        elif writer in self._broken and (match := _BREAK_REASON.search(line.text)):
            self._broken.pop(writer).reason = match["reason"]


def limit_reason(text):
    """The guard of a line "last reason: ...", or None."""
    match = _LIMIT.search(text)
    return plain_guard(match["guard"]) if match else None
