"""Collection with the recipes' own switch: the changes to make, as a patch (PF-02, PF-17)."""

import ast
import difflib
import re
from pathlib import Path

from ..errors import Error
from .way import CONTEXT, SWITCH

DECODE, PREFILL = {"active": 3, "skip_first": 3}, {"active": 1, "skip_first": 0}


def plan(root, yaml, stage, decode_steps, prefill_steps, skip):
    """The note and the patch as one text, for `git apply`. Raises Error TK1702, TK1703."""
    root = Path(root)
    context = root / CONTEXT
    usual = 10 if context.is_file() else DECODE["active"]
    decode = {
        "active": usual if decode_steps is None else decode_steps,
        "skip_first": DECODE["skip_first"] if skip is None else skip,
    }
    prefill = {**PREFILL, "active": PREFILL["active"] if prefill_steps is None else prefill_steps}
    changes = []
    if yaml:
        path = Path(yaml)
        before = path.read_text()
        _check_tokens(path, before, decode)
        changes.append((path, before, _switch_on(path, before)))
    if context.is_file():
        before = context.read_text()
        changes.append((context, before, _edit(context, before, stage, decode, prefill)))
    elif (decode, prefill, stage) != (DECODE, PREFILL, "both"):
        raise Error(
            "TK1703",
            f"the project has no {CONTEXT}, where steps and stages would be set",
            file=str(root),
            help="leave --stage, --skip and the steps out, or --way inject",
        )
    return _note(root, yaml, stage, decode, prefill) + "".join(
        _diff(root, path, before, after) for path, before, after in changes
    )


def _check_tokens(path, text, decode):
    needed = decode["skip_first"] + decode["active"] + 1  # PF-17: the window, and its closing step
    found = re.search(r"^\s*max_new_tokens\s*:\s*(\d+)", text, re.MULTILINE)
    if found and int(found.group(1)) < needed:
        raise Error(
            "TK1702",
            f"max_new_tokens is {found.group(1)}, too few for the window: skip_first "
            f"{decode['skip_first']} + active {decode['active']} + 1 = {needed}",
            file=str(path),
            line=text[: found.start(1)].count("\n") + 1,
            help=f"set it to {needed} or more, or fewer --decode-steps",
        )


def _switch_on(path, text):
    after, n = re.subn(rf"^(\s*{SWITCH}\s*:\s*)\S+", r"\g<1>True", text, flags=re.MULTILINE)
    if n:
        return after
    after, n = re.subn(
        r"^(model_config\s*:.*\n)(\s+)",
        rf"\g<1>\g<2>{SWITCH}: True\n\g<2>",
        text,
        count=1,
        flags=re.MULTILINE,
    )
    if n:
        return after
    raise Error(
        "TK1703",
        "the file has no model_config, under which enable_profiler is set",
        file=str(path),
        help="give the YAML that the run takes",
    )


def _edit(path, text, stage, decode, prefill):
    """profiler_context.py with other steps, or with one stage only."""
    tree = ast.parse(text)
    data = text.encode()  # the tree's columns are bytes
    edits = []  # (from, to, text), places in the bytes
    lines = [0]
    for line in data.splitlines(keepends=True):
        lines.append(lines[-1] + len(line))

    def span(node):
        return (
            lines[node.lineno - 1] + node.col_offset,
            lines[node.end_lineno - 1] + node.end_col_offset,
        )

    def function(name):
        for node in ast.walk(tree):
            if isinstance(node, ast.FunctionDef) and node.name == name:
                return node
        raise Error(
            "TK1703",
            f"there is no function {name}: a version of the framework that is not known",
            file=str(path),
            help="change its steps by hand, or --way inject",
        )

    maker = function("create_profiler")
    defaults = maker.args.defaults
    for i, argument in enumerate(maker.args.args[-len(defaults) :] if defaults else []):
        if argument.arg in decode:
            edits.append((*span(defaults[i]), str(decode[argument.arg])))
    calls = [
        node
        for node in ast.walk(function("set_status"))
        if isinstance(node, ast.Assign)
        and isinstance(node.value, ast.Call)
        and getattr(node.value.func, "id", "") == "create_profiler"
    ]
    fixed = [c for c in calls if any(k.arg == "active" for k in c.value.keywords)]
    open_ = [c for c in calls if c not in fixed]
    if len(fixed) != 1 or len(open_) != 1:
        raise Error(
            "TK1703",
            "set_status does not make one profiler for prefill and one for decode",
            file=str(path),
            help="change its steps by hand, or --way inject",
        )
    for keyword in fixed[0].value.keywords:
        if keyword.arg in prefill:
            edits.append((*span(keyword.value), str(prefill[keyword.arg])))
    for unwanted, wanted in ((fixed[0], "decode"), (open_[0], "prefill")):
        if stage != wanted:
            continue
        edits = [e for e in edits if not span(unwanted)[0] <= e[0] < span(unwanted)[1]]
        edits.append((*span(unwanted.value), "FakeContextManager()"))
        start = _start_behind(tree, unwanted)
        if start is not None:  # the stand-in has no start()
            first, last = span(start)
            edits.append((data.rindex(b"\n", 0, first), last, ""))
    for first, last, new in sorted(edits, reverse=True):
        data = data[:first] + new.encode() + data[last:]
    return data.decode()


def _start_behind(tree, assignment):
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        for part in (body, getattr(node, "orelse", None)):
            if not isinstance(part, list) or assignment not in part:
                continue
            after = part[part.index(assignment) + 1 :][:1]
            if after and "attr='start'" in ast.dump(after[0]):
                return after[0]
    return None


def _note(root, yaml, stage, decode, prefill):
    lines = [
        "Profiling with the project's own switch; apply with `git apply`, run as always.",
        f"switch: model_config.{SWITCH}: True in "
        + str(yaml or "the YAML of the run (give it as --yaml)"),
        f"prefill: active {prefill['active']}, skip_first {prefill['skip_first']}; decode: active "
        f"{decode['active']}, skip_first {decode['skip_first']}; wait 0, warmup 0, repeat 1",
        "level: Level1 with PipeUtilization",
        "output: models/<model>/res/<date>/<case>/prof/{prefill,decode} beside log_0.log, one "
        "folder per rank",
        f"max_new_tokens: at least {decode['skip_first'] + decode['active'] + 1}",
    ]
    if stage in ("prefill", "decode"):
        lines.append(f"stage: {stage} only, the other one's profiler is a stand-in")
    if decode["active"] < 10:
        lines.append("with fewer than 10 decode steps the spread between steps is not known")
    runner = root / "executor/model_runner.py"
    if runner.is_file() and "def define_profiler" in runner.read_text(errors="replace"):
        lines.append(
            "PF-L1: define_profiler in executor/model_runner.py is not on the offline path; "
            "editing it has no effect"
        )
    return "".join(f"# {line}\n" for line in lines)


def _diff(root, path, before, after):
    try:
        name = path.resolve().relative_to(root.resolve()).as_posix()
    except ValueError:
        name = path.as_posix().lstrip("/")
    return "".join(
        difflib.unified_diff(
            before.splitlines(keepends=True),
            after.splitlines(keepends=True),
            f"a/{name}",
            f"b/{name}",
        )
    )
