#!/usr/bin/env python
"""Django's command line for this project."""

import os
import sys
import traceback

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.core.management.base import SystemCheckError
from django.db import InterfaceError, OperationalError

from config import demo
from disputes.commands import COULD_NOT, INTERRUPTED, OutputLost, guard_streams


def main() -> None:
    """Run a command to its last byte of output; docs/operations.md says what the codes mean."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["demo"]:
        # The demo starts the servers that the settings need, so it runs without them.
        sys.exit(demo.main(sys.argv[2:]))
    guard_streams()
    try:
        try:
            run()
        finally:
            sys.stdout.flush()
    except OutputLost as lost:
        if not lost.reader_left:
            sys.stderr.write(f"Standard output cannot be written: {lost}\n")
        sys.exit(COULD_NOT)


def run() -> None:
    """What keeps a command from being done is said, in a line where it is known; exit 2."""
    try:
        execute_from_command_line(sys.argv)
    except OutputLost:
        raise
    except SystemExit as end:
        # Django's own code for bad settings is 1; only `check` was asked about them.
        if isinstance(end.__context__, SystemCheckError) and sys.argv[1] != "check":
            sys.exit(COULD_NOT)
        # A name that is no command.
        if isinstance(end.__context__, KeyError):
            sys.exit(COULD_NOT)
        raise
    except KeyboardInterrupt:
        sys.stderr.write("Stopped.\n")
        sys.exit(INTERRUPTED)
    except ImproperlyConfigured as problem:
        could_not(f"Cannot start: {problem}")
    except (OperationalError, InterfaceError) as problem:
        could_not(f"Postgres did not answer: {str(problem).strip()}")
    except UnicodeEncodeError as problem:
        could_not(f"Not text that can be stored or shown: {problem}")
    except Exception:
        could_not(traceback.format_exc())


def could_not(said: str) -> None:
    """Say why, and end."""
    sys.stderr.write(f"{said}\n")
    sys.exit(COULD_NOT)


if __name__ == "__main__":
    main()
