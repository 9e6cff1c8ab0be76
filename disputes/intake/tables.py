"""Owns delimited tables (CSV and its kin); its promise: one bad row costs one row.

A quote that is never closed could swallow the rest of the file. So the lines of a record that does
not work out are read again from its second line: only the record that is broken is lost.
"""

from collections import Counter, deque
from collections.abc import Callable, Iterator
from itertools import islice
from typing import NamedTuple

from disputes.intake.errors import Unreadable
from disputes.intake.facts import RowError
from disputes.intake.files import (
    MAX_CELL_BYTES,
    MAX_RECORD_CHARS,
    Line,
    RawRecord,
    Text,
    physical_lines,
    refuse_unstorable,
)

DELIMITERS = {",": "comma", ";": "semicolon", "\t": "tab", "|": "bar"}
HEADER_WITHIN_LINES = 20
MAX_COLUMNS = 1000
MAX_NAME_CHARS = 500


class Table(NamedTuple):
    """Where the header is and what it says; `recognised` tells if a format knew it."""

    delimiter: str
    header_line: int
    last_header_line: int
    columns: list[str]
    recognised: bool

    @property
    def notice(self) -> str:
        """Say what was found, for the person who imports."""
        name = DELIMITERS[self.delimiter]
        return f"Delimiter: {name}. Header: line {self.header_line}."


def find_table(text: Text, *, recognise: Callable[[list[str]], bool]) -> Table:
    """Return the first header recognised, else the likeliest line; repeated names are refused."""
    head = list(islice(physical_lines(text), HEADER_WITHIN_LINES))
    candidates = [
        table
        for start in range(len(head))
        for delimiter in DELIMITERS
        if (table := _header_at(head[start:], delimiter=delimiter, recognise=recognise))
    ]
    if not candidates:
        raise Unreadable(f"the file has no header line of at most {MAX_COLUMNS} columns")
    alike = Counter((found.delimiter, len(found.columns)) for found in candidates)

    def likelihood(found: Table) -> tuple[bool, bool, int, int]:
        width = len(found.columns)
        return found.recognised, width > 1, alike[found.delimiter, width], width

    # max() keeps the first of equals: the earliest line, comma before the others.
    table = max(candidates, key=likelihood)
    for name in table.columns:
        refuse_unstorable(name)
    folded = [name.strip().casefold() for name in table.columns]
    repeated = sorted({name for name in table.columns if folded.count(name.strip().casefold()) > 1})
    if repeated:
        raise Unreadable("the header repeats " + ", ".join(map(repr, repeated)))
    return table


def table_records(text: Text, table: Table) -> Iterator[RawRecord]:
    """Yield each row after the header as names and cells; blank rows are passed over."""
    lines = _Lines(physical_lines(text))
    while (line := lines.take()) and line.number < table.last_header_line:
        pass
    number = 0
    while line := lines.take():
        try:
            row = _read_row(line, lines, delimiter=table.delimiter, width=len(table.columns))
            if not any(row):
                continue
            number += 1
            yield number, line.number, _named(row, table.columns)
        except _BadRow as bad:
            number += bad.counts
            error = RowError(line=line.number, record=number, field=bad.column, message=bad.message)
            yield number, line.number, error


class _BadRow(Exception):
    def __init__(self, message: str, *, column: str = "", counts: int = 1) -> None:
        self.message, self.column, self.counts = message, column, counts


class _BrokenQuote(Exception):
    pass


class _Lines:
    """Lines that can be put back, to be read again as rows of their own."""

    def __init__(self, source: Iterator[Line]) -> None:
        self._source = source
        self._back: deque[Line] = deque()

    def take(self) -> Line | None:
        return self._back.popleft() if self._back else next(self._source, None)

    def put_back(self, lines: list[Line]) -> None:
        self._back.extendleft(reversed(lines))


class _Row:
    """Cells of one record, fed a physical line at a time."""

    def __init__(self, delimiter: str) -> None:
        self.delimiter = delimiter
        self.cells: list[str] = []
        self._open_cell: list[str] | None = None

    def feed(self, text: str) -> bool:
        """Take one line; tell if the record is complete."""
        if self._open_cell is None and '"' not in text:
            self.cells.extend(text.split(self.delimiter))
            return True
        at = 0
        while True:
            if self._open_cell is None:
                if not text.startswith('"', at):
                    end = text.find(self.delimiter, at)
                    self.cells.append(text[at:] if end < 0 else text[at:end])
                    if end < 0:
                        return True
                    at = end + 1
                    continue
                self._open_cell, at = [], at + 1
            at = self._to_closing_quote(self._open_cell, text, at)
            if at < 0:
                return False
            if at == len(text):
                return True
            if text[at] != self.delimiter:
                raise _BrokenQuote
            at += 1

    def _to_closing_quote(self, cell: list[str], text: str, at: int) -> int:
        """Return where the cell's closing quote was passed, or -1 if the cell goes on."""
        while (end := text.find('"', at)) >= 0:
            cell.append(text[at:end])
            if not text.startswith('"', end + 1):
                self.cells.append("".join(cell))
                self._open_cell = None
                return end + 1
            cell.append('"')
            at = end + 2
        cell.append(text[at:] + "\n")
        return -1


def _read_row(line: Line, lines: _Lines, *, delimiter: str, width: int) -> list[str]:
    """Return the cells of the record that starts with `line`, taking more lines as it needs."""
    row, followers, size = _Row(delimiter), list[Line](), len(line.text)
    current: Line | None = line
    try:
        while current is not None:
            if current.overlong or size > MAX_RECORD_CHARS:
                raise _BadRow(f"the record is larger than {MAX_RECORD_CHARS} characters")
            if row.feed(current.text):
                return row.cells
            if len(row.cells) >= width:
                raise _BadRow(f"more than {width} cells before a quote is closed")
            if current := lines.take():
                followers.append(current)
                size += len(current.text) + 1
        raise _BadRow("a quote opened here is never closed")
    except _BrokenQuote:
        lines.put_back(followers)
        raise _BadRow("a closing quote is followed by more text") from None
    except _BadRow:
        lines.put_back(followers)
        raise


def _named(row: list[str], columns: list[str]) -> dict[str, str]:
    width = len(columns)
    while len(row) > width and not row[-1]:
        row.pop()
    if len(row) != width:
        raise _BadRow(f"{len(row)} cells where the header has {width}", counts=0)
    for column, cell in zip(columns, row, strict=True):
        try:
            refuse_unstorable(cell)
        except Unreadable as refusal:
            raise _BadRow(str(refusal), column=column, counts=0) from None
        # Four bytes is the most a character takes: most cells need no encoding to be measured.
        if len(cell) * 4 > MAX_CELL_BYTES and len(cell.encode()) > MAX_CELL_BYTES:
            message = f"the cell is larger than {MAX_CELL_BYTES} bytes"
            raise _BadRow(message, column=column, counts=0)
    return dict(zip(columns, row, strict=True))


def _header_at(
    head: list[Line], *, delimiter: str, recognise: Callable[[list[str]], bool]
) -> Table | None:
    lines = _Lines(iter(head[1:]))
    try:
        cells = _read_row(head[0], lines, delimiter=delimiter, width=MAX_COLUMNS)
    except _BadRow:
        return None
    columns = [cell.strip() for cell in cells]
    while columns and not columns[-1]:
        columns.pop()
    if not 0 < len(columns) <= MAX_COLUMNS or any(len(name) > MAX_NAME_CHARS for name in columns):
        return None
    following = lines.take()
    last = following.number - 1 if following else head[-1].number
    return Table(delimiter, head[0].number, last, columns, recognise(columns))
