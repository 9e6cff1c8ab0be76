"""What a person may do with a dispute now, and in words why not; the transitions decide anew."""

from collections.abc import Callable
from dataclasses import dataclass

from django.utils.functional import Promise
from django.utils.translation import gettext as _
from django.utils.translation import gettext_lazy

from disputes.ladders import TierFacts, tier_facts
from disputes.models import Dispute
from disputes.permissions import Anyone, has_right, may_review
from disputes.transitions import moving, resolving, reviewing
from reviewqueue.forms import (
    ActionForm,
    AssignForm,
    BandForm,
    LadderForm,
    MoveForm,
    OptionalReasonForm,
    PauseForm,
    ReasonForm,
    ResolveForm,
    SendBackForm,
)

Status = Dispute.Status
MOVABLE = moving.MOVABLE


@dataclass(frozen=True, slots=True)
class Viewer:
    """The person and the rights that the actions ask about, read once a request."""

    user: Anyone
    reviews_queue: bool
    overrides: bool
    assigns: bool
    approves: bool
    reopens: bool

    @classmethod
    def of(cls, user: Anyone, dispute: Dispute) -> "Viewer":
        """What this person may do with this dispute."""
        return cls(
            user=user,
            reviews_queue=may_review(user, tier_facts(dispute.tier_id).queue_id),
            overrides=has_right(user, "override_hold"),
            assigns=has_right(user, "assign"),
            approves=has_right(user, "approve"),
            reopens=has_right(user, "reopen"),
        )


@dataclass(frozen=True, slots=True)
class Action:
    """One action: its address, its words, its form and the transition it calls."""

    name: str
    label: Promise
    done: Promise
    form: type[ActionForm]
    perform: Callable[..., Dispute]
    statuses: tuple[Status, ...]
    key: str = ""
    hint: Promise | str = ""

    def why_not(self, dispute: Dispute, viewer: Viewer) -> str:
        """Why the person cannot do this now; "" where they can."""
        if dispute.status not in self.statuses:
            return _wrong_status(self.name, dispute, viewer)
        return _RIGHTS[self.name](dispute, viewer, tier_facts(dispute.tier_id))

    def hint_for(self, dispute: Dispute) -> str:
        """What the action does besides its name, to this dispute."""
        match self.name:
            case "acknowledge" if dispute.exhausted_at is not None:
                return _("It is at the top of its ladder; acknowledging makes it yours.")
            case "pause" if dispute.status == Status.PAUSED:
                return _("It is paused already: this sets a new end.")
        return str(self.hint)


def _wrong_status(name: str, dispute: Dispute, viewer: Viewer) -> str:
    """Why the status forbids it: what the action would need, else what the status is."""
    match name:
        case "approve" | "return":
            return _("Nothing waits for approval.")
        case "resume":
            return _("It is not paused.")
        case "reopen":
            return _("It is not resolved.")
        case "release" | "extend":
            return _("Nobody holds it.")
        case "resolve" if dispute.status == Status.OPEN:
            return _("Acknowledge it first.")
    match dispute.status:
        case Status.ACKNOWLEDGED if dispute.holder_id == viewer.user.pk:
            return _("You hold it.")
        case Status.ACKNOWLEDGED:
            return _held_by(dispute)
        case Status.PAUSED:
            return _("It is paused: resume it first.")
        case Status.PROPOSED:
            return _("Its outcome waits for approval.")
        case _:
            return _("It is resolved.")


def _held_by(dispute: Dispute) -> str:
    assert dispute.holder is not None  # noqa: S101 (acknowledged disputes have a holder)
    return _("%(name)s holds it.") % {"name": dispute.holder.get_username()}


def _handles(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if dispute.holder_id is not None:
        if dispute.holder_id == viewer.user.pk or viewer.overrides:
            return ""
        return _held_by(dispute)
    return _reviews(dispute, viewer, tier)


def _reviews(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    return "" if viewer.reviews_queue else _("You do not review %(tier)s.") % {"tier": tier.name}


def _extends(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if tier.hold_limit is None:
        return _("Holds in this tier have no end.")
    return _handles(dispute, viewer, tier)


def _climbs(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if tier.is_last:
        return _("It is at the top of its ladder.")
    return _handles(dispute, viewer, tier)


def _goes_down(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if tier.position == 1:
        return _("It is at the bottom of its ladder.")
    return _handles(dispute, viewer, tier)


def _assigns(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if not viewer.assigns:
        return _needs("assign")
    return _handles(dispute, viewer, tier) if dispute.holder_id is not None else ""


def _decides(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    if dispute.proposed_by_id == viewer.user.pk:
        return _("You proposed this; another person must decide.")
    return "" if viewer.approves else _needs("approve")


def _reopens(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    return "" if viewer.reopens else _needs("reopen")


def _changes_ladder(dispute: Dispute, viewer: Viewer, tier: TierFacts) -> str:
    return _handles(dispute, viewer, tier) if viewer.assigns else _needs("assign")


def _needs(right: str) -> str:
    return _("This needs the right “%(right)s”.") % {"right": right}


_RIGHTS: dict[str, Callable[[Dispute, Viewer, TierFacts], str]] = {
    "acknowledge": _reviews,
    "resolve": _handles,
    "release": _handles,
    "extend": _extends,
    "escalate": _climbs,
    "send-back": _goes_down,
    "pause": _handles,
    "resume": _handles,
    "assign": _assigns,
    "approve": _decides,
    "return": _decides,
    "reopen": _reopens,
    "band": _handles,
    "ladder": _changes_ladder,
}

ACTIONS = {
    action.name: action
    for action in (
        Action(
            "acknowledge",
            gettext_lazy("Acknowledge"),
            gettext_lazy("Acknowledged."),
            ActionForm,
            reviewing.acknowledge,
            (Status.OPEN,),
            key="a",
            hint=gettext_lazy("It stops escalating while you hold it."),
        ),
        Action(
            "approve",
            gettext_lazy("Approve"),
            gettext_lazy("Approved."),
            OptionalReasonForm,
            resolving.approve,
            (Status.PROPOSED,),
        ),
        Action(
            "return",
            gettext_lazy("Return"),
            gettext_lazy("Returned to its tier; the proposer is told."),
            ReasonForm,
            resolving.return_proposal,
            (Status.PROPOSED,),
        ),
        Action(
            "resolve",
            gettext_lazy("Resolve"),
            gettext_lazy("Resolved."),
            ResolveForm,
            resolving.resolve,
            (Status.ACKNOWLEDGED,),
            key="r",
        ),
        Action(
            "release",
            gettext_lazy("Release"),
            gettext_lazy("Released: it is open again with its own deadline."),
            OptionalReasonForm,
            reviewing.release,
            (Status.ACKNOWLEDGED,),
        ),
        Action(
            "extend",
            gettext_lazy("Extend the hold"),
            gettext_lazy("Hold extended."),
            ActionForm,
            reviewing.extend_hold,
            (Status.ACKNOWLEDGED,),
            hint=gettext_lazy("The full hold of this tier again, from now."),
        ),
        Action(
            "resume",
            gettext_lazy("Resume"),
            gettext_lazy("Resumed: its clock runs again."),
            ReasonForm,
            moving.resume,
            (Status.PAUSED,),
        ),
        Action(
            "escalate",
            gettext_lazy("Escalate"),
            gettext_lazy("Escalated."),
            MoveForm,
            moving.escalate,
            MOVABLE,
            key="e",
        ),
        Action(
            "send-back",
            gettext_lazy("Send back"),
            gettext_lazy("Sent back."),
            SendBackForm,
            moving.send_back,
            MOVABLE,
            key="b",
        ),
        Action(
            "pause",
            gettext_lazy("Pause"),
            gettext_lazy("Paused: its clock stands still."),
            PauseForm,
            moving.pause,
            MOVABLE,
            key="p",
            hint=gettext_lazy("The evidence deadline keeps running."),
        ),
        Action(
            "assign",
            gettext_lazy("Assign"),
            gettext_lazy("Assigned; the person is told."),
            AssignForm,
            reviewing.assign,
            (Status.OPEN, Status.ACKNOWLEDGED),
        ),
        Action(
            "band",
            gettext_lazy("Change the band"),
            gettext_lazy("Band changed."),
            BandForm,
            moving.change_band,
            MOVABLE,
        ),
        Action(
            "ladder",
            gettext_lazy("Move to another ladder"),
            gettext_lazy("Moved to another ladder."),
            LadderForm,
            moving.move_to_ladder,
            MOVABLE,
        ),
        Action(
            "reopen",
            gettext_lazy("Reopen"),
            gettext_lazy("Reopened with a fresh deadline."),
            ReasonForm,
            resolving.reopen,
            (Status.RESOLVED,),
        ),
    )
}
