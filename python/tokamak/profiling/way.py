"""Does a project collect profiles by itself? (PF-01)"""

import ast
import os
from pathlib import Path

CONTEXT = Path("executor/utils/profiler_context.py")
SWITCH = "enable_profiler"
NAMES = {"tensorboard_trace_handler", SWITCH, "profile"}
SKIPPED = {".git", ".venv", "node_modules", "build", "__pycache__", "site-packages"}


def files_below(root, *endings):
    """Files with these endings, in the order of their names, without builds and environments."""
    for folder, folders, names in os.walk(root):
        folders[:] = sorted(f for f in folders if f not in SKIPPED)
        yield from (Path(folder) / n for n in sorted(names) if n.endswith(endings))


def find_way(root):
    """("framework" or "inject", why, "file:line" of the evidence)."""
    root = Path(root)
    if (root / CONTEXT).is_file():
        return "framework", f"{CONTEXT} is there", str(CONTEXT)
    for folder in ("executor", "models"):
        for path in files_below(root / folder, ".py", ".yaml", ".yml"):
            lines = path.read_text(errors="replace").splitlines()
            for number, line in enumerate(lines, 1):
                if SWITCH in line:
                    place = f"{path.relative_to(root)}:{number}"
                    return "framework", f"{SWITCH} is used below {folder}", place
    for path in files_below(root, ".py"):
        line = _profiled_loop(path)
        if line:
            place = f"{path.relative_to(root)}:{line}"
            return "framework", "a loop that infers is profiled already", place
    return "inject", "nothing in the project profiles its inference loop", ""


def _profiled_loop(path):
    """The line of a profiler's name inside a loop that calls something; None if there is none."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError, RecursionError):
        return None
    for loop in ast.walk(tree):
        if not isinstance(loop, (ast.For, ast.While, ast.AsyncFor)):
            continue
        inside = [node for statement in loop.body for node in ast.walk(statement)]
        named = [node.lineno for node in inside if isinstance(node, ast.expr) and _names(node)]
        works = any(isinstance(n, ast.Call) and not _names(n.func) for n in inside)
        if named and works:
            return min(named)
    return None


def _names(node):
    if isinstance(node, ast.Attribute):
        whole = ast.dump(node)
        return node.attr in NAMES or ("'torch_npu'" in whole and "'profiler'" in whole)
    return isinstance(node, ast.Name) and node.id in NAMES
