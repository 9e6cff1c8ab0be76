"""Promote what is due, now, from this process."""

import json
import sys
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from disputes.clock import database_now
from disputes.commands import COULD_NOT
from disputes.exceptions import LadderError
from disputes.ladders import live_tiers
from disputes.models import Tier
from escalation.drain import drain_postgres, overdue, wrote_something


class Command(BaseCommand):
    help = "Promote disputes whose deadline has passed; works with Redis away too."

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument("--ladder", help="only this ladder (slug)")
        parser.add_argument("--tier", help="only disputes that wait in this tier (slug)")
        parser.add_argument("--limit", type=int, help="at most so many disputes")
        parser.add_argument("--dry-run", action="store_true", help="say what is due, write nothing")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        if options["limit"] is not None and options["limit"] < 1:
            raise CommandError("--limit must be at least 1", returncode=COULD_NOT)
        if options["ladder"] is not None:
            try:
                live_tiers(options["ladder"])
            except LadderError as error:
                raise CommandError(str(error), returncode=COULD_NOT) from error
        if options["tier"] is not None and not Tier.objects.filter(slug=options["tier"]).exists():
            said = f"no ladder has a tier {options['tier']!r}"
            raise CommandError(said, returncode=COULD_NOT)
        if options["dry_run"]:
            self._report({"due": self._due(options)}, options, "due, nothing written")
            return
        show = sys.stderr.isatty() and not options["json"]
        counts = drain_postgres(
            ladder=options["ladder"],
            tier=options["tier"],
            limit=options["limit"],
            progress=(lambda done: self._progress(done)) if show else None,
        )
        if show:
            self.stderr.write("")
        changed = sum(number for outcome, number in counts.items() if wrote_something(outcome))
        self._report(
            {"promoted": changed, "outcomes": dict(sorted(counts.items()))}, options, "changed"
        )

    def _progress(self, done: int) -> None:
        self.stderr.write(f"\r{done} disputes", ending="")

    def _due(self, options: dict[str, Any]) -> int:
        rows = overdue(now=database_now())
        if options["ladder"]:
            rows = rows.filter(tier__revision__ladder__slug=options["ladder"])
        if options["tier"]:
            rows = rows.filter(tier__slug=options["tier"])
        number = rows.count()
        return min(number, options["limit"]) if options["limit"] else number

    def _report(self, found: dict[str, Any], options: dict[str, Any], word: str) -> None:
        if options["json"]:
            self.stdout.write(json.dumps(found))
            return
        outcomes = found.get("outcomes", {})
        detail = ", ".join(f"{number} {outcome}" for outcome, number in outcomes.items())
        first = next(iter(found.values()))
        self.stdout.write(f"{first} disputes {word}" + (f": {detail}" if detail else ""))
