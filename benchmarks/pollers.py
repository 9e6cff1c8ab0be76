"""Many pollers and workers at once on one backlog: nothing twice, nothing early.

python -m benchmarks.pollers [--disputes 2000] [--pollers 10] [--workers 2]
"""

import argparse
import time
from datetime import timedelta

from benchmarks.drain import wait_for
from benchmarks.stage import make_ladder, open_many, processes, stage


def main() -> None:
    """Measure and print; exit 1 where a promotion was doubled or early."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--disputes", type=int, default=2_000)
    parser.add_argument("--pollers", type=int, default=10)
    parser.add_argument("--workers", type=int, default=2)
    options = parser.parse_args()
    with stage():
        make_ladder()
        run(options)


def run(options: argparse.Namespace) -> None:
    """One backlog, all processes at once."""
    from django.db.models import Count, F

    from disputes.clock import database_now
    from disputes.models import AuditEntry

    due = database_now() + timedelta(seconds=10)
    open_many(options.disputes, due_at=[due] * options.disputes)
    promoted = AuditEntry.objects.filter(action="promoted")
    commands = [("run_poller",)] * options.pollers + [("rqworker", "escalations")] * options.workers
    with processes(*commands):
        wait_for(lambda: promoted.count() >= options.disputes)
        time.sleep(5)
    doubled = promoted.values("dispute").annotate(times=Count("pk")).filter(times__gt=1).count()
    early = promoted.filter(recorded_at__lt=F("from_due_at")).count()
    print(
        f"{options.pollers} pollers, {options.workers} workers: {promoted.count()} promoted, "
        f"{doubled} doubled, {early} early"
    )
    if doubled or early:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
