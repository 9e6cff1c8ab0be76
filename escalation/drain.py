"""claim -> promote -> release, until a round changes nothing or the time is over.

Nothing is popped: a process that dies here leaves locks that expire and members that are
claimed again. Redis only proposes; promote decides in Postgres what is really due.
"""

import logging
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from datetime import datetime, timedelta
from uuid import UUID

from django.db import DatabaseError, connection
from django.db.models import Exists, Min, OuterRef, Q, QuerySet
from django.db.models.functions import Greatest
from redis.exceptions import RedisError

from disputes.clock import database_now
from disputes.failpoints import failpoint
from disputes.ladders import paused_ladders
from disputes.models import Dispute
from disputes.rules import Outcome, microseconds
from disputes.transitions.attempts import is_transient, sqlstate
from disputes.transitions.deadlines import promote
from escalation import failures, timeline
from escalation.conf import conf
from escalation.models import Failure
from escalation.sync import settle

log = logging.getLogger(__name__)

Promote = Callable[..., dict[UUID, str]]

TRANSIENT_TRIES = 3
TRANSIENT_PAUSE_S = 0.2
# Outcomes that say: Redis believed something that Postgres does not. A sync mends that.
_REDIS_IS_BEHIND = {
    Outcome.NOT_DUE,
    Outcome.NO_LONGER_OPEN,
    Outcome.STUCK_MEMBER,
    Outcome.PARKED,
}
_WROTE_NOTHING = _REDIS_IS_BEHIND | {Outcome.LOCK_CONTENTION, Outcome.VERSION_CONFLICT}


def wrote_something(outcome: str) -> bool:
    """Whether this outcome stands for a change of the dispute."""
    return outcome not in _WROTE_NOTHING


def promote_batch(
    ids: Sequence[UUID], *, now: datetime, promote_ids: Promote = promote
) -> dict[UUID, str]:
    """Promote a batch; where one dispute of it is the fault, find it and put it off.

    Transient errors (connection, deadlock, time-out …) repeat the batch and, if they stay,
    are raised: then nothing is wrong with any dispute and nobody is parked.
    """
    for attempt in range(1, TRANSIENT_TRIES + 1):
        try:
            return promote_ids(ids, now=now)
        except DatabaseError as error:
            if is_transient(error):
                if attempt == TRANSIENT_TRIES:
                    raise
                log.warning("escalation.batch_repeated", extra={"error": str(error)[:200]})
                if not sqlstate(error):
                    # Broken, though it may not know: the repetition gets a new one.
                    connection.close()
                time.sleep(TRANSIENT_PAUSE_S * attempt)
                continue
            return _bisected(ids, error, now=now, promote_ids=promote_ids)
        except Exception as error:  # noqa: BLE001 (one poison dispute may not stop the others)
            return _bisected(ids, error, now=now, promote_ids=promote_ids)
    raise AssertionError("unreachable")


def _bisected(
    ids: Sequence[UUID], error: Exception, *, now: datetime, promote_ids: Promote
) -> dict[UUID, str]:
    if len(ids) == 1:
        failures.put_off(ids[0], error=error, now=now)
        return {ids[0]: Outcome.PARKED}
    half = len(ids) // 2
    return promote_batch(ids[:half], now=now, promote_ids=promote_ids) | promote_batch(
        ids[half:], now=now, promote_ids=promote_ids
    )


def _try_all(ids: Sequence[UUID], *, now: datetime, promote_ids: Promote) -> dict[UUID, str]:
    """Promote those that are not left out after a failure; forget failures that are over."""
    known = set(Failure.objects.among(ids).values_list("pk", flat=True))
    skipped = failures.left_out(list(known), now=now) if known else set()
    tried = [id_ for id_ in ids if id_ not in skipped]
    outcomes = promote_batch(tried, now=now, promote_ids=promote_ids) if tried else {}
    if known:
        over = [id_ for id_ in known if wrote_something(outcomes.get(id_, Outcome.PARKED))]
        failures.forget(over)
    return outcomes | dict.fromkeys(skipped, str(Outcome.PARKED))


def _log_outcomes(outcomes: dict[UUID, str]) -> None:
    for dispute_id, outcome in outcomes.items():
        level = logging.INFO if wrote_something(outcome) else logging.DEBUG
        if log.isEnabledFor(level):
            event = "escalation.promoted" if wrote_something(outcome) else "escalation.passed_over"
            log.log(
                level, event, extra={"trace_id": str(dispute_id), "match_decision": str(outcome)}
            )


@dataclass(frozen=True, slots=True)
class Round:
    """What one round came to; `changed` says whether anything was written anywhere."""

    counts: Counter[str]
    changed: bool
    cursor: str | None


def drain_round(*, cursor: str | None, limit: int, promote_ids: Promote = promote) -> Round:
    """One claim and one batch; `cursor` goes on behind the members of the claim before."""
    now = database_now()
    token = timeline.new_token()
    claimed = timeline.claim(now_us=microseconds(now), limit=limit, token=token, cursor=cursor)
    failpoint("drain.claimed")
    counts: Counter[str] = Counter()
    changed = False
    if claimed.contended:
        counts[Outcome.LOCK_CONTENTION] += claimed.contended
    if without_payload := [id_ for id_ in claimed.stuck if id_ in claimed.ids]:
        # The sync after the promotion, or of those not due, writes the payload again.
        log.error("escalation.stuck_member", extra={"members": without_payload[:20]})
    if garbage := [member for member in claimed.stuck if member not in claimed.ids]:
        log.error("escalation.stuck_member", extra={"members": garbage[:20]})
        discarded = timeline.discard(garbage)
        counts[Outcome.STUCK_MEMBER] += discarded
        changed = discarded > 0
    if claimed.ids:
        ids = [UUID(id_) for id_ in claimed.ids]
        # A persistent database failure is raised with the locks kept: they expire by themselves.
        outcomes = _try_all(ids, now=now, promote_ids=promote_ids)
        failpoint("drain.promoted")
        counts.update(str(outcome) for outcome in outcomes.values())
        changed |= any(wrote_something(outcome) for outcome in outcomes.values())
        _log_outcomes(outcomes)
        behind = [id_ for id_, outcome in outcomes.items() if outcome in _REDIS_IS_BEHIND]
        if behind:
            settled = settle(behind)
            changed |= settled.scheduled + settled.removed > 0
        failpoint("drain.synced")
        timeline.release(claimed.ids, token=token)
    return Round(counts, changed, claimed.cursor)


def drain(
    *,
    budget_s: float | None = None,
    linger_s: float | None = None,
    stop: threading.Event | None = None,
    promote_ids: Promote = promote,
) -> Counter[str]:
    """Drain what is due by the timeline; returns how often each outcome occurred.

    Ends when a round changed nothing and no deadline passes within `linger_s`, when `budget_s`
    is used up, or when `stop` is set. Raises what Redis or (after retries) Postgres raises.
    """
    knobs = conf()
    ends_at = time.monotonic() + (knobs.drain_budget_s if budget_s is None else budget_s)
    linger_s = knobs.drain_linger_s if linger_s is None else linger_s
    stop = stop or threading.Event()
    total: Counter[str] = Counter()
    cursor: str | None = None
    while not stop.is_set() and time.monotonic() < ends_at:
        done = drain_round(cursor=cursor, limit=knobs.batch_size, promote_ids=promote_ids)
        total += done.counts
        cursor = None if done.changed else done.cursor
        if done.changed or cursor is not None:
            continue
        rest_s = _rest_before_next(linger_s)
        if rest_s is None or time.monotonic() + rest_s > ends_at:
            break
        stop.wait(rest_s)
    return total


def _rest_before_next(linger_s: float) -> float | None:
    """Seconds until the next deadline if it passes within `linger_s`, else None."""
    if linger_s <= 0:
        return None
    first = timeline.earliest()
    if first is None:
        return None
    rest_s = (first - microseconds(database_now())) / 1_000_000
    if rest_s <= 0:
        # Due and free, and yet the round before changed nothing: leave it to the next job.
        return None if rest_s < -0.05 else 0.001
    return rest_s if rest_s <= linger_s else None


# Without Redis: the same promotions, found by the partial index instead of the timeline.


def overdue(*, now: datetime, by: timedelta = timedelta(0)) -> QuerySet[Dispute]:
    """Disputes overdue by more than `by`, oldest first; without put-off ones, paused ladders."""
    rows = Dispute.objects.filter(due_at__lte=now - by).exclude(
        Exists(Failure.objects.filter(pk=OuterRef("pk"), until__gt=now))
    )
    if paused := paused_ladders(now=now):
        rows = rows.exclude(tier__revision__ladder__in=paused)
    return rows.order_by("due_at", "id")


def lateness(*, now: datetime) -> timedelta:
    """How long the most overdue dispute has waited to be promoted; those of `overdue` only.

    A hold that ends gives back a deadline that may long have passed: nobody was late with it, so
    the wait counts from the dispute's last change.
    """
    since = overdue(now=now).aggregate(oldest=Min(Greatest("due_at", "changed_at")))["oldest"]
    return max(now - since, timedelta(0)) if since else timedelta(0)


def pages(rows: QuerySet[Dispute], *, size: int, limit: int | None = None) -> Iterator[list[UUID]]:
    """Ids of `overdue` rows, page by page behind a cursor: a stuck head cannot starve the rest."""
    taken = 0
    after: tuple[datetime | None, UUID] | None = None
    while limit is None or taken < limit:
        wanted = size if limit is None else min(size, limit - taken)
        behind = rows
        if after is not None:
            behind = rows.filter(Q(due_at__gt=after[0]) | Q(due_at=after[0], pk__gt=after[1]))
        page = list(behind.values_list("due_at", "pk")[:wanted])
        if not page:
            return
        yield [pk for _, pk in page]
        taken += len(page)
        after = page[-1]


def drain_postgres(
    *,
    ladder: str | None = None,
    tier: str | None = None,
    limit: int | None = None,
    budget_s: float | None = None,
    stop: threading.Event | None = None,
    progress: Callable[[int], None] | None = None,
) -> Counter[str]:
    """Promote what Postgres says is due, oldest first, with or without Redis.

    Used by operators and by the poller while Redis is away. Each dispute is promoted at most
    once a call, however many of its tiers are overdue.
    """
    knobs = conf()
    now = database_now()
    ends_at = None if budget_s is None else time.monotonic() + budget_s
    rows = overdue(now=now)
    if ladder:
        rows = rows.filter(tier__revision__ladder__slug=ladder)
    if tier:
        rows = rows.filter(tier__slug=tier)
    total: Counter[str] = Counter()
    for page in pages(rows, size=knobs.batch_size, limit=limit):
        if (stop and stop.is_set()) or (ends_at and time.monotonic() > ends_at):
            break
        outcomes = _try_all(page, now=now, promote_ids=promote)
        _log_outcomes(outcomes)
        total.update(str(outcome) for outcome in outcomes.values())
        if progress:
            progress(sum(total.values()))
    return total


def drain_anyhow() -> Counter[str]:
    """Drain by the timeline, or from Postgres where Redis is away: late, but never not at all."""
    with suppress(RedisError, OSError):
        return _drain_in_pair() if _is_backlog() else drain()
    log.warning("escalation.draining_without_redis")
    return drain_postgres(budget_s=conf().drain_budget_s)


def _is_backlog() -> bool:
    return timeline.due_count(now_us=microseconds(database_now())) > conf().batch_size


def _drain_in_pair() -> Counter[str]:
    """Two drains in one process: while Postgres writes one batch, Python decides the next.

    The second one only helps with the backlog. Claims keep them apart, as they would two workers.
    """

    def help_out() -> Counter[str]:
        try:
            return drain(linger_s=0)
        finally:
            connection.close()

    with ThreadPoolExecutor(max_workers=1, thread_name_prefix="drain") as helper:
        helped = helper.submit(help_out)
        counts = drain()
        return counts + helped.result()
