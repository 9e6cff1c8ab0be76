"""Owns the text of a file: encoding, physical lines, limits; its promise: flat memory.

The file must be open for reading bytes and seekable. Nothing is decided about disputes here.
"""

import codecs
import re
from collections.abc import Iterator
from typing import Any, BinaryIO, NamedTuple

from disputes.intake.errors import Unreadable
from disputes.intake.facts import RowError

CHUNK_BYTES = 256 * 1024
MAX_CELL_BYTES = 64 * 1024
MAX_RECORD_CHARS = 1024 * 1024
# At most two CRs before a LF: without a bound, a run of CRs would be searched again and again.
LINE_BREAK = re.compile(r"\r{0,2}\n|\r")

BYTE_ORDER_MARKS = (
    (codecs.BOM_UTF8, "utf-8"),
    (codecs.BOM_UTF32_LE, "utf-32-le"),
    (codecs.BOM_UTF32_BE, "utf-32-be"),
    (codecs.BOM_UTF16_LE, "utf-16-le"),
    (codecs.BOM_UTF16_BE, "utf-16-be"),
)
"""UTF-32 stands before UTF-16: its mark begins with the same two bytes."""

NOT_TEXT = (
    (b"PK\x03\x04", "a spreadsheet or zip archive; save it as CSV first"),
    (b"\xd0\xcf\x11\xe0", "an old spreadsheet; save it as CSV first"),
    (b"\x1f\x8b", "compressed; unpack it first"),
    (b"%PDF", "a PDF, not a table"),
)

RawRecord = tuple[int, int, dict[str, Any] | RowError]
"""Record number, physical line, and the record's names and values or why there are none."""


class Text(NamedTuple):
    """A file whose encoding is known; `body_at` is the offset of the first byte after the mark."""

    file: BinaryIO
    encoding: str
    body_at: int
    notice: str


class Line(NamedTuple):
    """A physical line without its break; an overlong one keeps only its beginning."""

    number: int
    text: str
    overlong: bool = False


def open_text(file: BinaryIO) -> Text:
    """Return the file with its encoding; reads it once to be sure, in flat memory."""
    file.seek(0)
    head = file.read(8)
    if not head:
        raise Unreadable("the file is empty")
    for signature, kind in NOT_TEXT:
        if head.startswith(signature):
            raise Unreadable(f"the file is {kind}")
    marks = (known for known in BYTE_ORDER_MARKS if head.startswith(known[0]))
    mark, encoding = next(marks, (b"", "utf-8"))
    how = ", by its mark" if mark else ""
    if _decodes(file, encoding, start=len(mark)):
        return Text(file, encoding, len(mark), f"Encoding: {encoding.upper()}{how}.")
    if encoding != "utf-8":
        raise Unreadable(f"the file is marked as {encoding.upper()} but is not valid")
    notice = "Encoding: not valid UTF-8, read as ISO-8859-1; check names with accents."
    return Text(file, "iso-8859-1", len(mark), notice)


def read_chunks(text: Text) -> Iterator[str]:
    """Yield the text of the file in pieces of bounded size."""
    decoder = codecs.getincrementaldecoder(text.encoding)("strict")
    text.file.seek(text.body_at)
    while chunk := text.file.read(CHUNK_BYTES):
        yield decoder.decode(chunk)
    yield decoder.decode(b"", True)


def physical_lines(text: Text) -> Iterator[Line]:
    """Yield the lines of the file; LF, CR LF, CR CR LF and CR each end one line."""
    number, rest, overlong = 1, "", False
    for chunk in read_chunks(text):
        pieces = _split_whole_lines(rest + chunk)
        rest = pieces.pop()
        for piece in pieces:
            overlong = overlong or len(piece) > MAX_RECORD_CHARS
            yield Line(number, "" if overlong else piece, overlong)
            number, overlong = number + 1, False
        if len(rest) > MAX_RECORD_CHARS:
            # Trailing CRs stay: they may be half of a line break.
            overlong, rest = True, rest[_end_without_crs(rest) :]
    for piece in LINE_BREAK.split(rest):
        if piece or overlong:
            yield Line(number, "" if overlong else piece, overlong)
        number, overlong = number + 1, False


def refuse_unstorable(text: str) -> None:
    """Refuse what no database column can hold: NUL and lone surrogates."""
    if "\x00" in text:
        raise Unreadable("contains a NUL character")
    if not text.isascii():
        try:
            text.encode()
        except UnicodeEncodeError:
            raise Unreadable("contains half of a surrogate pair") from None


def _split_whole_lines(text: str) -> list[str]:
    """Split into lines; trailing CRs stay in the last piece, their LF may follow."""
    end = _end_without_crs(text)
    pieces = LINE_BREAK.split(text[:end])
    pieces[-1] += text[end:]
    return pieces


def _end_without_crs(text: str) -> int:
    """Return where the last two characters begin as far as they are CRs."""
    return len(text) - len(text[-2:]) + len(text[-2:].rstrip("\r"))


def _decodes(file: BinaryIO, encoding: str, *, start: int) -> bool:
    decoder = codecs.getincrementaldecoder(encoding)("strict")
    file.seek(start)
    try:
        while chunk := file.read(CHUNK_BYTES):
            decoder.decode(chunk)
        decoder.decode(b"", True)
    except UnicodeDecodeError:
        return False
    return True
