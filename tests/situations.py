"""Situations that tests start from, built through the product's own functions."""

from datetime import UTC, datetime, timedelta
from decimal import Decimal
from itertools import count

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group, Permission

from disputes.ladders import PresetTier, create_ladder
from disputes.models import Dispute, Ladder, Queue
from disputes.transitions.journal import Actor
from disputes.transitions.opening import NewDispute, open_dispute

NOON = datetime(2026, 6, 26, 12, tzinfo=UTC)
HOUR = timedelta(hours=1)
MINUTE = timedelta(minutes=1)
SYSTEM = Actor(None, "test")

_numbers = count(1)


def default_ladder(*, slug: str = "default", sla: timedelta = 2 * HOUR, **changes) -> Ladder:
    """standard, senior, compliance: spans of two hours, holds of thirty minutes."""
    tiers = [
        PresetTier(slug=name, name=name.capitalize(), sla=sla, hold_limit=30 * MINUTE)
        for name in ("standard", "senior", "compliance")
    ]
    ladder = create_ladder(slug, name=slug, tiers=tiers, now=NOON, **changes)
    assert ladder is not None
    return ladder


def person(name: str, *queues: str, rights: tuple[str, ...] = (), ladder: str = "default"):
    """An active user who reviews the named queues and holds the named rights."""
    user = get_user_model().objects.create_user(name, f"{name}@example.com", "pw")
    for slug in queues:
        queue = Queue.objects.get(ladder__slug=ladder, slug=slug)
        group, _ = Group.objects.get_or_create(name=f"{ladder}-{slug}")
        queue.reviewers.add(group)
        user.groups.add(group)
    user.user_permissions.add(
        *Permission.objects.filter(codename__in=rights, content_type__app_label="disputes")
    )
    return get_user_model().objects.get(pk=user.pk)


def new(**facts) -> NewDispute:
    """Facts of a dispute with a reference of its own."""
    return NewDispute(
        **{
            "source": "test",
            "reference": f"ref-{next(_numbers)}",
            "source_hash": "a" * 64,
            "kind": "chargeback",
            "amount": Decimal("129.00"),
            "currency": "USD",
        }
        | facts
    )


def opened(*, now: datetime = NOON, notify: bool = True, **facts) -> Dispute:
    """A dispute in its first tier, open since `now`."""
    return Dispute.objects.get(
        pk=open_dispute(new(**facts), actor=SYSTEM, now=now, notify=notify).id
    )


def again(dispute: Dispute) -> Dispute:
    """The dispute as it is now."""
    return Dispute.objects.get(pk=dispute.pk)
