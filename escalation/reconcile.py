"""Compares Redis with Postgres and repairs it; rebuilds it when it was lost.

Works a slice at a time in bounded memory. A suspect is drift only when a second fresh look
says so too, because a change between the two reads is no fault. A healthy system sees reads.
"""

import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from uuid import UUID

from django.db.models import Q

from disputes import outbox
from disputes.clock import database_now
from disputes.failpoints import failpoint
from disputes.models import Dispute
from escalation import timeline
from escalation import timeline_survey as survey
from escalation.conf import conf
from escalation.delivery import LEASE
from escalation.models import Heartbeat
from escalation.redis_client import timeline_client
from escalation.sync import Wanted, redis_ahead, settle, sync, wanted
from escalation.timeline_keys import LAYOUT, is_canonical, keys

log = logging.getLogger(__name__)

SLICE = 1_000
# How long a change may take from its commit to its write in Redis before it is suspect.
SECOND_LOOK_S = 0.3
# A clock this far from Postgres' is reported as CLOCK_SKEW.
MOST_SKEW = timedelta(seconds=1)
STRANDED_GRACE = timedelta(minutes=2)


@dataclass(slots=True)
class Drift:
    """What a comparison found; all empty on a healthy system."""

    missing: list[str] = field(default_factory=list)
    orphaned: list[str] = field(default_factory=list)
    misplaced: list[str] = field(default_factory=list)
    stuck: list[str] = field(default_factory=list)
    stranded: int = 0
    redis_skew_s: float = 0.0
    host_skew_s: float = 0.0
    checked: int = 0
    repaired: int = 0

    @property
    def ids(self) -> list[str]:
        """Every dispute that a sync has to look at."""
        return [*self.missing, *self.orphaned, *self.misplaced, *filter(is_canonical, self.stuck)]

    @property
    def is_skewed(self) -> bool:
        """CLOCK_SKEW: a clock differs from Postgres' by more than a second."""
        most = MOST_SKEW.total_seconds()
        return abs(self.redis_skew_s) > most or abs(self.host_skew_s) > most

    @property
    def is_clean(self) -> bool:
        """Whether Redis and Postgres say the same; a skewed clock decides nothing and is apart."""
        return not (self.missing or self.orphaned or self.misplaced or self.stuck or self.stranded)

    def counts(self) -> dict[str, object]:
        """Numbers only, for logs and the duty's last result."""
        lists = ("missing", "orphaned", "misplaced", "stuck")
        return {
            name: len(value) if name in lists else value for name, value in asdict(self).items()
        }


def _fault(id_: str, want: Wanted, scores: dict[str, int | None], version: int | None) -> str:
    """Which kind of drift this is, or "" where Redis says what Postgres says.

    A score of None is one that is no instant, such as infinity.
    """
    if want.entry is None:
        return "orphaned" if id_ in scores or version is not None else ""
    if id_ not in scores:
        return "missing"
    if version is None:
        return "stuck"
    wrong = (scores[id_], version) != (want.entry.look_at_us, want.version)
    return "misplaced" if wrong else ""


def _suspects(ids: Sequence[str]) -> dict[str, str]:
    """id -> kind of drift, by a fresh read of both sides."""
    if not ids:
        return {}
    rows = wanted(ids)
    scores = survey.scores(ids)
    versions = survey.payload_versions(ids)
    faults = {id_: _fault(id_, rows[id_], scores, versions[id_]) for id_ in ids}
    return {id_: fault for id_, fault in faults.items() if fault}


def _postgres_slices() -> Iterator[list[str]]:
    """Ids that have a deadline, in slices."""
    after: UUID | None = None
    while True:
        rows = Dispute.objects.filter(due_at__isnull=False).order_by("pk")
        page = list(
            (rows.filter(pk__gt=after) if after else rows).values_list("pk", flat=True)[:SLICE]
        )
        if not page:
            return
        yield [str(pk) for pk in page]
        after = page[-1]


def _redis_slices() -> Iterator[list[tuple[str, int | None]]]:
    cursor = 0
    while True:
        cursor, members = survey.scan(cursor, count=SLICE)
        yield members
        if cursor == 0:
            return


def compare(*, stop: threading.Event | None = None) -> Drift:
    """Read both sides and say where they differ. Writes nothing."""
    stop = stop or threading.Event()
    drift = Drift()
    suspects: set[str] = set()
    for ids in _postgres_slices():
        if stop.is_set():
            return drift
        suspects.update(_suspects(ids))
        drift.checked += len(ids)
        failpoint("reconcile.postgres_slice")
    for members in _redis_slices():
        if stop.is_set():
            return drift
        drift.stuck += [member for member, _ in members if not is_canonical(member)]
        known = [member for member, _ in members if is_canonical(member)]
        gone = [id_ for id_, row in wanted(known).items() if row.entry is None] if known else []
        suspects.update(gone)
    if suspects:
        stop.wait(SECOND_LOOK_S)
        for id_, fault in sorted(_suspects(sorted(suspects)).items()):
            getattr(drift, fault).append(id_)
    _measure_clocks(drift)
    drift.stranded = outbox.stranded(now=database_now(), lease=LEASE, grace=STRANDED_GRACE)
    return drift


def _measure_clocks(drift: Drift) -> None:
    redis_now = timeline.server_now()
    now = database_now()
    drift.redis_skew_s = round((redis_now - now).total_seconds(), 3)
    drift.host_skew_s = round(time.time() - now.timestamp(), 3)


def repair(drift: Drift) -> int:
    """Bring what the comparison found in step; returns how many writes the timeline took."""
    failpoint("reconcile.before_repair")
    written = timeline.discard([m for m in drift.stuck if not is_canonical(m)])
    if drift.ids:
        done = settle(drift.ids)
        written += done.scheduled + done.removed
        if ahead := redis_ahead(drift.ids):
            forced = sync(ahead, force=True)
            written += forced.scheduled + forced.removed
    drift.repaired = written
    return written


def reconcile(*, stop: threading.Event | None = None) -> Drift:
    """Compare and repair once; what was found is logged, nothing is silent."""
    drift = compare(stop=stop)
    if not drift.is_clean:
        repair(drift)
        log.warning("escalation.zset_drift", extra=drift.counts())
        for kind in ("missing", "orphaned", "misplaced", "stuck"):
            for id_ in getattr(drift, kind)[:50]:
                log.info("escalation.repaired", extra={"trace_id": id_, "kind": kind})
    if drift.is_skewed:
        log.warning(
            "escalation.clock_skew",
            extra={"redis_skew_s": drift.redis_skew_s, "host_skew_s": drift.host_skew_s},
        )
    return drift


# KEYS: rebuild, epoch. ARGV: token, layout. Only an undisturbed rebuild may say that it is done.
FINISH_REBUILD = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
redis.call('SET', KEYS[2], ARGV[2])
redis.call('DEL', KEYS[1])
return 1
"""

# KEYS: rebuild. ARGV: token, seconds.
GO_ON_REBUILDING = """
if redis.call('GET', KEYS[1]) ~= ARGV[1] then return 0 end
return redis.call('EXPIRE', KEYS[1], ARGV[2])
"""


def _pages_by_deadline() -> Iterator[list[str]]:
    after: tuple[datetime | None, UUID] | None = None
    while True:
        rows = Dispute.objects.filter(due_at__isnull=False).order_by("due_at", "pk")
        if after is not None:
            rows = rows.filter(Q(due_at__gt=after[0]) | Q(due_at=after[0], pk__gt=after[1]))
        page = list(rows.values_list("due_at", "pk")[:SLICE])
        if not page:
            return
        yield [str(pk) for _, pk in page]
        after = page[-1]


def rebuild(*, progress: Callable[[int], None] | None = None) -> int | None:
    """Write the whole timeline anew from Postgres, earliest deadlines first.

    Fenced like every sync, so traffic may go on. Returns how many disputes were looked at;
    None where another process is rebuilding, or where Redis was lost again meanwhile.
    """
    client = timeline_client()
    token, name = timeline.new_token(), keys()
    if not client.set(name.rebuild, token, nx=True, ex=conf().lock_ttl_s):
        if not 0 <= client.ttl(name.rebuild) <= conf().lock_ttl_s:
            client.expire(name.rebuild, conf().lock_ttl_s)
        return None
    # Where a poller has been before, there was a timeline, and it was lost.
    level = logging.WARNING if Heartbeat.objects.exists() else logging.INFO
    log.log(level, "escalation.rebuild_started")
    done = 0
    for ids in _pages_by_deadline():
        failpoint("rebuild.slice")
        sync(ids)
        done += len(ids)
        if progress:
            progress(done)
        if not client.eval(GO_ON_REBUILDING, 1, name.rebuild, token, conf().lock_ttl_s):
            log.warning("escalation.rebuild_disturbed", extra={"disputes": done})
            return None
    if not client.eval(FINISH_REBUILD, 2, name.rebuild, name.epoch, token, LAYOUT):
        return None
    log.log(level, "escalation.rebuilt", extra={"disputes": done})
    return done
