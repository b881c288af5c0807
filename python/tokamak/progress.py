"""Progress on stderr: a line when a stage ends, and a sign of life while it runs."""

import sys
import threading
import time
from contextlib import contextmanager

HEARTBEAT_SECONDS = 5.0


class Progress:
    """Prints to `stream`, or nothing when it is None."""

    def __init__(self, stream=None):
        self._stream = stream
        self._terminal = stream is not None and stream.isatty()

    def say(self, text):
        if self._stream is not None:
            print(text, file=self._stream, flush=True)

    @contextmanager
    def stage(self, name):
        """Times what runs inside; says so every few seconds, and when it has ended."""
        start = time.monotonic()
        over = threading.Event()

        def beat():
            while not over.wait(HEARTBEAT_SECONDS):
                text = f"  {name} ... {time.monotonic() - start:.0f} s"
                if self._terminal:
                    print(f"\r{text}", end="", file=self._stream, flush=True)
                else:
                    self.say(text)

        thread = threading.Thread(target=beat, daemon=True) if self._stream else None
        if thread:
            thread.start()
        try:
            yield
        finally:
            over.set()
            if thread:
                thread.join()
                if self._terminal:
                    print("\r\033[K", end="", file=self._stream, flush=True)
        self.say(f"{name}: {time.monotonic() - start:.1f} s")


def to_stderr():
    return Progress(sys.stderr)
