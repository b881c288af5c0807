"""Custom operators that no graph backend can trace: those without a meta (shape) function."""

import ast

from .program import dotted_name


def check_custom_ops(module, nodes, reporter):
    text = module.source.text
    if "custom_op" not in text and "torch.library" not in text and "Library(" not in text:
        return
    defined, described = {}, set()
    operators = {}  # name of the function to the name of its operator
    functions = [
        n
        for n in ast.walk(module.source.tree)
        if isinstance(n, (ast.FunctionDef, ast.AsyncFunctionDef))
    ]
    for function in functions:
        for decorator in function.decorator_list:
            _decorator(decorator, function, defined, described, operators)
    for node in nodes:
        if isinstance(node, ast.Call):
            _call(node, defined, described, operators)
    for name, node in defined.items():
        if name not in described:
            reporter.add("custom-op-without-meta", module.source, node, name)


def _text(call, position=0):
    if (
        position < len(call.args)
        and isinstance(call.args[position], ast.Constant)
        and isinstance(call.args[position].value, str)
    ):
        return call.args[position].value.split("(")[0].rpartition("::")[2].strip()
    return None


def _last(node):
    return (dotted_name(node.func if isinstance(node, ast.Call) else node) or "").rpartition(".")


def _decorator(decorator, function, defined, described, operators):
    owner, _, last = _last(decorator)
    if last in ("custom_op", "triton_op") and isinstance(decorator, ast.Call):
        name = _text(decorator)
        if name:
            defined[name] = decorator
            operators[function.name] = name  # for `double.register_fake`
    elif last in ("register_fake", "impl_abstract"):
        name = _text(decorator) if isinstance(decorator, ast.Call) else None
        described.add(name if name else operators.get(owner, owner))
    elif last == "impl" and isinstance(decorator, ast.Call):
        _implementation(decorator, described)


def _call(node, defined, described, operators):
    owner, _, last = _last(node)
    if (
        last == "define"
        and _text(node)
        and ("library" in owner.lower() or "lib" in owner.lower() or len(owner) < 3)
    ):
        defined.setdefault(_text(node), node)
    elif last in ("register_fake", "impl_abstract", "_register_fake"):
        name = _text(node)
        described.add(name if name else operators.get(owner, owner))
    elif last == "impl":
        _implementation(node, described)


def _implementation(call, described):
    """impl(library, "name", "Meta"), library.impl("name", function, "Meta")."""
    texts = [
        a.value for a in call.args if isinstance(a, ast.Constant) and isinstance(a.value, str)
    ] + [
        k.value.value
        for k in call.keywords
        if isinstance(k.value, ast.Constant) and isinstance(k.value.value, str)
    ]
    if (
        any(t in ("Meta", "CompositeImplicitAutograd", "CompositeExplicitAutograd") for t in texts)
        and texts
    ):
        described.add(texts[0].rpartition("::")[2])
