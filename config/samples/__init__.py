"""Owns the sample disputes of the demo; its promise: dates that make the first minutes lively.

The files beside this one follow the formats of real exports; every name, number and text in them
is made up. `{{iso +9d}}`, `{{epoch -20s}}` and `{{date -3d}}` stand for instants seen from now.
"""

import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from io import BytesIO
from pathlib import Path

from disputes.calendars import stamp

FOLDER = Path(__file__).parent
SAMPLE_FILES = ("disputes.csv", "stripe.jsonl", "complaints.csv")

_PLACEHOLDER = re.compile(r"\{\{(iso|epoch|date) ([+-]\d+)([smhd])\}\}")
_UNITS = {
    "s": timedelta(seconds=1),
    "m": timedelta(minutes=1),
    "h": timedelta(hours=1),
    "d": timedelta(days=1),
}


def sample_files(*, now: datetime) -> Iterator[tuple[str, BytesIO]]:
    """Each sample file by name, open for reading, with its instants counted from `now`."""
    for name in SAMPLE_FILES:
        text = (FOLDER / name).read_text(encoding="utf-8")
        yield name, BytesIO(rendered(text, now=now).encode())


def rendered(text: str, *, now: datetime) -> str:
    """The text with its placeholders filled in."""

    def instant(found: re.Match[str]) -> str:
        form, count, unit = found.groups()
        at = (now + int(count) * _UNITS[unit]).astimezone(UTC)
        if form == "epoch":
            return str(int(at.timestamp()))
        return stamp(at) if form == "iso" else at.date().isoformat()

    return _PLACEHOLDER.sub(instant, text)
