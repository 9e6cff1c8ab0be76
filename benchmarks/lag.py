"""How long after its deadline a dispute moves, at a steady rate, through poller and RQ workers.

    python -m benchmarks.lag [--rate 200] [--seconds 20] [--pollers 1] [--workers 1]

Prints the lag of each promotion's commit (the log's own clock_timestamp()) and how many were
early or doubled: both must be 0.
"""

import argparse
import time
from datetime import timedelta

from benchmarks.stage import make_ladder, open_many, processes, stage

WARM_UP = timedelta(seconds=12)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rate", type=int, default=200, help="deadlines a second")
    parser.add_argument("--seconds", type=int, default=20)
    parser.add_argument("--pollers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1)
    options = parser.parse_args()
    with stage():
        make_ladder()
        lags = measure(options)
        number = options.rate * options.seconds
        ranked = sorted(lags)
        print(f"{len(lags)} of {number} promoted, {sum(lag < 0 for lag in lags)} early")
        for share in (0.5, 0.95, 0.99, 1):
            lag_ms = ranked[min(int(share * len(ranked)), len(ranked) - 1)]
            print(f"p{share * 100:<3.0f} {lag_ms:9.1f} ms after the deadline")


def measure(options: argparse.Namespace) -> list[float]:
    """The lag of each promotion in milliseconds."""
    from django.db.models import Count

    from disputes.clock import database_now
    from disputes.models import AuditEntry

    number = options.rate * options.seconds
    start = database_now() + WARM_UP
    due_at = [start + n * timedelta(seconds=1) / options.rate for n in range(number)]
    commands = [("run_poller",)] * options.pollers + [("rqworker", "escalations")] * options.workers
    with processes(*commands):
        open_many(number, due_at=due_at)
        if database_now() > start:
            raise SystemExit("the disputes were not open before the first deadline")
        time.sleep(WARM_UP.total_seconds() + options.seconds + 5)
    promoted = AuditEntry.objects.filter(action="promoted")
    doubled = promoted.values("dispute").annotate(times=Count("pk")).filter(times__gt=1).count()
    print(f"{doubled} doubled")
    return [
        (recorded - due).total_seconds() * 1_000
        for recorded, due in promoted.values_list("recorded_at", "from_due_at")
    ]


if __name__ == "__main__":
    main()
