"""The overview of all queues, the page of one queue, and Take next."""

from dataclasses import dataclass
from datetime import datetime
from urllib.parse import urlencode

from django.contrib import messages
from django.contrib.auth import get_user_model
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import get_object_or_404, redirect, render
from django.urls import reverse
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_POST, require_safe

from disputes.clock import database_now
from disputes.exceptions import Busy
from disputes.models import Dispute, Queue
from disputes.permissions import may_review, reviewed_queue_ids, visible_queues
from reviewqueue.queues import (
    SORTS,
    VIEWS,
    BadCursor,
    LadderTable,
    QueueCounts,
    next_due,
    overview,
    queue_counts,
    queue_page,
)
from reviewqueue.ready import take_next
from reviewqueue.views.clocks import Clock, external_clock, own_clock, time_words
from reviewqueue.views.dispute import Refusal, if_paused
from reviewqueue.views.pages import private

VIEW_WORDS = {
    "unheld": gettext_lazy("Waiting"),
    "held": gettext_lazy("Held"),
    "paused": gettext_lazy("Paused"),
    "proposed": gettext_lazy("To approve"),
    "all": gettext_lazy("All"),
}
SORT_WORDS = {
    "place": gettext_lazy("Place in the queue"),
    "due": gettext_lazy("Escalates"),
    "external": gettext_lazy("Evidence due"),
    "amount": gettext_lazy("Amount"),
    "age": gettext_lazy("Oldest"),
}
ADMINS_NAMED = 3


@private
@require_safe
def queues_page(request: HttpRequest) -> HttpResponse:
    """`/queues/`: one table for each ladder."""
    now = database_now()
    reviewed = reviewed_queue_ids(request.user)
    tables = overview(visible_queues(request.user, reviewed=reviewed), now=now)
    return render(
        request,
        "reviewqueue/queues.html",
        {
            "now": now,
            "tables": tables,
            "reviews_any": bool(reviewed),
            "admins": [] if tables else _admins(),
            "has_ladders": bool(tables) or Queue.objects.exists(),
            "has_disputes": _has_any(tables) or Dispute.objects.exists(),
        },
    )


def _has_any(tables: list[LadderTable]) -> bool:
    return any(row.counts != QueueCounts() for table in tables for row in table.rows)


def _admins() -> list[str]:
    people = get_user_model().objects.filter(is_superuser=True, is_active=True)
    return [person.get_username() for person in people.order_by("username")[:ADMINS_NAMED]]


@dataclass(frozen=True, slots=True)
class Row:
    """One line of a queue: the dispute and both its clocks."""

    dispute: Dispute
    own: Clock
    external: Clock


@dataclass(frozen=True, slots=True)
class Link:
    """A way to show the same queue otherwise."""

    words: str
    address: str
    is_current: bool
    count: int | None = None


@private
@require_safe
def queue_view(request: HttpRequest, ladder: str, queue: str) -> HttpResponse:
    """`/queues/<ladder>/<queue>/?view=&sort=&after=`"""
    return render_queue(request, ladder, queue, params=request.GET)


def render_queue(
    request: HttpRequest,
    ladder: str,
    slug: str,
    *,
    params: QueryDict,
    refusal: Refusal | None = None,
) -> HttpResponse:
    """The page of a queue, or the same page with a refusal on top."""
    queue = _queue(ladder, slug)
    reviews = may_review(request.user, queue.pk)
    if not reviews and not visible_queues(request.user).filter(pk=queue.pk).exists():
        return _not_yours(request, queue)
    now = database_now()
    view, sort = params.get("view", "unheld"), params.get("sort", "place")
    if view not in VIEWS or sort not in SORTS:
        raise Http404
    try:
        page = queue_page(queue, view=view, sort=sort, after=params.get("after", ""))
    except BadCursor:
        raise Http404 from None
    counts = queue_counts([queue.pk], now=now)[queue.pk]
    here = reverse("queue", args=[ladder, slug])
    context = {
        "now": now,
        "queue": queue,
        "counts": counts,
        "rows": [_row(dispute, request.user.pk, now) for dispute in page.rows],
        "view": view,
        "sort": sort,
        "views": _view_links(here, view=view, sort=sort, counts=counts),
        "sorts": _sort_links(here, view=view, sort=sort),
        "is_later_page": bool(params.get("after")),
        "first": _address(here, view=view, sort=sort),
        "older": _address(here, view=view, sort=sort, after=page.after) if page.after else "",
        "came_from": f"{here}?{params.urlencode()}" if params else here,
        "reviews": reviews,
        "paused_ladder": if_paused(queue.ladder, now),
        "next_due": next_due(queue) if not page.rows and view == "unheld" else None,
        "refusal": refusal,
    }
    return render(
        request, "reviewqueue/queue.html", context, status=refusal.status if refusal else 200
    )


def _row(dispute: Dispute, viewer_id: int | None, now: datetime) -> Row:
    return Row(
        dispute,
        own_clock(dispute, viewer_id=viewer_id, now=now),
        external_clock(dispute, now=now),
    )


def _queue(ladder: str, slug: str) -> Queue:
    return get_object_or_404(Queue.objects.select_related("ladder"), ladder__slug=ladder, slug=slug)


def _not_yours(request: HttpRequest, queue: Queue) -> HttpResponse:
    groups = list(queue.reviewers.order_by("name").values_list("name", flat=True))
    words = _("You do not review %(queue)s.") % {"queue": queue}
    if groups:
        words += " " + _("It is open to the group %(groups)s.") % {"groups": ", ".join(groups)}
    context = {"words": words, "admins": _admins(), "now": database_now()}
    return render(request, "reviewqueue/refused.html", context, status=403)


def _address(here: str, **params: str) -> str:
    """The page with these parameters; the defaults are left out."""
    defaults = {"view": "unheld", "sort": "place"}
    told = {name: value for name, value in params.items() if value != defaults.get(name)}
    return f"{here}?{urlencode(told)}" if told else here


def _view_links(here: str, *, view: str, sort: str, counts: QueueCounts) -> list[Link]:
    numbers = {
        "unheld": counts.waiting,
        "held": counts.held,
        "paused": counts.paused,
        "proposed": counts.proposed,
        "all": counts.waiting + counts.held + counts.paused + counts.proposed,
    }
    return [
        Link(str(words), _address(here, view=name, sort=sort), name == view, numbers[name])
        for name, words in VIEW_WORDS.items()
    ]


def _sort_links(here: str, *, view: str, sort: str) -> list[Link]:
    return [
        Link(str(words), _address(here, view=view, sort=name), name == sort)
        for name, words in SORT_WORDS.items()
    ]


@private
@require_POST
def take_next_anywhere(request: HttpRequest) -> HttpResponse:
    """`/take-next/`: the next dispute over all queues the person reviews."""
    return _taken(request, None)


@private
@require_POST
def take_next_here(request: HttpRequest, ladder: str, queue: str) -> HttpResponse:
    """`/queues/<ladder>/<queue>/take-next/`"""
    found = _queue(ladder, queue)
    if not may_review(request.user, found.pk):
        return _not_yours(request, found)
    return _taken(request, found)


def _taken(request: HttpRequest, queue: Queue | None) -> HttpResponse:
    now = database_now()
    back = reverse("queue", args=[queue.ladder.slug, queue.slug]) if queue else reverse("queues")
    try:
        dispute = take_next(
            request.user,  # type: ignore[arg-type] # signed in: `private` saw to it
            queue_ids=[queue.pk] if queue else None,
            now=now,
        )
    except Busy:
        messages.warning(request, _("Others are taking the last ones at this moment. Try again."))
        return redirect(back)
    if dispute is None:
        where = _("in %(queue)s") % {"queue": queue.name} if queue else _("in your queues")
        messages.info(request, _("Nothing is waiting %(where)s.") % {"where": where})
        return redirect(back)
    messages.success(request, acknowledged_words(dispute, now=now))
    return redirect("dispute", dispute.pk)


def acknowledged_words(dispute: Dispute, *, now: datetime, moved_to: str = "") -> str:
    """What a person is told after acknowledging; `moved_to` names the tier it had moved to."""
    if dispute.due_at is None:
        words = _("Acknowledged %(reference)s: it is yours.") % {"reference": dispute.reference}
    else:
        words = _("Acknowledged %(reference)s: yours until %(time)s.") % {
            "reference": dispute.reference,
            "time": time_words(dispute.due_at, now=now),
        }
    if moved_to:
        words += " " + _("It had just moved to %(tier)s.") % {"tier": moved_to}
    return words
