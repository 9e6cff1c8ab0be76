"""Anchors: an hourly seal over the heads of all logs, so that a cut tail or a lost dispute shows.

Promise: each head is anchored once, by the first anchor that is made after its commit.
"""

import hashlib
import json
import logging
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from datetime import datetime, timedelta

from django.db import connection, transaction

from disputes.audit import ZEROS, canonical
from disputes.failpoints import failpoint
from disputes.models import Anchor, AnchoredHead

log = logging.getLogger(__name__)

INTERVAL = timedelta(hours=1)
# What one anchor covers at most; a full one is followed by the next at once. So the first
# anchors over a large stock do not hold a poller up for long.
MOST_HEADS = 20_000
PAGE = 1000
# Our one number in Postgres' space of advisory locks.
_LOCK = 0x616E63686F72

# One statement, so that heads and counts are of one snapshot. Wanted is each head that is not
# anchored yet, among the entries that are not settled; in order, so that a full anchor ends at an
# entry. A row whose log does not prove it is left out; `verify_audit` names it.
_COVER = """
WITH wanted AS MATERIALIZED (
    SELECT e.id, e.dispute_id, e.version, e.hash FROM disputes_auditentry AS e
    JOIN disputes_dispute AS d
        ON d.id = e.dispute_id AND d.version = e.version AND d.audit_head = e.hash
    WHERE e.id > %(settled)s AND NOT EXISTS (
        SELECT FROM disputes_anchoredhead AS h
        WHERE h.dispute_id = e.dispute_id AND h.version = e.version AND h.hash = e.hash
    )
    ORDER BY e.id LIMIT %(most)s
), covered AS (
    INSERT INTO disputes_anchoredhead (anchor_id, dispute_id, version, hash)
    SELECT %(number)s, dispute_id, version, hash FROM wanted RETURNING 1
)
SELECT (SELECT count(*) FROM covered), (SELECT count(*) FROM disputes_dispute),
    (SELECT count(*) FROM disputes_auditentry),
    CASE WHEN (SELECT count(*) FROM wanted) < %(most)s
        THEN (SELECT coalesce(max(id), 0) FROM disputes_auditentry)
        ELSE (SELECT max(id) FROM wanted) END,
    pg_snapshot_xmax(pg_current_snapshot())::text::bigint,
    pg_snapshot_xmin(pg_current_snapshot())::text::bigint
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


class SealHash:
    """sha-256 over an anchor's own values, its own hash left out, and then its heads, in pages."""

    def __init__(self, seal: Seal) -> None:
        values = [
            *(seal.number, seal.prev_hash, seal.at),
            *(seal.disputes, seal.entries, seal.heads),
        ]
        self._sum = hashlib.sha256(json.dumps(values, separators=(",", ":")).encode())

    def feed(self, heads: list[Head]) -> None:
        """The next heads, by dispute."""
        lines = (f"\n{head.dispute_id} {head.version} {head.hash}" for head in heads)
        self._sum.update("".join(lines).encode())

    def hexdigest(self) -> str:
        """The anchor's hash, once all its heads were fed."""
        return self._sum.hexdigest()


def anchor_duty(*, now: datetime) -> int:
    """Make an anchor if one is due; returns how many heads it covers.

    One at a time over all pollers: who finds another at work leaves it to that one.
    """
    with transaction.atomic(durable=True):
        plan_by_index()
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


def plan_by_index() -> None:
    """For the rest of this transaction: look rows up by index.

    Right after many rows came in, Postgres takes these tables for small, and a plan that reads
    them whole for each row took minutes where this takes a second.
    """
    with connection.cursor() as cursor:
        for way in ("seqscan", "hashjoin", "mergejoin", "material"):
            cursor.execute(f"SET LOCAL enable_{way} = off")


def _is_due(last: Anchor, now: datetime) -> bool:
    # Either way: a clock that once stood in the future must not end anchoring until then.
    return last.heads >= MOST_HEADS or abs(now - last.at) >= INTERVAL


def _make(last: Anchor | None, now: datetime) -> Seal:
    number, prev_hash = (last.number + 1, last.hash) if last else (1, ZEROS)
    settled_id = last.settled_id if last else 0
    with connection.cursor() as cursor:
        cursor.execute(_COVER, {"most": MOST_HEADS, "number": number, "settled": settled_id})
        heads, disputes, entries, newest_id, next_xid, oldest_xid = cursor.fetchone()
    failpoint("anchors.heads_written")
    at = str(canonical("at", now))
    seal = Seal(number, at, disputes, entries, heads, prev_hash, hash="")
    seal_hash = SealHash(seal)
    for page in heads_of(number):
        seal_hash.feed(page)
    seal = replace(seal, hash=seal_hash.hexdigest())
    settled_id = max(settled_id, min(newest_id, _settled_before(oldest_xid)))
    # After its heads: the database refuses further heads for an anchor that is there.
    Anchor.objects.create(
        **asdict(seal) | {"at": now},
        newest_id=newest_id,
        next_xid=next_xid,
        settled_id=settled_id,
    )
    return seal


def _settled_before(oldest_xid: int) -> int:
    """The entry up to which an anchor has seen all, if `oldest_xid` is its oldest in flight.

    An entry's id is drawn by a transaction that has begun, as its row is written first. So
    what was in flight below the newest entry of an earlier anchor had begun by then; once all
    of that has ended, an anchor sees every entry up to that one. Neither instants nor ids alone
    could say so: a transaction may commit after others that drew later ones.
    """
    ended = Anchor.objects.filter(next_xid__lte=oldest_xid).order_by("-number")
    return ended.values_list("newest_id", flat=True).first() or 0


def heads_of(number: int) -> Iterator[list[Head]]:
    """The heads that an anchor covers, by dispute, in pages."""
    rows = AnchoredHead.objects.filter(anchor_id=number).order_by("dispute_id")
    values = rows.values_list("dispute_id", "version", "hash")
    page = list(values[:PAGE])
    while page:
        yield [Head(str(id_), version, hash_) for id_, version, hash_ in page]
        page = list(values.filter(dispute_id__gt=page[-1][0])[:PAGE])


def stored_chain(*, since: int = 0) -> Chain:
    """The anchors after number `since`, each followed by its heads, in bounded memory."""
    anchors = Anchor.objects.order_by("number")
    while page := list(anchors.filter(number__gt=since)[:PAGE]):
        for anchor in page:
            at = str(canonical("at", anchor.at))
            counts = (anchor.disputes, anchor.entries, anchor.heads)
            yield Seal(anchor.number, at, *counts, anchor.prev_hash, anchor.hash)
            yield from heads_of(anchor.number)
        since = page[-1].number
