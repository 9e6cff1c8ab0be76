"""What a person has in hand: held, proposed, to approve, done lately."""

from collections.abc import Iterable
from datetime import datetime

from django.http import HttpRequest, HttpResponse
from django.shortcuts import render
from django.views.decorators.http import require_safe

from disputes.clock import database_now
from disputes.ladders import tier_facts
from disputes.models import Dispute
from disputes.permissions import has_right, reviewed_queue_ids
from reviewqueue.queues import (
    held_by,
    proposed_by,
    recent_entries_of,
    waiting_for_approval_of,
)
from reviewqueue.views.clocks import external_clock, kept_clock, own_clock
from reviewqueue.views.pages import private


@private
@require_safe
def my_page(request: HttpRequest) -> HttpResponse:
    """`/me/`"""
    now = database_now()
    viewer_id = request.user.pk
    reviewed = reviewed_queue_ids(request.user)
    sees_all = has_right(request.user, "operate")
    context = {
        "now": now,
        "held": _rows(held_by(request.user), viewer_id, now),
        "proposed": _rows(proposed_by(request.user), viewer_id, now),
        "to_approve": _rows(waiting_for_approval_of(request.user), viewer_id, now),
        "recent": [
            (entry, sees_all or _is_seen(entry.dispute, viewer_id, reviewed))
            for entry in recent_entries_of(request.user, now=now)
        ],
        "reviews_any": bool(reviewed),
    }
    return render(request, "reviewqueue/me.html", context)


def _is_seen(dispute: Dispute, viewer_id: int | None, queue_ids: set[int]) -> bool:
    """Whether the person still sees a dispute they worked on: only then it gets a link."""
    return dispute.holder_id == viewer_id or tier_facts(dispute.tier_id).queue_id in queue_ids


def _rows(
    disputes: Iterable[Dispute], viewer_id: int | None, now: datetime
) -> list[dict[str, object]]:
    return [
        {
            "dispute": dispute,
            "own": own_clock(dispute, viewer_id=viewer_id, now=now),
            "external": external_clock(dispute, now=now),
            "kept": kept_clock(dispute, now=now),
        }
        for dispute in disputes
    ]
