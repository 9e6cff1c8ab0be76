"""Anchors: an hourly seal over the heads of all logs, so that a cut tail or a lost dispute shows.

Promise: each head is anchored once, by the first anchor that is made after its commit.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import connection, transaction

from disputes.audit import ZEROS, Fault, canonical
from disputes.models import Anchor, AnchoredHead

log = logging.getLogger(__name__)

INTERVAL = timedelta(hours=1)
# What one anchor covers at most; a full one is followed by the next at once. So the first
# anchors over a large stock do not hold a poller up for long.
MOST_HEADS = 50_000
PAGE = 1000
# The one lock of this product in Postgres' space of advisory locks.
_LOCK = 0x616E63686F72

# In one statement, so that heads and counts are of one snapshot. What changed is what has no
# anchored head yet: times and sequence numbers would miss what was in flight at the last anchor.
# An altered row is left out, as its log does not prove it; `verify_audit` names it.
_COVER = """
WITH wanted AS MATERIALIZED (
    SELECT d.id, d.version, d.audit_head FROM disputes_dispute AS d
    WHERE NOT EXISTS (
        SELECT FROM disputes_anchoredhead AS h
        WHERE h.dispute_id = d.id AND h.version = d.version AND h.hash = d.audit_head
    )
    ORDER BY d.id LIMIT %(most)s
), covered AS (
    INSERT INTO disputes_anchoredhead (anchor_id, dispute_id, version, hash)
    SELECT %(number)s, wanted.id, wanted.version, wanted.audit_head
    FROM wanted JOIN disputes_auditentry AS entry
        ON entry.dispute_id = wanted.id AND entry.version = wanted.version
        AND entry.hash = wanted.audit_head
    RETURNING 1
)
SELECT (SELECT count(*) FROM covered), (SELECT count(*) FROM disputes_dispute),
    (SELECT count(*) FROM disputes_auditentry)
"""

_FOUND = """
SELECT head.dispute_id, head.version, entry.hash, dispute.id IS NOT NULL,
    (SELECT max(version) FROM disputes_auditentry WHERE dispute_id = head.dispute_id)
FROM json_to_recordset(%s::json) AS head (dispute_id uuid, version int, hash text)
LEFT JOIN disputes_auditentry AS entry
    ON entry.dispute_id = head.dispute_id AND entry.version = head.version
LEFT JOIN disputes_dispute AS dispute ON dispute.id = head.dispute_id
WHERE entry.hash IS DISTINCT FROM head.hash OR dispute.id IS NULL
ORDER BY head.dispute_id, head.version
"""


@dataclass(frozen=True, slots=True)
class Seal:
    """An anchor in canonical values, as stored and as exported."""

    number: int
    at: str
    disputes: int
    entries: int
    heads: int
    prev_hash: str
    hash: str


@dataclass(frozen=True, slots=True)
class Head:
    """One entry that an anchor covers."""

    dispute_id: str
    version: int
    hash: str


# A chain of anchors as it is read: each seal, then its heads by dispute, in pages.
Chain = Iterator[Seal | list[Head]]


@dataclass(frozen=True, slots=True)
class AnchorFault:
    """What is wrong with an anchor itself."""

    number: int
    what: str


class SealHash:
    """sha-256 over an anchor's own values and then its heads, fed in pages."""

    def __init__(self, values: list[object]) -> None:
        self._sum = hashlib.sha256(json.dumps(values, separators=(",", ":")).encode())

    def feed(self, heads: list[Head]) -> None:
        """The next heads, by dispute."""
        lines = (f"\n{head.dispute_id} {head.version} {head.hash}" for head in heads)
        self._sum.update("".join(lines).encode())

    def hexdigest(self) -> str:
        return self._sum.hexdigest()


def _sealed(number: int, at: str, disputes: int, entries: int, heads: int, prev: str) -> SealHash:
    return SealHash([number, at, disputes, entries, heads, prev])


def anchor_duty(*, now: datetime) -> int:
    """Make an anchor if one is due; returns how many heads it covers.

    One at a time over all pollers: who finds another at work leaves it to that one.
    """
    with transaction.atomic(durable=True):
        with connection.cursor() as cursor:
            cursor.execute("SELECT pg_try_advisory_xact_lock(%s)", [_LOCK])
            (mine,) = cursor.fetchone()
        last = Anchor.objects.order_by("-number").first() if mine else None
        if not mine or (last and not _is_due(last, now)):
            return 0
        made = _make(last, now)
    log.info(
        "audit.anchored",
        extra={"anchor": made.number, "heads": made.heads, "anchor_hash": made.hash},
    )
    return made.heads


def _is_due(last: Anchor, now: datetime) -> bool:
    # Either way: a clock that once stood in the future must not end anchoring until then.
    return last.heads == MOST_HEADS or abs(now - last.at) >= INTERVAL


def _make(last: Anchor | None, now: datetime) -> Anchor:
    number, prev_hash = (last.number + 1, last.hash) if last else (1, ZEROS)
    with connection.cursor() as cursor:
        cursor.execute(_COVER, {"most": MOST_HEADS, "number": number})
        heads, disputes, entries = cursor.fetchone()
    at = str(canonical("at", now))
    seal_hash = _sealed(number, at, disputes, entries, heads, prev_hash)
    for page in heads_of(number):
        seal_hash.feed(page)
    # The heads first: the database refuses further ones for an anchor that is there.
    return Anchor.objects.create(
        number=number,
        at=now,
        disputes=disputes,
        entries=entries,
        heads=heads,
        prev_hash=prev_hash,
        hash=seal_hash.hexdigest(),
    )


def heads_of(number: int) -> Iterator[list[Head]]:
    """The heads that an anchor covers, by dispute, in pages."""
    rows = AnchoredHead.objects.filter(anchor_id=number).order_by("dispute_id")
    values = rows.values_list("dispute_id", "version", "hash")
    page = list(values[:PAGE])
    while page:
        yield [Head(str(id_), version, hash_) for id_, version, hash_ in page]
        page = list(values.filter(dispute_id__gt=page[-1][0])[:PAGE])


def stored_chain(*, since: int = 0) -> Chain:
    """The anchors after number `since`, each followed by its heads; bounded memory."""
    anchors = Anchor.objects.order_by("number")
    while page := list(anchors.filter(number__gt=since)[:PAGE]):
        for anchor in page:
            yield _seal(anchor)
            yield from heads_of(anchor.number)
        since = page[-1].number


def _seal(anchor: Anchor) -> Seal:
    return Seal(
        anchor.number,
        str(canonical("at", anchor.at)),
        anchor.disputes,
        anchor.entries,
        anchor.heads,
        anchor.prev_hash,
        anchor.hash,
    )


def verify_chain(chain: Chain) -> Iterator[Fault | AnchorFault]:
    """Everything that a chain of anchors shows: in its own links, and in the log it anchored."""
    last: Seal | None = None
    heads = 0
    seal_hash = None
    for part in chain:
        if isinstance(part, list):
            heads += len(part)
            if seal_hash:
                seal_hash.feed(part)
            yield from _missing(part, last.number if last else 0)
            continue
        if last and seal_hash:
            yield from _altered(last, heads, seal_hash)
        yield from _unlinked(last, part)
        last, heads = part, 0
        seal_hash = _sealed(
            part.number, part.at, part.disputes, part.entries, part.heads, part.prev_hash
        )
    if last and seal_hash:
        yield from _altered(last, heads, seal_hash)
        yield from _shrunk(last)
