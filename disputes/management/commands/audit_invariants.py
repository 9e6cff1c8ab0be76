"""Check what must hold at every moment, and name what does not."""

import json
import sys
from dataclasses import asdict

from django.core.management.base import BaseCommand, CommandParser

from disputes.commands import SOMETHING_WRONG
from disputes.invariants import NAMES, broken


class Command(BaseCommand):
    help = "Check every invariant of the records; exit 1 and name the offenders if one is broken."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: object, **options: object) -> None:
        found = broken()
        if options["json"]:
            self.stdout.write(
                json.dumps({"checked": len(NAMES), "broken": [asdict(each) for each in found]})
            )
        else:
            for each in found:
                self.stdout.write(f"BROKEN: {each.name}: {each.count}")
                for example in each.examples:
                    self.stdout.write(f"  {example}")
            self.stdout.write(f"{len(NAMES)} invariants checked, {len(found)} broken")
        if found:
            sys.exit(SOMETHING_WRONG)
