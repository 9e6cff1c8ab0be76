"""Owns how commands end and write; its promise: a code never says more than what happened."""

import os
import sys
from collections.abc import Callable
from contextlib import suppress
from typing import TextIO, cast

# Done, and something is wrong: a fault was found, or some of it was refused.
SOMETHING_WRONG = 1
# It could not be done, or nobody could be told how it went.
COULD_NOT = 2
INTERRUPTED = 130


class OutputLost(Exception):
    """Standard output takes no more: its reader went away, or its disk is full.

    Not an OSError, so that nobody takes it for one of a file or a server.
    """

    def __init__(self, cause: OSError) -> None:
        super().__init__(cause.strerror or str(cause))
        self.reader_left = isinstance(cause, BrokenPipeError)


class Output:
    """Standard output: says once that it is lost, then takes everything and keeps nothing.

    What came later would stand behind a gap, and the interpreter's own last flush must not fail.
    """

    def __init__(self, stream: TextIO) -> None:
        self._stream = stream
        self._is_lost = False

    def __getattr__(self, name: str) -> object:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        """As the stream's own."""
        self._try(lambda: self._stream.write(text))
        return len(text)

    def flush(self) -> None:
        """As the stream's own."""
        self._try(self._stream.flush)

    def _try(self, step: Callable[[], object]) -> None:
        if self._is_lost:
            return
        try:
            step()
        except OSError as cause:
            self._is_lost = True
            raise OutputLost(cause) from cause


class Messages(Output):
    """Standard error: nobody can be told that it is lost, and the work goes on without it."""

    def _try(self, step: Callable[[], object]) -> None:
        # Each time anew: a log's disk may have room again.
        with suppress(OSError):
            step()


def guard_streams() -> None:
    """Put these in the place of the process' own; one that was closed from the start is lost."""
    sys.stdin = sys.stdin or open(os.devnull)
    sys.stdout = cast(TextIO, Output(sys.stdout or open(os.devnull)))
    sys.stderr = cast(TextIO, Messages(sys.stderr or open(os.devnull)))
