"""Take next: the dispute that a reviewer should look at now, acknowledged for them.

Promise: each caller gets a different dispute, in the order of the queue, and "nothing" is only
said when Postgres says so. Nothing is popped and there is no taken state, so a crash between any
two lines loses nothing; with Redis away the same order comes from Postgres.
"""

import logging
import secrets
import threading
import time
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from uuid import UUID

from django.db import connection
from redis import Redis
from redis.exceptions import RedisError

from disputes.exceptions import Busy, DisputeError, DisputeNotFound, StaleDispute
from disputes.failpoints import failpoint
from disputes.models import Dispute, Queue
from disputes.models.disputes import EARLIEST
from disputes.permissions import User, reviewed_queue_ids
from disputes.transitions.reviewing import acknowledge
from reviewqueue import ready_rounds
from reviewqueue.ready_set import (
    RESERVATION_TTL_S,
    depths,
    heads,
    is_canonical,
    is_complete,
    queue_names,
    release,
    reserve,
    reserve_head,
    sync,
)
from reviewqueue.redis_client import ready_client

log = logging.getLogger(__name__)

# How long one call of the duty may keep the poller, and how soon to look again at what others
# have reserved: an acknowledgement takes a few milliseconds.
ROUND_BUDGET_S = 0.5
LOOK_AGAIN_S = 0.02
STALE_TRIES = 3


def take_next(user: User, *, queue_ids: Sequence[int] | None, now: datetime) -> Dispute | None:
    """Acknowledge the next dispute of these queues (None: all that the person reviews).

    Several queues: the head with the earliest deadline goes first. Returns None when no dispute
    waits in them. Raises Busy where the only ones left could not be locked.
    """
    reviewed = reviewed_queue_ids(user)
    asked = reviewed if queue_ids is None else reviewed.intersection(queue_ids)
    if not asked:
        return None
    taking = _Taking(user, queue_names(asked), now=now)
    try:
        return taking.from_sets() or taking.from_rows()
    finally:
        taking.give_back()


def depth(queue: Queue) -> int:
    """How many disputes wait in the queue."""
    return depths(queue_names([queue.pk]))[queue.pk]


def reconcile_duty(now: datetime) -> int:
    """Bring a slice of the queues in step with Postgres; returns the number of repairs."""
    return ready_rounds.work(budget_s=ROUND_BUDGET_S, client=ready_client("worker"))


@dataclass(frozen=True, slots=True)
class _Head:
    """The dispute that stands first in a queue, as just read."""

    id: str
    queue_id: int
    version: int
    score: int
    due_at: datetime | None

    @property
    def urgency(self) -> tuple[datetime, int, str]:
        """What decides between heads of several queues; an exhausted one is overdue for good."""
        return (self.due_at or EARLIEST, self.score, self.id)


@dataclass
class _Taking:
    """One call: what it has reserved, what it has been refused."""

    user: User
    names: Mapping[int, str]
    now: datetime = field(kw_only=True)
    token: str = field(default_factory=lambda: secrets.token_hex(16))
    reserved: list[str] = field(default_factory=list)
    refused: set[str] = field(default_factory=set)
    stale: Counter[str] = field(default_factory=Counter)
    busy: Busy | None = None
    redis: Redis | None = field(default_factory=ready_client)

    def from_sets(self) -> Dispute | None:
        """What the sorted sets propose, until somebody gets one or the sets are empty."""
        redis = self.redis
        if redis is None:
            return None
        try:
            if not is_complete(redis):
                return None
            while member := self._reserve_best(redis):
                self.reserved.append(member)
                failpoint("take_next.reserved")
                head = next(iter(_rows([member], self.names)), None)
                if head is None:
                    sync([member], client=redis)
                elif dispute := self._acknowledged(head):
                    return dispute
        except (RedisError, OSError) as error:
            self._without_redis(error)
        return None

    def _reserve_best(self, redis: Redis) -> str | None:
        if len(self.names) == 1:
            (name,) = self.names.values()
            return reserve_head(name, token=self.token, client=redis)
        while found := heads(list(self.names.values()), client=redis):
            known = _rows(found.values(), self.names)
            # Members whose row waits in none of these queues are strays: out with them first.
            strays = set(found.values()).difference(head.id for head in known)
            if strays:
                sync(strays, client=redis)
                self.reserved += [s for s in strays if reserve(s, token=self.token, client=redis)]
                continue
            best = min(known, key=lambda head: head.urgency)
            # Where others were faster this gives the one behind it, still in the queue's order.
            if member := reserve_head(self.names[best.queue_id], token=self.token, client=redis):
                return member
        return None

    def from_rows(self) -> Dispute | None:
        """The same order from Postgres. Disputes that others are taking are left to them."""
        patience_ends = time.monotonic() + RESERVATION_TTL_S
        others: set[str] = set()
        while True:
            found = _heads_in_postgres(self.names, without=self.refused | others)
            if not found and not others:
                if self.busy:
                    raise self.busy
                return None
            if not found:
                # Theirs or, if they die or fail, ours. Only Postgres may say that nothing is left.
                threading.Event().wait(LOOK_AGAIN_S)
                others.clear()
                continue
            head = min(found, key=lambda head: head.urgency)
            if time.monotonic() < patience_ends and not self._reserved(head.id):
                others.add(head.id)
            elif dispute := self._acknowledged(head):
                return dispute

    def _reserved(self, member: str) -> bool:
        """Whether it is ours to try; without Redis the guarded write alone decides."""
        if self.redis is None or member in self.reserved:
            return True
        try:
            if not reserve(member, token=self.token, client=self.redis):
                return False
        except (RedisError, OSError) as error:
            self._without_redis(error)
            return True
        self.reserved.append(member)
        return True

    def _acknowledged(self, head: _Head) -> Dispute | None:
        """The dispute, ours now; None where it is not to be had, and then not tried again."""
        try:
            dispute = acknowledge(
                UUID(head.id), actor=self.user, seen_version=head.version, now=self.now
            )
            # Another instant: the same person took it a moment ago, by another call of this.
            if dispute.held_since == self.now:
                return dispute
        except DisputeNotFound:
            pass
        except Busy as busy:
            self.busy = busy
        except StaleDispute:
            # It waits still, with other facts: the row is read again.
            self.stale[head.id] += 1
            if self.stale[head.id] < STALE_TRIES:
                return None
        except DisputeError as refusal:
            log.info(
                "reviewqueue.next_was_refused",
                extra={"dispute_id": head.id, "code": refusal.code},
            )
        self.refused.add(head.id)
        return None

    def _without_redis(self, error: Exception) -> None:
        log.warning("reviewqueue.next_without_redis", extra={"error": str(error)[:200]})
        self.redis = None

    def give_back(self) -> None:
        """Let others try what this call reserved; a reservation ends by itself as well."""
        if self.redis is None or not self.reserved:
            return
        try:
            release(self.reserved, token=self.token, client=self.redis)
        except (RedisError, OSError) as error:
            log.warning("reviewqueue.reservation_kept", extra={"error": str(error)[:200]})


def _rows(ids: Iterable[str], names: Mapping[int, str]) -> list[_Head]:
    """Which of these disputes really wait in one of the queues."""
    rows = Dispute.objects.filter(
        pk__in=list(filter(is_canonical, ids)),
        status=Dispute.Status.OPEN,
        tier__queue__in=list(names),
    ).values_list("pk", "tier__queue", "version", "queue_score", "due_at")
    return [
        _Head(str(pk), queue_id, version, score, due_at)
        for pk, queue_id, version, score, due_at in rows
    ]


def _heads_in_postgres(names: Mapping[int, str], *, without: set[str]) -> list[_Head]:
    """The first dispute of each queue by place: one short look into the index a tier."""
    with connection.cursor() as cursor:
        cursor.execute(
            """
            SELECT DISTINCT ON (t.queue_id)
                d.id::text, t.queue_id, d.version, d.queue_score, d.due_at
            FROM disputes_tier t CROSS JOIN LATERAL (
                SELECT * FROM disputes_dispute
                WHERE tier_id = t.id AND status = 'open' AND id <> ALL (%s::uuid[])
                ORDER BY queue_score, id LIMIT 1
            ) d
            WHERE t.queue_id = ANY (%s)
            ORDER BY t.queue_id, d.queue_score, d.id
            """,
            [list(without), list(names)],
        )
        return [_Head(*row) for row in cursor.fetchall()]
