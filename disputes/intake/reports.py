"""Owns what an import prints; its promise: a line at a time, so a long file needs no memory."""

import json
import os
import time
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from typing import BinaryIO, Protocol, TextIO, TypeVar

from disputes.intake.effects import Effect, Stored
from disputes.intake.facts import Record
from disputes.intake.formats import ParsedFile, expected_words

BAR_CHARS = 30
BAR_INTERVAL_S = 0.1

Item = TypeVar("Item")
Write = Callable[[str], object]


class Report(Protocol):
    """Prints what became of one file: begin, its rows, end."""

    def begin(self, name: str, parsed: ParsedFile) -> None: ...

    def row(self, record: Record, stored: Stored) -> None: ...

    def end(self, counts: Counter[str]) -> None: ...


class TextReport:
    """For people: what the file was taken for, and the counts."""

    def __init__(self, write: Write, dry_run: bool) -> None:
        self._write = write
        self._would = "would be " if dry_run else ""

    def begin(self, name: str, parsed: ParsedFile) -> None:
        notices = " ".join(parsed.notices)
        self._write(f"{name}: format {parsed.format}. {notices}\n")

    def row(self, record: Record, stored: Stored) -> None:
        """People read the counts; refused rows are named beside the report."""

    def end(self, counts: Counter[str]) -> None:
        effects = [f"{counts[e]} {self._would}{e}" for e in Effect if counts[e]]
        self._write(f"  {counts['records']} records: {', '.join(effects) or 'none'}\n")


class JsonReport:
    """For machines: one JSON object on one line, written as the rows come."""

    def __init__(self, write: Write) -> None:
        self._write = write
        self._comma = ""

    def begin(self, name: str, parsed: ParsedFile) -> None:
        head: dict[str, object] = {
            "file": name,
            "format": parsed.format,
            "notices": parsed.notices,
        }
        if parsed.error is not None:
            head["error"] = parsed.error
            head["outcome"] = parsed.error_outcome.value if parsed.error_outcome else "refuse"
            head["columns"], head["missing"] = parsed.columns, parsed.missing
        self._write(f'{json.dumps(head)[:-1]}, "records": [')

    def row(self, record: Record, stored: Stored) -> None:
        self._write(self._comma + json.dumps(report_words(record, stored)))
        self._comma = ", "

    def end(self, counts: Counter[str]) -> None:
        named = {"records": counts["records"]} | {e.value: counts[e] for e in Effect}
        self._write(f'], "counts": {json.dumps(named)}}}\n')


def report_words(record: Record, stored: Stored) -> dict[str, object]:
    """What became of a record: what it says in itself, then what was done with it."""
    number, line, judged = record
    words = {"record": number, "line": line} | expected_words(judged)
    words["effect"] = stored.effect.value
    if stored.dispute_id:
        words["dispute"] = str(stored.dispute_id)
    if stored.flags:
        words["flags"] = [*words.get("flags", []), *stored.flags]
    if stored.error:
        words["field"], words["message"] = stored.error.field, stored.error.message
    return words


class ProgressBar:
    """How much of the file is read; draws only where a person watches."""

    def __init__(self, out: TextIO, *, file: BinaryIO) -> None:
        self._out, self._file = out, file
        self._size = max(file.seek(0, os.SEEK_END), 1)
        self._watched = out.isatty()
        self._drawn_at = 0.0

    def over(self, items: Iterable[Item]) -> Iterator[Item]:
        """The items, with the bar drawn in between."""
        try:
            for count, item in enumerate(items, start=1):
                yield item
                if self._watched:
                    self._draw(count)
        finally:
            self.clear()

    def clear(self) -> None:
        """Make room for another line."""
        if self._watched:
            self._out.write("\r\x1b[K")
            self._drawn_at = 0.0

    def _draw(self, count: int) -> None:
        now = time.monotonic()
        if now - self._drawn_at < BAR_INTERVAL_S:
            return
        self._drawn_at = now
        share = min(self._file.tell() / self._size, 1.0)
        bar = "#" * round(share * BAR_CHARS)
        self._out.write(f"\r[{bar:<{BAR_CHARS}}] {share:4.0%}  {count} rows")
        self._out.flush()
