"""A function that modules of bad_models call: not in the file of any module."""


def branch_on_values(h):
    return h * 2 if bool((h > 0).all()) else h
