"""Rotary embeddings that choose their frequencies by the length they have seen.

transformers does this in the forward, for all tokens of a batch alike ("longrope", "dynamic"). A
graph for a cache must not: the keys in the cache were turned already. So the choice is made once,
by the longest sequence of the capture, as serving engines do.
"""

from contextlib import contextmanager

from .errors import CaptureError


def _sets(model):
    """(module, layer type or None, rope type) for each set of frequencies that may change."""
    for module in model.modules():
        kinds = getattr(module, "rope_type", None)
        by_layer = kinds if isinstance(kinds, dict) else {None: kinds}
        for layer_type, kind in by_layer.items():
            if isinstance(kind, str) and ("dynamic" in kind or kind == "longrope"):
                yield module, layer_type, kind


def _switch(module, layer_type, kind):
    """The longest sequence with the frequencies of short ones."""
    if kind != "longrope":
        return module.original_max_seq_len
    parameters = module.config.rope_parameters
    if layer_type is not None:
        parameters = parameters[layer_type]
    return parameters["original_max_position_embeddings"]


def exact_length(model):
    """The longest sequence up to which fixed frequencies are those of the model, or None."""
    return min((_switch(*found) for found in _sets(model)), default=None)


@contextmanager
def fixed(model, max_length):
    """Inside, the frequencies are those for sequences of at most `max_length`."""
    restore = []
    try:
        for module, layer_type, kind in list(_sets(model)):
            frequencies = _frequencies(module, layer_type, kind, max_length)
            name = "inv_freq" if layer_type is None else f"{layer_type}_inv_freq"
            restore.append((module, name, getattr(module, name), module.rope_type))
            setattr(module, name, frequencies)
            module.rope_type = (
                "default" if layer_type is None else {**module.rope_type, layer_type: "default"}
            )
        yield
    finally:
        for module, name, frequencies, kinds in reversed(restore):
            setattr(module, name, frequencies)
            module.rope_type = kinds


def _frequencies(module, layer_type, kind, max_length):
    name = "original_inv_freq" if layer_type is None else f"{layer_type}_original_inv_freq"
    short = getattr(module, name).clone()
    switch = _switch(module, layer_type, kind)
    if max_length <= switch:
        return short
    if kind != "longrope":
        raise CaptureError(
            "TK1007",
            f"the rotary frequencies ('{kind}') change with the length beyond {switch}",
            help=f"capture up to there: --max-length {switch} (max_length={switch})",
        )
    from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS

    options = {} if layer_type is None else {"layer_type": layer_type}
    return ROPE_INIT_FUNCTIONS[kind](module.config, short.device, seq_len=switch + 1, **options)[0]
