"""How the compiled functions are set up and called: options, dynamic, cache_compile, modes."""

import ast
import difflib

from .custom_ops import check_custom_ops
from .entries import dict_items, scopes
from .options import (
    CAPTURE_ONLY,
    EXE_MODES,
    GE_CONFIG,
    GE_ONLY,
    NPUGRAPH_OPTIONS,
    PACKAGES,
    RECIPE_PAIRS,
)
from .program import dotted_name
from .tree import walk

_WORDS = (
    "compile",
    "torchair",
    "npugraph_ex",
    "exe_mode",
    "custom_op",
    "torch.library",
    "Library(",
    "set_dim_gears",
)


def check(program, sites, reporter, length_lists, backend):
    """Rules about what surrounds the graph; they look at all code of the files."""
    for site in sites:
        _site(program, site, reporter, backend)
    _lengths(program, sites, reporter, length_lists, backend)
    _repeated_cache(sites, reporter)
    for module in program.modules:
        if not any(w in module.source.text for w in _WORDS):
            continue
        nodes = [n for _, scope in scopes(module) for n in scope]
        _configs(program, module, reporter)
        _packages(program, module, nodes, reporter)
        _recipes(module, nodes, reporter)
        _gears(module, nodes, sites, reporter)
        check_custom_ops(module, nodes, reporter)
        _modes(module, nodes, sites, reporter)
        _counters(module, nodes, sites, backend, reporter)


# -- one place that compiles


def _site(program, site, reporter, backend):
    source = site.module.source
    kind = site.backend or backend
    options = site.settings.get("options")
    if kind == "npugraph_ex" and options is not None:
        _options(dict_items(program, site.module, site.owner, options), options, source, reporter)
    mode = site.settings.get("mode")
    if (
        kind == "npugraph_ex"
        and site.kind == "compile"
        and isinstance(mode, ast.Constant)
        and mode.value is not None
    ):
        reporter.add(
            "option-pair",
            source,
            site.call,
            f'backend="npugraph_ex" takes no mode (here {mode.value!r})',
        )
    if site.backend in ("inductor", "cudagraphs") and "torch_npu" in source.text:
        reporter.add(
            "option-pair", source, site.call, f"backend={site.backend!r} does not run on an NPU"
        )
    if site.kind == "cache_compile":
        _cached(site, reporter)


def _options(items, options, source, reporter):
    given = {}
    for key, value in items:
        name = key.value
        if not isinstance(name, str):
            continue
        constant = value.value if isinstance(value, ast.Constant) else _NOT_KNOWN
        given[name] = constant
        if name not in NPUGRAPH_OPTIONS:
            reporter.add("unknown-option", source, key, _unknown(name, NPUGRAPH_OPTIONS))
        elif (
            constant is not _NOT_KNOWN
            and NPUGRAPH_OPTIONS[name] is not None
            and constant not in NPUGRAPH_OPTIONS[name]
        ):
            reporter.add(
                "unknown-option",
                source,
                key,
                f"{name} is one of {_values(NPUGRAPH_OPTIONS[name])}, not {constant!r}",
            )
        elif name == "capture_limit" and _number(value) is not None and _number(value) < 1:
            reporter.add("unknown-option", source, key, "capture_limit is at least 1")
    if given.get("reuse_graph_pool_in_same_fx") is True and given.get("use_graph_pool") is not None:
        reporter.add(
            "option-pair",
            source,
            options,
            "use_graph_pool switches reuse_graph_pool_in_same_fx off",
        )


_NOT_KNOWN = object()


def _number(node):
    sign = 1
    if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.USub):
        sign, node = -1, node.operand
    number = node.value if isinstance(node, ast.Constant) else None
    return sign * number if isinstance(number, int) else None


def _unknown(name, names):
    near = difflib.get_close_matches(name, names, 1, 0.6)
    return f"'{name}'" + (f"; did you mean '{near[0]}'?" if near else "")


def _values(values):
    return ", ".join(repr(v) for v in values)


def _keyword(call, *names):
    for k in call.keywords:
        if k.arg in names:
            return k.value
    return None


def _cached(site, reporter):
    source, function = site.module.source, site.function
    if isinstance(site.target, ast.Call) and (dotted_name(site.target.func) or "").endswith(
        "torch.compile"
    ):
        reporter.add("cache-compile", source, site.call, "it replaces torch.compile")
    elif isinstance(site.target, ast.Lambda) or (function is not None and function.cls is None):
        reporter.add("cache-compile", source, site.call, "the function is no method of a module")
    elif function is not None:
        decorators = [d for d in function.decorators if d]
        if decorators:
            reporter.add(
                "cache-compile",
                source,
                site.call,
                f"{function.qualified} is decorated with {decorators[0]}",
            )
    if site.backend == "npugraph_ex" and _keyword(site.call, "ge_cache") is not None:
        reporter.add("cache-compile", source, site.call, "ge_cache is for GE graphs")
    fullgraph = _keyword(site.call, "fullgraph")
    if isinstance(fullgraph, ast.Constant) and fullgraph.value is False:
        reporter.add("cache-compile", source, site.call, "only a full graph is cached")


def _repeated_cache(sites, reporter):
    """One function through two compilers, or twice through one."""
    by_function = {}
    for site in sites:
        if site.function is not None:
            by_function.setdefault(id(site.function), []).append(site)
    for group in by_function.values():
        cached = [s for s in group if s.kind == "cache_compile"]
        if cached and len(group) > len(cached):
            reporter.add(
                "cache-compile",
                cached[0].module.source,
                cached[0].call,
                f"{cached[0].function.qualified} goes through torch.compile as well",
            )
        elif len(cached) > 1 and len({s.backend for s in cached}) == 1:
            last = max(cached, key=lambda s: s.call.lineno)
            reporter.add(
                "cache-compile",
                last.module.source,
                last.call,
                f"{last.function.qualified} is cached twice: the second deletes the first",
            )


# -- lists of lengths


def _lengths(program, sites, reporter, length_lists, backend):
    for function, lists in length_lists:
        if not lists:
            continue
        for site in sites:
            if site.function is not function:
                continue
            kind = site.backend or backend
            if kind not in ("npugraph_ex", "ge_graph"):
                continue
            if site.dynamic is False:
                reporter.add(
                    "wrong-dynamic",
                    site.module.source,
                    site.call,
                    f"{lists[0][2]} is a list in {function.qualified}",
                )
            elif (
                site.dynamic is True
                and kind == "ge_graph"
                and not any("mark_static" in m.source.text for m in program.modules)
            ):
                reporter.add("missing-mark-static", site.module.source, site.call)


# -- CompilerConfig


def _configs(program, module, reporter):
    if "CompilerConfig" not in module.source.text:
        return
    for _, nodes in scopes(module):
        names = set()
        for n in nodes:
            if (
                isinstance(n, ast.Assign)
                and isinstance(n.value, ast.Call)
                and (dotted_name(n.value.func) or "").endswith("CompilerConfig")
            ):
                names.update(filter(None, map(dotted_name, n.targets)))
        if not names:
            continue
        aliases = {}  # e = config.experimental_config
        for n in nodes:
            if isinstance(n, ast.Assign) and isinstance(n.value, ast.Attribute):
                full = dotted_name(n.value) or ""
                if full.partition(".")[0] in names and isinstance(n.targets[0], ast.Name):
                    aliases[n.targets[0].id] = full
        settings = {}
        for n in nodes:
            n = _as_assignment(n)
            if isinstance(n, ast.Assign):
                for t in n.targets:
                    full = dotted_name(t) or ""
                    head, _, rest = full.partition(".")
                    if head in aliases and rest:
                        full = f"{aliases[head]}.{rest}"
                    for name in names:
                        if full.startswith(name + "."):
                            _setting(module, n, full[len(name) + 1 :], settings, reporter)
        _pairs(module, settings, reporter)


def _as_assignment(node):
    """setattr(group, "name", value) as the assignment that it is."""
    if (
        isinstance(node, ast.Call)
        and getattr(node.func, "id", "") == "setattr"
        and len(node.args) == 3
        and isinstance(node.args[1], ast.Constant)
    ):
        target = ast.Attribute(value=node.args[0], attr=str(node.args[1].value), ctx=ast.Store())
        made = ast.Assign(targets=[ast.copy_location(target, node)], value=node.args[2])
        return ast.copy_location(made, node)
    return node


def _setting(module, node, path, settings, reporter):
    table = GE_CONFIG
    for part in path.split("."):
        if table == {} or not isinstance(table, dict):
            return
        if part not in table:
            reporter.add("unknown-option", module.source, node, _unknown(part, table))
            return
        table = table[part]
    if isinstance(node.value, ast.Constant):
        settings[path] = (node.value.value, node)
        if isinstance(table, tuple) and node.value.value not in table:
            reporter.add(
                "unknown-option",
                module.source,
                node,
                f"{path} is one of {_values(table)}, not {node.value.value!r}",
            )


def _pairs(module, settings, reporter):
    mode = settings.get("mode", ("max-autotune", None))[0]
    table = CAPTURE_ONLY if mode == "max-autotune" else GE_ONLY
    for path, values in table.items():
        value, node = settings.get(path, (_NOT_KNOWN, None))
        if value in values:
            reporter.add(
                "option-pair",
                module.source,
                node,
                f'{path}={value!r} has no effect with mode="{mode}"',
            )


# -- names of the packages


def _packages(program, module, nodes, reporter):
    if "torchair" not in module.source.text and "npugraph_ex" not in module.source.text:
        return
    inner = set()
    for node in module.source.tree.body:
        if isinstance(node, ast.ImportFrom) and node.level == 0 and node.module in PACKAGES:
            for a in node.names:
                _known_attribute(node.module, a.name, module, node, reporter)
    for node in nodes:
        if not isinstance(node, ast.Attribute) or id(node) in inner:
            continue
        name = dotted_name(node)
        if name is None:
            continue
        child = node.value
        while isinstance(child, ast.Attribute):
            inner.add(id(child))
            child = child.value
        head, _, rest = name.partition(".")
        full = module.imports.get(head, head) + "." + rest
        while "." in full:
            package, _, attribute = full.rpartition(".")
            if package in PACKAGES:
                _known_attribute(package, attribute, module, node, reporter)
                break
            full = package


def _known_attribute(package, attribute, module, node, reporter):
    known = PACKAGES[package]
    if attribute not in known and attribute != "*" and not attribute.startswith("_"):
        near = difflib.get_close_matches(attribute, known, 1, 0.6)
        reporter.add(
            "unknown-attribute",
            module.source,
            node,
            f"{package}.{attribute}" + (f"; did you mean {near[0]}?" if near else ""),
        )


# -- settings of recipes


def _recipes(module, nodes, reporter):
    if "exe_mode" not in module.source.text:
        return
    for node in nodes:
        if isinstance(node, ast.Dict):
            given = {
                k.value: v
                for k, v in zip(node.keys, node.values)
                if isinstance(k, ast.Constant) and isinstance(v, ast.Constant)
            }
        elif isinstance(node, ast.Call):
            given = {
                k.arg: k.value for k in node.keywords if k.arg and isinstance(k.value, ast.Constant)
            }
        else:
            continue
        if "exe_mode" in given:
            recipe({n: v.value for n, v in given.items()}, module.source, node, reporter)


def recipe(settings, source, node, reporter):
    """The settings of one recipe, by name."""
    mode = settings["exe_mode"]
    if isinstance(mode, str) and mode not in EXE_MODES:
        reporter.add(
            "unknown-option", source, node, f"exe_mode is one of {_values(EXE_MODES)}, not {mode!r}"
        )
    for (a, x), (b, y), why in RECIPE_PAIRS:
        if settings.get(a) == x and settings.get(b) is y:
            reporter.add("option-pair", source, node, f"{a}={x} with {b}={y}: {why}")


# -- gears


def _gears(module, nodes, sites, reporter):
    if "set_dim_gears" not in module.source.text:
        return
    for node in nodes:
        if not (
            isinstance(node, ast.Call) and (dotted_name(node.func) or "").endswith("set_dim_gears")
        ):
            continue
        gears = _keyword(node, "dim_gears") or (node.args[1] if len(node.args) > 1 else None)
        total = 1
        for value in gears.values if isinstance(gears, ast.Dict) else ():
            numbers = [_number(e) for e in getattr(value, "elts", ())]
            total *= max(len(numbers), 1)
            if any(n in (0, 1) for n in numbers):
                reporter.add(
                    "option-pair",
                    module.source,
                    node,
                    "a gear of 0 or 1: symbolic sizes start at 2",
                )
        if total > 100:
            reporter.add(
                "option-pair", module.source, node, f"{total} gears; at most 100 are allowed"
            )
        static = [s for s in sites if s.dynamic is not True and s.kind == "compile"]
        if static and len(static) == len(sites):
            reporter.add(
                "option-pair", module.source, static[0].call, "set_dim_gears needs dynamic=True"
            )


# -- modes


def _modes(module, nodes, sites, reporter):
    """Calls of one compiled function with different constants for the same argument."""
    for site in sites:
        if site.module is not module or not site.result:
            continue
        seen = {}
        calls = [
            n
            for n in nodes
            if isinstance(n, ast.Call) and n is not site.call and _is_call_of(n, site)
        ]
        for call in sorted(calls, key=lambda c: (c.lineno, c.col_offset)):
            for name, value in _constants(call, site.function):
                first = seen.setdefault(name, value)
                if first is not value and first != value:
                    reporter.add(
                        "two-modes-one-entry",
                        module.source,
                        call,
                        f"{name}={first!r} and {name}={value!r}",
                    )


# -- counters


def _counters(module, nodes, sites, backend, reporter):
    """A loop around the compiled function hands its counter in."""
    for loop in nodes:
        if not isinstance(loop, (ast.For, ast.While)):
            continue
        inside = list(walk(loop))
        counters = _loop_counters(loop, inside)
        for site in sites if counters else ():
            if site.module is not module or not site.result:
                continue
            if site.dynamic is True and (site.backend or backend) == "ge_graph":
                continue  # one graph, and GE has no keys
            for call in inside:
                if not isinstance(call, ast.Call) or not _is_call_of(call, site):
                    continue
                for a in [*call.args, *(k.value for k in call.keywords)]:
                    if isinstance(a, ast.Name) and a.id in counters:
                        reporter.add("python-counter-input", module.source, call, a.id)


def _loop_counters(loop, inside):
    """Names of plain numbers that change with each round."""
    counters = {
        n.target.id
        for n in inside
        if isinstance(n, ast.AugAssign)
        and isinstance(n.target, ast.Name)
        and isinstance(n.value, ast.Constant)
        and isinstance(n.value.value, int)
    }
    if isinstance(loop, ast.For) and isinstance(loop.iter, ast.Call):
        name = (dotted_name(loop.iter.func) or "").rpartition(".")[2]
        target = loop.target
        if name == "enumerate" and isinstance(target, ast.Tuple):
            target = target.elts[0]
        if name in ("range", "count", "enumerate", "trange") and isinstance(target, ast.Name):
            counters.add(target.id)
    return counters


def _is_call_of(call, site):
    name = dotted_name(call.func)
    return name is not None and (
        name == site.result
        or ("." in name and site.target is None and name.rpartition(".")[2] == site.result)
    )


def _constants(call, function):
    for k in call.keywords:
        if k.arg and isinstance(k.value, ast.Constant) and isinstance(k.value.value, (bool, str)):
            yield k.arg, k.value.value
    names = [p.arg for p in function.params] if function is not None else []
    if function is not None and function.cls is not None:
        names = names[1:]
    for i, a in enumerate(call.args):
        if isinstance(a, ast.Constant) and isinstance(a.value, (bool, str)) and i < len(names):
            yield names[i], a.value
