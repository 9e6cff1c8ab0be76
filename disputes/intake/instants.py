"""Owns dates and times of records; its promise: an aware instant in UTC, or a clear refusal.

A deadline without a time lasts to the end of its day in the source's zone. A start without a time
is the beginning of its day, so that a span counted from it is never too long. Instants before 2000
or more than ten years ahead are implausible: mostly milliseconds taken for seconds.
"""

import re
from dataclasses import dataclass
from datetime import UTC, date, datetime, time, timedelta, timezone
from typing import Self
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from disputes.intake.errors import Unreadable
from disputes.intake.money import shown

EARLIEST_YEAR = 2000
YEARS_AHEAD = 10
END_OF_DAY = time(23, 59, 59)
START_OF_DAY = time(0, 0, 0)
ISO_DATE = re.compile(r"([0-9]{4})-([0-9]{2})-([0-9]{2})")
ISO_INSTANT = re.compile(
    r"([0-9]{4})-([0-9]{2})-([0-9]{2})[Tt ]"
    r"([0-9]{2}):([0-9]{2})(?::([0-9]{2})(?:[.,]([0-9]{1,12}))?)?"
    r" ?([Zz]|[+-][0-9]{2}(?::?[0-9]{2})?)?"
)
A_TIME = "a date and time such as 2026-05-01T09:30:00Z"
A_DATE_OR_TIME = f"a date such as 2026-05-01 or {A_TIME}"
US_DATE = re.compile(r"([0-9]{1,2})/([0-9]{1,2})/([0-9]{4}|[0-9]{2})")


@dataclass(frozen=True, slots=True, kw_only=True)
class TimeRules:
    """How the times of one file are read: its zone, if stated, and how far ahead is plausible."""

    zone: ZoneInfo
    zone_stated: bool
    latest: datetime

    @classmethod
    def for_zone(cls, name: str | None, *, now: datetime) -> Self:
        """Return the rules of a file; without a zone, days are UTC days, naive times refused."""
        try:
            zone = ZoneInfo("UTC" if name is None else name)
        except (ZoneInfoNotFoundError, ValueError, OSError):
            raise Unreadable(f"unknown time zone {shown(name or '')}") from None
        latest = now.astimezone(UTC) + timedelta(days=366 * YEARS_AHEAD)
        return cls(zone=zone, zone_stated=name is not None, latest=latest)


def parse_instant(text: str, *, rules: TimeRules, wanted: str = A_TIME) -> datetime:
    """Return the instant of an ISO 8601 date and time; digits beyond microseconds are cut off.

    `wanted` says in words what the caller takes, where that is more than a date and time.
    """
    parts = ISO_INSTANT.fullmatch(text.strip())
    if parts is None:
        raise Unreadable(f"{shown(text)} is not {wanted}")
    year, month, day, hour, minute = (int(part) for part in parts.groups()[:5])
    microsecond = int((parts[7] or "").ljust(6, "0")[:6])
    try:
        local = datetime(year, month, day, hour, minute, int(parts[6] or 0), microsecond)
        zone = _offset(parts[8]) if parts[8] else None
    except ValueError:
        raise Unreadable(f"{shown(text)} is not a possible date and time") from None
    _check_year(local.year, text=text, rules=rules)
    if zone is not None:
        return _plausible(local.replace(tzinfo=zone).astimezone(UTC), text=text, rules=rules)
    if not rules.zone_stated:
        raise Unreadable(
            f"{shown(text)} has no time zone; end it with Z or an offset, or name the file's --zone"
        )
    return _plausible(_in_zone(local, text=text, rules=rules), text=text, rules=rules)


def parse_date(text: str, *, rules: TimeRules) -> date:
    """Return a bare date written as 2026-05-01 or, as in American exports, 5/1/26."""
    stripped = text.strip()
    if parts := ISO_DATE.fullmatch(stripped):
        year, month, day = (int(part) for part in parts.groups())
    elif parts := US_DATE.fullmatch(stripped):
        month, day, year = (int(part) for part in parts.groups())
        year += 2000 if len(parts[3]) == 2 else 0
    else:
        raise Unreadable(f"{shown(text)} is not a date such as 2026-05-01")
    _check_year(year, text=text, rules=rules)
    try:
        return date(year, month, day)
    except ValueError:
        raise Unreadable(f"{shown(text)} is not a possible date") from None


def is_bare_date(text: str) -> bool:
    """Tell if the text is an ISO date without a time."""
    return ISO_DATE.fullmatch(text.strip()) is not None


def end_of_day(day: date, *, rules: TimeRules) -> datetime:
    """Return the last second of `day` in the zone of the file: a deadline given as a date."""
    return datetime.combine(day, END_OF_DAY, rules.zone).astimezone(UTC)


def start_of_day(day: date, *, rules: TimeRules) -> datetime:
    """Return the first second of `day` in the zone of the file: a beginning given as a date."""
    return datetime.combine(day, START_OF_DAY, rules.zone).astimezone(UTC)


def parse_epoch_s(value: object, *, rules: TimeRules) -> datetime:
    """Return the instant of whole seconds since 1970; milliseconds are refused."""
    if isinstance(value, bool) or not isinstance(value, int):
        raise Unreadable("not a whole number of seconds since 1970")
    if not EPOCH_OF_EARLIEST_S <= value <= int(rules.latest.timestamp()):
        raise Unreadable("implausible: not seconds since 1970 within the expected years")
    return datetime.fromtimestamp(value, UTC)


def parse_epoch_deadline_s(value: object, *, rules: TimeRules) -> datetime | None:
    """Return the instant of a deadline in epoch seconds; null and 0 both mean none."""
    if value is None or (value == 0 and not isinstance(value, bool)):
        return None
    return parse_epoch_s(value, rules=rules)


EPOCH_OF_EARLIEST_S = int(datetime(EARLIEST_YEAR, 1, 1, tzinfo=UTC).timestamp())


def _offset(text: str) -> timezone:
    if text in "Zz":
        return UTC
    hours, minutes = int(text[1:3]), int(text[-2:]) if len(text) > 3 else 0
    if hours > 18 or minutes > 59:
        raise ValueError(text)
    size = timedelta(hours=hours, minutes=minutes)
    return timezone(-size if text[0] == "-" else size)


def _in_zone(local: datetime, *, text: str, rules: TimeRules) -> datetime:
    """Return the instant of a wall clock time; of a repeated hour the earlier one."""
    instant = local.replace(tzinfo=rules.zone).astimezone(UTC)
    if instant.astimezone(rules.zone).replace(tzinfo=None) != local:
        raise Unreadable(f"{shown(text)} does not exist in {rules.zone.key}: clocks went forward")
    return instant


def _check_year(year: int, *, text: str, rules: TimeRules) -> None:
    if not EARLIEST_YEAR <= year <= rules.latest.year:
        raise Unreadable(f"{shown(text)} is implausible: the year is out of range")


def _plausible(instant: datetime, *, text: str, rules: TimeRules) -> datetime:
    if instant.year < EARLIEST_YEAR or instant > rules.latest:
        raise Unreadable(f"{shown(text)} is implausible: too far in the past or the future")
    return instant
