"""model.pt2: what torch.export.save writes, with weight records of no bytes."""

import io
import json
import zipfile

from .weights import storage_key


def write(path, program):
    """Writes `program` to `path`; its weights and constants are left as empty records.

    torch.export.save is given tensors without storage, so that no weight is ever copied. It then
    sees all of them in one storage, so the two tables that say which record a tensor is in are
    corrected here: tensors share a record when, and only when, they are the same elements.
    """
    weights = dict(program.state_dict)
    constants = dict(program.constants)
    buffer = io.BytesIO()
    _save_without_storage(buffer, program, weights, constants)
    buffer.seek(0)
    with (
        zipfile.ZipFile(buffer) as saved,
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as out,
    ):
        for name in saved.namelist():
            folder, _, file = name.rpartition("/")
            root = folder.split("/")[0]
            if file == "model_weights_config.json":
                _write_table(out, saved, name, f"{root}/data/weights/weight_", weights)
            elif file == "model_constants_config.json":
                _write_table(out, saved, name, f"{root}/data/constants/tensor_", constants)
            elif not folder.endswith(("/data/weights", "/data/constants")):
                out.writestr(_entry(name), saved.read(name))


def _entry(name):
    entry = zipfile.ZipInfo(name)  # a fixed date: equal captures give equal files
    entry.compress_type = zipfile.ZIP_DEFLATED
    return entry


def _write_table(out, saved, name, record_prefix, tensors):
    table = json.loads(saved.read(name))
    records = {}
    for tensor_name, meta in table["config"].items():
        key = storage_key(tensors[tensor_name])
        records.setdefault(key, f"{record_prefix.rpartition('/')[2]}{len(records)}")
        meta["path_name"] = records[key]
    out.writestr(_entry(name), json.dumps(table))
    folder = record_prefix.rpartition("/")[0]
    for record in records.values():
        out.writestr(_entry(f"{folder}/{record}"), b"")


def _fake(mode, tensor):
    from torch._subclasses.fake_tensor import FakeTensor

    return tensor if isinstance(tensor, FakeTensor) else mode.from_tensor(tensor)


def _save_without_storage(buffer, program, weights, constants):
    import torch
    from torch._subclasses.fake_tensor import FakeTensorMode

    mode = FakeTensorMode(allow_non_fake_inputs=True)
    # The program keeps its tensors in two plain dictionaries without a public way to swap them.
    program._state_dict = {k: _fake(mode, v) for k, v in weights.items()}
    program._constants = {k: _fake(mode, v) for k, v in constants.items()}
    try:
        torch.export.save(program, buffer)
    finally:
        program._state_dict = weights
        program._constants = constants
