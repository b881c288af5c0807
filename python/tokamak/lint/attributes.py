"""Names and attributes of the analysed code: what they are, by their assignments."""

import ast
import re

from . import checks
from .names import HOST_ATTRIBUTES, VIEWS
from .program import Class, dotted_name
from .setup import mutated_attributes
from .values import (
    EXTERNAL,
    FALSE_VALUE,
    FROZEN_VALUE,
    FUNCTION,
    HOST,
    HOST_VALUE,
    LIST,
    MISSING,
    OBJECT,
    TENSOR,
    TENSOR_VALUE,
    TRUE_VALUE,
    UNKNOWN,
    UNKNOWN_VALUE,
    Value,
    constant,
    join,
    tensor,
)

_LIMIT = Value(HOST, root=("limit", ""))  # a configured maximum: a number, never None


# Flags that say which phase runs; only one phase is compiled, and each has its own entry.
_PHASE = re.compile(
    r"^_?(is_|in_|with_|has_|for_)?(prefill|prompt|prefilling|is_prompt)"
    r"(_mode|_stage|_phase)?$"
)


def is_phase_name(name):
    return "pr" in name and _PHASE.match(name) is not None and name not in ("prompt", "prefill")


class Attributes:
    """Mixed into the interpreter."""

    def global_value(self, name):
        module = self.frame.module
        found = self.program.lookup(name, module)
        if found.kind != UNKNOWN:
            return found
        if name in module.globals:
            return self._module_global(name, module)
        return UNKNOWN_VALUE

    def _module_global(self, name, module):
        node = module.globals[name]
        if isinstance(node, ast.Constant):
            return FROZEN_VALUE if name in module.rebound else constant(node.value)
        if isinstance(node, (ast.Dict, ast.List, ast.DictComp, ast.ListComp, ast.Set)):
            return Value(HOST, frozen=True)
        if isinstance(node, ast.Call):
            made = self.program.lookup(dotted_name(node.func) or "", module)
            if made.kind == FUNCTION and isinstance(made.target, Class):
                # An object of the given files at module level is state that the host may change.
                return Value(OBJECT, target=made.target, frozen=True)
            if (dotted_name(node.func) or "") in ("dict", "list", "defaultdict"):
                return Value(HOST, frozen=True)
        if name in module.rebound:
            return FROZEN_VALUE
        return UNKNOWN_VALUE

    def _attribute(self, node):
        base = self.evaluate(node.value)
        name = node.attr
        kind = base.kind
        if kind == TENSOR:
            if name in HOST_ATTRIBUTES:
                value = Value(HOST, grows=base.grows)
                value.shape_of = name == "shape"
                return value
            return tensor(base.root, base.bool_mask, base.grows) if name in VIEWS else TENSOR_VALUE
        if kind == OBJECT:
            value = self.attribute(base, name, node)
            return checks.cache_read(self, node, value) if self.frame.written else value
        if kind == EXTERNAL:
            dotted = f"{base.dotted}.{name}"
            checks.external_read(self, node, dotted)
            return Value(EXTERNAL, dotted=dotted)
        if is_phase_name(name):
            return TRUE_VALUE if self.prefill else FALSE_VALUE
        if kind == LIST:
            return TENSOR_VALUE if name in ("values", "indices") else UNKNOWN_VALUE
        if kind == HOST:
            return Value(HOST, frozen=base.frozen, grows=base.grows)
        if kind == FUNCTION and isinstance(base.target, Class):
            return self._class_attribute(base.target, name)
        if base.frozen:
            return Value(UNKNOWN, frozen=True)
        if name.startswith("max_"):
            return _LIMIT
        return Value(UNKNOWN, root=base.root) if base.root is not None else UNKNOWN_VALUE

    # -- attributes of objects of the given files

    def attribute(self, base, name, node=None):
        cls = base.target
        if is_phase_name(name):
            return TRUE_VALUE if self.prefill else FALSE_VALUE
        if name == "training":
            return FALSE_VALUE
        method = self.program.method(cls, name)
        if method is not None:
            if method.decorated_as("property", "cached_property"):
                return self.invoke(method, base, {})
            return Value(FUNCTION, target=method, owner=base)
        for c in self.program.ancestry(cls):
            value = self.facts(c).get(name)
            if value is not None:
                if base.frozen and value.kind in (HOST, UNKNOWN):
                    return Value(HOST, frozen=True)
                if value.kind == TENSOR:
                    return tensor(("attribute", name), value.bool_mask)
                if value.kind == UNKNOWN:
                    return (
                        _LIMIT
                        if name.startswith("max_")
                        else Value(UNKNOWN, root=("attribute", name))
                    )
                return value
        if base.frozen:
            return Value(HOST, frozen=True)
        return _LIMIT if name.startswith("max_") else Value(UNKNOWN, root=("attribute", name))

    def facts(self, cls):
        """What the attributes of `cls` are, from its __init__ and its class body."""
        if cls.facts is not None:
            return cls.facts
        cls.facts = {}
        for name, annotation in cls.fields.items():
            value = self.annotated(annotation, cls.module)
            if value is not None:
                cls.facts[name] = value
        for name, node in cls.attributes.items():
            if isinstance(node, ast.Constant):
                cls.facts[name] = constant(node.value)
        init = cls.methods.get("__init__")
        if init is not None:
            self.quiet += 1
            entry, self.entry = self.entry, False
            try:
                self.invoke(init, Value(OBJECT, target=cls), {})
            finally:
                self.quiet -= 1
                self.entry = entry
        for name in mutated_attributes(cls):
            known = cls.facts.get(name)
            if known is not None and known.kind == HOST and known.const is not MISSING:
                cls.facts[name] = HOST_VALUE  # the value of __init__ does not stay
        return cls.facts

    def remember_attribute(self, cls, name, value):
        """`self.name = value` in __init__ (or a helper of it) says what the attribute is."""
        if cls.facts is None:
            return
        if value.frozen:  # read once, and fixed from then on
            value = Value(value.kind, const=value.const)
        known = cls.facts.get(name)
        if value.kind == HOST and value.const is not MISSING and known is not None:
            cls.facts[name] = join(known, value)
        elif known is None or known.kind in (UNKNOWN, HOST):
            cls.facts[name] = value if known is None else join(known, value)

    def _class_attribute(self, cls, name):
        method = self.program.method(cls, name)
        if method is not None:
            return Value(FUNCTION, target=method)
        node = cls.attributes.get(name)
        return constant(node.value) if isinstance(node, ast.Constant) else UNKNOWN_VALUE
