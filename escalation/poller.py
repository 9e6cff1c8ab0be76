"""Decides when to look. What is due is proposed to the workers; Postgres decides in the drain.

Any number of pollers may run: each rests interval · (1 ± jitter), or until shortly before the
earliest deadline, and is woken when an earlier one arrives.
"""

import logging
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from datetime import datetime, timedelta

from django.db import DatabaseError, close_old_connections, connection
from django.db.models import Q
from django.utils.module_loading import import_string
from redis.exceptions import RedisError, ResponseError

from disputes import outbox
from disputes.anchors import anchor_duty
from disputes.clock import database_now
from disputes.failpoints import failpoint
from disputes.rules import microseconds
from disputes.transitions.attempts import in_passing
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.conf import conf
from escalation.doorbell import MOST_WAITING, mend_queues, ring
from escalation.drain import drain_postgres, lateness, overdue, pages
from escalation.loop import beat, jittered, process_name
from escalation.models import DutyTurn
from escalation.reconcile import rebuild, reconcile
from escalation.redis_client import timeline_client
from escalation.sync import settle
from escalation.wake import Waker

log = logging.getLogger(__name__)

# Rung this long before a deadline, so that a worker is up and waits for the very instant.
LEAD_S = 0.4
# A worker gets this long after a deadline before the poller looks whether it came.
GRACE_S = 0.1
# Never look more often than this.
LEAST_REST_S = 0.02
# Postgres is asked for what Redis does not know once it is this late.
UNKNOWN_AFTER = timedelta(seconds=1)
PAGE = 500
MOST_PAGES = 20
STOPPED_WORKERS_REST_S = 1.0

# Duties of the clock itself; `ESCALATION["duties"]` adds those of the other tower.
OWN_DUTIES: dict[str, Callable[[], dict[str, object]]] = {
    "escalation.reconcile": lambda: reconcile().counts(),
    # Looks each time, makes an anchor when the hour is over.
    "escalation.anchors": lambda: {"heads": anchor_duty(now=database_now())},
}


@dataclass(slots=True)
class Look:
    """What one look came to."""

    due: int = 0
    rung: int = 0
    handed_over: int = 0
    rest_s: float = 0.0
    degraded: str = ""


@dataclass(slots=True)
class Poller:
    """One poller: call `look` for one step, `run` until `stop` is set."""

    stop: threading.Event
    name: str = field(default_factory=lambda: process_name("poller"))
    # How often the same due member was found unclaimed in a row; backs off while workers are away.
    _unanswered: int = 0
    _next_sweep_at: datetime | None = None
    _next_rescue_s: float = 0.0
    # Long work by name, each in a thread of its own; None: a single look does it at once.
    _beside: dict[str, threading.Thread] | None = None

    def look(self) -> Look:
        """Look once: ring workers for what is due, hand over what Redis does not know."""
        knobs = conf()
        now = database_now()
        found = Look(rest_s=jittered(knobs.poll_interval_s, knobs.jitter))
        sweep = self._sweep_is_due(now)
        try:
            # A short time-out: while Redis hangs, no look may cost a worker's patience.
            timeline_client("batch").ping()
            if sweep and not survey.is_built():
                self._do_beside("rebuild", rebuild)
            self._look_at_timeline(found, now)
            if sweep:
                found.handed_over = hand_over_unknown(now=now)
                if found.handed_over:
                    found.rung += ring("escalations", wanted=MOST_WAITING)
        except ResponseError as error:
            if "WRONGTYPE" in str(error) and survey.discard_strange_keys():
                log.error("escalation.strange_keys_removed", extra={"error": str(error)[:200]})
                found.rest_s = LEAST_REST_S
            else:
                self._without_redis(found, error)
        except (RedisError, OSError, survey.LayoutMismatch) as error:
            self._without_redis(found, error)
        if sweep:
            self._next_sweep_at = now + timedelta(
                seconds=jittered(knobs.poll_interval_s, knobs.jitter)
            )
            self._between_sweeps(found, now)
        return found

    def _sweep_is_due(self, now: datetime) -> bool:
        """Also when the clock jumped back: then the next sweep was planned by one that is gone."""
        if self._next_sweep_at is None or now >= self._next_sweep_at:
            return True
        return self._next_sweep_at > furthest_plan(now, conf().poll_interval_s)

    def _look_at_timeline(self, found: Look, now: datetime) -> None:
        now_us = microseconds(now)
        soon_us = now_us + int(LEAD_S * 1e6)
        first = timeline.earliest()
        if first is None:
            # All that is there is locked. Behind so many that the look ended, a drain finds more.
            found.due = timeline.due_count(now_us=now_us)
            if found.due > sum(timeline.EARLIEST_PAGES):
                found.rung = ring("escalations")
                found.rest_s = min(found.rest_s, STOPPED_WORKERS_REST_S)
            return
        if first > soon_us:
            self._unanswered = 0
            found.rest_s = min(found.rest_s, (first - now_us) / 1e6 - LEAD_S)
            return
        found.due = timeline.due_count(now_us=soon_us)
        failpoint("poller.before_ring")
        found.rung = ring("escalations", wanted=-(-found.due // conf().batch_size))
        failpoint("poller.after_ring")
        if first > now_us:
            self._unanswered = 0
            found.rest_s = min(found.rest_s, (first - now_us) / 1e6 + GRACE_S)
        else:
            # Rung and still there: busy or absent workers. Look again soon, then less often.
            back_off_s = LEAST_REST_S * 2 ** min(self._unanswered, 8)
            found.rest_s = min(found.rest_s, back_off_s, STOPPED_WORKERS_REST_S)
            self._unanswered += 1

    def _without_redis(self, found: Look, error: Exception) -> None:
        """Escalations go on without Redis: late by a poll, promoted by the poller itself."""
        log.warning("escalation.redis_away", extra={"error": str(error)[:200]})
        refused = isinstance(error, ResponseError | survey.LayoutMismatch)
        found.degraded = (
            f"the timeline cannot be used: {str(error)[:120]}"
            if refused
            else "Redis cannot be reached"
        )
        drain_postgres(budget_s=conf().poll_interval_s, stop=self.stop)

    def _between_sweeps(self, found: Look, now: datetime) -> None:
        beat(
            self.name,
            kind="poller",
            now=now,
            detail={"due": found.due, "handed_over": found.handed_over, "degraded": found.degraded},
        )
        if found.degraded:
            return
        mend_quietly()
        if outbox.stranded(now=now, lease=timedelta(minutes=10), grace=UNKNOWN_AFTER):
            ring_quietly()
        self._do_beside("duties", lambda: run_due_duties(now=now, stop=self.stop))

    def _do_beside(self, name: str, work: Callable[[], object]) -> None:
        """Start what may take minutes with very many disputes, unless it is still being done.

        No deadline waits for it, and neither does a stop: it may die at any point.
        """
        if self._beside is None:
            work()
        elif name not in self._beside or not self._beside[name].is_alive():
            thread = threading.Thread(target=_quietly, args=(name, work), name=name, daemon=True)
            self._beside[name] = thread
            thread.start()

    def _rescue(self) -> None:
        """Once an interval: promote here what nobody has, later than a dead claim makes it.

        Workers that are away, that die of what somebody wrote into Redis, or that nobody rings:
        whatever the reason, a deadline is kept by some poller.
        """
        knobs = conf()
        if time.monotonic() < self._next_rescue_s:
            return
        self._next_rescue_s = time.monotonic() + knobs.poll_interval_s
        now = database_now()
        if not overdue(now=now, by=timedelta(seconds=knobs.lock_ttl_s)).exists():
            return
        if take_turn("escalation.rescue", now=now, interval_s=knobs.poll_interval_s):
            if lateness(now=now) > timedelta(seconds=knobs.lock_ttl_s):
                log.error("escalation.workers_late")
            drain_postgres(budget_s=knobs.poll_interval_s, stop=self.stop)

    def run(self) -> None:
        """Look until stopped. Trouble is logged and waited out; the loop itself never ends."""
        waker = Waker(stop=self.stop)
        self._beside = {}
        trouble = 0
        while not self.stop.is_set():
            try:
                close_old_connections()
                found = self.look()
                self._rescue()
                trouble = 0
                self._rest(found, waker)
            except DatabaseError as error:
                trouble += 1
                log.error("escalation.postgres_away", extra={"error": str(error)[:200]})
                connection.close()
                self.stop.wait(pause_s(trouble))
            except Exception:
                trouble += 1
                log.exception("escalation.poll_failed")
                self.stop.wait(pause_s(trouble))
        waker.close()

    def _rest(self, found: Look, waker: Waker) -> None:
        failpoint("poller.looked")
        rest_s = max(found.rest_s, LEAST_REST_S)
        if found.due or found.degraded:
            self.stop.wait(rest_s)
            return
        wakes_before = microseconds(database_now()) + int((rest_s + LEAD_S) * 1e6)
        self.stop.wait(LEAST_REST_S)
        waker.wait(timeout_s=rest_s - LEAST_REST_S, earlier_than_us=wakes_before)


def pause_s(troubles: int) -> float:
    """Seconds to wait after so many failures in a row: longer each time, an interval at most."""
    return min(0.25 * 2 ** min(troubles, 10), conf().poll_interval_s)


def ring_quietly() -> None:
    """Wake a deliverer for stranded messages."""
    try:
        ring("notifications")
    except (RedisError, OSError) as error:
        log.warning("escalation.ring_failed", extra={"error": str(error)[:200]})


def hand_over_unknown(*, now: datetime) -> int:
    """Rows overdue by more than a second of which Redis does not say so: put them there.

    One cheap query over the partial index in the usual case, that nothing is overdue.
    """
    handed_over = 0
    rows = overdue(now=now, by=UNKNOWN_AFTER)
    # Known rows may be many while workers are away; lost ones behind them are found all the same.
    for page in pages(rows, size=PAGE, limit=PAGE * MOST_PAGES):
        ids = [str(pk) for pk in page]
        scores = survey.scores(ids)
        unknown = [
            id_ for id_ in ids if (score := scores.get(id_)) is None or score > microseconds(now)
        ]
        if unknown:
            settle(unknown)
            handed_over += len(unknown)
    if handed_over:
        log.warning("escalation.handed_over", extra={"disputes": handed_over})
    return handed_over


def mend_quietly() -> None:
    """Take out of RQ's queues what keeps every worker from them."""
    try:
        mend_queues()
    except (RedisError, OSError) as error:
        log.warning("escalation.ring_failed", extra={"error": str(error)[:200]})


def furthest_plan(now: datetime, interval_s: float) -> datetime:
    """No clock that was right plans its next step later than this; jitter is in it."""
    return now + timedelta(seconds=2 * interval_s)


def take_turn(name: str, *, now: datetime, interval_s: float) -> bool:
    """Whether it is this process' turn to run the duty: one process an interval gets True."""
    is_due = Q(next_at__lte=now) | Q(next_at__gt=furthest_plan(now, interval_s))
    next_at = now + timedelta(seconds=interval_s)

    def taken() -> bool:
        if DutyTurn.objects.filter(is_due, name=name).update(next_at=next_at):
            return True
        return DutyTurn.objects.get_or_create(name=name, defaults={"next_at": next_at})[1]

    return in_passing(taken, otherwise=False)


def _run_duty(name: str, *, now: datetime) -> dict[str, object]:
    if name in OWN_DUTIES:
        return OWN_DUTIES[name]()
    return {"done": import_string(name)(now=now)}


def _quietly(name: str, work: Callable[[], object]) -> None:
    """The body of a thread: nothing it meets ends the process, and its connection ends with it."""
    try:
        work()
    except (RedisError, DatabaseError, OSError) as error:
        log.warning("escalation.work_failed", extra={"work": name, "error": str(error)[:200]})
    except Exception:
        log.exception("escalation.work_failed")
    finally:
        connection.close()


def run_due_duties(*, now: datetime, stop: threading.Event | None = None) -> None:
    """Run the duties whose turn has come; one that fails is logged and comes again."""
    knobs = conf()
    for name in (*OWN_DUTIES, *knobs.duties):
        if stop and stop.is_set():
            return
        if not take_turn(name, now=now, interval_s=knobs.reconcile_interval_s):
            continue
        try:
            result = _run_duty(name, now=now)
        except (RedisError, DatabaseError, OSError) as error:
            log.warning("escalation.duty_failed", extra={"duty": name, "error": str(error)[:200]})
            continue
        DutyTurn.objects.filter(name=name).update(last_result=result)
