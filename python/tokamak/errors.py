"""Errors with a code, written as the `tokamak` command writes its own."""


class Error(Exception):
    """What the user can mend: a code with a page in docs/errors, what was found, where, what to do.

    `file` and `line` name a place in the user's own source, `module` a module path of the model.
    """

    def __init__(self, code, message, *, file=None, line=None, module=None, notes=(), help=None):
        super().__init__(message)
        self.code = code
        self.message = message
        self.file = file
        self.line = line
        self.module = module
        self.notes = tuple(notes)
        self.help = help

    def __str__(self):
        place = self.file or ""
        if place and self.line:
            place += f":{self.line}"
        if self.module:
            place = f"{self.module} ({place})" if place else self.module
        lines = [f"error[{self.code}]: {self.message}"]
        if place:
            lines.append(f"  --> {place}")
        lines += [f"  note: {note}" for note in self.notes]
        if self.help:
            lines.append(f"  help: {self.help}")
        return "\n".join(lines)


class CaptureError(Error):
    """A model that can't be captured (TK10xx)."""
