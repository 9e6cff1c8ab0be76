"""Which destinations rest after trouble and which are switched off; a destination is a channel.

Promise: a destination in trouble costs one attempt per rest, and rests grow from five seconds to
five minutes; one that said "gone" gets nothing until an operator switches it on again.
"""

import logging
from collections.abc import Iterable
from datetime import datetime, timedelta

from disputes.transitions.attempts import in_passing
from escalation import webhooks
from escalation.models import Destination

log = logging.getLogger(__name__)

FIRST_REST_S = 5.0
LONGEST_REST_S = 300.0
# From so many failures in a row on, operators are told.
NOTABLE_FAILURES = 3


def state_of(name: str) -> Destination:
    """What is known of the destination; a healthy one has no row."""
    return Destination.objects.filter(pk=name).first() or Destination(name=name)


def note_trouble(
    name: str, *, error: str, asked_to_wait_s: float | None, now: datetime
) -> datetime:
    """One more failure in a row: rest until the returned instant."""

    def noted() -> datetime:
        row, _ = Destination.objects.select_for_update().get_or_create(name=name)
        row.failures += 1
        row.failing_since = row.failing_since or now
        rest_s = min(FIRST_REST_S * 2 ** min(row.failures - 1, 10), LONGEST_REST_S)
        rest_s = max(rest_s, asked_to_wait_s or 0.0)
        rests_until = max(row.rests_until or now, now + timedelta(seconds=rest_s))
        row.rests_until, row.reason = rests_until, error[:500]
        row.save()
        return rests_until

    rests_until = in_passing(noted, otherwise=now)
    log.warning(
        "notification.destination_rests", extra={"channel": name, "until": rests_until.isoformat()}
    )
    return rests_until


def note_success(name: str) -> None:
    """It works: what was held against it is forgotten, except that it was switched off."""
    bad = Destination.objects.filter(pk=name, failures__gt=0)
    if bad.exists():
        in_passing(
            lambda: bad.update(failures=0, failing_since=None, rests_until=None, reason=""),
            otherwise=0,
        )


def switch_off(name: str, *, reason: str, now: datetime) -> None:
    """Nothing more goes there until somebody switches it on."""
    defaults = {"disabled_at": now, "reason": reason[:500]}
    in_passing(
        lambda: Destination.objects.update_or_create(name=name, defaults=defaults), otherwise=None
    )
    log.error("notification.destination_disabled", extra={"channel": name, "reason": reason[:200]})


def switch_on(names: Iterable[str]) -> int:
    """Send there again; what failed meanwhile comes back with `replay_notifications`."""
    return Destination.objects.filter(pk__in=list(names)).update(
        disabled_at=None, failures=0, failing_since=None, rests_until=None, reason=""
    )


def troubles() -> list[str]:
    """In words for operators: what is switched off and what fails again and again.

    An endpoint that was taken out of the settings is neither: what is for it fails and says so.
    """
    found = []
    for row in Destination.objects.order_by("name"):
        if webhooks.is_unknown(row.name):
            continue
        if row.disabled_at:
            found.append(
                f"{row.name} is switched off ({row.reason}): switch it on in the administration"
            )
        elif row.failures >= NOTABLE_FAILURES and row.failing_since:
            found.append(
                f"{row.name} has been failing since {row.failing_since:%Y-%m-%d %H:%M} UTC: "
                f"its messages wait"
            )
    return found
