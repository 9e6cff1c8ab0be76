"""Ids -> rows read again -> timeline written. The one way this tower writes deadlines to Redis.

What is written is what a fresh read says, fenced by the dispute's version, so a late or
repeated sync can never undo a newer one.
"""

import logging
import time
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from redis import Redis

from disputes.clock import database_now
from disputes.ladders import tier_facts
from disputes.models import Dispute, Ladder
from disputes.rules import look_at
from escalation import timeline
from escalation.conf import conf
from escalation.models import Failure
from escalation.timeline_keys import chunks
from escalation.timeline_survey import known_versions

log = logging.getLogger(__name__)

# Written as the version of a removal where Postgres knows no such dispute.
NO_ROW_VERSION = 0


@dataclass(frozen=True, slots=True)
class Wanted:
    """What the timeline should hold for one dispute; `entry` None means: nothing."""

    dispute_id: str
    version: int
    entry: timeline.Entry | None


@dataclass(frozen=True, slots=True)
class Synced:
    """How many writes the timeline accepted, and how many it refused as older than its own."""

    scheduled: int = 0
    removed: int = 0
    refused: int = 0


@dataclass(frozen=True, slots=True)
class _Pause:
    """A ladder's pause; `until` None means that it has no end yet."""

    until: datetime | None


def _pauses(now: datetime) -> dict[int, _Pause]:
    return {
        pk: _Pause(until)
        for pk, until in Ladder.objects.filter(paused_at__isnull=False).values_list(
            "pk", "paused_until"
        )
        if until is None or until > now
    }


def wanted(ids: Iterable[UUID | str], *, now: datetime | None = None) -> dict[str, Wanted]:
    """Read these disputes afresh and say what the timeline should hold for each at `now`."""
    asked = [str(id_) for id_ in ids]
    pauses = _pauses(now or database_now())
    left_out = dict(Failure.objects.among(asked).values_list("pk", "until"))
    found: dict[str, Wanted] = {}
    rows = Dispute.objects.among(asked).values_list(
        "pk", "version", "due_at", "tier_id", "materiality_usd", "source_hash"
    )
    for pk, version, due_at, tier_id, materiality, source_hash in rows:
        tier = tier_facts(tier_id)
        pause = pauses.get(tier.ladder_id)
        stands_still = pause is not None and pause.until is None
        score = look_at(due_at, left_out.get(pk), pause.until if pause else None)
        entry = None
        if score is not None and not stands_still:
            entry = timeline.Entry(
                dispute_id=str(pk),
                look_at_us=score,
                version=version,
                tier=tier.slug,
                materiality_usd="" if materiality is None else str(materiality),
                source_hash=source_hash,
            )
        found[str(pk)] = Wanted(str(pk), version, entry)
    for id_ in asked:
        if id_ not in found:
            found[id_] = Wanted(id_, NO_ROW_VERSION, None)
    return found


def sync(ids: Sequence[UUID | str], *, force: bool = False, client: Redis | None = None) -> Synced:
    """Bring the timeline in step with Postgres for these disputes.

    Raises what Redis raises. A process that stood still longer than a claim lasts between
    reading and writing drops what it read: somebody else has looked since.
    """
    scheduled = removed = refused = 0
    for chunk in chunks([str(id_) for id_ in ids]):
        read_at = time.monotonic()
        now = database_now()
        rows = wanted(chunk, now=now).values()
        if time.monotonic() - read_at > conf().lock_ttl_s:
            log.warning("escalation.sync_dropped_old_read", extra={"disputes": len(chunk)})
            continue
        entries = [row.entry for row in rows if row.entry is not None]
        gone = [(row.dispute_id, row.version) for row in rows if row.entry is None]
        unknown = [row.dispute_id for row in rows if row.version == NO_ROW_VERSION]
        accepted = timeline.schedule(entries, enqueued_at=now, force=force, client=client)
        ended = [pair for pair in gone if pair[1] != NO_ROW_VERSION]
        taken_off = timeline.unschedule(ended, force=force, client=client)
        refused += len(entries) - accepted + len(ended) - taken_off
        if unknown:
            # No row will ever come back under this id, whatever version Redis has seen.
            taken_off += timeline.unschedule(
                [(id_, NO_ROW_VERSION) for id_ in unknown], force=True, client=client
            )
        scheduled += accepted
        removed += taken_off
    return Synced(scheduled, removed, refused)


def settle(ids: Sequence[UUID | str], *, client: Redis | None = None) -> Synced:
    """`sync` that also copes with a Postgres restored to an earlier state than Redis.

    What Redis knows came from a commit, so a read made after looking at Redis must be at least
    as new. Where two fresh reads are refused and a third look shows Redis ahead all the same,
    Postgres wins.
    """
    for _ in range(2):
        done = sync(ids, client=client)
        if not done.refused:
            return done
    ahead = redis_ahead(ids, client=client)
    if not ahead:
        return sync(ids, client=client)
    log.error("escalation.redis_ahead_of_postgres", extra={"disputes": ahead[:20]})
    return sync(ahead, force=True, client=client)


def redis_ahead(ids: Sequence[UUID | str], *, client: Redis | None = None) -> list[str]:
    """Disputes of which Redis has a newer version than a read of Postgres made afterwards."""
    known = known_versions([str(id_) for id_ in ids], client=client)
    rows = wanted(ids)
    return [id_ for id_, version in known.items() if version > rows[id_].version]
