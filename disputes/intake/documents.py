"""Owns JSON and JSON Lines; its promise: one record in memory at a time, and strict JSON only.

NaN, Infinity, repeated names, NUL, lone surrogates and bottomless nesting are errors of their
record. Numbers with a fraction stay exact: they are kept as their text.
"""

import json
from collections.abc import Iterator
from typing import Any

from disputes.intake.errors import Unreadable
from disputes.intake.facts import RowError
from disputes.intake.files import (
    MAX_RECORD_CHARS,
    Line,
    RawRecord,
    Text,
    physical_lines,
    read_chunks,
    refuse_unstorable,
)

MAX_DEPTH = 64
MAX_INTEGER_DIGITS = 40
LIST_KEYS = frozenset({"data", "disputes"})
"""Members of an outer object whose list holds the records: {"object": "list", "data": [...]}."""

BLANK = " \t\r\n"


def decode_record(text: str) -> Any:
    """Return one strict JSON value, safe to store; what is wrong with it is `Unreadable`."""
    stripped = text.strip(BLANK)
    value, end = _scan_at(stripped, 0)
    if end != len(stripped):
        raise Unreadable("not valid JSON: more text after the value")
    return _storable(value, depth=0)


def line_records(text: Text) -> Iterator[RawRecord]:
    """Yield each line of JSON Lines as a record, counted from 1; blank lines are passed over."""
    number = 0
    for line in physical_lines(text):
        if not line.overlong and not line.text.strip(BLANK):
            continue
        number += 1
        yield number, line.number, _record_of_line(line, number)


def document_records(text: Text) -> Iterator[RawRecord]:
    """Yield the records of one JSON document, counted from 0: itself, or the items of its list."""
    window = _Window(read_chunks(text))
    number = 0
    try:
        for line, value in _values(window):
            yield number, line, _as_record(value, number=number, line=line)
            number += 1
    except Unreadable as refusal:
        line = window.line
        yield number, line, RowError(line=line, record=number, field="", message=str(refusal))


def is_lines(text: Text) -> bool:
    """Tell if the file holds one JSON value a line rather than one document."""
    lines = (line for line in physical_lines(text) if line.overlong or line.text.strip(BLANK))
    first, second = next(lines, None), next(lines, None)
    if first is None or second is None or first.overlong:
        return False
    opening, following = first.text.strip(BLANK), second.text.strip(BLANK)
    # Inside one document a line that closes an object is followed by one of these three.
    return opening[:1] == "{" and opening[-1:] == "}" and following[:1] not in (",", "]", "}")


def _record_of_line(line: Line, number: int) -> dict[str, Any] | RowError:
    try:
        if line.overlong:
            raise Unreadable(f"the record is larger than {MAX_RECORD_CHARS} characters")
        return _as_record(decode_record(line.text), number=number, line=line.number)
    except Unreadable as refusal:
        return RowError(line=line.number, record=number, field="", message=str(refusal))


def _as_record(value: Any, *, number: int, line: int) -> dict[str, Any] | RowError:
    if isinstance(value, dict):
        return value
    if isinstance(value, Unreadable):
        return RowError(line=line, record=number, field="", message=str(value))
    return RowError(line=line, record=number, field="", message="not a JSON object")


class _Window:
    """A moving piece of the document that always holds a whole record of the largest size."""

    def __init__(self, chunks: Iterator[str]) -> None:
        self._chunks = chunks
        self.text, self.at, self.line = "", 0, 1
        self.passed_chars = 0
        self._ended = False

    def peek(self) -> str:
        """Pass over blanks and return the next character, or "" at the end."""
        while True:
            self._fill()
            end = self.at
            while end < len(self.text) and self.text[end] in BLANK:
                end += 1
            self._pass_to(end)
            if end < len(self.text) or self._ended:
                # The blanks may have used up the window: what follows must be whole in it.
                self._fill()
                return self.text[self.at : self.at + 1]

    def expect(self, *wanted: str) -> str:
        """Take the next character, which must be one of those wanted."""
        found = self.peek()
        if found not in wanted or not found:
            raise Unreadable(f"not valid JSON: expected {' or '.join(map(repr, wanted))}")
        self._pass_to(self.at + 1)
        return found

    def value(self) -> tuple[int, Any]:
        """Take the next value; return its line and it, or the reason why it cannot be kept."""
        self.peek()
        line, start = self.line, self.at
        try:
            value, end = _scan_at(self.text, start)
        except Unreadable as refusal:
            if len(self.text) - start > MAX_RECORD_CHARS and not self._ended:
                message = f"the record is broken or larger than {MAX_RECORD_CHARS} characters"
                raise Unreadable(message) from refusal
            raise
        self._pass_to(end)
        if end - start > MAX_RECORD_CHARS:
            return line, Unreadable(f"the record is larger than {MAX_RECORD_CHARS} characters")
        try:
            return line, _storable(value, depth=0)
        except Unreadable as refusal:
            return line, refusal

    def _fill(self) -> None:
        if self._ended or len(self.text) - self.at > MAX_RECORD_CHARS:
            return
        pieces, size = [self.text[self.at :]], len(self.text) - self.at
        self.at = 0
        while size <= 2 * MAX_RECORD_CHARS:
            chunk = next(self._chunks, None)
            if chunk is None:
                self._ended = True
                break
            pieces.append(chunk)
            size += len(chunk)
        self.text = "".join(pieces)

    def _pass_to(self, end: int) -> None:
        self.line += self.text.count("\n", self.at, end)
        self.passed_chars += end - self.at
        self.at = end


def _values(window: _Window) -> Iterator[tuple[int, Any]]:
    first = window.peek()
    if first == "[":
        yield from _items(window)
    elif first == "{":
        yield from _members(window)
    else:
        yield window.value()
    if window.peek():
        raise Unreadable("not valid JSON: more text after the document")


def _items(window: _Window) -> Iterator[tuple[int, Any]]:
    window.expect("[")
    if window.peek() == "]":
        window.expect("]")
        return
    while True:
        yield window.value()
        if window.expect(",", "]") == "]":
            return


def _members(window: _Window) -> Iterator[tuple[int, Any]]:
    """Yield the items of the object's list of records, or the object itself if it has none."""
    line, members, has_list, size = window.line, dict[str, Any](), False, 0
    window.expect("{")
    separator = "," if window.peek() != "}" else window.expect("}")
    while separator == ",":
        if window.peek() != '"':
            raise Unreadable("not valid JSON: expected a name in quotes")
        _, key = window.value()
        window.expect(":")
        if key in LIST_KEYS and window.peek() == "[":
            has_list = True
            yield from _items(window)
        else:
            window.peek()
            before = window.passed_chars
            _, value = window.value()
            size += window.passed_chars - before
            if isinstance(value, Unreadable) or isinstance(key, Unreadable):
                raise value if isinstance(value, Unreadable) else key
            if key in members or size > MAX_RECORD_CHARS:
                problem = f"the name {key!r} is repeated" if key in members else "too large"
                raise Unreadable(f"not a usable document: {problem}")
            members[key] = value
        separator = window.expect(",", "}")
    if not has_list:
        yield line, members


class _Refused:
    """Stands for a part that was read but cannot be kept, so that reading can go on after it."""

    def __init__(self, message: str) -> None:
        self.message = message


def _refused_constant(name: str) -> _Refused:
    return _Refused(f"{name} is not JSON")


def _whole_number(digits: str) -> int | _Refused:
    return int(digits) if len(digits) <= MAX_INTEGER_DIGITS else _Refused("a number is too large")


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any] | _Refused:
    found = dict(pairs)
    return found if len(found) == len(pairs) else _Refused("a name is repeated in one object")


DECODER = json.JSONDecoder(
    parse_float=str,
    parse_int=_whole_number,
    parse_constant=_refused_constant,
    object_pairs_hook=_unique,
)


def _scan_at(text: str, at: int) -> tuple[Any, int]:
    try:
        return DECODER.raw_decode(text, at)
    except json.JSONDecodeError as error:
        raise Unreadable(f"not valid JSON: {error.msg}") from None
    except RecursionError:
        raise Unreadable("nested too deeply") from None


def _storable(value: Any, *, depth: int) -> Any:
    """Return the value unchanged; refuse what no database can keep."""
    if depth > MAX_DEPTH:
        raise Unreadable("nested too deeply")
    if isinstance(value, _Refused):
        raise Unreadable(value.message)
    if isinstance(value, str):
        refuse_unstorable(value)
    elif isinstance(value, dict):
        for key, item in value.items():
            refuse_unstorable(key)
            _storable(item, depth=depth + 1)
    elif isinstance(value, list):
        for item in value:
            _storable(item, depth=depth + 1)
    return value
