"""How fast a backlog drains: through RQ and in process, against the first article's own loop.

    python -m benchmarks.drain [--disputes 20000] [--article 1500] [--profile]

The article's loop is written anew with the same database work an item, on the same tables: a
guarded UPDATE, an audit row and an outbox row, committed one by one; its sleeps are left out.
"""

import argparse
import cProfile
import pstats
import secrets
import time
from datetime import UTC, datetime, timedelta

from redis import Redis

from benchmarks.stage import make_ladder, open_many, processes, stage


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disputes", type=int, default=20_000)
    parser.add_argument("--article", type=int, default=1_500)
    parser.add_argument("--workers", type=int, default=1)
    parser.add_argument("--profile", action="store_true", help="profile the drain in process")
    options = parser.parse_args()
    with stage():
        make_ladder()
        article = article_loop(options.article)
        print(f"the article's loop             {article:10,.0f} disputes/s")
        direct = in_process(options.disputes, profile=options.profile)
        print(f"drain in process               {direct:10,.0f} disputes/s")
        through = through_rq(options.disputes, workers=options.workers)
        print(f"whole drain through RQ, {options.workers} worker(s) {through:8,.0f} disputes/s")
        print(f"ratio to the article's loop    {through / article:10.1f} x")


def backlog(number: int) -> None:
    """Disputes that were due a second ago."""
    from disputes.clock import database_now

    due = database_now() - timedelta(seconds=1)
    open_many(number, due_at=[due] * number)


def in_process(number: int, *, profile: bool) -> float:
    """Disputes a second of `drain` called here."""
    from escalation.drain import drain

    backlog(number)
    profiler = cProfile.Profile()
    started = time.perf_counter()
    if profile:
        profiler.enable()
    counts = drain(budget_s=300, linger_s=0)
    profiler.disable()
    seconds = time.perf_counter() - started
    assert counts["PROMOTED_TO_SENIOR"] == number, counts
    if profile:
        pstats.Stats(profiler).sort_stats("cumulative").print_stats(45)
    return number / seconds


def through_rq(number: int, *, workers: int) -> float:
    """Disputes a second from the first promotion to the last, by real workers."""
    from django.db.models import Max, Min

    from disputes.clock import database_now
    from disputes.models import AuditEntry
    from disputes.rules import microseconds
    from escalation import timeline
    from escalation.doorbell import ring

    before = AuditEntry.objects.filter(action="promoted").count()
    backlog(number)
    last_id = AuditEntry.objects.aggregate(Max("pk"))["pk__max"]
    with processes(*[("rqworker", "escalations")] * workers):
        time.sleep(4)
        ring("escalations", wanted=workers)
        # Asked of Redis: counting rows again and again would take the drain's own time.
        wait_for(lambda: timeline.due_count(now_us=microseconds(database_now())) == 0)
        time.sleep(1)
    assert AuditEntry.objects.filter(action="promoted").count() == before + number
    span = AuditEntry.objects.filter(action="promoted", pk__gt=last_id).aggregate(
        first=Min("at"), last=Max("recorded_at")
    )
    return number / (span["last"] - span["first"]).total_seconds()


def wait_for(condition: object, *, limit_s: float = 300) -> None:
    """Until `condition()` is true."""
    until = time.monotonic() + limit_s
    while not condition():  # type: ignore[operator]
        if time.monotonic() > until:
            raise SystemExit("the benchmark never finished")
        time.sleep(0.2)


def article_loop(number: int) -> float:
    """Disputes a second of the first article's design: read due, lock, promote one by one.

    On the product's own tables, with the writes that a promotion needs there.
    """
    from disputes.models import Dispute
    from escalation.redis_client import timeline_client

    open_many(number, due_at=[database_in_a_day()] * number)
    client = timeline_client()
    ids = [str(pk) for pk in Dispute.objects.values_list("pk", flat=True)]
    pipe = client.pipeline()
    for id_ in ids:
        pipe.hset(f"article:payload:{id_}", mapping={"tier": "standard", "source_hash": "a" * 64})
        pipe.zadd("article:pending", {id_: time.time() - 1})
    pipe.execute()
    started = time.perf_counter()
    while due := client.zrangebyscore("article:pending", 0, time.time(), start=0, num=50):
        for id_ in due:
            article_promotion(id_, client=client)
    return number / (time.perf_counter() - started)


def database_in_a_day() -> datetime:
    """An instant of which our own clock takes no notice."""
    from disputes.clock import database_now

    return database_now() + timedelta(days=1)


def article_promotion(id_: str, *, client: Redis) -> None:
    """One promotion in the article's order: lock, read, write, re-score, compare and unlock."""
    from django.db import transaction

    from disputes.models import AuditEntry, Dispute, Notification

    if not client.set(f"article:lock:{id_}", "worker", nx=True, ex=30):
        return
    payload = client.hgetall(f"article:payload:{id_}")
    dispute = Dispute.objects.get(pk=id_)
    now, digest = datetime.now(UTC), secrets.token_hex(32)
    due_at = now + timedelta(hours=1)
    with transaction.atomic():
        Dispute.objects.filter(pk=id_, version=dispute.version).update(
            due_at=due_at, version=dispute.version + 1, audit_head=digest, changed_at=now
        )
        AuditEntry.objects.create(
            dispute_id=id_,
            version=dispute.version + 1,
            action="escalated",
            actor_label="article",
            at=now,
            from_status="open",
            to_status="open",
            from_tier_id=dispute.tier_id,
            to_tier_id=dispute.tier_id,
            from_due_at=dispute.due_at,
            to_due_at=due_at,
            trace_id=id_,
            source_hash=payload["source_hash"],
            changes={"due_at": [dispute.due_at.isoformat(), due_at.isoformat()]},
            prev_hash=dispute.audit_head,
            hash=digest,
        )
        Notification.objects.create(
            dispute_id=id_,
            version=dispute.version + 1,
            event="arrived",
            tier_id=dispute.tier_id,
            channel="log",
            recipient="queue:1",
            created_at=now,
            not_before=now,
            idempotency_key=digest,
        )
    client.hset(f"article:payload:{id_}", "tier", "senior")
    client.zadd("article:pending", {id_: time.time() + 3600})
    if client.get(f"article:lock:{id_}") == "worker":
        client.delete(f"article:lock:{id_}")


if __name__ == "__main__":
    main()
