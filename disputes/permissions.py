"""Who may see and do what: one policy for pages, API, commands, admin and transitions.

A person reviews the queues of their groups; `disputes.review` opens every queue. The other
rights are Django permissions of the dispute (docs/api.md lists them).
"""

from collections.abc import Iterable
from typing import TYPE_CHECKING
from uuid import UUID

from django.contrib.auth import get_user_model
from django.contrib.auth.models import AbstractUser, AnonymousUser
from django.db.models import QuerySet

from disputes.exceptions import NotPermitted
from disputes.ladders import tier_facts
from disputes.models import Dispute, Queue

if TYPE_CHECKING:
    User = AbstractUser
else:
    # Whatever model AUTH_USER_MODEL names; the type checker takes Django's own for it.
    User = get_user_model()
Anyone = AbstractUser | AnonymousUser


def has_right(user: Anyone, codename: str) -> bool:
    """Whether an active person holds `disputes.<codename>`; superusers hold them all."""
    return bool(user.is_active) and user.has_perm(f"disputes.{codename}")


def require_right(user: Anyone, codename: str) -> None:
    """Raise NotPermitted, naming the right, where the person lacks it."""
    if not has_right(user, codename):
        raise NotPermitted(f"this needs the right “{codename}”", right=codename)


def reviewed_queue_ids(user: Anyone) -> set[int]:
    """The queues whose disputes the person may act on."""
    if not user.is_active:
        return set()
    queues = Queue.objects.all()
    if not has_right(user, "review"):
        queues = queues.filter(reviewers__user=user.pk)
    return set(queues.values_list("pk", flat=True))


def may_review(user: Anyone, queue_id: int) -> bool:
    """Whether the person may act on disputes that wait in this queue."""
    if not user.is_active:
        return False
    return (
        has_right(user, "review")
        or Queue.objects.filter(pk=queue_id, reviewers__user=user.pk).exists()
    )


def visible_queues(user: Anyone, *, reviewed: set[int] | None = None) -> QuerySet[Queue]:
    """The queues a person sees: those they review, or all with `operate`.

    `reviewed` are the ids of `reviewed_queue_ids`, where the caller has them already.
    """
    if has_right(user, "operate"):
        return Queue.objects.all()
    return Queue.objects.filter(pk__in=reviewed_queue_ids(user) if reviewed is None else reviewed)


def may_see(user: Anyone, dispute: Dispute) -> bool:
    """Whether the person may see the dispute: its queue is visible, or they hold it."""
    if not user.is_active:
        return False
    if dispute.holder_id == user.pk or has_right(user, "operate"):
        return True
    return may_review(user, tier_facts(dispute.tier_id).queue_id)


def active_people(ids: Iterable[int]) -> set[int]:
    """Which of these people are active: only they are told anything."""
    return set(User.objects.filter(pk__in=ids, is_active=True).values_list("pk", flat=True))


def visible_dispute(user: Anyone, dispute_id: UUID) -> Dispute | None:
    """The dispute, or None where there is none or the person may not see it."""
    dispute = Dispute.objects.filter(pk=dispute_id).first()
    if dispute is None or not may_see(user, dispute):
        return None
    return dispute
