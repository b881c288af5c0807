"""Loading a Hugging Face folder for the capture, and saying what is wrong with it."""

import difflib
import json
import logging
from contextlib import contextmanager
from pathlib import Path

from .errors import CaptureError

DTYPES = ("auto", "float32", "bfloat16", "float16")
ATTENTION = ("auto", "sdpa", "eager")
_SHOWN = 5


def _some(names):
    names = list(names)
    more = f" and {len(names) - _SHOWN} more" if len(names) > _SHOWN else ""
    return ", ".join(names[:_SHOWN]) + more


def _read_json(path, code):
    try:
        value = json.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise CaptureError(
            code, f"cannot read {path}: {error.strerror}", help="see that it may be read"
        ) from error
    except ValueError as error:
        raise CaptureError(
            code, f"{path.name} is not JSON: {error}", file=str(path), help="download it again"
        ) from error
    if not isinstance(value, dict):
        raise CaptureError(
            code, f"{path.name} is not a JSON object", file=str(path), help="download it again"
        )
    return value


def check_folder(folder, with_weights=True):
    """Raises a CaptureError for what can be seen without loading anything."""
    folder = Path(folder)
    if not folder.is_dir():
        raise CaptureError(
            "TK1001",
            f"{folder} is not a folder",
            help="give the folder of a Hugging Face model: config.json, safetensors, tokenizer",
        )
    if not (folder / "config.json").is_file():
        raise CaptureError(
            "TK1001",
            f"{folder} has no config.json",
            help="give the folder of a Hugging Face model; other modules: tokamak.capture(model)",
        )
    config = _read_json(folder / "config.json", "TK1001")
    _check_architecture(folder, config)
    if "quantization_config" in config:
        raise CaptureError(
            "TK1004",
            "config.json asks for quantised weights (quantization_config)",
            file=str(folder / "config.json"),
            help="capture the model's 16-bit or 32-bit checkpoint",
        )
    if with_weights:
        _check_weight_files(folder)


def _auto_class(kind):
    """The class of transformers that loads a model_type, or None; text models are preferred, of
    those with images the language part is captured (no pixel_values).
    """
    from transformers.models.auto import modeling_auto as auto

    if kind in auto.MODEL_FOR_CAUSAL_LM_MAPPING_NAMES:
        return auto.AutoModelForCausalLM
    if kind in auto.MODEL_FOR_IMAGE_TEXT_TO_TEXT_MAPPING_NAMES:
        return auto.AutoModelForImageTextToText
    return None


def _check_architecture(folder, config):
    from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES as KNOWN

    file = str(folder / "config.json")
    kind = config.get("model_type")
    if isinstance(kind, str) and _auto_class(kind) is not None:
        return
    if "auto_map" in config:
        raise CaptureError(
            "TK1004",
            f"config.json asks for code that comes with the model ('{kind}', auto_map)",
            file=file,
            help="such code is never run by the command; load the model yourself and call "
            "tokamak.capture(model, output_dir)",
        )
    if not isinstance(kind, str):
        raise CaptureError(
            "TK1002",
            "config.json names no model_type",
            file=file,
            help='add it, for example "model_type": "llama"',
        )
    near = difflib.get_close_matches(kind, KNOWN, n=1)
    raise CaptureError(
        "TK1002",
        f"transformers has no causal language model '{kind}'",
        file=file,
        help=f"did you mean '{near[0]}'?"
        if near
        else "load the model yourself and call tokamak.capture(model, output_dir)",
    )


def _check_weight_files(folder):
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        weight_map = _read_json(index, "TK1003").get("weight_map")
        if not isinstance(weight_map, dict):
            raise CaptureError(
                "TK1003",
                f"{index.name} has no weight_map",
                file=str(index),
                help="download it again",
            )
        files = sorted({str(f) for f in weight_map.values()})
        missing = [f for f in files if not (folder / f).is_file()]
        if missing:
            raise CaptureError(
                "TK1003",
                f"{len(missing)} of {len(files)} weight files are missing: {_some(missing)}",
                file=str(index),
                help="download the rest of the model",
            )
    patterns = ("*.safetensors", "pytorch_model*.bin")
    if not any(path for pattern in patterns for path in folder.glob(pattern)):
        raise CaptureError(
            "TK1003",
            f"{folder} has no weights (model.safetensors)",
            help="download the rest of the model",
        )


@contextmanager
def _loading(folder, dtype, attention):
    """Yields the options of from_pretrained and from_config; what they raise is a TK1003."""
    import torch
    from transformers.utils import logging as transformers_logging

    for name, value, known in (("dtype", dtype, DTYPES), ("attention", attention, ATTENTION)):
        if value not in known:
            raise CaptureError(
                "TK1013", f"the {name} '{value}' is unknown", help=f"one of {', '.join(known)}"
            )
    options = {"dtype": dtype if dtype == "auto" else getattr(torch, dtype)}
    if attention != "auto":
        options["attn_implementation"] = attention
    verbosity = transformers_logging.get_verbosity()
    transformers_logging.set_verbosity(logging.CRITICAL)
    transformers_logging.disable_progress_bar()
    try:
        yield options
    except Exception as error:
        raise CaptureError(
            "TK1003",
            f"the model can't be loaded: {type(error).__name__}: {_one_line(error)}",
            file=str(folder),
            help="see that config.json and the weights belong together and are whole",
        ) from error
    finally:
        transformers_logging.set_verbosity(verbosity)
        transformers_logging.enable_progress_bar()


def load_shapes(folder, dtype, attention):
    """The model of config.json with weights that have a shape and a dtype, but no memory."""
    from torch._subclasses.fake_tensor import FakeTensorMode
    from transformers import AutoConfig

    with _loading(folder, dtype, attention) as options:
        config = AutoConfig.from_pretrained(folder, local_files_only=True)
        if options["dtype"] == "auto":
            options["dtype"] = config.dtype
        with FakeTensorMode(allow_non_fake_inputs=True):
            return _auto_class(config.model_type).from_config(config, **options)


def load(folder, dtype, attention, progress):
    """The model on the CPU, every weight of it from the checkpoint. Raises CaptureError."""
    kind = _read_json(Path(folder) / "config.json", "TK1001")["model_type"]
    with _loading(folder, dtype, attention) as options:
        model, found = _auto_class(kind).from_pretrained(
            folder,
            local_files_only=True,
            ignore_mismatched_sizes=True,  # they are reported below, by name
            output_loading_info=True,
            **options,
        )
    missing = sorted(found["missing_keys"])
    if missing:
        raise CaptureError(
            "TK1003",
            f"the checkpoint lacks {len(missing)} weights: {_some(missing)}",
            file=str(folder),
            help="see that config.json and the weights belong together",
        )
    mismatched = sorted(found["mismatched_keys"])
    if mismatched:
        shown = [f"{name} {tuple(have)}, expected {tuple(want)}" for name, have, want in mismatched]
        raise CaptureError(
            "TK1003",
            f"{len(mismatched)} weights have another shape than config.json says: {_some(shown)}",
            file=str(folder),
            help="see that config.json and the weights belong together",
        )
    unused = sorted(found["unexpected_keys"])
    if unused:
        progress.say(f"  not used by the model: {len(unused)} weights ({_some(unused)})")
    return model


def _one_line(error):
    return " ".join(str(error).split())[:400] or "no message"
