"""`manage.py demo`: the same as `make demo`, in place of this process.

The demo makes the settings' addresses itself, so manage.py starts it before Django reads them;
this file is what `manage.py help` shows, and the way there where settings are loaded already.
"""

import os
import sys
from argparse import ArgumentParser
from typing import Any

from django.core.management.base import BaseCommand

from config.demo import DESCRIPTION, add_options


class Command(BaseCommand):
    help = DESCRIPTION
    requires_system_checks: list[str] = []

    def add_arguments(self, parser: ArgumentParser) -> None:
        add_options(parser)

    def handle(self, *args: Any, **options: Any) -> None:
        words = ["-m", "config.demo", f"--data={options['data']}"]
        if options["port"]:
            words.append(f"--port={options['port']}")
        words += [f"--{name.replace('_', '-')}" for name in FLAGS if options[name]]
        os.execv(sys.executable, [sys.executable, *words])  # noqa: S606


FLAGS = ("servers_only", "stop_with_parent")
