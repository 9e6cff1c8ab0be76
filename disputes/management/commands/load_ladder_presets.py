"""Owns `manage.py load_ladder_presets`; its promise: a ladder that exists is left as it is."""

from datetime import timedelta
from typing import Any

from django.core.management.base import BaseCommand, CommandError, CommandParser

from disputes.clock import database_now
from disputes.commands import COULD_NOT
from disputes.ladders import create_ladder
from disputes.presets import Preset, preset_slugs, read_preset


class Command(BaseCommand):
    """Create the ladders that are shipped with the product."""

    help = (
        "Create shipped ladders, with a queue for each tier and a published first revision. "
        "A ladder that exists already is left as it is, so running this again is safe."
    )

    def add_arguments(self, parser: CommandParser) -> None:
        parser.add_argument(
            "slugs", nargs="*", metavar="SLUG", help="which ladders (default: all that are shipped)"
        )
        parser.add_argument("--list", action="store_true", help="show what is shipped and stop")

    def handle(self, *args: Any, **options: Any) -> None:
        known = preset_slugs()
        unknown = [slug for slug in options["slugs"] if slug not in known]
        if unknown:
            raise CommandError(
                f"No ladder named {', '.join(unknown)} is shipped. There are: {', '.join(known)}.",
                returncode=COULD_NOT,
            )
        for preset in map(read_preset, options["slugs"] or known):
            if options["list"]:
                self.stdout.write(summary(preset))
            elif create_ladder(
                preset.slug, name=preset.name, tiers=preset.tiers, now=database_now()
            ):
                self.stdout.write(f"{preset.slug}: created")
            else:
                self.stdout.write(f"{preset.slug}: exists already, left as it is")


def summary(preset: Preset) -> str:
    """The ladder on one line, with its spans."""
    tiers = ", ".join(f"{tier.name} {span_words(tier.sla)}" for tier in preset.tiers)
    return f"{preset.slug} ({preset.label}): {tiers}"


def span_words(span: timedelta) -> str:
    """As people write it: 1 day, 2 hours 30 minutes."""
    minutes = int(span.total_seconds()) // 60
    parts = ((minutes // 1440, "day"), (minutes // 60 % 24, "hour"), (minutes % 60, "minute"))
    return " ".join(f"{number} {unit}{'s'[: number != 1]}" for number, unit in parts if number)
