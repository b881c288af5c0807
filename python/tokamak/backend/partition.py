"""Cuts a graph into parts that the engine runs and parts that PyTorch runs."""

import operator

import torch
from torch.fx.passes.split_module import split_module

from .lower import Unsupported, constant_of, is_number, lower_call, packet_name
from .places import place_of


class Reason:
    """An operator that stays with PyTorch: which, why, and the line of the model it comes from."""

    def __init__(self, node, why):
        self.op = packet_name(node.target) if node.op == "call_function" else str(node.op)
        self.why = why
        self.place = place_of(node)

    def __str__(self):
        return f"{self.place}: {self.op}: {self.why}"


def find_unsupported(gm):
    """{node: Reason}"""
    reasons = {}
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output") or node.target is operator.getitem:
            continue
        if node.op == "get_attr":
            try:
                node.meta["val"] = constant_of(gm, node)
            except Unsupported as e:
                reasons[node] = Reason(node, str(e))
            continue
        if node.op != "call_function":
            reasons[node] = Reason(node, f"a node of kind {node.op}")
            continue
        if is_number(node) and node.target is not torch.ops.aten.copy_.default:
            if node.meta.get("val") is None:
                reasons[node] = Reason(node, "it has no result")
            continue
        try:
            lower_call(node)
        except Unsupported as e:
            reasons[node] = Reason(node, str(e))
    return reasons


def cut(gm, unsupported, min_nodes):
    """(GraphModule of submodules, names of those that the engine is to run, reasons for parts that
    were too small)."""
    groups = _groups(gm, unsupported)
    small = [g for g in groups if g["ours"] and g["size"] < min_nodes]
    for g in small:
        g["ours"] = False
    number, ours, last = {}, set(), None
    k = -1
    for g in groups:
        if last is None or g["ours"] != last:
            k += 1
            last = g["ours"]
        if g["ours"]:
            ours.add(f"submod_{k}")
        number.update(dict.fromkeys(g["nodes"], k))
    split = split_module(gm, None, lambda node: number[node], keep_original_order=True)
    too_small = [Reason(g["first"], f"a part of {g['size']} operators alone") for g in small]
    return split, ours, too_small


def _groups(gm, unsupported):
    groups = []
    for node in gm.graph.nodes:
        if node.op in ("placeholder", "output"):
            continue
        ours = node not in unsupported
        if node.target is operator.getitem or (is_number(node) and ours and groups):
            ours = groups[-1]["ours"] if groups else ours
            if node.target is operator.getitem:  # with what it takes apart
                home = next(g for g in groups if node.args[0] in g["nodes"])
                home["nodes"].append(node)
                continue
        if not groups or groups[-1]["ours"] != ours:
            groups.append({"ours": ours, "nodes": [], "size": 0, "first": node})
        groups[-1]["nodes"].append(node)
        groups[-1]["size"] += not is_number(node)
    return groups
