"""python -m tokamak.npu SCRIPT [args] | -m MODULE [args]: runs it with torch_npu emulated."""

import runpy
import sys
from pathlib import Path

from ..errors import Error
from . import install, pass_on

USAGE = """\
usage: python -m tokamak.npu SCRIPT [args]
       python -m tokamak.npu -m MODULE [args]

Runs a script that was written for torch_npu on this machine, without an NPU and without
torch_npu. Its exit code and its errors are its own.

  python -m tokamak.npu infer.py --model DIR
  python -m tokamak.npu -m torch.distributed.run --nproc-per-node 2 infer.py
"""


def main(argv):
    if not argv or argv[0] in ("-h", "--help"):
        print(USAGE, end="", file=sys.stdout if argv else sys.stderr)
        return 0 if argv else 2
    if argv[0] == "-m" and len(argv) < 2:
        print("error: -m needs a module\n" + USAGE, end="", file=sys.stderr)
        return 2
    module = argv[0] == "-m"
    if not module and not Path(argv[0]).is_file():
        print(f"error: {argv[0]}: no such script", file=sys.stderr)
        return 2
    if not module:
        sys.path[0] = str(Path(argv[0]).resolve().parent)  # as Python does for a script
    try:
        install()
    except Error as error:
        print(error, file=sys.stderr)
        return 2
    pass_on()
    if module:
        sys.argv = argv[1:]
        runpy.run_module(argv[1], run_name="__main__", alter_sys=True)
    else:
        sys.argv = argv
        runpy.run_path(argv[0], run_name="__main__")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
