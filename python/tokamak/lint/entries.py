"""What is compiled: the entries of the graph, as the code says or as its names suggest."""

import ast

from ..errors import Error
from .program import Class, dotted_name
from .tree import index_of, walk
from .values import FUNCTION


class Site:
    """One place that compiles: torch.compile, cache_compile, or a decorator of either."""

    __slots__ = (
        "backend",
        "call",
        "dynamic",
        "function",
        "kind",
        "module",
        "owner",
        "result",
        "settings",
        "target",
    )

    def __init__(self, kind, call, module, owner):
        self.kind = kind  # "compile" or "cache_compile"
        self.call = call
        self.module = module
        self.owner = owner  # the function around it, or None
        self.target = None  # node of what is compiled
        self.function = None  # the Function, where it is known
        self.result = None  # the name that the compiled function gets
        self.backend = None
        self.dynamic = None
        self.settings = {}  # keyword of the call: node, also of `**settings`


_COMPILERS = {
    "torch.compile": "compile",
    "cache_compile": "cache_compile",
    "torch._dynamo.optimize": "optimize",
}
_GUESSED_METHODS = ("main_decode", "mtp_decode", "decode")
_CALLBACKS = ("make_graphed_callables",)


def compile_sites(program):
    """All places of the files that compile something, with what they compile where it shows."""
    sites = []
    for module in program.modules:
        text = module.source.text
        if "compile" not in text:
            continue
        for owner, nodes in scopes(module):
            if owner is None or "compile" in module.source.segment(owner.node):
                _collect(program, module, owner, nodes, sites)
        _decorators(program, module, sites)
    for site in sites:
        if site.function is None and site.target is not None:
            site.function = resolve(program, site, site.target)
    return sites


def scopes(module):
    """Each function with its nodes; (None, nodes) for the statements of the module itself."""
    yield None, module.main_nodes
    for f in module.functions.values():
        yield f, f.nodes
    for c in module.classes.values():
        for m in c.methods.values():
            yield m, m.nodes


def _collect(program, module, owner, nodes, sites):
    names = {}
    for node in nodes:
        if isinstance(node, ast.Assign):
            names[id(node.value)] = dotted_name(node.targets[0])
    for node in nodes:
        kind = _kind(program, module, node.func) if isinstance(node, ast.Call) else None
        if kind is None:
            continue
        site = Site(kind, node, module, owner)
        site.target = node.args[0] if node.args else _keyword(node, "model", "func")
        if site.target is None and kind == "compile":
            continue  # torch.compile(backend=...) as a decorator
        site.result = names.get(id(node))
        _settings(program, module, owner, site)
        sites.append(site)


def _kind(program, module, func):
    name = dotted_name(func)
    if name is None:
        return None
    value = program.lookup(name, module)
    full = value.dotted or name
    if full in _COMPILERS:
        return _COMPILERS[full]
    return "cache_compile" if full.endswith(".cache_compile") or full == "cache_compile" else None


def _keyword(call, *names):
    for k in call.keywords:
        if k.arg in names:
            return k.value
    return None


def _decorators(program, module, sites):
    functions = list(module.functions.values())
    for c in module.classes.values():
        functions += c.methods.values()
    for f in functions:
        for d in f.node.decorator_list:
            func = d.func if isinstance(d, ast.Call) else d
            kind = _kind(program, module, func)
            if (
                kind is None
                and isinstance(d, ast.Call)
                and d.args
                and (dotted_name(func) or "").endswith("partial")
            ):
                kind = _kind(program, module, d.args[0])
            if kind is not None:
                call = (
                    d
                    if isinstance(d, ast.Call)
                    else ast.copy_location(ast.Call(func=func, args=[], keywords=[]), d)
                )
                site = Site(kind, call, module, None)
                site.function = f
                site.result = f.name
                _settings(program, module, None, site)
                sites.append(site)


def _settings(program, module, owner, site):
    """backend ("npugraph_ex", "ge_graph", another name, None if not known) and dynamic."""
    for k in site.call.keywords:
        if k.arg is not None:
            site.settings[k.arg] = k.value
        else:
            site.settings.update(
                {key.value: value for key, value in dict_items(program, module, owner, k.value)}
            )
    dynamic = stands_for(module, owner, site.settings.get("dynamic"))
    if isinstance(dynamic, ast.Constant):
        site.dynamic = dynamic.value
    if site.kind == "cache_compile":
        full = (
            program.lookup(dotted_name(site.call.func) or "", module).dotted
            or dotted_name(site.call.func)
            or ""
        )
        site.backend = (
            "npugraph_ex" if "npugraph_ex" in full else "ge_graph" if "torchair" in full else None
        )
        if dynamic is None:
            site.dynamic = True  # its default
        return
    site.backend = backend_of(program, module, owner, site.settings.get("backend"))


def _assignments(module, owner, name):
    """The values that a plain name is given in the function around, else in the module."""
    for nodes in ([owner.nodes] if owner is not None else []) + [module.main_nodes]:
        found = [
            n
            for n in nodes
            if isinstance(n, ast.Assign)
            and any(isinstance(t, ast.Name) and t.id == name for t in n.targets)
        ]
        if found:
            return found, nodes
    return [], []


def stands_for(module, owner, node, depth=0):
    """The expression behind a name that is assigned once."""
    if not isinstance(node, ast.Name) or depth > 3:
        return node
    found, _ = _assignments(module, owner, node.id)
    return stands_for(module, owner, found[0].value, depth + 1) if len(found) == 1 else node


def dict_items(program, module, owner, node, depth=0):
    """[(key as ast.Constant, value)] of a dict as far as it shows: a display, dict(...), a name for
    either with what is set on it, a function that returns one."""
    items = []
    if isinstance(node, ast.Dict):
        for key, value in zip(node.keys, node.values):
            if key is None and depth < 3:
                items += dict_items(program, module, owner, value, depth + 1)
            elif isinstance(key, ast.Constant):
                items.append((key, value))
    elif isinstance(node, ast.Call) and dotted_name(node.func) == "dict":
        items += [
            (ast.copy_location(ast.Constant(value=k.arg), k.value), k.value)
            for k in node.keywords
            if k.arg is not None
        ]
    elif isinstance(node, ast.Call) and depth < 3:
        function = program.lookup(dotted_name(node.func) or "", module).target
        for n in getattr(function, "nodes", ()):
            if isinstance(n, ast.Return):
                items += dict_items(program, function.module, function, n.value, depth + 1)
    elif isinstance(node, ast.Name) and depth < 3:
        found, nodes = _assignments(module, owner, node.id)
        for n in found:
            items += dict_items(program, module, owner, n.value, depth + 1)
        for n in nodes if found else ():
            items += _set_later(program, module, owner, n, node.id, depth)
    return items


def _set_later(program, module, owner, node, name, depth):
    """`name[key] = value`, `name.update(...)`."""
    if isinstance(node, ast.Assign):
        return [
            (index_of(t), node.value)
            for t in node.targets
            if isinstance(t, ast.Subscript)
            and getattr(t.value, "id", "") == name
            and isinstance(index_of(t), ast.Constant)
        ]
    if isinstance(node, ast.Call) and dotted_name(node.func) == f"{name}.update":
        made = ast.copy_location(
            ast.Call(func=ast.Name(id="dict", ctx=ast.Load()), args=[], keywords=node.keywords),
            node,
        )
        items = dict_items(program, module, owner, made, depth)
        for a in node.args:
            items += dict_items(program, module, owner, a, depth + 1)
        return items
    return []


def backend_of(program, module, owner, node, depth=0):
    if isinstance(node, ast.Constant):
        return {"npugraph_ex": "npugraph_ex", "npu": "ge_graph"}.get(node.value, node.value)
    if isinstance(node, ast.Call):
        name = dotted_name(node.func) or ""
        if name.endswith("get_npu_backend"):
            mode = _config_mode(program, module, owner, node)
            return "npugraph_ex" if mode in ("reduce-overhead", "npugraph_ex") else "ge_graph"
        return None
    if isinstance(node, ast.Name) and depth < 3:
        found, _ = _assignments(module, owner, node.id)
        if found:
            return backend_of(program, module, owner, found[0].value, depth + 1)
    return None


def _config_mode(program, module, owner, call):
    """The `mode` that is set on the CompilerConfig of a get_npu_backend call."""
    config = _keyword(call, "compiler_config")
    name = dotted_name(config) if config is not None else None
    if name is None:
        return None
    for node in walk(owner.node if owner is not None else module.source.tree):
        if (
            isinstance(node, ast.Assign)
            and isinstance(node.value, ast.Constant)
            and any(dotted_name(t) == f"{name}.mode" for t in node.targets)
        ):
            return node.value.value
    return None


# -- what an expression that is compiled stands for


def resolve(program, site, node, depth=0):
    """The Function that `node` (a module, a bound method, a function) runs, or None."""
    module, _owner = site.module, site.owner
    if isinstance(node, ast.Call):
        cls = _constructed(program, module, node)
        if cls is not None:
            return program.method(cls, "forward") or program.method(cls, "__call__")
        if isinstance(node.func, ast.Attribute):  # model.npu(), Model().to(device).eval()
            return resolve(program, site, node.func.value, depth + 1)
        if (dotted_name(node.func) or "").endswith("partial") and node.args:
            return resolve(program, site, node.args[0], depth + 1)
        return None
    if isinstance(node, ast.Attribute):
        return _attribute(program, site, node)
    if isinstance(node, ast.Name) and depth < 4:
        found = program.lookup(node.id, module)
        if found.kind == FUNCTION:
            target = found.target
            return program.method(target, "forward") if isinstance(target, Class) else target
        assigned = _assigned(site, node.id)
        if assigned is not None:
            return resolve(program, site, assigned, depth + 1)
        return _argument(program, site, node.id, depth)
    return None


def _constructed(program, module, call):
    name = dotted_name(call.func)
    found = program.lookup(name, module) if name else None
    if found is not None and found.kind == FUNCTION and isinstance(found.target, Class):
        return found.target
    return None


def _attribute(program, site, node):
    if (
        isinstance(node.value, ast.Name)
        and node.value.id == "self"
        and site.owner is not None
        and site.owner.cls is not None
    ):
        cls = site.owner.cls
        method = program.method(cls, node.attr)
        if method is not None:
            return method
        assigned = _assigned_attribute(cls, node.attr)
        return resolve(program, site, assigned, 2) if assigned is not None else None
    cls = _class_of(program, site, node.value)
    if cls is not None:
        return program.method(cls, node.attr)
    # model.decode of a model that is not known: the only method of that name.
    if node.attr in ("forward", "__call__"):
        return None
    named = [c.methods[node.attr] for c in program.classes() if node.attr in c.methods]
    return named[0] if len(named) == 1 else None


def _class_of(program, site, node):
    if isinstance(node, ast.Call):
        made = _constructed(program, site.module, node)
        if made is None and isinstance(node.func, ast.Attribute):
            return _class_of(program, site, node.func.value)
        return made
    assigned = None
    if isinstance(node, ast.Name):
        assigned = _assigned(site, node.id)
    elif isinstance(node, ast.Attribute) and site.owner is not None and site.owner.cls is not None:
        assigned = _assigned_attribute(site.owner.cls, node.attr)
    return _class_of(program, site, assigned) if isinstance(assigned, ast.Call) else None


def _assigned(site, name):
    bodies = [site.owner.node.body] if site.owner is not None else []
    for body in [*bodies, site.module.source.tree.body]:
        for statement in body:
            for node in walk(statement):
                if (
                    isinstance(node, ast.Assign)
                    and node.value is not site.call
                    and any(isinstance(t, ast.Name) and t.id == name for t in node.targets)
                ):
                    return node.value
    return None


def _assigned_attribute(cls, name):
    for method in cls.methods.values():
        for node in method.nodes:
            if isinstance(node, ast.Assign) and any(
                isinstance(t, ast.Attribute) and t.attr == name for t in node.targets
            ):
                return node.value
    return None


def _argument(program, site, name, depth):
    """A parameter of the function around: what its callers in the files give."""
    owner = site.owner
    if owner is None:
        return None
    names = [p.arg for p in owner.params]
    if name not in names:
        return None
    position = names.index(name) - (1 if owner.cls is not None and not owner.is_static else 0)
    for module in program.modules:
        if owner.name not in module.source.text:
            continue
        for scope, nodes in scopes(module):
            for node in nodes:
                if (
                    isinstance(node, ast.Call)
                    and (dotted_name(node.func) or "").rpartition(".")[2] == owner.name
                ):
                    given = (
                        node.args[position] if position < len(node.args) else _keyword(node, name)
                    )
                    if given is not None:
                        caller = Site(site.kind, site.call, module, scope)
                        found = resolve(program, caller, given, depth + 1)
                        if found is not None:
                            return found
    return None


# -- the entries


def find_entries(program, sites, wanted=None):
    """The compiled functions. `wanted` is --entry; raises TK1103 when there is no such one."""
    if wanted:
        return named_entry(program, wanted)
    found = []
    for site in sites:
        if site.function is not None and site.function not in found:
            found.append(site.function)
    return found or guessed_entries(program)


def named_entry(program, wanted):
    cls_name, _, name = wanted.rpartition(".")
    matches = []
    for f in program.functions():
        if f.name == name and (not cls_name or (f.cls is not None and f.cls.name == cls_name)):
            matches.append(f)
    if not matches and cls_name:  # an inherited method
        for c in program.classes():
            if c.name == cls_name:
                method = program.method(c, name)
                if method is not None:
                    matches.append(method)
    if not matches and not cls_name:  # a class alone: its forward
        for c in program.classes():
            if c.name == name and program.method(c, "forward") is not None:
                matches.append(program.method(c, "forward"))
    if matches:
        return matches
    import difflib

    known = sorted({f.qualified for f in program.functions()})
    near = difflib.get_close_matches(wanted, known, 3, 0.5)
    entries = [f.qualified for f in guessed_entries(program)]
    raise Error(
        "TK1103",
        f"there is no '{wanted}' in the files",
        notes=[f"the files suggest: {', '.join(entries[:8])}"] if entries else [],
        help=f"did you mean {' or '.join(near)}?" if near else "name it CLASS.METHOD or FUNCTION",
    )


def guessed_entries(program):
    """Methods called decode (and the like) of modules; else forward of the outermost modules."""
    modules = [c for c in program.classes() if program.is_module_class(c)]
    decoders = [c.methods[n] for c in modules for n in _GUESSED_METHODS if n in c.methods]
    if decoders:
        return decoders
    used = _instantiated(program)
    bases = {b for c in modules for b in program.ancestry(c)[1:]}
    roots = [
        c
        for c in modules
        if program.method(c, "forward") is not None and c not in used and c not in bases
    ]
    if not roots:
        roots = [c for c in modules if "forward" in c.methods]
    entries = list({id(f): f for f in (program.method(c, "forward") for c in roots)}.values())
    if entries:
        return entries
    # No module at all: functions with the name of a step.
    names = (*_GUESSED_METHODS, "forward", "step", "decode_step")
    return [m.functions[n] for m in program.modules for n in names if n in m.functions]


def _instantiated(program):
    """Classes that another class of the files makes, or names as a value."""
    used = set()
    for module in program.modules:
        for c in module.classes.values():
            for method in c.methods.values():
                for node in method.nodes:
                    if (
                        isinstance(node, ast.Name)
                        and node.id in module.classes
                        and node.id != c.name
                    ):
                        used.add(module.classes[node.id])
                    elif isinstance(node, ast.Name) and node.id in module.imports:
                        found = program.lookup(node.id, module)
                        if found.kind == FUNCTION and isinstance(found.target, Class):
                            used.add(found.target)
        for _name, node in module.globals.items():
            if isinstance(node, ast.Dict):  # ATTENTION_CLASSES = {"eager": Attention, ...}
                for v in node.values:
                    if isinstance(v, ast.Name) and v.id in module.classes:
                        used.add(module.classes[v.id])
    return used
