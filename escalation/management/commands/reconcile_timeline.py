"""Compare Redis with Postgres; repair it if asked."""

import json
import sys
from dataclasses import asdict
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser
from redis.exceptions import RedisError, ResponseError

from disputes.commands import COULD_NOT, SOMETHING_WRONG
from escalation import timeline_survey as survey
from escalation.reconcile import Drift, compare, rebuild, repair


class Command(BaseCommand):
    help = "Compare the timeline in Redis with Postgres. Without an option: compare and repair."

    def add_arguments(self, parser: CommandParser) -> None:
        what = parser.add_mutually_exclusive_group()
        what.add_argument("--check", action="store_true", help="write nothing; exit 1 on drift")
        what.add_argument("--repair", action="store_true", help="repair what is found (default)")
        parser.add_argument("--json", action="store_true", help="print one JSON object")

    def handle(self, *args: Any, **options: Any) -> None:
        try:
            if not options["check"] and survey.discard_strange_keys():
                self.stderr.write("A timeline of the wrong type was removed.")
            built = survey.is_built()
            if not built and not options["check"]:
                rebuild(progress=self._progress if sys.stderr.isatty() else None)
            drift = compare()
            if not options["check"] and not drift.is_clean:
                repair(drift)
        except ResponseError as error:
            raise CommandError(
                f"The timeline cannot be used: {error}", returncode=COULD_NOT
            ) from error
        except survey.LayoutMismatch as error:
            raise CommandError(str(error), returncode=COULD_NOT) from error
        except (RedisError, OSError) as error:
            raise CommandError(f"Redis cannot be reached: {error}", returncode=COULD_NOT) from error
        self._report(drift, built=built, as_json=bool(options["json"]))
        if options["check"] and (not drift.is_clean or not built):
            sys.exit(SOMETHING_WRONG)

    def _progress(self, done: int) -> None:
        self.stderr.write(f"\rrebuilding: {done} disputes", ending="")

    def _report(self, drift: Drift, *, built: bool, as_json: bool) -> None:
        if as_json:
            self.stdout.write(json.dumps(asdict(drift) | {"built": built, "clean": drift.is_clean}))
            return
        counts = drift.counts()
        self.stdout.write(
            f"{counts['checked']} disputes compared: {counts['missing']} missing, "
            f"{counts['orphaned']} orphaned (ZSET_DRIFT), {counts['misplaced']} misplaced, "
            f"{counts['stuck']} STUCK_MEMBER, {counts['stranded']} messages stranded; "
            f"{counts['repaired']} writes"
        )
        if not built:
            self.stdout.write("The timeline was lost or never built.")
        if drift.is_skewed:
            self.stdout.write(
                f"CLOCK_SKEW: Redis {drift.redis_skew_s:+.3f} s, "
                f"this host {drift.host_skew_s:+.3f} s against Postgres"
            )
