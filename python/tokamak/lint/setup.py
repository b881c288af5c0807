"""What runs before the first step, and what changes after it."""

import ast


def mutated_attributes(cls):
    """Attributes of self that a method other than __init__ and its like assigns: to the names of
    those methods."""
    if cls.mutated is None:
        cls.mutated = {}
        for name, method in cls.methods.items():
            if is_setup(name):
                continue
            for node in ast.walk(method.node):
                targets = ()
                if isinstance(node, ast.Assign):
                    targets = node.targets
                elif isinstance(node, (ast.AugAssign, ast.AnnAssign)):
                    targets = (node.target,)
                for t in targets:
                    if isinstance(t, ast.Attribute) and isinstance(t.value, ast.Name) \
                            and t.value.id == "self":
                        cls.mutated.setdefault(t.attr, set()).add(name)
    return cls.mutated




def is_setup(name):
    """Methods that run before the first step."""
    return name.startswith(("__init__", "init", "_init", "load", "_load", "post_init", "setup",
                            "_setup", "build", "_build", "process_weights", "reset_parameters",
                            "allocate", "_allocate", "create_", "_create", "prepare_for",
                            "__post_init__", "extra_repr", "from_"))


_COUNTERS = {"pos", "position", "step", "offset", "start", "past", "cur", "count", "counter"}


def is_counter_name(name):
    """Names of integers that differ from step to step: start_pos, kv_len, past_length."""
    words = name.lower().split("_")
    if "max" in words or "num" in words or "n" in words:
        return False
    return bool(_COUNTERS & set(words)) or (
        words[-1] in ("len", "length") and words[0] in ("kv", "past", "cache", "seq", "cur",
                                                         "current", "q", "valid", "context"))
