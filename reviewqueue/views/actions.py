"""What the buttons do: one address for each action, a redirect when done, the page when refused.

Promise: a lost race is a 409 that says who and when and keeps what was typed, never a 500.
"""

from contextlib import suppress
from dataclasses import dataclass, replace
from datetime import datetime
from urllib.parse import urlsplit
from uuid import UUID

from django.contrib import messages
from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import redirect, render
from django.urls import Resolver404, resolve, reverse
from django.utils.translation import gettext as _
from django.views.decorators.http import require_http_methods

from disputes.clock import database_now
from disputes.exceptions import (
    AlreadyTaken,
    Busy,
    DisputeError,
    InvalidInput,
    NotPermitted,
    StaleDispute,
    TransitionNotAllowed,
)
from disputes.ladders import tier_facts
from disputes.models import Dispute
from disputes.permissions import may_review, may_see, visible_queues
from reviewqueue.forms import ActionForm
from reviewqueue.views.clocks import exact_words, span_words
from reviewqueue.views.dispute import Refusal, render_dispute
from reviewqueue.views.history import changes_since, tier_seen
from reviewqueue.views.pages import local_path, private
from reviewqueue.views.possible import ACTIONS, Action
from reviewqueue.views.queues import acknowledged_words, render_queue

STATUS_OF = {NotPermitted: 403, InvalidInput: 422}


@dataclass(frozen=True, slots=True)
class _Press:
    """One pressed button: who, what, on which dispute, and when by the database's clock."""

    request: HttpRequest
    action: Action
    dispute_id: UUID
    form: ActionForm
    now: datetime

    @property
    def seen_version(self) -> int:
        """The version that the person saw; 0 where the form did not say."""
        return self.form.cleaned_data.get("seen_version") or 0

    @property
    def came_from(self) -> str:
        """The local page to come back to, or ""."""
        return local_path(self.request.POST.get("next", ""))


@private
@require_http_methods(["GET", "HEAD", "POST"])
def act(request: HttpRequest, dispute_id: UUID, action: str) -> HttpResponse:
    """`/disputes/<uuid>/<action>/`; by GET, as after signing in again, the dispute's page."""
    chosen = ACTIONS.get(action)
    dispute = Dispute.objects.filter(pk=dispute_id).first()
    if chosen is None or dispute is None:
        raise Http404
    if request.method != "POST":
        if not may_see(request.user, dispute):
            raise Http404
        return redirect("dispute", dispute_id)
    form = chosen.form(dispute, chosen.name, request.POST)
    press = _Press(request, chosen, dispute_id, form, database_now())
    form.is_valid()
    if not may_see(request.user, dispute) and not _saw(press):
        raise Http404
    if not form.is_valid():
        return _refused(press, _invalid(press, dispute))
    try:
        after = chosen.perform(dispute_id, actor=request.user, now=press.now, **form.arguments())
    except InvalidInput as error:
        form.refuse(error)
        return _refused(press, error)
    except (TransitionNotAllowed, StaleDispute, NotPermitted, Busy) as error:
        return _refused(press, error)
    _say_done(press, before=dispute, after=after)
    return redirect(_after(press, dispute, after))


def _saw(press: _Press) -> bool:
    """Whether it stood in a queue of the person's at the version they saw."""
    tier_id = tier_seen(press.dispute_id, press.seen_version)
    return tier_id is not None and may_review(press.request.user, tier_facts(tier_id).queue_id)


def _invalid(press: _Press, dispute: Dispute) -> DisputeError:
    """A form may not fit because the dispute moved: then that is what the person is told."""
    if press.seen_version and press.seen_version != dispute.version:
        return StaleDispute("it changed", version=dispute.version)
    hidden = " ".join(map(str, press.form.errors.get("seen_version", ())))
    return InvalidInput(hidden or _("check the form"), field="")


def _say_done(press: _Press, *, before: Dispute, after: Dispute) -> None:
    if press.action.name == "band" and after.version == press.seen_version:
        messages.info(press.request, _("Nothing changed: it is in that band already."))
        return
    messages.success(press.request, _done_words(press, before, after))


def _done_words(press: _Press, before: Dispute, after: Dispute) -> str:
    if press.action.name == "acknowledge":
        seen = tier_seen(after.pk, press.seen_version)
        moved_to = tier_facts(after.tier_id).name if seen != after.tier_id else ""
        return acknowledged_words(after, now=press.now, moved_to=moved_to)
    if press.action.name == "resolve" and after.status == Dispute.Status.PROPOSED:
        return _("Proposed: another person must approve it.")
    if press.action.name == "pause" and before.status == Dispute.Status.PAUSED:
        return _("It stays paused, with the new end.")
    return str(press.action.done)


def _after(press: _Press, before: Dispute, after: Dispute) -> str:
    """Back where they came from, else to the dispute, else to the queue it has left."""
    if press.came_from:
        return press.came_from
    if may_see(press.request.user, after):
        return reverse("dispute", args=[after.pk])
    left = visible_queues(press.request.user).select_related("ladder")
    queue = left.filter(pk=tier_facts(before.tier_id).queue_id).first()
    return reverse("queue", args=[queue.ladder.slug, queue.slug]) if queue else reverse("queues")


def _refused(press: _Press, error: DisputeError) -> HttpResponse:
    """The page the button was on, as it is now, with the reason on top."""
    dispute = Dispute.objects.select_related("holder").get(pk=press.dispute_id)
    status = STATUS_OF.get(type(error), 409)
    changed = changes_since(dispute, seen_version=press.seen_version, now=press.now)
    refusal = Refusal(
        status=status,
        words=_refusal_words(press, error, dispute),
        form=press.form,
        action=press.action.name,
        changes=tuple(changed) if press.seen_version and status != 422 else (),
    )
    is_seen = may_see(press.request.user, dispute)
    if place := _queue_place(press.came_from):
        ladder, queue, params = place
        if visible_queues(press.request.user).filter(ladder__slug=ladder, slug=queue).exists():
            named = replace(
                refusal,
                reference=dispute.reference,
                address=reverse("dispute", args=[dispute.pk]) if is_seen else "",
            )
            # An address with a view or place that nobody gave out is no place to come back to.
            with suppress(Http404):
                return render_queue(press.request, ladder, queue, params=params, refusal=named)
    if is_seen:
        return render_dispute(press.request, dispute, now=press.now, refusal=refusal)
    context = {"words": refusal.words, "kept_text": press.form.typed(), "now": press.now}
    return render(press.request, "reviewqueue/refused.html", context, status=status)


def _queue_place(path: str) -> tuple[str, str, QueryDict] | None:
    """The queue page that a local path leads to, taken apart."""
    parts = urlsplit(path)
    try:
        match = resolve(parts.path)
    except Resolver404:
        return None
    if match.url_name != "queue":
        return None
    return match.kwargs["ladder"], match.kwargs["queue"], QueryDict(parts.query)


def _refusal_words(press: _Press, error: DisputeError, dispute: Dispute) -> str:
    """Who, what, when, and what can be done next."""
    match error:
        case AlreadyTaken():
            since = error.facts["since"]
            return _("%(name)s took this %(ago)s ago, at %(time)s.") % {
                "name": error.facts["holder"],
                "ago": span_words(press.now - since),  # type: ignore[operator]
                "time": exact_words(since),  # type: ignore[arg-type]
            }
        case Busy():
            return _(
                "Others are changing this dispute at this moment. Nothing was saved: try again."
            )
        case InvalidInput():
            return _("Not saved: %(why)s.") % {"why": str(error).rstrip(".")}
        case NotPermitted() if moved := _moved_words(press, dispute):
            return moved
        case StaleDispute():
            return _("Not saved: it changed since you saw it. Check what changed and press again.")
        case _:
            return _("Not saved: %(why)s.") % {"why": str(error).rstrip(".")}


def _moved_words(press: _Press, dispute: Dispute) -> str:
    """Where a dispute went that the person may not act on any more; "" where it did not move."""
    seen = tier_seen(dispute.pk, press.seen_version)
    tier = tier_facts(dispute.tier_id)
    if seen is None or seen == tier.id or may_review(press.request.user, tier.queue_id):
        return ""
    return _("It moved to %(tier)s at %(time)s; you do not review that queue.") % {
        "tier": tier.name,
        "time": exact_words(dispute.tier_entered_at),
    }
