"""What the commands that are written in Python do alike: exit codes, and errors on stderr."""

import sys
import traceback

from .errors import Error


def finish(run, *arguments):
    """The exit code of run(*arguments): its own 0 or 1, 2 for the user's mistake, 3 for our bug."""
    for stream in (sys.stdout, sys.stderr):  # excerpts may hold what the terminal cannot show
        stream.reconfigure(errors="backslashreplace")
    try:
        return run(*arguments)
    except Error as error:
        print(error, file=sys.stderr)
        return 2
    except BrokenPipeError:  # `tokamak lint ... | head`
        sys.stderr.close()
        return 1
    except Exception:
        traceback.print_exc()
        print(
            "internal error\n  this is a bug in Tokamak; please report it with the command and "
            "its input",
            file=sys.stderr,
        )
        return 3
