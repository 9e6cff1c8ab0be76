#!/usr/bin/env python
"""Django's command line for this project."""

import os
import sys

from django.core.management import execute_from_command_line

from config import demo

if __name__ == "__main__":
    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "config.settings")
    if sys.argv[1:2] == ["demo"]:
        # The demo starts the servers that the settings need, so it runs without them.
        sys.exit(demo.main(sys.argv[2:]))
    execute_from_command_line(sys.argv)
