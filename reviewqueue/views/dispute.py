"""The page of one dispute: both clocks, facts, what can be done and why not, history."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from uuid import UUID

from django.http import Http404, HttpRequest, HttpResponse, QueryDict
from django.shortcuts import render
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy
from django.views.decorators.http import require_safe

from disputes.clock import database_now
from disputes.ladders import revision_tiers, tier_facts
from disputes.models import Dispute, Ladder, Queue
from disputes.permissions import may_see
from reviewqueue.forms import ActionForm
from reviewqueue.views.clocks import external_clock, kept_clock, own_clock, why
from reviewqueue.views.history import Event, changes_since, read_history
from reviewqueue.views.kept import take_kept
from reviewqueue.views.pages import private
from reviewqueue.views.possible import ACTIONS, Action, Viewer

FLAGS = {
    "late_on_arrival": gettext_lazy("its deadline had already passed when it was set"),
    "external_deadline_past": gettext_lazy("its evidence deadline had already passed"),
}


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why an action was not done: the words, the status, and what was typed meanwhile."""

    status: int
    words: str
    form: ActionForm | None = None
    action: str = ""
    changes: tuple[Event, ...] = ()
    # What it is about, where the page shows many; the address only where the person may go.
    reference: str = ""
    address: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """One action on the page: its form where it can be done, else the reason why not."""

    action: Action
    form: ActionForm | None
    why_not: str
    hint: str = ""
    is_open: bool = False

    @property
    def is_simple(self) -> bool:
        """Whether one button is the whole form."""
        return self.form is not None and not self.form.visible_fields()


@private
@require_safe
def dispute_page(request: HttpRequest, dispute_id: UUID) -> HttpResponse:
    """`/disputes/<uuid>/`; `?before=` pages the history."""
    dispute = _found(dispute_id)
    if not may_see(request.user, dispute):
        raise Http404
    now = database_now()
    return render_dispute(request, dispute, now=now, refusal=_of_kept(request, dispute, now))


def _of_kept(request: HttpRequest, dispute: Dispute, now: datetime) -> Refusal | None:
    """What was pressed while signed out, as a refusal: nothing was done, all typed is there."""
    kept = take_kept(request, dispute.pk) if request.method == "GET" else None
    if kept is None or kept[0] not in ACTIONS:
        return None
    name, fields = kept
    form = ACTIONS[name].form(dispute, name, fields)
    form.is_valid()
    seen_version = form.cleaned_data.get("seen_version")
    return Refusal(
        status=200,
        words=_("Your session had ended, so nothing was done. Check and press again."),
        form=form,
        action=name,
        changes=tuple(changes_since(dispute, seen_version=seen_version, now=now))
        if seen_version
        else (),
    )


def _found(dispute_id: UUID) -> Dispute:
    dispute = Dispute.objects.select_related("holder").filter(pk=dispute_id).first()
    if dispute is None:
        raise Http404
    return dispute


def render_dispute(
    request: HttpRequest, dispute: Dispute, *, now: datetime, refusal: Refusal | None = None
) -> HttpResponse:
    """The page, or the same page with a refusal on top and the person's text kept."""
    tier = tier_facts(dispute.tier_id)
    queue = Queue.objects.select_related("ladder").get(pk=tier.queue_id)
    viewer = Viewer.of(request.user, dispute)
    offers = [_offer(action, dispute, viewer, refusal) for action in ACTIONS.values()]
    shown_form = any(offer.is_open for offer in offers)
    context = {
        "now": now,
        "dispute": dispute,
        "tier": tier,
        "tiers": revision_tiers(tier.revision_id),
        "queue": queue,
        "reviews_queue": viewer.reviews_queue,
        "paused_ladder": if_paused(queue.ladder, now),
        "own": own_clock(dispute, viewer_id=request.user.pk, now=now),
        "external": external_clock(dispute, now=now),
        "kept": kept_clock(dispute, now=now),
        "why_due": why(dispute.due_explanation, now=now),
        "why_kept": why(dispute.restore_explanation, now=now),
        "flags": [FLAGS.get(flag, flag) for flag in dispute.flags],
        "offers": [offer for offer in offers if not offer.why_not],
        "unavailable": _by_reason(offers),
        "history": read_history(dispute, before=_before(request), now=now),
        "refusal": refusal,
        "kept_text": refusal.form.typed() if refusal and refusal.form and not shown_form else [],
    }
    return render(
        request, "reviewqueue/dispute.html", context, status=refusal.status if refusal else 200
    )


def _by_reason(offers: Sequence[Offer]) -> dict[str, list[Offer]]:
    """What cannot be done now, gathered under the reason why not."""
    reasons: dict[str, list[Offer]] = {}
    for offer in offers:
        if offer.why_not:
            reasons.setdefault(offer.why_not, []).append(offer)
    return reasons


def _offer(action: Action, dispute: Dispute, viewer: Viewer, refusal: Refusal | None) -> Offer:
    why_not = action.why_not(dispute, viewer)
    if why_not:
        return Offer(action, None, why_not)
    hint = action.hint_for(dispute)
    if refusal and refusal.action == action.name and refusal.form is not None:
        return Offer(action, refused_form(refusal.form, action, dispute), "", hint, is_open=True)
    form = action.form(dispute, action.name)
    return Offer(action, form, form.nothing_to_choose(), hint)


def refused_form(form: ActionForm, action: Action, dispute: Dispute) -> ActionForm:
    """The same form with what was typed and its errors, for the version shown now.

    Pressing it again is a new decision, made with the present state in view.
    """
    data = QueryDict(mutable=True)
    data.update(form.data)
    data["seen_version"] = str(dispute.version)
    again = action.form(dispute, action.name, data)
    again.full_clean()
    for field, messages in form.errors.items():
        for message in messages:
            if message not in again.errors.get(field, ()) and field != "seen_version":
                again.add_error(field if field in again.fields else None, message)
    return again


def _before(request: HttpRequest) -> int | None:
    text = request.GET.get("before", "")
    return int(text) if text.isascii() and text.isdigit() and len(text) < 10 else None


def if_paused(ladder: Ladder, now: datetime) -> Ladder | None:
    """The ladder, where its clock stands still now."""
    if ladder.paused_at is None or ladder.paused_at > now:
        return None
    return ladder if ladder.paused_until is None or ladder.paused_until > now else None
