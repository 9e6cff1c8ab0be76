#!/usr/bin/env python
"""Django's command line for this project."""

import os
import sys

from django.core.exceptions import ImproperlyConfigured
from django.core.management import execute_from_command_line
from django.db import InterfaceError, OperationalError

from config import demo

# The exit code of "could not be done at all", as against 1 for "done, and something is wrong".
COULD_NOT = 2


def main() -> None:
    """Run a command; what keeps it from running at all is said in a line, not a traceback."""
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["demo"]:
        # The demo starts the servers that the settings need, so it runs without them.
        sys.exit(demo.main(sys.argv[2:]))
    try:
        execute_from_command_line(sys.argv)
    except ImproperlyConfigured as problem:
        sys.stderr.write(f"Cannot start: {problem}\n")
        sys.exit(COULD_NOT)
    except (OperationalError, InterfaceError) as problem:
        sys.stderr.write(f"Postgres did not answer: {str(problem).strip()}\n")
        sys.exit(COULD_NOT)


if __name__ == "__main__":
    main()
