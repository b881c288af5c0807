"""Findings, and how they are printed: text with an excerpt, JSON, SARIF 2.1."""

import json

from .rules import RULES


class Finding:
    __slots__ = ("column", "detail", "file", "function", "line", "rule", "source")

    def __init__(self, rule, source, line, column, detail, function):
        self.rule = RULES[rule]
        self.source = source
        self.file = source.path
        self.line = line
        self.column = column
        self.detail = detail
        self.function = function

    @property
    def message(self):
        return self.rule.message + (f": {self.detail}" if self.detail else "")


class Reporter:
    """Keeps each rule once a line; drops what a `# tokamak: ignore` covers."""

    def __init__(self):
        self._found = {}
        self.ignored = 0

    def add(self, rule, source, node, detail="", function=""):
        line, column = _place(node)
        key = (source.path, line, rule)
        if key in self._found:
            return
        # A comment on any line of a statement that spans lines counts for its first.
        last = getattr(node, "end_lineno", line)
        if source.ignores and any(source.ignored(rule, n) for n in (line, node.lineno, last)):
            self.ignored += 1
            return
        self._found[key] = Finding(rule, source, line, column, detail, function)

    def findings(self):
        return [self._found[k] for k in sorted(self._found)]


def _place(node):
    """The line of a statement or expression; of a method call the line of the method's name."""
    func = getattr(node, "func", None)
    if func is not None and hasattr(func, "attr"):
        return func.end_lineno, func.end_col_offset - len(func.attr)
    return node.lineno, node.col_offset


def to_json(findings):
    return json.dumps(
        {
            "findings": [
                {
                    "file": f.file,
                    "line": f.line,
                    "rule": f.rule.id,
                    "level": f.rule.level,
                    "message": f.message,
                    "fix": f.rule.fix,
                }
                for f in findings
            ]
        },
        indent=1,
        ensure_ascii=False,
    )


def to_text(findings, n_files, entries):
    parts = []
    for f in findings:
        parts.append(f"{f.file}:{f.line}: {f.rule.level}[{f.rule.id}]: {f.message}")
        lines = f.source.lines
        if 0 < f.line <= len(lines):
            text = lines[f.line - 1].expandtabs()
            indent = len(text) - len(text.lstrip())
            parts.append(f"   | {text.strip()[:110]}")
            column = f.column - indent
            if 0 <= column < 110:
                parts.append(f"   | {' ' * column}^")
        if f.function:
            parts.append(f"  in:  {f.function}")
        parts.append(f"  fix: {f.rule.fix}\n")
    counts = {}
    for f in findings:
        counts[f.rule.level] = counts.get(f.rule.level, 0) + 1
    what = ", ".join(f"{n} {level}" for level, n in counts.items()) or "no findings"
    shown = ", ".join(entries[:8]) + (f" and {len(entries) - 8} more" if len(entries) > 8 else "")
    files = f"{n_files} file{'s' if n_files != 1 else ''}"
    parts.append(f"{what} in {files}; compiled: {shown or 'nothing (name it with --entry)'}")
    return "\n".join(parts)


_SARIF_LEVELS = {"break": "error", "wrong-result": "error", "recompile": "warning", "slow": "note"}


def to_sarif(findings, version):
    used = sorted({f.rule.id for f in findings})
    return json.dumps(
        {
            "$schema": "https://json.schemastore.org/sarif-2.1.0.json",
            "version": "2.1.0",
            "runs": [
                {
                    "tool": {
                        "driver": {
                            "name": "tokamak lint",
                            "version": version,
                            "rules": [
                                {
                                    "id": r,
                                    "shortDescription": {"text": RULES[r].message},
                                    "fullDescription": {"text": RULES[r].why},
                                    "help": {"text": RULES[r].fix},
                                    "defaultConfiguration": {
                                        "level": _SARIF_LEVELS[RULES[r].level]
                                    },
                                }
                                for r in used
                            ],
                        }
                    },
                    "results": [
                        {
                            "ruleId": f.rule.id,
                            "ruleIndex": used.index(f.rule.id),
                            "level": _SARIF_LEVELS[f.rule.level],
                            "message": {"text": f"{f.message}. Fix: {f.rule.fix}"},
                            "locations": [
                                {
                                    "physicalLocation": {
                                        "artifactLocation": {"uri": f.file},
                                        "region": {
                                            "startLine": f.line,
                                            "startColumn": f.column + 1,
                                        },
                                    }
                                }
                            ],
                        }
                        for f in findings
                    ],
                }
            ],
        },
        indent=1,
        ensure_ascii=False,
    )
