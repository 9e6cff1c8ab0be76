"""Anchors as JSON lines: written and read in bounded memory; what is not such a file is refused."""

import json
from collections.abc import Callable, Iterable
from uuid import UUID

from disputes.anchors import PAGE, Chain, Head, Seal
from disputes.exceptions import DisputeError

MOST_VERSIONS = 2**31 - 1


class NotAnAnchorFile(DisputeError):
    """A line that is neither an anchor nor a head of one."""


def write_chain(chain: Chain, write: Callable[[str], object]) -> int:
    """One line an anchor, then one line for each of its heads; returns the number of anchors."""
    anchors = 0
    for part in chain:
        if isinstance(part, Seal):
            anchors += 1
            write(_line(_anchor_object(part)))
        else:
            write("".join(_line(_head_object(head)) for head in part))
    return anchors


def read_chain(lines: Iterable[str]) -> Chain:
    """The chain that `write_chain` wrote."""
    page: list[Head] = []
    begun = False
    for number, line in enumerate(lines, start=1):
        part = _part(line, number)
        if isinstance(part, Head):
            if not begun:
                raise NotAnAnchorFile(f"line {number}: a head before the first anchor")
            page.append(part)
        if page and (isinstance(part, Seal) or len(page) == PAGE):
            yield page
            page = []
        if isinstance(part, Seal):
            begun = True
            yield part
    if not begun:
        raise NotAnAnchorFile("there is no anchor in it")
    if page:
        yield page


def _line(values: dict[str, object]) -> str:
    return json.dumps(values, separators=(",", ":")) + "\n"


def _anchor_object(seal: Seal) -> dict[str, object]:
    return {
        "anchor": seal.number,
        "at": seal.at,
        "disputes": seal.disputes,
        "entries": seal.entries,
        "heads": seal.heads,
        "prev_hash": seal.prev_hash,
        "hash": seal.hash,
    }


def _head_object(head: Head) -> dict[str, object]:
    return {"dispute": head.dispute_id, "version": head.version, "hash": head.hash}


def _part(line: str, number: int) -> Seal | Head:
    try:
        values = json.loads(line)
        if "anchor" in values:
            return Seal(
                number=_count(values["anchor"]),
                at=_text(values["at"]),
                disputes=_count(values["disputes"]),
                entries=_count(values["entries"]),
                heads=_count(values["heads"]),
                prev_hash=_text(values["prev_hash"]),
                hash=_text(values["hash"]),
            )
        dispute_id = UUID(_text(values["dispute"]))
        return Head(str(dispute_id), _count(values["version"]), _text(values["hash"]))
    except (ValueError, TypeError, KeyError, RecursionError):
        raise NotAnAnchorFile(f"line {number}: neither an anchor nor a head of one") from None


def _count(value: object) -> int:
    if type(value) is int and 0 <= value <= MOST_VERSIONS:
        return value
    raise ValueError


def _text(value: object) -> str:
    # NUL and lone surrogates cannot be asked of Postgres; no text of ours holds them.
    if isinstance(value, str) and value.isascii() and value.isprintable():
        return value
    raise ValueError
