"""Owns how the intake tests read bytes; its promise: a fixed now, so no test ages."""

import io
from datetime import UTC, datetime
from typing import Any

from disputes.intake.facts import Facts, RowError
from disputes.intake.formats import ParsedFile, open_records
from disputes.intake.instants import TimeRules

NOW = datetime(2026, 6, 1, 12, 0, tzinfo=UTC)
UTC_RULES = TimeRules.for_zone(None, now=NOW)
HEADER = b"reference,amount,currency\n"


def opened(content: bytes, *, name: str = "disputes.csv", **options: Any) -> ParsedFile:
    return open_records(io.BytesIO(content), name=name, now=NOW, **options)


def judged(content: bytes, **options: Any) -> list[Facts | RowError]:
    parsed = opened(content, **options)
    assert parsed.error is None, parsed.error
    return [result for _, _, result in parsed]


def facts_of(content: bytes, **options: Any) -> Facts:
    (result,) = judged(content, **options)
    assert isinstance(result, Facts), result
    return result


def errors_of(content: bytes, **options: Any) -> list[tuple[int, str, str]]:
    return [
        (result.line, result.field, result.message)
        for result in judged(content, **options)
        if isinstance(result, RowError)
    ]


def references_of(content: bytes, **options: Any) -> list[str]:
    return [result.reference for result in judged(content, **options) if isinstance(result, Facts)]
