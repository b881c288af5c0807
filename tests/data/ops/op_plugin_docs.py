"""A document of operators as a torch_npu package brings it along, in small."""

_add_torch_npu_docstr(
    "npu_rms_norm",
    """

first entry: the norm of rows
Second line.
""",
)

_add_torch_npu_docstr(
    "npu_rms_norm",
    """
second entry of the same name
""",
)

_add_torch_npu_docstr(
    "npu_of_tomorrow",
    r"""
An operator of a time to come, whose first line is longer than anybody would like to read it in a list of search results, which is why it is cut after a while
""",
)
