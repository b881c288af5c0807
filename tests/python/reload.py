"""Reads a capture back as a user of its documented format would, without Tokamak's own code."""

import json
from pathlib import Path

import torch
from safetensors import safe_open


def weights_of(folder):
    """Name to tensor, aliases resolved, from the safetensors files alone."""
    folder = Path(folder)
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        files = sorted(set(json.loads(index.read_text())["weight_map"].values()))
    else:
        files = ["model.safetensors"]
    tensors = {}
    for file in files:
        with safe_open(folder / file, "pt") as opened:
            for name in opened.keys():  # noqa: SIM118 (a safe_open is no dictionary)
                tensors[name] = opened.get_tensor(name)
            for alias, name in json.loads(opened.metadata()["tokamak.aliases"]).items():
                tensors[alias] = tensors[name]
    return tensors


def program_of(folder):
    """The ExportedProgram of `folder` with the weights of its safetensors files attached."""
    program = torch.export.load(Path(folder) / "model.pt2")
    tensors = weights_of(folder)
    used = set(program.state_dict) | set(program.constants)
    assert used == set(tensors), used ^ set(tensors)
    for old in (program.state_dict, program.constants):
        for name, empty in old.items():
            assert empty.shape == tensors[name].shape and empty.dtype == tensors[name].dtype
    parameters = set(program.graph_signature.parameters)
    program._state_dict = {
        name: torch.nn.Parameter(tensors[name], False) if name in parameters else tensors[name]
        for name in program.state_dict
    }
    program._constants = {name: tensors[name] for name in program.constants}
    return program
