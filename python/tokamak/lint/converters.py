"""Operators without a converter to Ascend IR."""
METHODS = ()
NPU_WITHOUT_CONVERTER = ()


def is_missing(dotted, name):
    return False


def is_missing_method(name):
    return False
