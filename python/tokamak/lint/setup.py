"""What runs before the first step, and what changes after it."""

import ast

from .tree import walk


def mutated_attributes(cls):
    """Attributes of self that a method other than __init__ and its like assigns: to the names of
    those methods."""
    if cls.mutated is None:
        cls.mutated = {}
        for name, method in cls.methods.items():
            if is_setup(name):
                continue
            for node in method.nodes:
                targets = ()
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                    targets = (node.target,)
                for t in targets:
                    if (
                        isinstance(t, ast.Attribute)
                        and isinstance(t.value, ast.Name)
                        and t.value.id == "self"
                    ):
                        cls.mutated.setdefault(t.attr, set()).add(name)
    return cls.mutated


def is_setup(name):
    """Methods that run before the first step."""
    return name.startswith(
        (
            "__init__",
            "init",
            "_init",
            "load",
            "_load",
            "post_init",
            "setup",
            "_setup",
            "build",
            "_build",
            "process_weights",
            "reset_parameters",
            "allocate",
            "_allocate",
            "create_",
            "_create",
            "lazy",
            "prepare_for",
            "__post_init__",
            "extra_repr",
            "from_",
        )
    )


_COUNTERS = {"pos", "position", "step", "offset", "start", "past", "cur", "count", "counter"}


def is_counter_name(name):
    """Names of integers that differ from step to step: start_pos, kv_len, past_length."""
    words = name.lower().split("_")
    if "max" in words or "num" in words or "n" in words:
        return False
    return bool(_COUNTERS & set(words)) or (
        words[-1] in ("len", "length")
        and words[0] in ("kv", "past", "cache", "seq", "cur", "current", "q", "valid", "context")
    )


def fills_once(node, frame):
    """Whether an `if` fills attributes that are missing or too small: "body" when its body does,
    "rest" when it returns early because they are there. None when it is another kind of test."""
    if _is_not_none(node.test):
        return "rest" if isinstance(node.body[-1], ast.Return) else None
    attributes = _asked_attributes(node.test)
    if not attributes:
        return None
    cls = frame.function.cls
    assigned = _assigned(node.body, cls)
    return "body" if attributes & assigned else None


def _asked_attributes(test):
    """Attributes of self that a test asks about: `self.x is None`, `n > self.x`,
    `not hasattr(self, "x")`."""
    found = set()
    for part in walk(test):
        if isinstance(part, ast.Compare) and isinstance(
            part.ops[0], (ast.Is, ast.Gt, ast.Lt, ast.GtE, ast.LtE)
        ):
            for operand in (part.left, part.comparators[0]):
                if _is_own(operand) and _stands_alone(part, operand):
                    found.add(operand.attr)
        elif (
            isinstance(part, ast.Call)
            and getattr(part.func, "id", "") in ("hasattr", "getattr")
            and len(part.args) > 1
            and isinstance(part.args[1], ast.Constant)
        ):
            found.add(part.args[1].value)
    return found


def _stands_alone(compare, operand):
    """A high-water mark has a plain name or a size on the other side, not a constant: a counter
    that wraps (`self.step > 8`) is none."""
    other = compare.comparators[0] if operand is compare.left else compare.left
    if isinstance(compare.ops[0], ast.Is):
        return isinstance(other, ast.Constant) and other.value is None
    return not isinstance(other, ast.Constant) and not _is_own(other)


def _is_own(node):
    return (
        isinstance(node, ast.Attribute)
        and isinstance(node.value, ast.Name)
        and node.value.id == "self"
    )


def _is_not_none(test):
    return (
        isinstance(test, ast.Compare) and isinstance(test.ops[0], ast.IsNot) and _is_own(test.left)
    )


def _assigned(body, cls):
    """Attributes of self that statements assign, also in methods that they call on self."""
    found = set()
    for statement in body:
        for node in walk(statement):
            if (
                isinstance(node, ast.Attribute)
                and isinstance(node.ctx, ast.Store)
                and _is_own(node)
            ):
                found.add(node.attr)
            elif (
                isinstance(node, ast.Call)
                and _is_own(node.func)
                and cls is not None
                and node.func.attr in cls.methods
            ):
                found |= {
                    n.attr
                    for n in cls.methods[node.func.attr].nodes
                    if isinstance(n, ast.Attribute) and isinstance(n.ctx, ast.Store) and _is_own(n)
                }
    return found
